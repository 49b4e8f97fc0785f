"""Where a gap's variance comes from: parts add up, and are those of plain enumeration and of simulated pairs."""

import itertools
from typing import Any

import numpy as np
import pytest
from zoo import SHAPES, SHARINGS, build, cases, repeated, slow_or_long

import jointmdp as jm
from jointmdp.exact.law import pair_equations


def steps_of(model: jm.JointMDP, states: tuple[int, int], choices: Any) -> list[tuple[float, Any, Any, bool]]:
    """All that two branches can do in one step: probability, (reward, successor) of each, and whether they are one.

    `choices` are lists of (action, probability) for each branch.
    """
    s, t = states
    found = []
    for (a, p), (b, q) in itertools.product(*choices):
        if model.sharing == "time" or (model.sharing == "state" and s == t):
            noise = [(w, w, model.probabilities[s, w]) for w in range(model.num_scenarios)]
            merged = s == t and a == b
        else:
            both = itertools.product(range(model.num_scenarios), repeat=2)
            noise = [(w, v, model.probabilities[s, w] * model.probabilities[t, v]) for w, v in both]
            merged = False
        for w, v, chance in noise:
            one = model.rewards[s, w, a], int(model.successors[s, w, a])
            two = model.rewards[t, v, b], int(model.successors[t, v, b])
            if p * q * chance > 0:
                found.append((p * q * chance, one, two, merged))
    return found


def enumerated(
    model: jm.JointMDP, policy: np.ndarray, gap: tuple[int, int, int], horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    """By the definition: what each step of the pair chain changes in the two expected returns."""
    values = [np.zeros(model.num_states)]
    for _ in range(horizon):
        returns = model.rewards + model.discount * values[-1][model.successors]
        values.append(np.einsum("sw,sa,swa->s", model.probabilities, policy, returns))
    s, a, b = gap
    pairs = {(s, s): 1.0}
    choices = {(s, s): ([(a, 1.0)], [(b, 1.0)])}
    by_step, by_state = np.zeros(horizon), np.zeros(model.num_states)
    for step in range(horizon):
        later, after = values[horizon - step - 1], dict[tuple[int, int], float]()
        for pair, weight in pairs.items():
            given = choices.get(pair) or tuple(list(enumerate(policy[x])) for x in pair)
            moves = steps_of(model, pair, given)
            p = np.array([move[0] for move in moves])
            x, y = (np.array([move[k][0] + model.discount * later[move[k][1]] for move in moves]) for k in (1, 2))
            x, y = x - p @ x, y - p @ y
            factor = weight * model.discount ** (2 * step)
            by_step[step] += factor * (p @ (x - y) ** 2)
            by_state[pair[0]] += factor * (p @ (x * (x - y)))
            by_state[pair[1]] += factor * (p @ (y * (y - x)))
            for chance, one, two, merged in moves:
                if not merged:
                    to = one[1], two[1]
                    after[to] = after.get(to, 0.0) + weight * chance
        pairs, choices = after, {}
    return by_step, by_state


@pytest.mark.parametrize("seed", repeated(3))
def test_parts_are_those_of_enumeration(seed: int) -> None:
    for case in cases(seed, 9 if seed else 4, discounts=(0.5, 1.0), shapes=SHAPES if seed else SHAPES[1:2]):
        model, policy = build(case), np.asarray(case.policy, dtype=float)
        horizon = 5 if model.discount == 1 else 40
        solution = jm.evaluate(model, policy, horizon=horizon)
        endless = None if model.discount == 1 else jm.evaluate(model, policy)
        for s in range(model.num_states):
            actions = np.flatnonzero(model.available[s]).tolist()
            for a, b in itertools.pairwise(actions):
                by_step, by_state = enumerated(model, solution.policy, (s, a, b), horizon)
                for each in (solution, endless):
                    if each is None:
                        continue
                    gap = each.gap(s, a, b)
                    # Rounding is relative to squares of values, also where the gap has no variance at all.
                    size = 1e-11 * (1 + np.abs(each.mean[each.model.available]).max() ** 2)
                    found = np.asarray(gap.variance_by_step())
                    steps = min(len(found), horizon)
                    assert found[:steps] == pytest.approx(by_step[:steps], abs=size, rel=1e-9)
                    assert by_step[steps:].sum() <= size
                    assert np.asarray(gap.variance_by_state()) == pytest.approx(by_state, abs=size, rel=1e-9)
                    assert found.sum() == pytest.approx(gap.variance, abs=size + gap.variance_error, rel=1e-9)


def race(sharing: Any) -> jm.JointMDP:
    """Without a discount: 0 to 3 fields forward until the end, where nothing is paid any more."""
    rng = np.random.default_rng(5)
    successors = np.minimum(np.arange(6)[:, None, None] + rng.integers(0, 4, (6, 4, 3)), 5)
    rewards = rng.integers(-2, 3, (6, 4, 3)) * (np.arange(6) < 5)[:, None, None]
    return jm.JointMDP(np.full((6, 4), 0.25), rewards, successors, 1.0, sharing=sharing)


@pytest.mark.slow
@pytest.mark.parametrize("halves", slow_or_long([True, False], 1))
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 2))
def test_parts_add_up(sharing: Any, halves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-9 of the variance in models that people bring, with pairs that move at once or one after the other."""
    monkeypatch.setattr("jointmdp.exact.law.pair_graph.WORTH_HALVING", 0.0 if halves else 1e9)
    grid, right = jm.envs.windy_gridworld(5, 0.99, sharing=sharing)
    shop, order = jm.envs.inventory(8, 4, 2.0, discount=0.95, sharing=sharing)
    for model, policy in (
        (grid, right),
        (grid, jm.envs.uniform_policy(grid)),
        (shop, order),
        (shop, jm.envs.uniform_policy(shop)),
    ):
        gap = jm.evaluate(model, policy).gap(1, 0, 2)
        for split in (gap.variance_by_step(), gap.variance_by_state()):
            assert split.total == pytest.approx(gap.variance, rel=1e-9)
    gap = jm.evaluate(race(sharing), "uniform").gap(1, 0, 2)
    for split in (gap.variance_by_step(), gap.variance_by_state()):
        assert split.total == pytest.approx(gap.variance, rel=1e-9)
    returns = jm.evaluate(shop, {"order": order, "any": jm.envs.uniform_policy(shop)})
    gap = returns.gap("order", "any", 3)
    assert gap.variance_by_step().total == pytest.approx(gap.variance, rel=1e-9)
    assert gap.variance_by_state().total == pytest.approx(gap.variance, rel=1e-9)


@pytest.mark.slow
def test_large_rewards_and_long_lives_lose_no_digits() -> None:
    """A constant reward of a million changes nothing; with γ = 0.9999 pairs live longer than steps are told apart."""
    model, policy = jm.envs.inventory(4, 2, 1.0, discount=0.9999, sharing="none")
    plain = jm.evaluate(model, policy).gap(0, 0, 2)
    split = plain.variance_by_step()
    assert split.names[-1] == "later"
    assert len(split) == pair_equations.MOST_STEPS + 1
    assert split.total == pytest.approx(plain.variance, rel=1e-9)
    assert plain.variance_by_state().total == pytest.approx(plain.variance, rel=1e-9)
    raised = jm.JointMDP(
        model.probabilities, model.rewards + 1e6, model.successors, model.discount, sharing=model.sharing
    )
    found = np.asarray(jm.evaluate(raised, policy).gap(0, 0, 2).variance_by_state())
    # A reward near 1e6 is known to 1e-10.
    assert found == pytest.approx(np.asarray(plain.variance_by_state()), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SHARINGS)
def test_simulated_pairs_agree(sharing: Any) -> None:
    """Squares of what each simulated step changes, within 5 standard errors, by step and by state."""
    model, policy = jm.envs.inventory(6, 3, 2.0, discount=0.9, sharing=sharing)
    policy = 0.5 * np.asarray(policy, dtype=float) + 0.5 * jm.envs.uniform_policy(model)
    solution = jm.evaluate(model, policy)
    value = np.nansum(policy * solution.mean, axis=1)
    count, (start, a, b), rng = 20_000, (2, 0, 3), np.random.default_rng(0)
    s, t = (np.full(count, start) for _ in range(2))
    alive, actions = np.ones(count, dtype=bool), [np.full(count, a), np.full(count, b)]
    before = np.full(count, solution.mean[start, a] - solution.mean[start, b])
    gap = solution.gap(start, a, b)
    steps, states = np.asarray(gap.variance_by_step()), np.zeros((count, model.num_states))
    for step in range(12):
        if step:
            actions = [(rng.random((count, 1)) > policy[x].cumsum(axis=1)).sum(axis=1) for x in (s, t)]
        u, v = rng.random((2, count, 1))
        shared = {"time": np.ones(count, bool), "state": s == t, "none": np.zeros(count, bool)}[sharing]
        w = (u > model.probabilities[s].cumsum(axis=1)).sum(axis=1)
        o = (np.where(shared[:, None], u, v) > model.probabilities[t].cumsum(axis=1)).sum(axis=1)
        if sharing != "none" and step:
            alive &= ~((s == t) & (actions[0] == actions[1]))
        x = model.rewards[s, w, actions[0]] + 0.9 * value[model.successors[s, w, actions[0]]]
        y = model.rewards[t, o, actions[1]] + 0.9 * value[model.successors[t, o, actions[1]]]
        change = np.where(alive, 0.9**step * (x - y - before), 0.0)
        error = np.std(change**2) / np.sqrt(count)
        assert abs(np.mean(change**2) - steps[step]) <= 5 * error
        own = x - (solution.mean[start, a] if step == 0 else value[s])
        other = y - (solution.mean[start, b] if step == 0 else value[t])
        scale = np.where(alive, 0.81**step, 0.0)
        np.add.at(states, (np.arange(count), s), scale * own * (own - other))
        np.add.at(states, (np.arange(count), t), scale * other * (other - own))
        s, t = model.successors[s, w, actions[0]], model.successors[t, o, actions[1]]
        before = value[s] - value[t]
    # What comes after these steps is left out: no more than their part of the whole.
    left = max(0.0, float(steps[12:].sum()))
    off = np.abs(states.mean(axis=0) - np.asarray(gap.variance_by_state()))
    assert np.all(off <= 5 * states.std(axis=0) / np.sqrt(count) + 2 * left)


def test_what_is_shown() -> None:
    model, policy = jm.envs.inventory(8, 4, 2.0, discount=0.95, sharing="time")
    gap = jm.evaluate(model, policy).gap("stock 3", "order 0", "order 2")
    by_step, by_state = gap.variance_by_step(), gap.variance_by_state()
    assert str(by_step).startswith("VarianceSplit(order 0 − order 2 in stock 3 by step: 36.03")
    assert "stock 3 95%" in str(by_state)
    assert [row["step"] for row in by_step.table()[:2]] == ["step 0", "step 1"]
    rows = by_state.table()
    assert rows[0]["state"] == "stock 3"
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert min(row["variance"] for row in rows) < 0
    assert "<table>" in by_state._repr_html_()
    assert by_state.figure().axes[0].get_xlabel().startswith("% of the variance, by state")
    with pytest.raises(jm.ModelError, match="compared with itself"):
        jm.evaluate(model, policy).gap(0, 1, 1).variance_by_step()
    with pytest.raises(jm.NotKnownError, match="limit of memory"):
        gap.variance_by_state(limits=jm.Limits(memory=1000))
