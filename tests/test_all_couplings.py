"""Bounds over all couplings against linear programs over whole joint tables, concrete couplings and enumeration."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from zoo import daily

import jointmdp as jm
from jointmdp.exact.hindsight.all_couplings import IntervalStep, LoggedMDP, interval_step

Floats = NDArray[np.float64]
S, A, T = 2, 2, 3
ROOM = 1e-9  # of linear programs


class Tiny:
    """A random ordinary MDP, a policy, another one by time, and a log of it."""

    def __init__(self, seed: int, states: int = S, actions: int = A, steps: int = T) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.P = rng.dirichlet(np.full(states, 0.7), (states, actions))
        if seed % 3 == 0:  # some outcomes are impossible
            self.P[0, 0] = np.eye(states)[0]
        self.R = rng.integers(-3, 4, (states, actions, states)).astype(float)
        self.g = float(rng.choice([0.0, 0.6, 1.0]))
        self.policy = rng.dirichlet(np.ones(actions), states)
        self.other = rng.dirichlet(np.ones(actions), (steps, states))
        s, states_seen, taken, rewards = int(rng.integers(states)), [], [], []
        for _ in range(steps):
            a = int(rng.integers(actions))
            to = int(rng.choice(states, p=self.P[s, a]))
            states_seen.append(s)
            taken.append(a)
            rewards.append(self.R[s, a, to])
            s = to
        self.log = jm.Trajectory([*states_seen, s], taken, rewards if seed % 2 else None)
        self.mdp = (self.P, self.R, self.g)

    def bounds(self, **options: Any) -> jm.Interval:
        """Of the gap, by default over the steps of the log."""
        return jm.bounds.hindsight_bounds(*self.mdp, self.policy, self.log, **{"horizon": len(self.log)} | options)


def joint_programs(tiny: Tiny, t: int) -> tuple[list[tuple[int, ...]], Floats, Floats]:
    """Whole joint outcomes of all rows at once, the constraints of their marginals, and which agree with the log."""
    P, (s, a, to) = tiny.P, (tiny.log.states[t], tiny.log.actions[t], tiny.log.states[t + 1])
    states, actions = P.shape[:2]
    rows = list(itertools.product(range(states), range(actions)))
    joint = list(itertools.product(range(states), repeat=len(rows)))
    marginals = np.array([[outcome[r] == j for outcome in joint] for r in range(len(rows)) for j in range(states)])
    agrees = np.array([outcome[rows.index((s, a))] == to for outcome in joint])
    return joint, marginals.astype(float), agrees


def by_programs(tiny: Tiny, rows: Floats, sign: int, sharing: str) -> tuple[float, list[Floats]]:
    """The extreme mean gap over the log by linear programs over whole joint tables, and these tables, step by step."""
    P, R, g, log = tiny.P, tiny.R, tiny.g, tiny.log
    states, actions = P.shape[:2]
    later, paid, tables = np.zeros(states), 0.0, list[Floats]()
    for t in range(len(log) - 1, -1, -1):
        s, a, to = log.states[t], log.actions[t], log.states[t + 1]
        joint, marginals, agrees = joint_programs(tiny, t)
        chance = P[s, a, to]
        values = R + g * later
        # One program for all states and actions at once: positive weights, and one joint table.
        cost = np.zeros(len(joint))
        for r, (y, b) in enumerate(itertools.product(range(states), range(actions))):
            if sharing == "time" or y == s:
                cost += np.array([values[y, b, outcome[r]] for outcome in joint]) * agrees / chance
        found = linprog(-sign * cost, A_eq=marginals, b_eq=P.reshape(-1), bounds=(0, None), method="highs")
        assert found.success
        tables.insert(0, found.x)
        now = np.zeros(states)
        for r, (y, b) in enumerate(itertools.product(range(states), range(actions))):
            if sharing == "time" or y == s:
                law = np.array([(found.x * agrees)[[o[r] == j for o in joint]].sum() for j in range(states)]) / chance
            else:
                law = P[y, b]
            now[y] += rows[t, y, b] * float(law @ values[y, b])
        later, paid = now, R[s, a, to] + g * paid
    return float(later[log.states[0]] - paid), tables


@pytest.mark.parametrize("sharing", ["time", "state"])
def test_bounds_are_those_of_programs_over_whole_joint_tables(sharing: str) -> None:
    for seed in range(12):
        tiny = Tiny(seed)
        found = tiny.bounds(other_policy=tiny.other, sharing=sharing)
        ends = [by_programs(tiny, tiny.other, sign, sharing)[0] for sign in (-1, 1)]
        assert [found.lower, found.upper] == pytest.approx(ends, abs=ROOM)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["time", "state"])
def test_bounds_of_many_models_are_those_of_programs(sharing: str) -> None:
    for seed in range(100, 220):
        tiny = Tiny(seed)
        stationary = np.tile(tiny.other[0], (T, 1, 1))
        for rows, given in ((tiny.other, tiny.other), (stationary, tiny.other[0])):
            found = tiny.bounds(other_policy=given, sharing=sharing)
            ends = [by_programs(tiny, rows, sign, sharing)[0] for sign in (-1, 1)]
            assert [found.lower, found.upper] == pytest.approx(ends, abs=ROOM), seed


def exactly(mdp: LoggedMDP, tiny: Tiny, rows: Floats, sign: int) -> Fraction:
    """The extreme mean gap under sharing in time in fractions, each row filled in the order of its values."""
    F = np.vectorize(Fraction)
    P, R, to, rows, g = F(mdp.rows.chances), F(mdp.rows.rewards), mdp.rows.successors, F(rows), Fraction(tiny.g)
    size, log = mdp.rows.num_states, tiny.log
    later, paid = [Fraction(0)] * size, Fraction(0)
    for t in range(len(log) - 1, -1, -1):
        seen, after = log.states[t] * A + log.actions[t], log.states[t + 1]
        (i,) = np.flatnonzero((to[seen] == after) & (P[seen] > 0))
        now = [Fraction(0)] * size
        for y, b in itertools.product(range(size), range(A)):
            r = y * A + b
            values = [R[r, k] + g * later[to[r, k]] for k in range(P.shape[1])]
            left, mean = Fraction(1), Fraction(0)
            for k in sorted(range(len(values)), key=lambda k: -sign * values[k]):
                share = Fraction(int(k == i)) if r == seen else min(P[r, k] / P[seen, i], left)
                mean, left = mean + share * values[k], left - share
            now[y] += rows[t, y, b] * mean
        later, paid = now, R[seen, i] + g * paid
    return later[log.states[0]] - paid


def test_rounding_is_counted() -> None:
    """Against fractions, with probabilities down to 1e-30; the room is a few thousand roundings."""
    for seed in range(10):
        tiny = Tiny(seed, states=3)
        rare = tiny.P * 10.0 ** -tiny.rng.integers(0, 31, tiny.P.shape)
        tiny.mdp = (rare / rare.sum(axis=2, keepdims=True), tiny.R + 0.1, tiny.g)
        if not all(
            tiny.mdp[0][s, a, to] > 0
            for s, a, to in zip(tiny.log.states, tiny.log.actions, tiny.log.states[1:], strict=False)
        ):
            continue
        tiny.log = jm.Trajectory(tiny.log.states, tiny.log.actions)
        mdp = LoggedMDP(*tiny.mdp, None, None, None, "time", None, 1e-6, None)
        found = tiny.bounds(other_policy=tiny.other, sharing="time")
        least, most = (exactly(mdp, tiny, jm.envs.timed_policy(mdp.base, tiny.other, T), sign) for sign in (-1, 1))
        assert Fraction(found.lower) <= least
        assert most <= Fraction(found.upper)
        assert found.width <= float(most - least) + 1e-10


COUPLINGS: list[Any] = ["comonotone", "independent", "maximal", "antithetic", "gumbel-max"]


@pytest.mark.parametrize("sharing", daily(["time", "state"]))
@pytest.mark.slow
def test_no_coupling_leaves_the_bounds(sharing: Any) -> None:
    for seed in range(2):
        tiny = Tiny(seed, states=3)
        instead = (tiny.log.actions[0] + 1) % A
        asked: list[dict[str, Any]] = [
            {"action": instead},
            {"other_policy": tiny.other},
            {"other_policy": tiny.other[0]},
            {"but": {1: 1 - tiny.log.actions[1]}},
        ]
        for coupling in COUPLINGS:
            model = jm.from_mdp(*tiny.mdp, coupling, sharing)
            for options in asked:
                steps = T + 2 * (seed % 2 and sharing == "time")
                ends = tiny.bounds(**options, sharing=sharing, horizon=steps)
                gap = jm.hindsight(model, tiny.policy, tiny.log, **options, horizon=steps).gap
                assert ends.lower <= gap.mean + gap.mean_error, (seed, coupling, options)
                assert gap.mean - gap.mean_error <= ends.upper, (seed, coupling, options)


def test_endless_futures_and_episodes_that_are_over() -> None:
    walk = {
        "on": {"safe": [(0.9, "on", 1), (0.1, "off", 0)], "fast": [(0.6, "on", 2), (0.4, "off", 0)]},
        "slow": {"safe": [(1.0, "on", 0)], "fast": [(0.5, "slow", 3), (0.5, "off", 3)]},
        "off": {"safe": [(1.0, "off", 0)], "fast": [(1.0, "off", 0)]},
    }
    log = jm.Trajectory(["on", "on", "off"], ["fast", "fast"], ended=True)
    blind = jm.Trajectory(["on", "on"], ["fast", "fast"], ended=True)
    by_time = lambda t, s: "safe" if t < 2 else "fast"  # noqa: E731
    asked: list[tuple[dict[str, Any], int | None]] = [
        ({"other_policy": "safe"}, None),
        ({"other_policy": "safe"}, 5),
        ({"other_policy": by_time}, 5),
        ({"other_policy": by_time}, None),
        ({"but": {0: "safe"}}, 5),
        ({"action": "safe", "start": 1}, 4),
    ]
    for options, horizon in asked:
        ends = jm.bounds.hindsight_bounds(walk, None, 0.9, "fast", log, **options, horizon=horizon, sharing="time")
        same = jm.bounds.hindsight_bounds(walk, None, 0.9, "fast", blind, **options, horizon=horizon, sharing="time")
        assert (same.lower, same.upper) == pytest.approx((ends.lower, ends.upper), abs=1e-9)
        for coupling in COUPLINGS:
            model = jm.from_mdp(walk, None, 0.9, coupling, "time")
            gap = jm.hindsight(model, "fast", log, **options, horizon=horizon).gap
            assert ends.lower <= gap.mean + gap.mean_error, (options, horizon, coupling)
            assert gap.mean - gap.mean_error <= ends.upper, (options, horizon, coupling)


def test_what_cannot_be_is_refused() -> None:
    tiny = Tiny(1)
    with pytest.raises(jm.ModelError, match="give one of action"):
        tiny.bounds()
    with pytest.raises(jm.ModelError, match="more than the horizon of 2"):
        tiny.bounds(action=0, horizon=2)
    with pytest.raises(jm.ModelError, match='"time" and "state"'):
        tiny.bounds(action=0, sharing="none")
    with pytest.raises(jm.ModelError, match="assume is 'smooth'"):
        tiny.bounds(action=0, assume="smooth")
    with pytest.raises(jm.ModelError, match="nothing counts without a policy"):
        jm.bounds.best_worst_case(*tiny.mdp, tiny.log, horizon=9)
    limited = {
        "a": {"go": [(0.5, "a", 0), (0.5, "b", 0)], "stay": [(1.0, "a", 1)]},
        "b": {"go": [(1.0, "a", 9)]},
    }
    log = jm.Trajectory(["a", "a", "a"], ["stay", "stay"])
    with pytest.raises(jm.ModelError, match="come to b at step 1, where stay is not available"):
        jm.bounds.hindsight_bounds(limited, None, 0.9, "go", log, but={0: "go"})
    # One change may lead to b, where another one has to be made.
    assert jm.bounds.best_worst_case(limited, None, 0.9, log, 1).table() == []
    two = jm.bounds.best_worst_case({**limited, "b": {"go": [(1.0, "a", 9)]}}, None, 0.9, log, 2)
    assert two.gap.lower >= -1e-12
    with pytest.raises(jm.NotKnownError, match="no change is left"):
        two.action(1, "b", 0)
    twice = {"a": {"x": [(0.5, "a", 0), (0.5, "a", 1)], "y": [(1.0, "a", 0)]}}
    with pytest.raises(jm.ModelError, match="several rewards"):
        jm.bounds.hindsight_bounds(twice, None, 0.9, "x", jm.Trajectory(["a", "a"], ["y"]), "x", assume="stable")
    half, blind = (np.full((2, 2, 2), 0.5), np.zeros((2, 2)), 0.9), jm.Trajectory([0], [0])
    with pytest.raises(jm.ModelError, match="which outcome step 0 had"):
        jm.bounds.hindsight_bounds(*half, 0, blind, 1, assume="stable")


def test_stable_and_monotone_couplings_narrow_the_bounds() -> None:
    widths = np.zeros(3)
    for seed in range(12):
        tiny = Tiny(seed, states=3)
        model = jm.from_mdp(*tiny.mdp, "gumbel-max", "time")  # which is stable, and not always monotone
        wide, stable, monotone = (
            tiny.bounds(other_policy=tiny.other, sharing="time", assume=each) for each in (None, "stable", "monotone")
        )
        gap = jm.hindsight(model, tiny.policy, tiny.log, other_policy=tiny.other, horizon=T).gap
        assert stable.lower - gap.mean_error <= gap.mean <= stable.upper + gap.mean_error
        for each in (stable, monotone):
            assert wide.lower - 1e-12 <= each.lower <= each.upper <= wide.upper + 1e-12
        widths += monotone.width, stable.width, wide.width
    assert widths[0] < 0.9 * widths[2]
    assert widths[1] < 0.9 * widths[2]


def first_step(P: Floats, seen: tuple[int, int, int], assume: Any) -> IntervalStep:
    """What a state, an action and a successor leave of all rows."""
    s, a, to = seen
    mdp = LoggedMDP(P, np.zeros(P.shape[:2]), 0.9, None, None, None, "time", assume, 1e-6, None)
    log = mdp.seen(jm.Trajectory([s, to], [a]), 0)
    every = np.arange(len(mdp.rows.chances))
    return interval_step(mdp.rows, every, log, 0, mdp.over, 1e-6, "time", assume)


def test_all_stable_couplings_lie_within() -> None:
    """Programs over tables of two rows that are stable whatever comes; also monotone in what was seen."""
    for seed in range(20):
        tiny = Tiny(seed, states=4)
        P, rng = tiny.P, np.random.default_rng(seed)
        q, p, i, values = P[1, 0], P[2, 1], int(np.argmax(P[1, 0])), rng.normal(size=4)
        is_free = np.array([[j == k or q[j] == 0 or p[j] * q[k] > p[k] * q[j] for j in range(4)] for k in range(4)])
        rows = np.vstack([np.kron(np.eye(4), np.ones(4)), np.kron(np.ones(4), np.eye(4))])
        cost = np.zeros((4, 4))
        cost[i] = values / q[i]
        for assume in ("stable", "monotone"):
            most = np.where(is_free, 1.0, 0.0)
            least = np.zeros((4, 4))
            if assume == "monotone":
                most[i] = np.where((np.arange(4) != i) & (q > 0), np.minimum(most[i], q[i] * p), most[i])
                least[i, i] = q[i] * p[i]
            limits = list(zip(least.ravel(), np.maximum(most, least).ravel(), strict=True))
            step = first_step(P, (1, 0, i), assume)
            for sign in (-1, 1):
                mine = float(step.backup(values, 1.0, sign)[2, 1])
                program = linprog(-sign * cost.ravel(), A_eq=rows, b_eq=np.append(q, p), bounds=limits, method="highs")
                assert program.success or assume == "monotone"  # which not every pair of rows can be
                assert not program.success or sign * mine + program.fun >= -ROOM
                assert assume == "monotone" or sign * mine + program.fun <= ROOM


def published(
    P: Floats, seen: tuple[int, int, int], s: int, a: int, to: int, assume: str | None
) -> tuple[float, float]:
    """Closed forms of Lally, Kazemi and Paoletti for one transition, written from their description."""
    x, u, y = seen
    q, p = P[x, u], P[s, a]
    if (s, a) == (x, u):
        return (1.0, 1.0) if to == y else (0.0, 0.0)
    overlap = np.any((p > 0) & (q > 0))

    def upper(j: int) -> float:
        free = min(1.0, p[j] / q[y])
        if assume is None or not overlap:
            return free
        if j == y:
            return free
        if q[j] > 0 and p[y] / q[y] >= p[j] / q[j]:
            return 0.0
        if assume == "stable":
            return free
        return min(1 - p[y], p[j] if q[j] > 0 else p[j] / q[y])

    least = max(0.0, 1 - sum(upper(k) for k in range(len(p)) if k != to))
    if assume == "monotone" and overlap and to == y:
        least = max(least, p[y])
    return least, upper(to)


@pytest.mark.parametrize("assume", [None, "stable", "monotone"])
def test_intervals_are_the_published_ones(assume: Any) -> None:
    """On random models and on a windy grid, where rows overlap in part or not at all."""
    grid, _ = jm.envs.windy_gridworld(3)
    wider = list[float]()
    for seed in range(8):
        tiny = Tiny(seed, states=4)
        P = tiny.P
        if seed % 2:  # fewer successors: disjoint supports
            P = np.where(tiny.rng.random(P.shape) < 0.5, P, 0.0)
            P[np.arange(4)[:, None], np.arange(A), tiny.rng.integers(0, 4, (4, A))] += 0.1
            P /= P.sum(axis=2, keepdims=True)
        if seed == 7:
            P = grid.marginal_mdp().transitions
        states, actions = P.shape[:2]
        x, u = 1, 0
        y = int(np.argmax(P[x, u]))
        step = first_step(P, (x, u, y), assume)
        for to in range(states):
            least, most = (step.backup(np.eye(states)[to], 1.0, sign) for sign in (-1, 1))
            for s, a in itertools.product(range(states), range(actions)):
                low, high = published(P, (x, u, y), s, a, to, assume)
                others = [published(P, (x, u, y), s, a, k, assume)[0] for k in range(states) if k != to]
                high = min(high, 1 - sum(others))
                assert low - 1e-12 <= least[s, a] <= most[s, a] + 1e-12 <= high + 2e-12
                if assume == "stable":  # these are narrower: stable whatever comes, not only in what was seen
                    wider.append(least[s, a] - low + high - most[s, a])
                else:
                    assert (least[s, a], most[s, a]) == pytest.approx((low, high), abs=1e-12)
    assert not wider or 0.01 < np.mean(wider) < 0.1


def robust(tiny: Tiny, sharing: str, changes: int | None) -> float:
    """The best worst case by trying all actions everywhere, with a linear program over pairs for each row."""
    P, R, g, log = tiny.P, tiny.R, tiny.g, tiny.log

    def worst(t: int, y: int, b: int, later: Floats) -> float:
        s, a, to = log.states[t], log.actions[t], log.states[t + 1]
        values = R[y, b] + g * later
        if (y, b) == (s, a):
            return float(values[to])
        if sharing == "state" and y != s:
            return float(P[y, b] @ values)
        size = len(P)
        cost = np.zeros((size, size))
        cost[to] = values / P[s, a, to]
        sums = [np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))]
        found = linprog(
            cost.ravel(), A_eq=np.vstack(sums), b_eq=np.append(P[s, a], P[y, b]), bounds=(0, None), method="highs"
        )
        return float(found.fun)

    def value(t: int, left: int) -> Floats:
        if t == len(log):
            return np.zeros(len(P))
        found = np.full(len(P), -np.inf)
        for y, b in itertools.product(range(len(P)), range(A)):
            spent = int(b != log.actions[t])
            if spent <= left:
                found[y] = max(found[y], worst(t, y, b, value(t + 1, left - spent)))
        return found

    seen = sum(
        g**t * R[s, a, to] for t, (s, a, to) in enumerate(zip(log.states, log.actions, log.states[1:], strict=False))
    )
    return float(value(0, len(log) if changes is None else changes)[log.states[0]] - seen)


@pytest.mark.parametrize("sharing", ["time", "state"])
def test_the_best_worst_case_is_that_of_enumeration(sharing: Any) -> None:
    for seed in range(3):
        tiny = Tiny(seed, steps=2)
        worst = []
        for changes in (0, 1, None):
            best = jm.bounds.best_worst_case(*tiny.mdp, tiny.log, changes, sharing=sharing)
            assert best.gap.lower == pytest.approx(robust(tiny, sharing, changes), abs=ROOM)
            worst.append(best.gap.lower)
        assert worst[0] == pytest.approx(0.0, abs=1e-12)
        assert worst[0] - 1e-12 <= worst[1] <= worst[2] + 1e-12
        # Of all plans by time and state none has a larger least mean, and that of the best one is what was said.
        every = []
        for choice in itertools.product(range(A), repeat=2 * S):
            rows = np.eye(A)[np.array(choice).reshape(2, S)]
            every.append(tiny.bounds(other_policy=rows, sharing=sharing).lower)
        assert max(every) == pytest.approx(best.gap.lower, abs=1e-12)
        ends = tiny.bounds(other_policy=best.policy, sharing=sharing)
        assert (ends.lower, ends.upper) == pytest.approx((best.gap.lower, best.gap.upper), abs=1e-12)


def test_a_plan_gives_what_it_says_under_every_coupling() -> None:
    tiny = Tiny(4, states=3)
    best = jm.bounds.best_worst_case(*tiny.mdp, tiny.log, None, policy=tiny.policy, horizon=T + 1, sharing="time")
    for coupling in COUPLINGS:
        model = jm.from_mdp(*tiny.mdp, coupling, "time")
        rows = np.concatenate([best.policy, tiny.policy[None]])
        gap = jm.hindsight(model, tiny.policy, tiny.log, other_policy=rows, horizon=T + 1).gap.mean
        assert best.gap.lower - 1e-12 <= gap <= best.gap.upper + 1e-12
        most = jm.best_in_hindsight(model, tiny.log, None, policy=tiny.policy, horizon=T + 1)
        assert most.gap.mean >= best.gap.lower - 1e-9
    assert all(row["better"] != row["logged"] for row in best.table())
    stable = jm.bounds.best_worst_case(*tiny.mdp, tiny.log, None, sharing="time", assume="stable")
    assert stable.gap.lower >= jm.bounds.best_worst_case(*tiny.mdp, tiny.log, None, sharing="time").gap.lower - 1e-12
