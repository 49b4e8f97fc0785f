"""Gumbel-max in closed form: the law of a pair against an integral and against draws, and hindsight by it."""

import dataclasses
import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_equal_outcomes import exact_pair

import jointmdp as jm
from jointmdp.ground import archives
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.gumbel_pair_law import laws_given, relative_error

Listed = dict[str, dict[str, list[tuple[float, str, float]]]]  # by state and action: probability, successor, reward


# -- the law of a pair ----------------------------------------------------------------------------------------------


def pair_of_laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws over the same outcomes, with zeros, ties, and chances as small as 1e-200."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    p, q = rng.dirichlet(np.full(size, 0.7), 2)
    if seed % 4 == 1:
        p, q = np.round(p * 8) + 1, np.round(q * 8) + 1  # ties
    if seed % 4 == 2:
        p, q = (each * 10.0 ** -rng.integers(0, 201, size) for each in (p, q))
    if seed % 3 == 0:
        p, q = (each * (rng.random(size) < 0.7) for each in (p, q))
    p, q = (each if each.sum() else np.eye(size)[0] for each in (p, q))
    return p / p.sum(), q / q.sum()


def given(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """P(j|k), ``[K, K]``; rows of impossible k are zeros."""
    found = np.zeros((len(p), len(p)))
    for k in np.flatnonzero(p):
        found[k] = laws_given(p[None], q[None], np.array([k if q[k] > 0 else -1]))[0]
    return found


def exact_given(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The same in rational numbers: Σ over the pieces of ``q_j ∫ dr/F(r)²``, whose antiderivative is ``−1/(Q F)``."""
    P, Q = ([Fraction(float(x)) for x in each] for each in (p, q))
    P, Q = [x / sum(P) for x in P], [x / sum(Q) for x in Q]
    ends = sorted({a / b for a, b in zip(P, Q, strict=True) if b})

    def total(r: Fraction) -> Fraction:
        return sum((max(a, b * r) for a, b in zip(P, Q, strict=True)), Fraction(0))

    found = np.zeros((len(P), len(P)))
    for k, j in np.ndindex(len(P), len(P)):
        if not P[k] or not Q[j]:
            continue
        if k == j:
            found[k, j] = float(1 / total(P[k] / Q[k]))
            continue
        low, high = P[j] / Q[j], P[k] / Q[k] if Q[k] else None
        cuts = [low, *(r for r in ends if r > low and (high is None or r < high)), high]
        area = Fraction(0)
        for left, right in itertools.pairwise(cuts):
            if right is None:
                area += 1 / (sum(b for b in Q if b) * total(left))
            elif right > left:
                area += (right - left) / (total(left) * total(right))
        found[k, j] = float(Q[j] * area)
    return found


@pytest.mark.parametrize("seeds", [range(24), pytest.param(range(24, 400), marks=pytest.mark.slow)])
def test_the_closed_form_within_its_bound(seeds: range) -> None:
    for seed in seeds:
        p, q = pair_of_laws(seed)
        truth, found = exact_given(p, q), given(p, q)
        assert np.all(np.abs(found - truth) <= relative_error(2 * len(p)) * (truth + q[None])), seed
        live = p > 0
        np.testing.assert_allclose(found[live].sum(axis=1), 1, rtol=0, atol=1e-15 * len(p))
        np.testing.assert_allclose(p @ found, q, rtol=0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.optimised
def test_the_closed_form_against_an_integral_of_its_own() -> None:
    """Of 200 pairs: ``q_j ∫ dr/F(r)²`` by quadrature, beyond 1 in v = 1/r; between break points it is smooth."""
    x, w = np.polynomial.legendre.leggauss(200)
    u, du = (x + 1) / 2, w / 2

    def area(p: np.ndarray, q: np.ndarray, low: float, high: float) -> float:
        """``∫ dr/(Σ max(p, q r))²`` for low and high in [0, 1]."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            breaks = p / q
        cuts = np.unique([low, *(r for r in breaks if low < r < high), high])
        r = cuts[:-1, None] + np.diff(cuts)[:, None] * u
        total = np.maximum(p, q * r[..., None]).sum(axis=-1)
        return float(np.sum(np.diff(cuts)[:, None] * du / total**2))

    for seed in range(200):
        p, q = pair_of_laws(seed)
        found = given(p, q)
        for k, j in np.ndindex(len(p), len(p)):
            if j == k or p[k] == 0 or q[j] == 0:
                continue
            # P(j|k) q⁻¹_j: from p_j/q_j to p_k/q_k, or in v from q_k/p_k to q_j/p_j.
            if p[j] * q[k] >= p[k] * q[j]:
                expected = 0.0
            else:
                below = area(p, q, min(p[j] / q[j], 1.0), min(p[k] / q[k], 1.0) if q[k] > 0 else 1.0)
                above = area(q, p, min(q[k] / p[k], 1.0), min(q[j] / p[j], 1.0) if p[j] > 0 else 1.0)
                expected = q[j] * (below + above)
            assert found[k, j] == pytest.approx(expected, abs=1e-12), (seed, k, j)


@pytest.mark.slow
@pytest.mark.optimised
def test_the_closed_form_against_draws() -> None:
    """Within 5 standard errors of 2·10⁶ draws: 8 pairs of at most 64 entries, one false alarm in 3,000 such tests."""
    draws = 2_000_000
    for seed in range(8):
        p, q = pair_of_laws(4 * seed + 3)
        noise = np.random.default_rng(seed).exponential(size=(draws, len(p)))
        with np.errstate(divide="ignore"):
            first, second = np.argmin(noise / p, axis=1), np.argmin(noise / q, axis=1)
        drawn = np.bincount(first * len(p) + second, minlength=len(p) ** 2).reshape(len(p), -1) / draws
        joint = p[:, None] * given(p, q)
        assert np.all(np.abs(drawn - joint) <= 5 * np.sqrt(joint * (1 - joint) / draws) + 3 / draws)


def test_two_actions_agree_with_another_closed_form() -> None:
    for seed in range(3, 40, 4):
        p, q = pair_of_laws(seed)
        np.testing.assert_allclose(p[:, None] * given(p, q), exact_pair(p, q), rtol=0, atol=1e-14)


# -- hindsight ------------------------------------------------------------------------------------------------------

RARE: Listed = {
    "s": {
        "a": [(1e-4, "dead", 0), (1 - 1e-4, "ok", 0)],
        "b": [(0.4, "well", 1), (0.6, "sick", 0)],
    }
}


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_a_rare_event_says_what_it_says(sharing: Any) -> None:
    seen = jm.Trajectory(["s", "dead"], ["a"], ended=True)
    for seed in range(3):
        for chance in (1e-4, 1e-200):
            table = {"s": {**RARE["s"], "a": [(chance, "dead", 0), (1 - chance, "ok", 0)]}}
            model = jm.from_mdp(table, None, 1.0, jm.GumbelMax(seed=seed), sharing)
            gap = jm.hindsight(model, "a", seen, "b").gap
            assert gap.mean == pytest.approx(0.4, abs=1e-14)
            assert 0.4 in gap.mean_interval
            assert gap.mean_error < 1e-12
            assert 0.4 in gap.superiority()
            assert gap.variance == pytest.approx(0.24, abs=1e-14)
            assert not model.is_drawn


def random_listing(seed: int, states: int = 3, actions: int = 2, several: bool = False) -> Listed:
    """Few successors and rewards, some of them negative; ties; the last state absorbs."""
    rng = np.random.default_rng(seed)
    table: Listed = {}
    for s in range(states - 1):
        row = table[f"s{s}"] = {}
        for a in range(actions):
            to = rng.choice(states, size=int(rng.integers(1, states + 1)), replace=several)
            chances = rng.integers(1, 5, len(to)) / 1.0 if seed % 3 else rng.dirichlet(np.ones(len(to)))
            paid = rng.integers(-1, 2, states) * 1.5
            each = {
                (f"s{t}", float(paid[t] if not several else rng.integers(-1, 2) * 1.5)): float(p)
                for t, p in zip(to, chances, strict=True)
            }
            whole = sum(each.values())
            row[f"a{a}"] = [(p / whole, t, r) for (t, r), p in each.items()]
    table[f"s{states - 1}"] = {f"a{a}": [(1.0, f"s{states - 1}", 0.0)] for a in range(actions)}
    return table


class Enumeration:
    """The law of the gap by pairs of outcomes: written on names, apart from what the library does."""

    def __init__(  # many parameters: the question
        self,
        table: Listed,
        policy: dict[str, dict[str, float]],
        other: dict[str, dict[str, float]] | str,
        seen: jm.Trajectory,
        horizon: int,
        sharing: str,
        discount: float,
    ) -> None:
        self.table, self.policy, self.seen, self.horizon = table, policy, seen, horizon
        self.action = other if isinstance(other, str) else None
        self.other = policy if isinstance(other, str) else other
        self.sharing, self.discount = sharing, discount
        self.law: dict[float, float] = defaultdict(float)
        self.places: dict[tuple[int, str], float] = defaultdict(float)
        self.walk(0, seen.states[0], seen.states[0], False, 1.0, 0.0, ())
        self.total = sum(self.law.values())

    def key(self, s: str, outcome: tuple[float, str, float]) -> tuple[str, float | None]:
        _, t, r = outcome
        for listed in self.table[s].values():
            if len({paid for p, to, paid in listed if to == t and p > 0}) > 1:
                return t, r
        return t, None

    def given(self, x: str, a: str, k: int, y: str, b: str) -> Iterator[tuple[float, tuple[float, str, float]]]:
        one, two = self.table[x][a], self.table[y][b]
        keys = list(dict.fromkeys([*(self.key(x, o) for o in one), *(self.key(y, o) for o in two)]))
        p, q = np.zeros(len(keys)), np.zeros(len(keys))
        for s, listed, law in ((x, one, p), (y, two, q)):
            for o in listed:
                law[keys.index(self.key(s, o))] += o[0]
        i = keys.index(self.key(x, one[k]))
        joint = exact_pair(p, q)[i] / p[i]
        for o in two:
            j = keys.index(self.key(y, o))
            yield joint[j] * o[0] / q[j], o

    def walk(self, t: int, x: str, y: str, one: bool, weight: float, gap: float, been: tuple[str, ...]) -> None:
        if weight == 0:
            return
        seen, steps = self.seen, len(self.seen.actions)
        been = (*been, x if one else y) if t <= steps else been
        if t == self.horizon:
            self.law[round(gap, 12)] += weight
            for when, place in enumerate(been):
                self.places[when, place] += weight
            return
        for a, chance in {seen.actions[t]: 1.0}.items() if t < steps else self.policy[x].items():
            for k, (p, to, reward) in enumerate(self.table[x][a]):
                if t < steps:
                    if seen.states[t + 1] not in (None, to):
                        continue
                    if seen.rewards is not None and seen.rewards[t] not in (None, reward):
                        continue
                here = weight * chance * p
                if one:
                    self.walk(t + 1, to, to, True, here, gap, been)
                    continue
                first = t == 0 and self.action is not None
                for b, more in {self.action: 1.0}.items() if first else self.other[y].items():
                    if self.action is not None and x == y and a == b:
                        self.walk(t + 1, to, to, True, here * more, gap, been)
                        continue
                    shares = self.sharing == "time" or x == y
                    after = self.given(x, a, k, y, b) if shares else ((o[0], o) for o in self.table[y][b])
                    for then, (_, t2, paid) in after:
                        later = gap + self.discount**t * (paid - reward)
                        self.walk(t + 1, to, t2, False, here * more * then, later, been)

    def moment(self, k: int) -> float:
        mean = sum(g * w for g, w in self.law.items()) / self.total
        return mean if k == 1 else sum((g - mean) ** k * w for g, w in self.law.items()) / self.total

    @property
    def better(self) -> float:
        return sum(w for g, w in self.law.items() if g > 1e-9) / self.total


def drawn(table: Listed, policy: dict[str, dict[str, float]], steps: int, seed: int) -> jm.Trajectory:
    rng = np.random.default_rng(seed)
    states, actions, rewards = ["s0"], [], []
    for _ in range(steps):
        row = policy[states[-1]]
        actions.append(str(rng.choice(list(row), p=list(row.values()))))
        listed = table[states[-1]][actions[-1]]
        _, to, paid = listed[rng.choice(len(listed), p=[o[0] for o in listed])]
        states.append(to)
        rewards.append(paid)
    hidden = [None if t > 0 and rng.random() < 0.25 else s for t, s in enumerate(states)]
    return jm.Trajectory(hidden, actions, [None if rng.random() < 0.4 else r for r in rewards])


def random_choices(table: Listed, seed: int, is_sure: bool) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    if is_sure:
        return {s: {str(rng.choice(list(row))): 1.0} for s, row in table.items()}
    return {s: dict(zip(row, rng.dirichlet(np.ones(len(row))).tolist(), strict=True)) for s, row in table.items()}


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 120), marks=[pytest.mark.slow, pytest.mark.optimised])]
)
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_hindsight_is_the_sum_over_pairs_of_outcomes(sharing: Any, seeds: range) -> None:
    """Unseen states and rewards, stochastic policies, merging, ends; the log ends before the horizon, or with it."""
    for seed in seeds:
        table = random_listing(seed, several=seed % 4 == 3)
        policy = random_choices(table, seed, is_sure=seed % 5 == 4)
        other: Any = "a1" if seed % 2 == 0 else random_choices(table, seed + 1, is_sure=seed % 3 == 0)
        steps = 1 + seed % 3
        seen, horizon = drawn(table, policy, steps, seed), steps + (seed // 2) % 2
        if seed % 2 == 0 and len(table[seen.states[0]]) < 2:
            continue
        model = jm.from_mdp(table, None, 0.8, "gumbel-max", sharing)
        how = {"action": other} if isinstance(other, str) else {"other_policy": as_rows(model, other)}
        order = {"order": 3} if isinstance(other, str) else {}
        found = jm.hindsight(model, as_rows(model, policy), seen, horizon=horizon, **how, **order)
        truth = Enumeration(table, policy, other, seen, horizon, sharing, 0.8)
        assert found.gap.mean == pytest.approx(truth.moment(1), abs=1e-11), seed
        assert abs(found.gap.mean - truth.moment(1)) <= found.gap.mean_error + 1e-13
        assert found.gap.variance == pytest.approx(truth.moment(2), abs=1e-11), seed
        if order:
            assert found.gap.central_moment(3) == pytest.approx(truth.moment(3), abs=1e-11), seed
        for (t, s), weight in truth.places.items():
            assert found.path[t, model.state_index(s)] == pytest.approx(weight / truth.total, abs=1e-11)
        better = found.gap.superiority()
        assert better.lower - 1e-9 <= truth.better <= better.upper + 1e-9, seed
        assert isinstance(model, GumbelModel)
        assert not model.is_drawn


def as_rows(model: jm.JointMDP, policy: dict[str, dict[str, float]]) -> np.ndarray:
    rows = np.zeros((model.num_states, model.num_actions))
    for s, row in policy.items():
        for a, p in row.items():
            rows[model.state_index(s), model.action_index(a)] = p
    return rows


@pytest.mark.parametrize("sharing", ["state", "time", "none"])
@pytest.mark.parametrize("is_policy", [False, True])
def test_an_endless_future_is_that_of_a_long_horizon(sharing: Any, is_policy: bool) -> None:
    table = random_listing(7)
    model = jm.from_mdp(table, None, 0.6, "gumbel-max", sharing)
    policy = as_rows(model, random_choices(table, 3, is_sure=False))
    how: dict[str, Any] = {"action": "a1"}
    if is_policy:
        how = {"other_policy": as_rows(model, random_choices(table, 4, is_sure=False))}
    state, action = next((s, a) for s in ("s0", "s1") for a in ("a0",) if table[s][a][0][1] != "s2")
    seen = jm.Trajectory([state, table[state][action][0][1]], [action])
    endless = jm.hindsight(model, policy, seen, **how)
    long = jm.hindsight(model, policy, seen, horizon=90, **how)  # 0.6⁹⁰ = 1e-20
    for one, two in (
        (endless.gap, long.gap),
        (endless.other_return, long.other_return),
        (endless.seen_return, long.seen_return),
    ):
        assert abs(one.mean - two.mean) <= one.mean_error + two.mean_error + 1e-15
        assert abs(one.variance - two.variance) <= one.variance_error + two.variance_error + 1e-15
        assert max(one.mean_error, one.variance_error) < 1e-11
    assert 0 <= endless.gap.superiority().lower <= endless.gap.superiority().upper <= 1


def test_a_large_model_is_answered_without_tables() -> None:
    """300 states in time sharing, which no table of draws would hold within the usual limit."""
    rng = np.random.default_rng(0)
    size = 300
    kernel = np.zeros((size, 4, size))
    for s in range(size):
        for a in range(4):
            kernel[s, a, rng.choice(size, 8, replace=False)] = rng.dirichlet(np.ones(8))
    model = jm.from_mdp(kernel, rng.normal(size=(size, 4)), 0.95, "gumbel-max", "time")
    policy = rng.integers(4, size=size)
    states, actions = [0], []
    for _ in range(6):
        actions.append(int(rng.integers(4)))
        states.append(int(rng.choice(size, p=kernel[states[-1], actions[-1]])))
    found = jm.hindsight(model, policy, jm.Trajectory(states, actions), other_policy=np.roll(policy, 1), horizon=6)
    assert found.path.sum(axis=1) == pytest.approx(np.ones(7))
    best, alike = jm.optimal_policy(model), jm.from_mdp(kernel, model.marginal_mdp().rewards, 0.95)
    assert best.actions.tolist() == jm.optimal_policy(alike).actions.tolist()
    np.testing.assert_allclose(jm.evaluate(model, policy, order=1).mean, jm.evaluate(alike, policy, order=1).mean)
    assert found.gap.mean_error < 1e-12
    assert not model.is_drawn


def test_two_actions_have_exact_tables_in_each_state() -> None:
    """Whatever the seed: pairs of the table, and gaps of `evaluate` beside those of a log of which nothing was seen."""
    table = random_listing(7)
    model = jm.from_mdp(table, None, 0.8, jm.GumbelMax(draws=2, seed=5))
    assert isinstance(model, GumbelModel)
    assert model.has_exact_tables
    for s in ("s0", "s1"):
        p, q = np.zeros(3), np.zeros(3)
        for law, a in ((p, "a0"), (q, "a1")):
            for chance, t, _ in table[s][a]:
                law[int(t[1])] += chance
        law = model.query_law(s, [0, 1])
        joint = np.zeros((3, 3))
        number = {model.state_index(f"s{t}"): t for t in range(3)}
        for chance, (t, u) in zip(law.probabilities, law.successors, strict=True):
            joint[number[t], number[u]] += chance
        np.testing.assert_allclose(joint, exact_pair(p, q), rtol=0, atol=1e-14)
    policy = as_rows(model, random_choices(table, 3, is_sure=False))
    solution = jm.evaluate(model, policy)
    for s in ("s0", "s1"):
        one, two = solution.gap(s, "a1", "a0"), jm.hindsight(model, policy, jm.Trajectory([s], ["a0"]), "a1").gap
        assert abs(one.mean - two.mean) <= one.mean_error + two.mean_error + 1e-13
        assert abs(one.variance - two.variance) <= one.variance_error + two.variance_error + 1e-13
        assert one.superiority().estimate == pytest.approx(two.superiority().estimate, abs=0.01)
    assert "drawn" not in repr(solution)
    more = jm.from_mdp(random_listing(7, actions=3), None, 0.8, "gumbel-max")
    assert "drawn for Gumbel noise" in repr(dataclasses.replace(solution, model=more))


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 16), marks=[pytest.mark.slow, pytest.mark.optimised])]
)
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_three_actions_are_evaluated_by_their_pairs(sharing: Any, seeds: range) -> None:
    """Moments to order 3, laws, states alone, and whole policies, beside the sum over all pairs of outcomes."""
    for seed in seeds:
        table = random_listing(seed, actions=3, several=seed % 4 == 3)
        policy, other = (random_choices(table, seed + i, is_sure=False) for i in range(2))
        model = jm.from_mdp(table, None, 0.8, "gumbel-max", sharing)
        rows, more = as_rows(model, policy), as_rows(model, other)
        solution = jm.evaluate(model, rows, horizon=2, order=3)
        for s, a, b in (("s0", "a1", "a0"), ("s1", "a0", "a2")):
            gap, truth = (
                solution.gap(s, a, b),
                Enumeration(table, policy, a, jm.Trajectory([s, None], [b]), 2, sharing, 0.8),
            )
            for k in (1, 2, 3):
                found, off = (
                    (gap.mean, gap.mean_error) if k == 1 else (gap.central_moment(k), gap.central_moment_error(k))
                )
                assert abs(found - truth.moment(k)) <= off + 1e-11, seed
                assert off < 1e-10
            better = gap.superiority()
            assert better.lower - 1e-9 <= truth.better <= better.upper + 1e-9, seed
            c = solution.covariance[model.state_index(s)][np.ix_([int(a[1]), int(b[1])], [int(a[1]), int(b[1])])]
            assert c[0, 0] + c[1, 1] - 2 * c[0, 1] == pytest.approx(truth.moment(2), abs=1e-10)
        policies = jm.evaluate(model, {"one": more, "two": rows}, horizon=2)
        gap, truth = (
            policies.gap("one", "two", "s0"),
            Enumeration(table, policy, other, jm.Trajectory(["s0"], []), 2, sharing, 0.8),
        )
        assert abs(gap.mean - truth.moment(1)) <= gap.mean_error + 1e-11
        assert abs(gap.variance - truth.moment(2)) <= gap.variance_error + 1e-11
        assert gap.superiority().lower - 1e-9 <= truth.better <= gap.superiority().upper + 1e-9
        assert isinstance(model, GumbelModel)
        assert not model.is_drawn


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_gumbel_noise_that_was_drawn_agrees_with_evaluate(sharing: Any) -> None:
    """An endless future by own draws of the noise: 4·10⁴ pairs of 40 steps, within 5 standard errors."""
    rng, runs, g = np.random.default_rng(0), 40_000, 0.6
    kernel, paid = rng.dirichlet(np.ones(4), size=(4, 3)), rng.normal(size=(4, 3))
    policy = rng.dirichlet(np.ones(3), size=4)
    total, s, one = np.zeros((2, runs)), np.zeros((2, runs), dtype=int), np.zeros(runs, dtype=bool)
    a = np.stack([np.zeros(runs, dtype=int), np.ones(runs, dtype=int)])
    for t in range(40):
        total += g**t * paid[s, a]
        noise = rng.exponential(size=(2, runs, 4))
        shared = one | (s[0] == s[1]) | (sharing == "time")
        noise[1] = np.where(shared[:, None], noise[0], noise[1])
        s = np.argmin(noise / kernel[s, a], axis=2)
        a = (rng.random((2, runs, 1)) > policy.cumsum(axis=1)[s][:, :, :-1]).sum(axis=2)
        a[1] = np.where(one, a[0], a[1])
        one |= (s[0] == s[1]) & (a[0] == a[1])
    gap = total[0] - total[1]
    solution = jm.evaluate(jm.from_mdp(kernel, paid, g, "gumbel-max", sharing), policy, states=[0])
    found = solution.gap(0, 0, 1)
    spread = (gap - gap.mean()) ** 2
    assert abs(gap.mean() - found.mean) <= 5 * gap.std() / runs**0.5
    assert abs(spread.mean() - found.variance) <= 5 * spread.std() / runs**0.5
    better = found.superiority()
    share = float((gap > 1e-12).mean())
    assert better.lower - 5 * 0.5 / runs**0.5 <= share <= better.upper + 5 * 0.5 / runs**0.5
    with pytest.raises(jm.NotKnownError, match="asked about"):
        solution.gap(1, 0, 1)
    with pytest.raises(jm.NotKnownError, match="distinct states"):
        solution.covariance_between(0, 0, 1, 1)


def test_policies_in_time_under_gumbel_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws of pairs give what exact tables of two actions give; and rows that stay the same are one policy."""
    table = random_listing(7)
    model = jm.from_mdp(table, None, 0.8, "gumbel-max")
    rows = np.stack([as_rows(model, random_choices(table, seed, is_sure=False)) for seed in range(3)])
    of_tables = jm.evaluate(model, rows, horizon=3)
    monkeypatch.setattr(GumbelModel, "has_exact_tables", False)
    of_laws = jm.evaluate(model, rows, horizon=3)
    for s in ("s0", "s1"):
        one, two = of_tables.gap(s, "a0", "a1"), of_laws.gap(s, "a0", "a1")
        assert one.mean == pytest.approx(two.mean, abs=1e-12)
        assert one.variance == pytest.approx(two.variance, abs=1e-12)
        assert one.superiority().estimate == pytest.approx(two.superiority().estimate, abs=1e-6)
    named = jm.evaluate(model, {"in time": rows, "first": rows[0]}, horizon=3).gap("in time", "first", "s0")
    alike = jm.evaluate(model, {"in time": np.stack([rows[0]] * 3), "first": rows[0]}, horizon=3)
    still = jm.evaluate(model, {"one": rows[0], "first": rows[0]}, horizon=3).gap("one", "first", "s0")
    assert alike.gap("in time", "first", "s0").variance == pytest.approx(still.variance, abs=1e-12)
    assert named.variance != pytest.approx(still.variance, abs=1e-3)


@pytest.mark.slow
def test_draws_are_named_where_tables_are_read() -> None:
    model = jm.from_mdp(random_listing(2, actions=3), None, 0.8, jm.GumbelMax(draws=50))
    with pytest.warns(jm.errors.NoiseWarning, match="are drawn"):
        found = jm.simulate(model, "uniform", "s0", ["a0", "a1"], num_samples=20)
    assert found.gap("a0", "a1").mean is not None
    with pytest.warns(jm.errors.NoiseWarning, match="are drawn"):
        jm.learn(model, "uniform", steps=10)
    with pytest.warns(jm.errors.NoiseWarning, match="are drawn"):
        solution = jm.evaluate(model, "uniform", jm.Iterate())
    assert "drawn for Gumbel noise" in repr(solution)
    assert "drawn" not in repr(jm.evaluate(model, "uniform"))


def test_what_underflows_can_happen_all_the_same() -> None:
    """An event as rare as floats can say is one that a law counts as likely as 1e-150, not as impossible."""
    law = {
        "a": [(0.75, "s", 1.0), (2e-200, "t", 2.0), (0.25, "u", 3.0)],
        "b": [(1e-300, "s", 10.0), (1.0, "t", 20.0), (5e-324, "u", 30.0)],
    }
    model = jm.from_mdp({"s": law, "t": {}, "u": {}}, None, 0.5, "gumbel-max", "time")
    below = jm.evaluate(model, "a", horizon=1).gap("s", "a", "b").law().cdf(-26.5)
    assert below.lower == 0 < below.upper <= 1e-149


def test_a_model_without_noise_and_a_horizon_that_is_none() -> None:
    sure = {
        "x": {"a": [(1.0, "y", 0.0)], "b": [(1.0, "x", 1.0)], "c": [(1.0, "y", 0.5)]},
        "y": {"a": [(1.0, "y", 1.0)]},
    }
    for sharing, horizon in itertools.product(("state", "time"), (None, 4)):
        model = jm.from_mdp(sure, None, 0.9, "gumbel-max", sharing)
        gap = jm.evaluate(model, "a", horizon=horizon).gap("x", "b", "c")
        assert gap.variance == pytest.approx(0, abs=1e-20)
    for horizon in (0, -1, 1.5, True):
        with pytest.raises(jm.ModelError, match="horizon"):
            jm.evaluate(model, "a", horizon=horizon)  # type: ignore[call-overload]


def test_what_gumbel_noise_does_not_say() -> None:
    model = jm.from_mdp(RARE, None, 0.9, "gumbel-max")
    with pytest.raises(jm.ModelError, match="no scenarios"):
        jm.hindsight(model, "a", jm.Trajectory(["s", "ok"], ["a"], scenarios=[0]), "b")
    found = jm.hindsight(model, "a", jm.Trajectory(["s", "ok"], ["a"]), "b")
    with pytest.raises(jm.NotKnownError, match="continuous"):
        _ = found.posterior
    assert np.isnan(found.table()[0]["noise_known"])
    assert found.most_likely_path()[0] == "s"


def test_actions_that_some_states_lack() -> None:
    """The branch may have been where the action does not exist; the last state lacks one."""
    table = {
        "s": {"a": [(0.5, "t", 0), (0.5, "u", 0)], "b": [(0.3, "t", 1), (0.7, "u", 0)]},
        "t": {"b": [(0.4, "s", 2), (0.6, "u", 0)]},
        "u": {"a": [(0.2, "s", 1), (0.8, "t", 0)]},
    }
    model = jm.from_mdp(table, None, 0.8, "gumbel-max", "time")
    policy = np.where(model.available, 1.0, 0.0)
    policy /= policy.sum(axis=1, keepdims=True)
    seen = jm.Trajectory(["s", None, "s"], ["a", "a"])
    found = jm.hindsight(model, policy, seen, "b", horizon=3)
    choices = {s: dict.fromkeys(row, 1 / len(row)) for s, row in table.items()}
    # The log was in u, since t has no action a.
    known = jm.Trajectory(["s", "u", "s"], ["a", "a"])
    truth = Enumeration(table, choices, "b", known, 3, "time", 0.8)
    assert found.gap.mean == pytest.approx(truth.moment(1), abs=1e-12)
    assert found.gap.variance == pytest.approx(truth.moment(2), abs=1e-12)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    jm.save(jm.from_mdp(RARE, None, 0.9, "gumbel-max"), path)
    page, arrays = archives.read(path)
    for name, damage in (
        ("starts", lambda a: a[:-1]),
        ("starts", lambda a: a[:0]),
        ("law_probabilities", lambda a: -a),
        ("law_rewards", lambda a: a[:-1]),
        ("law_successors", lambda a: a + 100),
    ):
        archives.write(path, page, {**arrays, name: damage(arrays[name])})
        with pytest.raises(jm.ModelError, match="cannot load"):
            jm.load(path)
    archives.write(path, {**page, "gumbel_noise": {}}, arrays)
    with pytest.raises(jm.ModelError, match="gumbel_noise"):
        jm.load(path)


def test_changes_keep_the_laws(tmp_path: Path) -> None:
    model = jm.from_mdp(RARE, None, 0.9, jm.GumbelMax(seed=3), "state")
    assert isinstance(model, GumbelModel)
    for changed in (model.with_sharing("time"), model.with_discount(0.5), model.with_opposite_rewards()):
        assert isinstance(changed, GumbelModel)
        assert changed != model
        assert not changed.is_drawn
    assert model.with_sharing("time").with_sharing("state").with_discount(0.9).sharing == "state"
    seen = jm.Trajectory(["s", "dead"], ["a"], ended=True)
    worse = jm.hindsight(model.with_opposite_rewards(), "a", seen, "b")
    assert worse.gap.mean == pytest.approx(-0.4, abs=1e-14)
    for is_drawn in (False, True):
        if is_drawn:
            assert model.rewards.shape[0] == model.num_states
        jm.save(model, tmp_path / "model.npz")
        back = jm.load(tmp_path / "model.npz")
        assert isinstance(back, GumbelModel)
        assert back == model
        assert back.is_drawn == is_drawn
        assert np.array_equal(back.rewards, model.rewards)
        assert jm.hindsight(back, "a", seen, "b").gap.mean == pytest.approx(0.4, abs=1e-14)
    solution = jm.evaluate(model, "a")
    jm.save(solution, tmp_path / "solution.npz")
    assert isinstance(jm.load(tmp_path / "solution.npz").model, GumbelModel)


def test_who_solves_a_drawn_table_is_told() -> None:
    laws = {"s": {name: [(p, "well", 1.0), (1 - p, "sick", 0.0)] for name, p in (("a", 0.1), ("b", 0.4), ("c", 0.7))}}
    model = jm.from_mdp(laws, None, 0.9, "gumbel-max")
    with pytest.warns(jm.errors.NoiseWarning, match="are drawn: means hold, but how gaps vary"):
        jm.evaluate(model, "uniform", jm.Iterate())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jm.evaluate(model, "uniform")
        jm.evaluate(model, "uniform", order=1)
        jm.evaluate(model.with_sharing("none"), "uniform")
