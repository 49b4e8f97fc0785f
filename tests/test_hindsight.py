"""Hindsight against every sequence of scenarios, against `evaluate`, and against the laws of total moments."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from zoo import SHARINGS, STATE_AND_SLOW, daily

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.model.tables import steady_states
from jointmdp.show.cli import main


def random_model(seed: int, sharing: str, states: int = 3, scenarios: int = 2, actions: int = 2) -> jm.JointMDP:
    """Few distinct rewards, so that what is seen leaves several scenarios open; branches meet often."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(scenarios), 1 if sharing == "time" else states)
    return jm.JointMDP(
        np.broadcast_to(chances, (states, scenarios)),
        rng.integers(-1, 2, (states, scenarios, actions)) * 1.5,
        rng.integers(0, states, (states, scenarios, actions)),
        0.9,
        sharing=sharing,
    )


def random_policy(model: jm.JointMDP, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(model.num_actions), model.num_states)


def drawn(model: jm.JointMDP, policy: np.ndarray, steps: int, rng: np.random.Generator) -> jm.Trajectory:
    """A trajectory that the model produces."""
    states, actions, rewards = [int(rng.integers(model.num_states))], [], []
    for _ in range(steps):
        s = states[-1]
        a, w = rng.choice(model.num_actions, p=policy[s]), rng.choice(model.num_scenarios, p=model.probabilities[s])
        actions.append(int(a))
        rewards.append(float(model.rewards[s, w, a]))
        states.append(int(model.successors[s, w, a]))
    return jm.Trajectory(states, actions, rewards)


class Enumeration:
    """The law of the gap by the definition: all scenarios of all steps, those that disagree with the data dropped."""

    def __init__(
        self, model: jm.JointMDP, policy: np.ndarray, seen: jm.Trajectory, action: int | np.ndarray, horizon: int
    ) -> None:
        self.model, self.policy, self.seen, self.horizon = model, policy, seen, horizon
        self.other_policy = policy if isinstance(action, int) else action
        self.action, self.merges = action, isinstance(action, int) and model.sharing != "none"
        self.law: dict[float, float] = defaultdict(float)
        self.places: dict[tuple[int, int], float] = defaultdict(float)
        start = seen.states[0]
        self.walk(0, start, start, False, 1.0, 0.0, ())
        self.total = sum(self.law.values())

    def fits(self, t: int, w: int, reward: float, to: int) -> bool:
        seen = self.seen
        return (
            (seen.rewards is None or seen.rewards[t] is None or abs(seen.rewards[t] - reward) < 1e-12)
            and (t + 1 >= len(seen.states) or seen.states[t + 1] is None or seen.states[t + 1] == to)
            and (seen.scenarios is None or seen.scenarios[t] is None or seen.scenarios[t] == w)
        )

    def choices(self, row: np.ndarray) -> Iterator[tuple[int, float]]:
        yield from ((int(a), float(row[a])) for a in np.flatnonzero(row))

    def walk(self, t: int, x: int, y: int, one: bool, weight: float, gap: float, been: tuple[int, ...]) -> None:
        m = self.model
        been = (*been, x if one else y) if t <= len(self.seen.actions) else been
        if t == self.horizon:
            self.law[gap] += weight
            for when, place in enumerate(been):
                self.places[when, place] += weight
            return
        is_seen = t < len(self.seen.actions)
        for a, chance in [(self.seen.actions[t], 1.0)] if is_seen else self.choices(self.policy[x]):
            for w in np.flatnonzero(m.probabilities[x]):
                reward, to = m.rewards[x, w, a], int(m.successors[x, w, a])
                if is_seen and not self.fits(t, w, reward, to):
                    continue
                here = weight * chance * m.probabilities[x, w]
                if one:
                    self.walk(t + 1, to, to, True, here, gap, been)
                    continue
                first = t == 0 and isinstance(self.action, int)
                for b, other in [(self.action, 1.0)] if first else self.choices(self.other_policy[y]):
                    if self.merges and x == y and a == b:
                        self.walk(t + 1, to, to, True, here * other, gap, been)
                        continue
                    shares = m.sharing == "time" or (m.sharing == "state" and x == y)
                    for u, more in [(w, 1.0)] if shares else self.choices(m.probabilities[y]):
                        paid, after = m.rewards[y, u, b], int(m.successors[y, u, b])
                        later = gap + m.discount**t * (paid - reward)
                        self.walk(t + 1, to, after, False, here * other * more, later, been)

    def moment(self, k: int) -> float:
        mean = sum(g * w for g, w in self.law.items()) / self.total
        return mean if k == 1 else sum((g - mean) ** k * w for g, w in self.law.items()) / self.total

    @property
    def better(self) -> float:
        return sum(w for g, w in self.law.items() if g > 1e-12) / self.total  # rewards are multiples of 1.5

    def path(self) -> np.ndarray:
        found = np.zeros((len(self.seen.actions) + 1, self.model.num_states))
        for (t, s), weight in self.places.items():
            found[t, s] = weight / self.total
        return found


def check(found: jm.results.Hindsight, truth: Enumeration, order: int = 2) -> None:
    gap = found.gap
    assert gap.mean == pytest.approx(truth.moment(1), abs=1e-10)
    assert abs(gap.mean - truth.moment(1)) <= gap.mean_error + 1e-13  # what the enumeration itself rounds
    for k in range(2, order + 1):
        assert gap.central_moment(k) == pytest.approx(truth.moment(k), abs=1e-10)
    np.testing.assert_allclose(found.path, truth.path(), atol=1e-12)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_every_sequence_of_scenarios(sharing: str, steps: int) -> None:
    for seed in range(3):
        model = random_model(seed, sharing)
        policy, rng = random_policy(model, seed), np.random.default_rng(seed + 100)
        seen = drawn(model, policy, steps, rng)
        action = 1 - seen.actions[0]
        found = jm.hindsight(model, policy, seen, action, horizon=4)
        truth = Enumeration(model, policy, seen, action, 4)
        check(found, truth)
        better = found.gap.superiority(tolerance=1e-6)
        assert better.lower - 1e-12 <= truth.better <= better.upper + 1e-12
        assert better.width < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("steps", [4, 5, 6])
def test_every_sequence_of_longer_trajectories(sharing: str, steps: int) -> None:
    model = random_model(steps, sharing, states=2)
    policy = np.array([[1.0, 0.0], [0.4, 0.6]])
    seen = drawn(model, policy, steps, np.random.default_rng(steps))
    action = 1 - seen.actions[0]
    found = jm.hindsight(model, policy, seen, action, horizon=6, order=4)
    check(found, Enumeration(model, policy, seen, action, 6), order=4)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_what_was_not_seen_is_summed_over(sharing: str) -> None:
    """Rewards, successors in the middle and at the end, and outcomes of the last action may be missing."""
    model = random_model(5, sharing)
    policy, rng = random_policy(model, 5), np.random.default_rng(5)
    full = drawn(model, policy, 3, rng)
    states, actions, rewards = list(full.states), full.actions, list(full.rewards or ())
    cases = [
        jm.Trajectory(states, actions),
        jm.Trajectory([states[0], None, states[2], None], actions, rewards),
        jm.Trajectory([states[0], None, None, states[3]], actions, [rewards[0], None, None]),
        jm.Trajectory(states[:3], actions, [*rewards[:2], None]),
        jm.Trajectory([states[0], None, None], actions, [None, None, rewards[2]]),
    ]
    for seen in cases:
        action = 1 - seen.actions[0]
        found = jm.hindsight(model, policy, seen, action, horizon=4, order=3)
        truth = Enumeration(model, policy, seen, action, 4)
        check(found, truth, order=3)
        better = found.gap.superiority(tolerance=1e-6)
        assert better.lower - 1e-12 <= truth.better <= better.upper + 1e-12


def test_a_recorded_scenario_is_all_that_is_needed() -> None:
    model = random_model(3, "time", scenarios=3)
    policy, w = random_policy(model, 3), [2, 0]
    s = 0
    states, actions = [s], [1, 0]
    for action, scenario in zip(actions, w, strict=True):
        s = int(model.successors[s, scenario, action])
        states.append(s)
    seen = jm.Trajectory(states, actions, scenarios=w)
    found = jm.hindsight(model, policy, seen, 0, horizon=3)
    check(found, Enumeration(model, policy, seen, 0, 3))
    np.testing.assert_array_equal(found.posterior, np.eye(3)[w])
    np.testing.assert_array_equal(found.entropy, 0.0)
    p = model.probabilities[0]
    np.testing.assert_allclose(found.prior_entropy, -np.sum(p * np.log2(p)))


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_nothing_seen_of_the_outcome_gives_the_gap_of_evaluate(sharing: str) -> None:
    model = random_model(7, sharing, states=4, scenarios=3)
    policy = random_policy(model, 7)
    solution = jm.evaluate(model, policy, order=4)
    for solved in (None, solution):
        found = jm.hindsight(model, policy, jm.Trajectory([2], [1]), 0, order=4, solution=solved).gap
        plain = solution.gap(2, 0, 1)
        assert found.mean == pytest.approx(plain.mean, abs=1e-12)
        for k in range(2, 5):
            room = found.central_moment_error(k) + plain.central_moment_error(k)
            assert abs(found.central_moment(k) - plain.central_moment(k)) <= room
            assert room < 1e-5 * found.central_moment(2) ** (k / 2)  # or the comparison would say nothing
        one, other = found.superiority(), plain.superiority()
        assert max(one.lower, other.lower) <= min(one.upper, other.upper)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_averages_over_trajectories_give_the_gap_of_evaluate(sharing: str) -> None:
    """E[E[G|data]] = E G and E[Var[G|data]] + Var(E[G|data]) = Var G, over all trajectories of two steps."""
    model = random_model(11, sharing)
    policy = random_policy(model, 11)
    plain = jm.evaluate(model, policy).gap(0, 1, 0)
    chances: dict[tuple, float] = defaultdict(float)
    for w in range(2):
        s, r = int(model.successors[0, w, 0]), model.rewards[0, w, 0]
        for a in range(2):
            for u in range(2):
                weight = model.probabilities[0, w] * policy[s, a] * model.probabilities[s, u]
                chances[(0, s, int(model.successors[s, u, a])), (0, a), (r, model.rewards[s, u, a])] += weight
    found = jm.hindsight(model, policy, [jm.Trajectory(*key) for key in chances], 1)
    weights = np.array(list(chances.values()))
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ found.mean == pytest.approx(plain.mean, abs=1e-10)
    total = weights @ found.variance + weights @ (found.mean - plain.mean) ** 2
    assert total == pytest.approx(plain.variance, rel=1e-7)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_a_whole_policy_instead(sharing: str) -> None:
    """After the last step the two are a pair of policies; three steps are enumerated, what follows is weighed."""
    model = random_model(13, sharing).with_discount(0.3)
    policy, other = random_policy(model, 13), random_policy(model, 14)
    seen = drawn(model, policy, 2, np.random.default_rng(13))
    found = jm.hindsight(model, policy, seen, other_policy=other)
    truth = Enumeration(model, policy, seen, other, 7 if sharing == "time" else 5)
    left = 2 * 3.0 * 0.3**truth.horizon / 0.7
    assert abs(found.gap.mean - truth.moment(1)) <= left
    assert found.gap.variance == pytest.approx(truth.moment(2), abs=4 * left * (1 + np.sqrt(truth.moment(2))))
    np.testing.assert_allclose(found.path, truth.path(), atol=1e-12)
    better = found.gap.superiority()
    spread = sum(w for g, w in truth.law.items() if abs(g) <= left) / truth.total
    assert better.lower - spread <= truth.better <= better.upper + spread


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_after_an_end_only_the_other_branch_goes_on(sharing: str) -> None:
    """No pair is solved for; enumeration to a horizon, and the solution of pairs for an endless future, agree."""
    rng = np.random.default_rng(3)
    successors = rng.integers(0, 3, (3, 2, 2))
    rewards = rng.integers(-1, 2, (3, 2, 2)) * 1.0
    successors[2], rewards[2] = 2, 0.0
    model = jm.JointMDP([[0.3, 0.7]] * 3, rewards, successors, 0.9, sharing=sharing)
    policy = random_policy(model, 3)
    for start in range(2):
        for w in range(2):
            for a in range(2):
                seen = jm.Trajectory([start, int(successors[start, w, a])], [a], [rewards[start, w, a]])
                found = jm.hindsight(model, policy, seen, 1 - a, horizon=4)
                check(found, Enumeration(model, policy, seen, 1 - a, 4))
                endless = jm.hindsight(model, policy, seen, 1 - a)
                paired = jm.hindsight(model, policy, seen, 1 - a, order=3)  # by pairs
                assert endless.gap.mean == pytest.approx(paired.gap.mean, abs=1e-12)
                assert endless.gap.variance == pytest.approx(paired.gap.variance, abs=1e-8)


def test_returns_and_starts() -> None:
    model = random_model(17, "time")
    policy = random_policy(model, 17)
    seen = drawn(model, policy, 4, np.random.default_rng(2))
    found = jm.hindsight(model, policy, seen, 1 - seen.actions[0])
    plain = jm.evaluate(model, policy)
    later = float(policy[seen.states[-1]] @ plain.mean[seen.states[-1]])
    rewards = sum(model.discount**t * r for t, r in enumerate(seen.rewards or ())) + model.discount**4 * later
    assert found.seen_return.mean == pytest.approx(rewards, abs=1e-10)
    assert found.other_return.mean - found.seen_return.mean == pytest.approx(found.gap.mean, abs=1e-10)
    starts = jm.hindsight(model, policy, seen, 1 - seen.actions[0], start="each")
    assert len(starts) == 4
    assert [each.start for each in starts] == [0, 1, 2, 3]
    for t, each in enumerate(starts):
        apart = jm.hindsight(model, policy, seen.cut(t), 1 - seen.actions[0])
        assert each.gap.mean == pytest.approx(apart.gap.mean, abs=1e-12)
        assert each.gap.variance == pytest.approx(apart.gap.variance, abs=1e-12)


def test_trajectories_of_several_lengths_are_answered_as_each_alone() -> None:
    model = random_model(19, "state")
    policy, rng = random_policy(model, 19), np.random.default_rng(19)
    several = [drawn(model, policy, steps, rng) for steps in (3, 1, 5, 2) * 12]
    together = jm.hindsight(model, policy, several, 0)
    solution = jm.evaluate(model, policy)
    for seen, found in zip(several, together, strict=True):
        alone = jm.hindsight(model, policy, seen, 0, solution=solution)
        assert found.gap.mean == pytest.approx(alone.gap.mean, abs=1e-12)
        assert found.gap.variance == pytest.approx(alone.gap.variance, abs=1e-12)


def test_the_same_action_on_the_same_noise_is_what_was_seen() -> None:
    for sharing in SHARINGS:
        model = random_model(23, sharing)
        policy = random_policy(model, 23)
        seen = drawn(model, policy, 3, np.random.default_rng(3))
        gap = jm.hindsight(model, policy, seen, seen.actions[0]).gap
        if sharing == "none":  # noise of its own: what was seen says nothing
            assert gap.variance > 0
        else:
            assert (gap.mean, gap.variance) == (0.0, 0.0)
            assert gap.superiority() == (0.0, 0.0)


CHAIN = {
    "probabilities": [[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]],
    "rewards": [[[1.0, 2.0], [3.0, 2.0]], [[4.0, 4.0]] * 2, [[0.0, 0.0]] * 2],
    "successors": [[[1, 2], [2, 2]], [[2, 2]] * 2, [[2, 2]] * 2],
    "state_names": ["low", "high", "end"],
    "action_names": ["wait", "order"],
    "discount": 0.9,
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((["low", "end"], ["order"], [7.0]), "at step 0, order in low never pays 7 and leads to end; it pays 2"),
        ((["low", "high"], ["order"]), "at step 0, order in low never leads to high; it leads to end"),
        ((["low", "high", "low"], ["wait", "wait"]), "at step 1, wait in high never leads to low"),
        ((["low", "end", "low"], ["order", "wait"]), "goes on after step 1, but end is an end"),
        ((["low", "hihg"], ["wait"]), "state 1 of the trajectory"),
        ((["low", "high"], ["wiat"]), "action 0 of the trajectory"),
        (([None, "high"], ["wait"]), "first state"),
        ((["low", "high"], [None]), "action 0 of the trajectory is missing"),
        ((["low", "high", "end", "end"], ["wait"]), "has 2 states"),
        ((["low", "high"], ["wait"], [1.0, 2.0]), "has 1 rewards; this one has 2"),
        (
            (["low", "high"], ["wait"], None, [1]),
            "never leads to high in scenario 1, which was recorded; it leads to end",
        ),
        (([], []), "at least one state"),
        ((["low", "high"], ["wait"], None, [5]), "scenario 0 of the trajectory"),
        ((["low", "high"], ["wait"], None, None, True), "the episode ended in high"),
        ((["low"], ["wait"], [1.0], None, True), "never pays 1 and ends the episode; it pays 3"),
        ((["high", "end"], ["wait"], None, [1]), "never meets scenario 1"),
        (("low", ["wait"]), "must be a sequence"),
        ((["low", "high"], ["wait"], ["much"]), "reward 0 of the trajectory"),
        ((["low"], []), "no action at step 0"),
    ],
)
def test_what_cannot_have_happened_is_an_error_with_its_step(given: tuple, words: str) -> None:
    model = jm.JointMDP(**CHAIN)
    with pytest.raises(ModelError, match=words):
        jm.hindsight(model, "wait", jm.Trajectory(*given), "order")


def test_bad_questions() -> None:
    model, seen = jm.JointMDP(**CHAIN), jm.Trajectory(["low", "high"], ["wait"])
    for settings, words in (
        ({}, "give an action, or other_policy"),
        ({"action": "order", "other_policy": "wait"}, "not both"),
        ({"action": "sell"}, "sell"),
        ({"action": "order", "start": 2}, "start"),
        ({"action": "order", "start": 1}, "no action at step 1"),
        ({"action": "order", "horizon": 0}, "horizon"),
        ({"action": "order", "order": 1}, "order"),
        ({"action": "order", "reward_tolerance": -1}, "reward_tolerance"),
        ({"action": "order", "solution": jm.evaluate(model, "order")}, "for this model, policy and order"),
    ):
        with pytest.raises(ModelError, match=words):
            jm.hindsight(model, "wait", seen, **settings)
    with pytest.raises(ModelError, match="more than the horizon of 1"):
        jm.hindsight(model, "wait", jm.Trajectory(["low", "high", "end"], ["wait", "wait"]), "order", horizon=1)
    for wrong in ([["low", "high"]], None, 3):
        with pytest.raises(ModelError, match=r"jointmdp\.Trajectory"):
            jm.hindsight(model, "wait", wrong, "order")
    hidden = jm.Trajectory(["low", None, "end"], ["wait", "wait"])
    with pytest.raises(ModelError, match="state 1 of the trajectory was not seen"):
        jm.hindsight(model, "wait", hidden, "order", start=1)
    assert [each.start for each in jm.hindsight(model, "wait", hidden, "order", start="each")] == [0]
    several = [seen] * 150 + [jm.Trajectory(["low", "end", "end"], ["order", "wait"], [2.0, 1.0])]
    with pytest.raises(ModelError, match="trajectory 150 cannot happen in the model: at step 1"):
        jm.hindsight(model, "wait", several, "order")
    with pytest.raises(ModelError, match="trajectory 1: action 0"):
        jm.hindsight(model, "wait", [seen, jm.Trajectory(["low", "high"], ["sell"])], "order")
    with pytest.raises(ModelError, match="compared to order 2"):
        jm.hindsight(model, "wait", seen, other_policy="order", order=3)


def test_returns_without_an_end() -> None:
    names = ["wait", "order"]
    endless = jm.JointMDP([[1.0]], [[[1.0, 2.0]]], [[[0, 0]]], 1.0, action_names=names)
    for settings in ({"action": "order"}, {"other_policy": "order"}):
        with pytest.raises(ModelError, match="rewards may come for ever"):
            jm.hindsight(endless, "wait", jm.Trajectory([0, 0], ["wait"]), **settings)
    later = jm.JointMDP([[1.0]] * 2, [[[1.0, 2.0]], [[0.0, 0.0]]], [[[0, 1]], [[1, 1]]], 1.0, action_names=names)
    with pytest.raises(ModelError, match="rewards may come for ever"):  # the seen branch is over, the other is not
        jm.hindsight(later, "wait", jm.Trajectory([0, 1], ["order"]), "wait")


def test_a_large_reward_elsewhere_changes_nothing() -> None:
    """Rewards are compared with those of their own state and action, and an equal one is the one."""
    rewards = np.zeros((3, 3, 2))
    rewards[0, :, 0], rewards[0, :, 1] = [0.0, 1.0, 1.0 + 1e-8], [5.0, -5.0, 7.0]
    rewards[2] = -1e12
    successors = np.ones((3, 3, 2), dtype=int)
    successors[2] = 2
    model = jm.JointMDP(np.full((3, 3), 1 / 3), rewards, successors, 0.9)
    gap = jm.hindsight(model, 0, jm.Trajectory([0, 1], [0], [1.0]), 1).gap
    assert (gap.mean, gap.variance) == (pytest.approx(-6.0), pytest.approx(0.0, abs=1e-12))
    near = jm.hindsight(model, 0, jm.Trajectory([0, 1], [0], [1.0 + 3e-8]), 1)  # both of 1 are as close
    np.testing.assert_allclose(near.posterior[0], [0.0, 0.5, 0.5])
    with pytest.raises(ModelError, match="never pays 300"):
        jm.hindsight(model, 0, jm.Trajectory([0, 1], [0], [300.0]), 1)


HIDDEN = {  # B pays 0 or a large penalty, A pays 1
    "s": {"go": [(0.5, "A", 0), (0.5, "B", 0)], "wait": [(1.0, "end", 0.5)]},
    "A": {"go": [(1.0, "end", 1)]},
    "B": {"go": [(0.5, "end", 0), (0.5, "end", -1e6)]},
}


def test_a_reward_is_that_of_one_place() -> None:
    """Equal in one place, it is not another one elsewhere, however large what is paid there."""
    model = jm.from_mdp(HIDDEN, None, 1.0, "comonotone")
    seen = jm.Trajectory(["s", None, "end"], ["go", "go"], [None, 1.0])
    for each in (seen, jm.Trajectory(seen.states, seen.actions, [None, 1.0 + 1e-8])):
        found = jm.hindsight(model, "go", each, "wait")
        assert found.seen_return.mean == 1.0
        assert found.gap.mean == -0.5


@pytest.mark.parametrize("logged", [5, 0.5, 1e-3])
def test_a_reward_that_nothing_pays_is_named(logged: float) -> None:
    table = {"s": {"go": [(0.5, "end", 0), (0.5, "end", -1e7)], "wait": [(1.0, "end", 0.5)]}}
    model = jm.from_mdp(table, None, 0.9)
    with pytest.raises(ModelError, match=rf"step 0, go in s never pays {logged:g} .* it pays -1e\+07, 0 "):
        jm.hindsight(model, "go", jm.Trajectory(["s", "end"], ["go"], [logged]), "wait")
    rounded = float(np.float32(-1e7 / 3))
    thirds = jm.from_mdp({"s": {"go": [(0.5, "end", 0), (0.5, "end", -1e7 / 3)], "wait": [(1, "end", 0)]}}, None, 0.9)
    found = jm.hindsight(thirds, "go", jm.Trajectory(["s", "end"], ["go"], [rounded]), "wait")
    assert found.seen_return.mean == pytest.approx(-1e7 / 3, rel=1e-15)


def test_candidates_are_told_apart_as_far_as_rounding_can() -> None:
    """In single precision 1.0000001 and 1.0000005 differ; 1.00000001 and 1.00000002 do not."""
    for first, second, logged, share in (
        (1.0000001, 1.0000005, float(np.float32(1.0000001)), 1.0),
        (1.00000001, 1.00000002, 1.000000016, 0.5),
        (1.00000001, 1.00000002, 1.00000001, 1.0),
    ):
        table = {"s": {"go": [(0.5, "A", first), (0.5, "B", second)], "wait": [(1.0, "A", 0)]}}
        model = jm.from_mdp(table, None, 0.9)
        found = jm.hindsight(model, "go", jm.Trajectory(["s"], ["go"], [logged]), "wait")
        assert found.posterior[0].max() == pytest.approx(share)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_whole_policy_over_a_horizon_beyond_the_log(sharing: str) -> None:
    for seed in range(2):
        model = random_model(seed, sharing)
        policy, other = random_policy(model, seed), random_policy(model, seed + 10)
        seen = drawn(model, policy, 1 + seed, np.random.default_rng(seed))
        found = jm.hindsight(model, policy, seen, other_policy=other, horizon=3)
        truth = Enumeration(model, policy, seen, other, 3)
        check(found, truth)
        assert truth.better in found.gap.superiority().widened(1e-12)


def test_what_came_before_the_start_must_be_possible() -> None:
    model = jm.from_mdp(HIDDEN, None, 0.9)
    impossible = jm.Trajectory(["s", "A", "end"], ["go", "go"], [7.0, None])
    with pytest.raises(ModelError, match="at step 0, go in s never pays 7"):
        jm.hindsight(model, "go", impossible, "go", start=1)
    possible = jm.Trajectory(["s", "A", "end"], ["go", "go"])
    with pytest.raises(ModelError, match="trajectory 1: the trajectory cannot happen"):
        jm.hindsight(model, "go", [possible, impossible], "go", start=1)
    with pytest.raises(ModelError, match="never pays 7"):
        jm.bounds.hindsight_bounds(HIDDEN, None, 0.9, "go", impossible, "go", start=1)


def test_bounds_of_several_logs() -> None:
    logs = [jm.Trajectory(["s", "A", "end"], ["go", "go"]), jm.Trajectory(["s", "B"], ["go"])]
    both = jm.bounds.hindsight_bounds(HIDDEN, None, 0.9, "go", logs, "wait")
    assert both == [jm.bounds.hindsight_bounds(HIDDEN, None, 0.9, "go", each, "wait") for each in logs]
    with pytest.raises(ModelError, match="trajectory 1: "):
        jm.bounds.hindsight_bounds(HIDDEN, None, 0.9, "go", [logs[0], jm.Trajectory(["s", "end"], ["go"])], "wait")


def test_a_gap_of_rounding_alone_is_told_as_none() -> None:
    """0.1 + 0.2 and 0.3 in several steps."""
    table = {
        "s": {"one": [(1.0, "t", 0.1)], "two": [(1.0, "u", 0.3)]},
        "t": {"one": [(1.0, "end", 0.2)]},
        "u": {"one": [(1.0, "end", 0.0)]},
    }
    found = jm.hindsight(jm.from_mdp(table, None, 1.0), "one", jm.Trajectory(["s", "t", "end"], ["one", "one"]), "two")
    assert found.gap.mean != 0
    assert "0 more, within " in repr(found)
    assert "± 0 of what is not known" in repr(found)


def test_a_discount_of_zero_counts_the_first_step_alone() -> None:
    model = random_model(1, "time", scenarios=3).with_discount(0)
    policy = random_policy(model, 1)
    seen = drawn(model, policy, 2, np.random.default_rng(1))
    for action in (1 - seen.actions[0], random_policy(model, 4)):
        how = {"action": action} if isinstance(action, int) else {"other_policy": action}
        found = jm.hindsight(model, policy, seen, **how)
        truth = Enumeration(model, policy, seen, action, 2)
        check(found, truth)
        assert truth.better in found.gap.superiority().widened(1e-12)


def test_columns_of_other_libraries() -> None:
    """Arrays and pandas' columns, with what pandas puts for what is missing."""
    import pandas

    model = jm.JointMDP(**{**CHAIN, "state_names": [(0, 0), (0, 1), (1, 1)]})
    plain = jm.hindsight(model, 0, jm.Trajectory([(0, 0), None, (1, 1)], [0, 1], [1.0, None]), 1).gap.mean
    frame = pandas.DataFrame({"state": [0, None, 2], "reward": [1, None, None]}, index=[7, 8, 9]).astype("Int64")
    found = jm.hindsight(model, 0, jm.Trajectory(frame["state"], [0, 1], frame["reward"][:2]), 1)
    assert found.gap.mean == plain
    floats = jm.Trajectory([0, np.nan, 2], np.array([0, 1]), np.array([1.0, np.nan]))
    assert jm.hindsight(model, 0, floats, 1).gap.mean == plain
    assert jm.hindsight(model, 0, jm.Trajectory(np.array([(0, 0), (0, 1)]), np.array([0])), 1).gap.mean != 0


def test_an_episode_that_ended() -> None:
    """Waiting paid 3 and ended: scenario 1. Ordering would have paid 2 then, and ended as well."""
    model = jm.JointMDP(**CHAIN)
    found = jm.hindsight(model, "wait", jm.Trajectory(["low"], ["wait"], ended=True), "order")
    assert (found.gap.mean, found.gap.variance) == (-1.0, 0.0)
    assert found.most_likely_path() == ["low", "end"]
    assert found.table()[0]["noise_known"] == 1.0  # one bit: which of the two scenarios
    for horizon in (None, 1, 3):  # what follows an end pays nothing, so a horizon changes nothing
        short = jm.hindsight(model, "wait", jm.Trajectory(["low", "end"], ["wait"]), "order", horizon=horizon)
        assert (short.gap.mean, short.path.shape, len(short.table())) == (-1.0, (2, 3), 2)
    seen = jm.Trajectory(["low", "high", "end"], ["wait", "order"], [1.0, 4.0], ended=True)
    assert jm.hindsight(model, "wait", seen, "order").gap.mean == pytest.approx(2 - (1 + 0.9 * 4), abs=1e-14)


def test_the_best_linear_guess_leaves_what_a_regression_leaves() -> None:
    """Slope, mean and residual are those of a regression on all joint outcomes of one step."""
    model = random_model(29, "state", scenarios=4).with_discount(1e-9)
    solution = jm.evaluate(model, random_policy(model, 29))
    p, x, y = model.probabilities[1], model.rewards[1, :, 0], model.rewards[1, :, 1]
    mean, other = p @ x, p @ y
    slope = p @ ((x - mean) * (y - other)) / (p @ (x - mean) ** 2)
    found = solution.counterfactual(1, 0, 1.5, 1)
    assert found.slope == pytest.approx(slope, abs=1e-7)
    assert found.mean == pytest.approx(other + slope * (1.5 - mean), abs=1e-7)
    left = p @ (y - other - slope * (x - mean)) ** 2
    assert found.std == pytest.approx(np.sqrt(left), abs=1e-6)
    interval = found.interval(0.75)
    assert (interval.middle, interval.width) == (pytest.approx(found.mean), pytest.approx(4 * found.std, abs=1e-6))


def test_no_narrower_interval_holds_for_all_laws() -> None:
    """A residual of 0, or ±2 with probability 1/8 each: a quarter of it lies on the ends of the interval of 75 %."""
    rewards = [[[x, x + e] for x in (-1.0, 1.0) for e in (-2.0, 0.0, 2.0)]]
    model = jm.JointMDP([[1 / 16, 3 / 8, 1 / 16] * 2], rewards, np.zeros((1, 6, 2), dtype=int), 1e-12)
    found = jm.evaluate(model, 0).counterfactual(0, 0, 1.0, 1)
    assert (found.mean, found.std, found.slope) == (pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0))
    assert found.interval(0.75) == (pytest.approx(-1.0), pytest.approx(3.0))


def test_a_return_that_cannot_be_seen() -> None:
    model = jm.JointMDP([[1.0]], [[[1.0, 2.0]]], [[[0, 0]]], 0.5)
    solution = jm.evaluate(model, [[1.0, 0.0]])
    assert solution.counterfactual(0, 0, 2.0, 1).mean == pytest.approx(3.0)
    with pytest.raises(ModelError, match="always gives 2, and never the observed return of 3"):
        solution.counterfactual(0, 0, 3.0, 1)
    with pytest.raises(ModelError, match="no return of the model is larger than 4"):
        solution.counterfactual(0, 0, 5.0, 1)
    with pytest.raises(ModelError, match="observed_return"):
        solution.counterfactual(0, 0, float("nan"), 1)


def test_a_return_that_varies_less_than_is_known_says_nothing() -> None:
    """What was seen is 1 with a grain more or less, and the other action ±1 by the same coin: its return is 1."""
    grain = 2.0**-50
    rewards = [[[1 + grain, 1.0], [1 - grain, -1.0]], [[0.0, 0.0]] * 2]
    model = jm.JointMDP([[0.5, 0.5]] * 2, rewards, np.ones((2, 2, 2), dtype=int), 0.9)
    found = jm.evaluate(model, 0).counterfactual(0, 0, 1 + grain, 1)
    assert found.mean_error == np.inf
    assert 1.0 in found.interval()
    assert "not known" in str(found)


@pytest.mark.parametrize("steady", [True, False])
def test_who_is_always_paid_the_same(steady: bool) -> None:
    """Two ways through rooms that pay alike, and in the second model at another step."""
    to = np.array([[[1, 3], [2, 3]], [[3, 3], [3, 3]], [[3, 3], [3, 3]], [[3, 3], [3, 3]]])
    rewards = np.zeros((4, 2, 2))
    rewards[0, :, 0], rewards[1], rewards[2] = 1.0, 2.0, 2.0 if steady else 3.0
    model = jm.JointMDP([[0.5, 0.5]] * 4, rewards, to, 0.9)
    states, actions = steady_states(model, np.full((4, 2), 0.5))
    assert states.tolist() == [False, True, True, True]
    assert actions.tolist() == [[steady, True], [True, True], [True, True], [True, True]]


@pytest.mark.slow
def test_steady_states_are_those_with_one_course_of_rewards() -> None:
    """Against all courses of 2·S steps: in a state that is steady all rewards to come are the same."""
    rng, S, both = np.random.default_rng(0), 5, set[bool]()
    for _ in range(300):
        to, rewards = rng.integers(0, S, (S, 2, 2)), rng.choice([0.0, 0.0, 1.0], size=(S, 1, 1)) + np.zeros((S, 2, 2))
        rewards += rng.random((S, 2, 2)) < 0.05
        policy = np.eye(2)[rng.integers(0, 2, S)] if rng.random() < 0.5 else np.full((S, 2), 0.5)
        courses = [{()}] * S
        for _ in range(2 * S):
            ways = [[(w, a) for w in range(2) for a in range(2) if policy[s, a] > 0] for s in range(S)]
            courses = [{(rewards[s, w, a], *c) for w, a in ways[s] for c in courses[to[s, w, a]]} for s in range(S)]
        found, _ = steady_states(jm.JointMDP([[0.5, 0.5]] * S, rewards, to, 0.9), policy)
        assert found.tolist() == [len(each) == 1 for each in courses]
        both |= set(found.tolist())
    assert both == {True, False}


LOG = """episode,state,action,reward,note
a,low,wait,1.0,x
b,low,order,,
a,high,order,4.0,
b,end,,,
a,end,,,
"""


def test_logs_are_read_from_files(tmp_path: Path) -> None:
    model, path = jm.JointMDP(**CHAIN), tmp_path / "log.csv"
    path.write_text(LOG, encoding="utf-8")
    one, two = jm.Trajectory.read(path, model)
    assert (one.states, one.actions, one.rewards) == (["low", "high", "end"], ["wait", "order"], [1.0, 4.0])
    assert (two.states, two.actions, two.rewards) == (["low", "end"], ["order"], None)
    for text, words in (
        ("", "is empty; its first line names the columns: episode, state"),
        ("state,reward\nlow,1\n", "no column 'action'"),
        ("state,action,State\nlow,wait,high\n", "'state' more than once, in places 1 and 3"),
        (f"state,action\nlow,wait\n{'7' * 5000},\n", r"line 3: the state is '7{20}'… \(5000 characters\), which is no"),
        (f"state,action\n\nlow,{'7' * 5000}\n", r"line 3: the action is '7{20}'… \(5000 characters\)"),
        (f"state,action,scenario\nlow,wait,{'7' * 5000}\n", r"line 2: the scenario is '7{20}'… \(5000"),
        ("state,action,reward\nlow,wait,1,5\n", "line 2 has 4 cells and the first line 3"),
        ("state,action\n", "holds no steps"),
        ("state,action\nlow,\nhigh,wait\n", "line 2: the action is missing"),
        ("state,action,reward\nlow,wait,much\n", "line 2: the reward is 'much'"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match=words):
            jm.Trajectory.read(path, model)
    path.write_text("State;action;ended\nlow;wait;0\nNA;wait;1\n", encoding="utf-8")
    (found,) = jm.Trajectory.read(path, model)
    assert (found.states, found.actions, found.ended) == (["low", None], ["wait", "wait"], True)
    path.write_text("state,action,reward\nlow,wait,1.5,,\n", encoding="utf-8")  # as programs write that add commas
    assert jm.Trajectory.read(path, model)[0].rewards == [1.5]
    with pytest.raises(ModelError, match=r"nothing\.csv cannot be read"):
        jm.Trajectory.read(tmp_path / "nothing.csv", model)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="no CSV file"):
        jm.Trajectory.read(path, model)


def test_the_command(tmp_path: Path) -> None:
    model, log, picture = jm.JointMDP(**CHAIN), tmp_path / "log.csv", tmp_path / "back.png"
    jm.save(model, tmp_path / "model.npz")
    log.write_text("state,action,reward\nlow,wait,1.0\nhigh,order,4.0\nend,,\n", encoding="utf-8")
    command = ["hindsight", str(tmp_path / "model.npz"), "--trajectory", str(log), "--policy", "wait,wait,wait"]
    told = CliRunner().invoke(main, [*command, "--action", "order", "--out", str(picture)])
    assert told.exit_code == 0, told.output
    assert "order instead of wait (seen) at step 0, in low" in told.output
    assert "-2.6 ± 0" in told.output
    assert picture.read_bytes()[:4] == b"\x89PNG"
    each = CliRunner().invoke(main, [*command, "--action", "order", "--start", "each", "--json"])
    gaps = json.loads(each.stdout)["gaps"]
    assert [row["start"] for row in gaps] == [0, 1, 2][: len(gaps)]
    assert gaps[0]["mean"] == pytest.approx(-2.6)
    but = CliRunner().invoke(main, [*command, "--but", "0=order", "--json"])
    gap = json.loads(but.stdout)["gap"]
    seen = jm.Trajectory(["low", "high", "end"], ["wait", "order"], [1.0, 4.0])
    assert gap["mean"] == pytest.approx(jm.hindsight(model, "wait", seen, but={0: "order"}).gap.mean)
    best = CliRunner().invoke(main, [*command, "--best", "--changes", "any", "--json"])
    found = jm.best_in_hindsight(model, seen, None, policy="wait")
    assert json.loads(best.stdout)["gap"]["mean"] == pytest.approx(found.gap.mean)
    told = CliRunner().invoke(main, [*command, "--best"])
    assert told.exit_code == 0, told.output
    assert "BestInHindsight(" in told.output
    for options, words in (
        (["--best", "--action", "order"], "leave --action"),
        (["--changes", "2", "--action", "order"], "goes with --best"),
        (["--best", "--changes", "few"], "give a number, or any"),
        (["--but", "order"], "a step and an action"),
    ):
        refused = CliRunner().invoke(main, [*command, *options])
        assert refused.exit_code == 1
        assert words in refused.output
    wrong = CliRunner().invoke(main, [*command, "--action", "sell"])
    assert wrong.exit_code == 1
    assert wrong.output.startswith("Error: ")
    assert CliRunner().invoke(main, [*command, "--action", "order", "--start", "soon"]).exit_code == 1


def random_mdp(seed: int, actions: int = 2, states: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(states), (states, actions)), rng.normal(size=(states, actions, states))


def random_coupling(rng: np.random.Generator) -> Callable[[int, list[np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """All actions read one uniform, each through its outcomes in an order of its own: an extreme coupling."""

    def coupling(state: int, laws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        orders = [rng.permutation(len(law)) for law in laws]
        ends = [np.append(np.cumsum(law[order])[:-1], 1.0) for law, order in zip(laws, orders, strict=True)]
        edges = np.unique(np.concatenate([[0.0], *ends]))
        middle = (edges[1:] + edges[:-1]) / 2
        found = [order[np.searchsorted(end, middle)] for order, end in zip(orders, ends, strict=True)]
        return np.diff(edges), np.stack(found, axis=1)

    return coupling


@pytest.mark.parametrize("actions", daily([3, 2]))
def test_no_coupling_leaves_the_bounds(actions: int) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        P, R = random_mdp(seed, actions)
        policy = rng.dirichlet(np.ones(actions), 3)
        plain = jm.from_mdp(P, R, 0.9)
        seen = drawn(plain, policy, 3, rng)
        action = (seen.actions[0] + 1) % actions
        bounds = jm.bounds.hindsight_bounds(P, R, 0.9, policy, seen, action)
        assert bounds.width > 0.01
        for _ in range(10):
            model = jm.from_mdp(P, R, 0.9, coupling=random_coupling(rng))
            found = jm.hindsight(model, policy, seen, action, horizon=3).gap.mean  # what follows does not depend on it
            v = jm.evaluate(plain, policy).mean
            later = np.sum(policy * v, axis=1)
            back = jm.hindsight(model, policy, seen, action, horizon=3)
            found += 0.9**3 * float(back.path[3] @ later - later[seen.states[3]])
            assert bounds.lower <= found <= bounds.upper


def test_the_bounds_are_attained() -> None:
    """One step, two outcomes each: the coupling that puts the best (the worst) outcome beside what was seen."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = [0, 0.4, 0.6], [0, 0.7, 0.3]
    P[1:, :, 1:] = np.eye(2)[:, None, :]
    R = np.zeros((3, 2, 3))
    R[0, :, 1], R[0, :, 2] = 1.0, 5.0
    seen = jm.Trajectory([0, 1], [0])
    bounds = jm.bounds.hindsight_bounds(P, R, 0.9, 0, seen, 1)
    # What was seen has probability 0.4; action 1 gives 5 with 0.3 of it and 1 with the rest at best, 1 at worst.
    assert bounds.upper == pytest.approx((0.3 * 5 + 0.1 * 1) / 0.4 - 1, abs=1e-12)
    assert bounds.lower == pytest.approx(0.0, abs=1e-12)
    for coupling, end in (("comonotone", bounds.lower), ("antithetic", bounds.upper)):
        found = jm.hindsight(jm.from_mdp(P, R, 0.9, coupling=coupling), 0, seen, 1)
        assert found.gap.mean == pytest.approx(end, abs=1e-12)
    with pytest.raises(ModelError, match="cannot happen"):
        jm.bounds.hindsight_bounds(P, R, 0.9, 0, jm.Trajectory([0, 0], [0]), 1)
    with pytest.raises(ModelError, match="all states but the last"):
        jm.bounds.hindsight_bounds(P, R, 0.9, 0, jm.Trajectory([0, None, 1], [0, 0]), 1)


def rejected(
    model: jm.JointMDP, policy: np.ndarray, seen: jm.Trajectory, action: int, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Gaps of simulated pairs, those whose first branch did not do what was seen thrown away at once."""
    count = 400_000
    x = y = np.full(count, seen.states[0])
    gap, one = np.zeros(count), np.zeros(count, dtype=bool)
    rows = np.cumsum(policy, axis=1)
    chances = np.cumsum(model.probabilities, axis=1)

    def drawn_from(ends: np.ndarray) -> np.ndarray:
        return np.minimum((rng.random((len(ends), 1)) > ends).sum(axis=1), ends.shape[1] - 1)

    for t in range(steps):
        is_seen = t < len(seen.actions)
        a = np.full(len(x), seen.actions[t]) if is_seen else drawn_from(rows[x])
        b = np.full(len(y), action) if t == 0 else drawn_from(rows[y])
        w, own = drawn_from(chances[x]), drawn_from(chances[y])
        shares = {"time": np.full(len(x), True), "state": x == y, "none": np.full(len(x), False)}[model.sharing]
        own = np.where(shares, w, own)
        if model.sharing != "none":
            one = one | ((x == y) & (a == b))
        paid, after = model.rewards[x, w, a], model.successors[x, w, a]
        gap = gap + np.where(one, 0.0, model.discount**t * (model.rewards[y, own, b] - paid))
        y = np.where(one, after, model.successors[y, own, b])
        x = after
        if is_seen:
            kept = (after == seen.states[t + 1]) & (paid == (seen.rewards or ())[t])
            x, y, gap, one = x[kept], y[kept], gap[kept], one[kept]
    return gap


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SHARINGS)
def test_rejection_sampling(sharing: str) -> None:
    """An endless future: pairs run until what is left is below the standard error."""
    model = random_model(31, sharing, states=5, scenarios=3, actions=3).with_discount(0.8)
    policy, rng = random_policy(model, 31), np.random.default_rng(31)
    seen = drawn(model, policy, 4, rng)
    action = (seen.actions[0] + 1) % 3
    found = jm.hindsight(model, policy, seen, action)
    steps = 60
    left = 2 * 1.5 * 0.8**steps / 0.2
    gaps = rejected(model, policy, seen, action, steps, rng)
    count = len(gaps)
    assert count > 1000
    se = gaps.std() / np.sqrt(count)
    assert left < se / 100
    assert abs(found.gap.mean - gaps.mean()) < 5 * se + left
    centred = (gaps - gaps.mean()) ** 2
    assert abs(found.gap.variance - centred.mean()) < 5 * centred.std() / np.sqrt(count) + 0.01 * se
    better, share = found.gap.superiority(), np.mean(gaps > 1e-9)
    assert better.lower - 5 * 0.5 / np.sqrt(count) <= share <= better.upper + 5 * 0.5 / np.sqrt(count)
    low = found.gap.quantile(0.1)
    assert np.mean(gaps < low.lower - 1e-9) <= 0.1 + 5 * 0.3 / np.sqrt(count)
    assert np.mean(gaps <= low.upper + 1e-9) >= 0.1 - 5 * 0.3 / np.sqrt(count)


@pytest.mark.slow
def test_a_solution_of_higher_order_serves_too() -> None:
    model, policy = jm.envs.inventory(max_stock=6, max_order=3)
    seen = jm.Trajectory(["stock 3", "stock 0"], ["order 2"])
    plain = jm.hindsight(model, policy, seen, "order 3").gap
    found = jm.hindsight(model, policy, seen, "order 3", solution=jm.evaluate(model, policy, order=4)).gap
    assert abs(found.mean - plain.mean) <= found.mean_error + plain.mean_error
    assert abs(found.variance - plain.variance) <= found.variance_error + plain.variance_error
