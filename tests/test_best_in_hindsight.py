"""Plans in hindsight, and the best of them, against every sequence of scenarios."""

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from test_hindsight import drawn, random_model, random_policy
from zoo import STATE_AND_SLOW

import jointmdp as jm
from jointmdp.ground.errors import ModelError

Choice = Callable[[int, int, int, int], np.ndarray]  # time, seen state, other state, changes made: chances of actions


class Sequences:
    """The law of gaps by the definition: sequences of scenarios that agree with the log, each with its weight.

    The other branch does what `choice` says at the steps of the log; then both follow `policy` up to the horizon.
    """

    def __init__(self, model: jm.JointMDP, seen: jm.Trajectory, choice: Choice, policy: np.ndarray, horizon: int):
        self.model, self.seen, self.choice, self.policy, self.horizon = model, seen, choice, policy, horizon
        self.law: dict[float, float] = defaultdict(float)
        self.places: dict[tuple[int, int], float] = defaultdict(float)
        self.go(0, seen.states[0], seen.states[0], 0, False, 1.0, 0.0, ())
        self.total = sum(self.law.values())

    def fits(self, t: int, reward: float, to: int) -> bool:
        states, rewards = self.seen.states, self.seen.rewards
        return (rewards is None or rewards[t] is None or rewards[t] == reward) and (
            t + 1 >= len(states) or states[t + 1] in (None, to)
        )

    def go(  # many parameters: where both are, and what was before
        self, t: int, x: int, y: int, changes: int, one: bool, weight: float, gap: float, been: tuple[int, ...]
    ) -> None:
        m, steps = self.model, len(self.seen.actions)
        been = (*been, y) if t <= steps else been
        if t == self.horizon:
            self.law[round(gap, 9)] += weight
            for when, place in enumerate(been):
                self.places[when, place] += weight
            return
        is_seen = t < steps
        first = np.eye(m.num_actions)[self.seen.actions[t]] if is_seen else self.policy[x]
        second = self.choice(t, x, y, changes) if is_seen else self.policy[y]
        shares = m.sharing == "time" or (m.sharing == "state" and x == y)
        for a in np.flatnonzero(first):
            for w in np.flatnonzero(m.probabilities[x]):
                reward, to = float(m.rewards[x, w, a]), int(m.successors[x, w, a])
                if is_seen and not self.fits(t, reward, to):
                    continue
                here = weight * first[a] * m.probabilities[x, w]
                if one:  # after the log
                    self.go(t + 1, to, to, changes, True, here, gap, been)
                    continue
                for b in np.flatnonzero(second):
                    is_same = x == y and a == b and m.sharing != "none"
                    for u in [w] if shares else np.flatnonzero(m.probabilities[y]):
                        chance = here * second[b] * (1.0 if shares else m.probabilities[y, u])
                        later = gap + m.discount**t * (float(m.rewards[y, u, b]) - reward)
                        after, made = int(m.successors[y, u, b]), changes + int(is_seen and a != b)
                        merged = is_same and t + 1 >= steps
                        self.go(t + 1, to, after, made, merged, chance, later, been)

    def mean(self) -> float:
        return sum(g * w for g, w in self.law.items()) / self.total

    def variance(self) -> float:
        return sum((g - self.mean()) ** 2 * w for g, w in self.law.items()) / self.total

    def better(self) -> float:
        return sum(w for g, w in self.law.items() if g > 1e-8) / self.total

    def quantile(self, q: float) -> float:
        reached = 0.0
        for g, w in sorted(self.law.items()):
            reached += w / self.total
            if reached >= q - 1e-12:
                return g
        return max(self.law)

    def path(self) -> np.ndarray:
        found = np.zeros((len(self.seen.actions) + 1, self.model.num_states))
        for (t, s), weight in self.places.items():
            found[t, s] = weight / self.total
        return found


def agrees(found: jm.results.Hindsight, truth: Sequences) -> None:
    assert found.gap.mean == pytest.approx(truth.mean(), abs=1e-8)  # what the enumeration rounds gaps to
    assert found.gap.variance == pytest.approx(truth.variance(), abs=1e-7)
    np.testing.assert_allclose(found.path, truth.path(), atol=1e-12)
    better = found.gap.superiority(tolerance=1e-6)
    assert better.lower - 1e-12 <= truth.better() <= better.upper + 1e-12
    assert better.width < 1e-6


def hidden(seen: jm.Trajectory) -> jm.Trajectory:
    """Some states and rewards were not seen."""
    states, rewards = list(seen.states), list(seen.rewards or ())
    return jm.Trajectory(
        [states[0], *(None if t % 2 else s for t, s in enumerate(states[1:], 1))], seen.actions, rewards
    )


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_policies_that_depend_on_time(sharing: str) -> None:
    """As an array, and as a function of time and state; also after a later start, and where states were not seen."""
    model = random_model(2, sharing)
    policy, rng = random_policy(model, 2), np.random.default_rng(2)
    rows = rng.dirichlet(np.ones(2), (3, 3))
    seen = drawn(model, policy, 3, rng)
    for log in (seen, hidden(seen)):
        truth = Sequences(model, log, lambda t, x, y, made: rows[t, y], policy, 4)
        agrees(jm.hindsight(model, policy, log, other_policy=rows, horizon=4), truth)
        agrees(jm.hindsight(model, policy, log, other_policy=lambda t, s: rows[t, s], horizon=4), truth)
    late = Sequences(model, seen.cut(1), lambda t, x, y, made: rows[1 + t, y], policy, 3)
    agrees(jm.hindsight(model, policy, seen, other_policy=rows, start=1, horizon=4), late)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_the_log_but_for_some_steps(sharing: str) -> None:
    model = random_model(4, sharing)
    policy = random_policy(model, 4)
    seen = drawn(model, policy, 3, np.random.default_rng(4))
    for changed in ({1: 1 - seen.actions[1]}, {0: 1 - seen.actions[0], 2: 1 - seen.actions[2]}, {1: seen.actions[1]}):
        does = {**dict(enumerate(seen.actions)), **changed}
        for log in (seen, hidden(seen)):
            truth = Sequences(model, log, lambda t, x, y, made, does=does: np.eye(2)[does[t]], policy, 4)
            found = jm.hindsight(model, policy, log, but=changed, horizon=4)
            agrees(found, truth)
            if changed == {1: seen.actions[1]} and sharing != "none":
                assert (found.gap.mean, found.gap.variance) == (0.0, 0.0)
                np.testing.assert_allclose(found.merged, 1.0)


def test_plans_that_cannot_be_followed() -> None:
    seen = jm.Trajectory(["low", "high"], ["wait"])
    model = jm.JointMDP(
        [[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]],
        [[[1.0, 2.0], [3.0, 2.0]], [[4.0, 4.0]] * 2, [[0.0, 0.0]] * 2],
        [[[1, 2], [2, 2]], [[2, 0]] * 2, [[2, 2]] * 2],
        0.9,
        available=[[True, True], [True, False], [True, False]],
        state_names=["low", "high", "end"],
        action_names=["wait", "order"],
    )
    for settings, words in (
        ({"action": "order", "but": {0: "order"}}, "not both"),
        ({"but": {}}, r"but is {}"),
        ({"but": {1: "order"}}, "a step of but"),
        ({"but": {0: "sell"}}, "sell"),
        ({"other_policy": np.ones((2, 3, 3)) / 3}, r"at step 0: .*\[S, A\]"),
        ({"other_policy": lambda t, s: "order"}, "at step 0: .*order is not available in high"),
    ):
        with pytest.raises(ModelError, match=words):
            jm.hindsight(model, "wait", seen, **settings)
    # Waiting twice led from low over high to the end; ordering ends at once, where any action stands for none.
    longer = jm.Trajectory(["low", "high", "end"], ["wait", "wait"])
    assert jm.hindsight(model, "wait", longer, but={0: "order"}).gap.mean == pytest.approx(2 - (1 + 0.9 * 4))
    back = jm.JointMDP(
        model.probabilities,
        model.rewards,
        [[[1, 1], [2, 2]], [[0, 0]] * 2, [[2, 2]] * 2],
        0.9,
        available=[[True, True], [True, False], [True, True]],
    )
    with pytest.raises(ModelError, match="can come to state 1 at step 1, where action 1 is not available"):
        jm.hindsight(back, 0, jm.Trajectory([0, 1, 0, 1], [0, 0, 1]), but={1: 1})
