"""Plans, the best of them, kernel and sample under Gumbel noise: by pairs of outcomes, and by draws of the noise."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from test_gumbel_max import Enumeration, Listed, as_rows, drawn, random_choices, random_listing

import jointmdp as jm
from jointmdp.model.gumbel_max import GumbelModel

Choice = Callable[[int, str, str, int], dict[str, float]]  # time, seen state, other state, changes made


def is_over(table: Listed, s: str) -> bool:
    return all(to == s and paid == 0 for row in table[s].values() for _, to, paid in row)


def at_times(policies: list[dict], t: int, x: str, y: str, made: int) -> dict[str, float]:
    return policies[t][y]


class PairsOfOutcomes(Enumeration):
    """What follows from the log, where the other branch does what a choice says and then both follow the policy."""

    def given(self, x: str, a: str, k: int, y: str, b: str) -> Iterator[tuple[float, tuple[float, str, float]]]:
        return (each for each in super().given(x, a, k, y, b) if each[0] > 1e-14)  # what ties leave by rounding

    def shared(self, x: str, y: str) -> bool:
        return self.sharing == "time" or (self.sharing == "state" and x == y)

    def agrees(self, t: int, to: str, reward: float) -> bool:
        seen = self.seen
        return seen.states[t + 1] in (None, to) and (seen.rewards is None or seen.rewards[t] in (None, reward))

    def walk(  # many parameters: where both are, and what was before
        self, t: int, x: str, y: str, one: bool, weight: float, gap: float, been: tuple[str, ...], made: int = 0
    ) -> None:
        steps = len(self.seen.actions)
        been = (*been, y) if t <= steps else been
        if t == self.horizon:
            self.law[round(gap, 12)] += weight
            for when, place in enumerate(been):
                self.places[when, place] += weight
            return
        is_seen = t < steps
        for a, chance in {self.seen.actions[t]: 1.0}.items() if is_seen else self.policy[x].items():
            for k, (p, to, reward) in enumerate(self.table[x][a]):
                if is_seen and not self.agrees(t, to, reward):
                    continue
                here = weight * chance * p
                if one:
                    self.walk(t + 1, to, to, True, here, gap, been)
                    continue
                does = self.other(t, x, y, made) if is_seen else self.policy[y]
                for b, more in does.items():
                    if x == y and a == b and self.sharing != "none":  # plans may part again
                        self.walk(t + 1, to, to, t + 1 >= steps, here * more, gap, been, made)
                        continue
                    after: Any = [(o[0], o) for o in self.table[y][b]]
                    if self.shared(x, y):
                        after = self.given(x, a, k, y, b)
                    for then, (_, t2, paid) in after:
                        later = gap + self.discount**t * (paid - reward)
                        changed = made + int(is_seen and a != b and not is_over(self.table, y))
                        self.walk(t + 1, to, t2, False, here * more * then, later, been, changed)


def agrees(found: jm.results.Hindsight, truth: PairsOfOutcomes) -> None:
    mean, variance = truth.moment(1), truth.moment(2)
    assert found.gap.mean == pytest.approx(mean, abs=1e-11)
    assert abs(found.gap.mean - mean) <= found.gap.mean_error + 1e-12  # what the enumeration rounds gaps to
    assert found.gap.variance == pytest.approx(variance, abs=1e-11)
    for (t, s), weight in truth.places.items():
        assert found.path[t, found.model.state_index(s)] == pytest.approx(weight / truth.total, abs=1e-11)
    better = found.gap.superiority()
    assert better.lower - 1e-9 <= truth.better <= better.upper + 1e-9
    assert isinstance(found.model, GumbelModel)
    assert not found.model.is_drawn


def case(seed: int, sharing: Any, steps: int = 2) -> tuple[Listed, dict, jm.Trajectory, jm.JointMDP]:
    """A model, a policy, and a log of which some states and rewards may not have been seen."""
    table = random_listing(seed, several=seed % 4 == 3)
    policy = random_choices(table, seed, is_sure=False)
    return table, policy, drawn(table, policy, steps, seed), jm.from_mdp(table, None, 0.8, "gumbel-max", sharing)


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 80), marks=[pytest.mark.slow, pytest.mark.optimised])]
)
@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_plans_are_sums_over_pairs_of_outcomes(sharing: Any, seeds: range) -> None:
    """A policy that depends on time, and the log but for some steps; with steps after the log, and without."""
    for seed in seeds:
        table, policy, seen, model = case(seed, sharing, 1 + seed % 3)
        steps, rows = len(seen.actions), as_rows(model, policy)
        timed = [random_choices(table, 50 + seed + t, is_sure=t == 0) for t in range(steps)]
        horizon = steps + seed // 2 % 2
        truth = PairsOfOutcomes(table, policy, partial(at_times, timed), seen, horizon, sharing, 0.8)
        plan = np.stack([as_rows(model, each) for each in timed])
        if horizon > steps and seen.states[-1] is not None and is_over(table, seen.states[-1]):
            plan = np.append(plan, rows[None], axis=0)  # where the episode is over, the array is followed further
        agrees(jm.hindsight(model, rows, seen, other_policy=plan, horizon=horizon), truth)
        t = seed % steps
        other = "a1" if seen.actions[t] == "a0" else "a0"
        does = [{s: {b: 1.0} for s in table} for b in [*seen.actions[:t], other, *seen.actions[t + 1 :]]]
        truth = PairsOfOutcomes(table, policy, partial(at_times, does), seen, horizon, sharing, 0.8)
        agrees(jm.hindsight(model, rows, seen, but={t: other}, horizon=horizon), truth)


class Histories:
    """The best mean return, by all outcomes of the seen branch and all histories that tell them apart."""

    def __init__(  # many parameters: the question
        self, pairs: PairsOfOutcomes, changes: int, later: dict[str, float]
    ) -> None:
        self.pairs, self.table, self.seen, self.later = pairs, pairs.table, pairs.seen, later
        group = list(self.sequences(0, self.seen.states[0], 1.0))
        total = sum(weight for weight, _ in group)
        self.group = [(weight / total, path) for weight, path in group]
        self.value = self.best(0, self.group, self.seen.states[0], changes)

    def sequences(self, t: int, x: str, weight: float) -> Iterator[tuple[float, list]]:
        """Weights of what can have happened, as lists of (state, number of the outcome, reward, next state)."""
        if t == len(self.seen.actions):
            yield weight, []
            return
        for k, (p, to, reward) in enumerate(self.table[x][self.seen.actions[t]]):
            if self.pairs.agrees(t, to, reward):
                for found, path in self.sequences(t + 1, to, weight * p):
                    yield found, [(x, k, reward, to), *path]

    def outcomes(self, t: int, path: list, y: str, b: str) -> list[tuple[float, tuple[float, str, float]]]:
        x, k = path[t][:2]
        if self.pairs.shared(x, y):
            return list(self.pairs.given(x, self.seen.actions[t], k, y, b))
        return [(o[0], o) for o in self.table[y][b]]

    def best(self, t: int, group: list, y: str, left: int) -> float:
        """Times the weight of the group."""
        if is_over(self.table, y):
            return 0.0
        if t == len(self.seen.actions):
            return sum(weight for weight, _ in group) * self.later[y]
        values = []
        for b in self.table[y]:
            if (after := left - int(b != self.seen.actions[t])) < 0:
                continue
            value, parts = 0.0, defaultdict(list)
            for weight, path in group:
                for chance, (_, to, paid) in self.outcomes(t, path, y, b):
                    value += weight * chance * paid
                    parts[path[t][2:], to, paid].append((weight * chance, path))
            values.append(value + 0.8 * sum(self.best(t + 1, part, kind[1], after) for kind, part in parts.items()))
        return max(values)


def later_means(table: Listed, policy: dict[str, dict[str, float]], steps: int) -> dict[str, float]:
    v = dict.fromkeys(table, 0.0)
    for _ in range(steps):
        v = {
            s: sum(chance * p * (r + 0.8 * v[t]) for a, chance in policy[s].items() for p, t, r in row[a])
            for s, row in table.items()
        }
    return v


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 100), marks=[pytest.mark.slow, pytest.mark.optimised])]
)
@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_the_best_plan_and_its_law(sharing: Any, seeds: range) -> None:
    found_more = 0
    for seed in seeds:
        table, policy, seen, model = case(seed, sharing, 2 + seed % 2)
        steps, more = len(seen.actions), seed % 3
        settings = {"policy": as_rows(model, policy), "horizon": steps + more} if more else {}
        later = later_means(table, policy, more)
        for k in (0, 1, 2, None):
            found = jm.best_in_hindsight(model, seen, k, **settings)

            def choice(t: int, x: str, y: str, made: int, found: Any = found, k: int | None = k) -> dict[str, float]:
                return {found.policy(t, y, None if k is None else k - made, seen_state=x): 1.0}

            truth = PairsOfOutcomes(table, policy, choice, seen, steps + more, sharing, 0.8)
            agrees(found, truth)
            value = Histories(truth, steps if k is None else k, later).value
            assert found.other_return.mean == pytest.approx(value, abs=1e-11), (seed, k)
            assert found.loss_bound < 1e-10
            assert found.other_return.mean + found.loss_bound >= value - 1e-12
            if sharing != "none":
                assert sum(each.gain for each in found.decisions) == pytest.approx(found.gap.mean, abs=1e-11)
            found_more += bool(found.decisions)
    assert found_more


@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_the_model_as_the_log_leaves_it(sharing: Any) -> None:
    """The kernel by pairs of outcomes; courses come to states as often as the path says, and are paid what follows."""
    for seed in range(4):
        table, policy, seen, model = case(seed, sharing, 3)
        rows, steps = as_rows(model, policy), len(seen.actions)
        pairs = PairsOfOutcomes(table, policy, partial(at_times, [policy] * steps), seen, steps, sharing, 0.8)
        truth, histories = np.zeros((steps, 3, 2, 3)), Histories(pairs, 0, dict.fromkeys(table, 0.0))
        for weight, path in histories.group:
            for t in range(steps):
                for y, row in table.items():
                    for b in row:
                        at = t, model.state_index(y), model.action_index(b)
                        for chance, (_, to, _) in histories.outcomes(t, path, y, b):
                            truth[(*at, model.state_index(to))] += weight * chance
        how: list[dict[str, Any]] = [{"other_policy": np.stack([rows] * steps)}, {"other_policy": rows}]
        for settings in how:
            found = jm.hindsight(model, rows, seen, horizon=steps, **settings)
            np.testing.assert_allclose(found.kernel(), truth, atol=1e-12)
            courses = found.sample(20_000, seed=1)
            for t in range(steps + 1):
                often = np.bincount(courses.states[:, t], minlength=3) / len(courses)
                # Five standard errors.
                assert np.all(np.abs(often - found.path[t]) <= 5 * np.sqrt(found.path[t] / len(courses)))
            error = 5 * np.sqrt(found.other_return.variance / len(courses)) + 1e-12
            assert courses.returns.mean() == pytest.approx(found.other_return.mean, abs=error)
        assert isinstance(model, GumbelModel)
        assert courses[0].states[0] == seen.states[0]
        assert not model.is_drawn


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_the_best_plan_against_draws_of_the_definition(sharing: Any) -> None:
    """Noise of all outcomes is drawn, what does not agree with the log is dropped: within 5 standard errors."""
    draws = 400_000
    for seed in range(6):
        table, _, seen, model = case(seed, sharing)
        keyed = PairsOfOutcomes(
            table, {}, lambda t, x, y, made: {}, jm.Trajectory(seen.states[:1], []), 0, sharing, 0.8
        )
        names, rng = list(table), np.random.default_rng(seed)
        keys = list(dict.fromkeys(keyed.key(s, o) for s in names for row in table[s].values() for o in row))
        found = jm.best_in_hindsight(model, seen, 1)
        kept, paid = np.ones(draws, dtype=bool), np.zeros((2, draws))
        at, left = np.full((2, draws), names.index(seen.states[0])), np.ones(draws, dtype=int)
        for t, a in enumerate(seen.actions):
            noise = rng.gumbel(size=(draws, 1 if sharing == "time" else len(names), len(keys)))
            does = np.zeros((2, draws), dtype=int)
            does[0] = int(a[1])
            for x, y, n in np.unique(np.stack([*at, left])[:, kept], axis=1).T.tolist():
                mine = kept & (at[0] == x) & (at[1] == y) & (left == n)
                does[1, mine] = int(found.policy(t, names[y], n, seen_state=names[x])[1])
            left = left - ((does[0] != does[1]) & ~np.array([is_over(table, s) for s in names])[at[1]])
            after = at.copy()
            for who in range(2):
                for s, b in np.unique(np.stack([at[who], does[who]])[:, kept], axis=1).T.tolist():
                    mine = np.flatnonzero(kept & (at[who] == s) & (does[who] == b))
                    listed = table[names[s]][f"a{b}"]
                    columns = [keys.index(keyed.key(names[s], o)) for o in listed]
                    scores = noise[mine, 0 if sharing == "time" else s][:, columns] + np.log([o[0] for o in listed])
                    got = np.argmax(scores, axis=1)
                    after[who, mine] = np.array([names.index(o[1]) for o in listed])[got]
                    paid[who, mine] += 0.8**t * np.array([o[2] for o in listed])[got]
                    if who == 0:
                        fits = np.array([keyed_fit(seen, t, o) for o in listed])
                        kept[mine[~fits[got]]] = False
            at = after
        gaps = (paid[1] - paid[0])[kept]
        assert len(gaps) > 1000
        assert gaps.mean() == pytest.approx(found.gap.mean, abs=5 * np.sqrt(found.gap.variance / len(gaps)) + 1e-12)


def keyed_fit(seen: jm.Trajectory, t: int, outcome: tuple[float, str, float]) -> bool:
    _, to, reward = outcome
    return seen.states[t + 1] in (None, to) and (seen.rewards is None or seen.rewards[t] in (None, reward))
