"""Hindsight in simulators: another action under the noise that a log gives away, and under what it leaves open."""

import math
from typing import Any

import numpy as np
import pytest
from zoo import SHARINGS, STATE_AND_SLOW

import jointmdp as jm
from jointmdp.simulation.executors import Processes
from jointmdp.simulation.montecarlo.simulated_hindsight import are_close

LAW = np.array([0.1, 0.25, 0.4, 0.15, 0.1])  # of the demand of a day
PRICE, COST, KEEP, ROOM = 10.0, 4.0, 0.5, 4
ORDERS = (0, 2)
LIMIT = 5  # standard errors: a false alarm in two million comparisons


def counted(*args: Any, **settings: Any) -> jm.FunctionSimulator:
    """A simulator whose logs call actions by their place in the list, 0, 1, 2, …"""
    simulator = jm.FunctionSimulator(*args, **settings)
    simulator.action_values, names = None, simulator.action_names or ()
    if any(str(place) in names and names[place] != str(place) for place in range(len(names))):
        simulator.action_names = tuple(f"{name} units" for name in names)  # a number has one meaning
    return simulator


def day(stock, order, demand):
    held = min(stock + order, ROOM)
    sold = min(held, demand)
    return PRICE * sold - COST * (held - stock) - KEEP * (held - sold), held - sold


def draw(rng):
    return int(np.searchsorted(np.cumsum(LAW), rng.random()))


def infer(stock, order, reward, left, rng):
    """Known unless everything was sold; then at least as much was wanted."""
    held = min(stock + order, ROOM)
    if left > 0:
        return held - left
    return held + int(np.searchsorted(np.cumsum(LAW[held:]), rng.random() * LAW[held:].sum()))


def shop(**settings):
    given = {"start": 0, "actions": list(ORDERS), "discount": 0.8, **settings}
    return counted(day, draw, **given)


def log(stock, orders, demands):
    """What a run of given orders and demands shows."""
    states, rewards = [stock], []
    for order, demand in zip(orders, demands, strict=True):
        reward, stock = day(stock, ORDERS[order], demand)
        states.append(stock)
        rewards.append(reward)
    return jm.Trajectory(states, orders, rewards)


@pytest.mark.slow
def test_one_day_that_was_sold_out_is_a_closed_form():
    """From an empty shop 2 were ordered and sold: would none have been better, and by how much would 4 have been?"""
    simulator = counted(day, draw, start=0, actions=[0, 2, 4], discount=0.8)
    seen = log(0, [1], [3])
    assert seen.states[-1] == 0
    nothing = jm.simulators.simulate_hindsight(simulator, 0, seen, 0, infer=infer, horizon=1, num_samples=50)
    assert set(nothing.gaps) == {-(PRICE - COST) * 2}  # whatever the demand was
    found = jm.simulators.simulate_hindsight(simulator, 0, seen, 2, infer=infer, horizon=1, num_samples=2000)
    tail = LAW[2:] / LAW[2:].sum()  # demand 2, 3 or 4
    gains = np.array([PRICE * k - COST * 2 - KEEP * (2 - k) for k in range(3)])  # two more held, k of them sold
    mean = tail @ gains
    std = math.sqrt(tail @ (gains - mean) ** 2)
    assert set(found.gaps) == set(gains)
    assert abs(found.mean - mean) <= LIMIT * std / math.sqrt(2000)
    better = tail[gains > 0].sum()
    assert abs(found.superiority().estimate - better) <= LIMIT * math.sqrt(better * (1 - better) / 2000)
    assert found.superiority().lower < better < found.superiority().upper
    assert (found.action, found.other, found.truncation_bound) == ("4 units", "2 units", 0.0)
    # Without the log it is another question with another answer.
    before = jm.simulate(simulator, 0, 0, [2, 1], horizon=1, num_samples=2000, gaps_only=True).gap(2, 1)
    assert abs(before.mean - mean) > 10 * std / math.sqrt(2000)


def test_noise_that_the_log_gives_away_leaves_nothing_open():
    seen = log(3, [0, 1, 0], [1, 1, 2])
    assert all(left > 0 for left in seen.states)
    found = jm.simulators.simulate_hindsight(shop(), 0, seen, 1, infer=infer, horizon=3, num_samples=20)
    stock, gap = 3, 0.0
    for t, (order, demand) in enumerate(zip([1, 0, 0], [1, 1, 2], strict=True)):
        reward, stock = day(stock, ORDERS[order], demand)
        gap += 0.8**t * (reward - seen.rewards[t])
    assert found.gaps == pytest.approx(np.full(20, gap), rel=1e-12)
    assert found.variance == 0


def by_rejection(sharing, stock, orders, seen, horizon, count):
    """Runs of both branches from the law itself; those whose seen branch did what the log says."""
    rng, gaps = np.random.default_rng(7), []
    other_first = 1 - orders[0]
    drawn = np.searchsorted(np.cumsum(LAW), rng.random((count, horizon, 2))).tolist()
    chosen = (rng.random((count, horizon, 2)) < 0.7).astype(int).tolist()
    for i in range(count):
        states, actions, gap = [stock, stock], [orders[0], other_first], 0.0
        for t in range(horizon):
            is_same = states[0] == states[1]
            if sharing != "none" and is_same and actions[0] == actions[1] and t >= len(orders):
                break
            demands = drawn[i][t]
            if sharing == "time" or (sharing == "state" and is_same):
                demands[1] = demands[0]
            is_one = sharing != "none" and is_same and actions[0] == actions[1]
            results = [day(s, ORDERS[a], d) for s, a, d in zip(states, actions, demands, strict=True)]
            gap += 0.8**t * (results[1][0] - results[0][0])
            states = [after for _, after in results]
            if t < len(orders) and (states[0] != seen.states[t + 1] or results[0][0] != seen.rewards[t]):
                break
            actions = chosen[i][t]
            if is_one:  # one branch
                actions[1] = actions[0]
            if t + 1 < len(orders) and actions[0] != orders[t + 1]:
                break
        else:
            gaps.append(gap)
            continue
        if t >= len(orders):
            gaps.append(gap)
    return np.array(gaps)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize(
    ("stock", "orders", "demands"), [(1, [1, 1], [4, 2]), pytest.param(2, [0, 1], [2, 3], marks=pytest.mark.slow)]
)
def test_samples_are_those_of_runs_that_look_like_the_log(sharing, stock, orders, demands):
    """The second way: simulate without the log, and keep what agrees with it."""
    seen, horizon = log(stock, orders, demands), 5
    kept = by_rejection(sharing, stock, orders, seen, horizon, 30_000)
    assert len(kept) > 1000
    found = jm.simulators.simulate_hindsight(
        shop(sharing=sharing), lambda stock: [0.3, 0.7], seen, 1 - orders[0], infer=infer, horizon=horizon,
        num_samples=2000, seed=1,
    )  # fmt: skip
    means, squares = zip(*((g.mean(), (g - g.mean()) ** 2) for g in (kept, found.gaps)), strict=True)
    errors = [g.std() / math.sqrt(len(g)) for g in (kept, found.gaps)]
    assert abs(means[0] - means[1]) <= LIMIT * math.hypot(*errors)
    spreads = [square.std() / math.sqrt(len(square)) for square in squares]
    assert abs(squares[0].mean() - squares[1].mean()) <= LIMIT * math.hypot(*spreads)
    shares = [np.mean(g > 0) for g in (kept, found.gaps)]
    assert abs(shares[0] - shares[1]) <= LIMIT * math.sqrt(0.25 / len(kept) + 0.25 / 2000)


def test_sharings_are_told_apart():
    seen = log(2, [0, 1], [1, 2])
    found = {
        sharing: jm.simulators.simulate_hindsight(
            shop(), 1, seen, 1, infer=infer, horizon=3, sharing=sharing, num_samples=300
        )
        for sharing in SHARINGS
    }
    assert found["time"].variance < found["state"].variance < found["none"].variance


def test_a_recorded_run_is_its_own_log():
    """Both ways to ask after the fact give one answer where the log is as long as the simulation."""
    simulator = shop(sharing="time")
    sample = jm.simulate(simulator, 1, 1, [1], num_samples=12, seed=3, horizon=6)
    again = sample.again(0).gap(0, 1)
    for i in range(12):
        path = sample.replay(i, 1)
        demands = [simulator.draw(jm.Noise("noise", 3, i, t, 0)) for t in range(6)]
        seen = jm.Trajectory(path.states, path.actions, path.rewards, scenarios=demands)
        found = jm.simulators.simulate_hindsight(simulator, 1, seen, 0, horizon=6, num_samples=2)
        assert found.gaps == pytest.approx(np.full(2, again.gaps[i]), rel=1e-12, abs=1e-12)
    assert np.ptp(again.gaps) > 0


def test_returns_count_from_the_step_that_is_asked_for():
    whole, rest = log(3, [0, 1, 0], [1, 1, 2]), log(2, [1, 0], [1, 2])
    found = [
        jm.simulators.simulate_hindsight(
            shop(), 0, seen, 0, infer=infer, start=start, horizon=2 + start, num_samples=5
        ).gaps
        for seen, start in ((whole, 1), (rest, 0))
    ]
    assert np.array_equal(*found)


def test_what_was_not_logged_is_the_simulators():
    seen = log(3, [0, 1], [1, 1])
    demands = [1, 1]
    bare = jm.Trajectory(seen.states[:2], seen.actions, scenarios=demands)
    found = [
        jm.simulators.simulate_hindsight(shop(), 0, each, 1, infer=how, num_samples=100, seed=2).gaps
        for each, how in ((seen, infer), (bare, None))
    ]
    assert np.array_equal(*found)


def test_the_same_action_is_the_same_branch():
    found = jm.simulators.simulate_hindsight(shop(), "uniform", log(1, [1, 1], [4, 2]), 1, infer=infer, num_samples=20)
    assert np.all(found.gaps == 0)
    assert found.tie().upper == 1.0
    assert found.steps == 0


def game():
    """Ends when the sum passes 3."""

    def step(total, bet, noise):
        after = total + bet * noise
        return float(noise), after, after > 3

    return counted(step, lambda rng: int(rng.integers(3)), start=0, actions=[1, 2])


def test_an_episode_that_ended_pays_nothing_more():
    seen = jm.Trajectory([0, 2, 4], [0, 0], [2.0, 2.0], ended=True)
    known = lambda total, bet, reward, after, rng: int(reward)  # noqa: E731
    found = jm.simulators.simulate_hindsight(game(), 0, seen, 1, infer=known, num_samples=10)
    assert np.all(found.gaps == -2)  # 2·2 passes 3 at once, and the second 2 is never paid
    back = jm.simulators.simulate_hindsight(
        game(), 0, jm.Trajectory([0, 4], [1], [2.0], ended=True), 0, infer=known, num_samples=2000
    )
    # The other branch is at 2 and needs 2 more; m(k) = (0 + 1 + 2 + m(k) + m(k − 1) + m(k − 2)) / 3 is paid for k more.
    paid = {0: 0.0, -1: 0.0}
    for k in (1, 2):
        paid[k] = (3 + paid[k - 1] + paid[k - 2]) / 2
    assert abs(back.mean - paid[2]) <= LIMIT * back.std / math.sqrt(2000)


def test_rounded_logs_are_explained_within_the_tolerance():
    def step(x, push, noise):
        after = 0.9 * x + push + noise
        return -(after**2), after

    simulator = counted(step, lambda rng: rng.normal(), start=0.0, actions=[0.0, 1.0], discount=0.9)
    path = jm.simulate(simulator, 0, 0.0, [0], num_samples=2, horizon=5).replay(1, 0)
    states = [round(state.state, 4) for state in path.states]
    seen = jm.Trajectory(states, path.actions)
    known = lambda x, push, reward, after, rng: after - 0.9 * x - push  # noqa: E731
    found = jm.simulators.simulate_hindsight(simulator, 0, seen, 0, infer=known, horizon=5, num_samples=2)
    assert np.all(found.gaps == 0)
    found = jm.simulators.simulate_hindsight(simulator, 0, seen, 1, infer=known, horizon=5, num_samples=2)
    shift = np.array([0.9**t for t in range(5)])
    wanted = sum(0.9**t * (states[t + 1] ** 2 - (states[t + 1] + shift[t]) ** 2) for t in range(5))
    assert found.gaps == pytest.approx(wanted, rel=1e-6)
    logged = jm.Trajectory(states, path.actions, path.rewards)
    with pytest.raises(jm.ModelError, match="step 0 of the log cannot have had the noise"):
        jm.simulators.simulate_hindsight(simulator, 0, logged, 1, infer=known, horizon=5, num_samples=2)
    jm.simulators.simulate_hindsight(simulator, 0, logged, 1, infer=known, horizon=5, num_samples=2, tolerance=1e-3)


def test_several_sources_of_noise():
    def step(stock, order, noise):
        sold = min(stock + order, noise["demand"])
        return noise["price"] * sold, stock + order - sold

    draws = {"demand": draw, "price": lambda rng: rng.uniform(1, 2)}
    simulator = counted(step, draws, start=0, actions=[1, 2], discount=0.5)
    seen = jm.Trajectory([0, 0], [0], [1.5])
    known = lambda stock, order, reward, left, rng: {"demand": 2, "price": reward}  # noqa: E731
    found = jm.simulators.simulate_hindsight(simulator, 0, seen, 1, infer=known, horizon=1, num_samples=3)
    assert np.all(found.gaps == 1.5)
    with pytest.raises(jm.ModelError, match=r"step 0 of the log is 2; step has several sources, .* demand, price"):
        jm.simulators.simulate_hindsight(simulator, 0, seen, 1, infer=lambda *seen: 2, num_samples=3)


def test_samples_depend_on_the_seed_and_their_number_alone():
    seen = log(1, [1, 1], [4, 2])
    few, many, other = (
        jm.simulators.simulate_hindsight(shop(), "uniform", seen, 0, infer=infer, num_samples=n, seed=seed).gaps
        for n, seed in ((20, 0), (50, 0), (50, 1))
    )
    assert np.array_equal(few, many[:20])
    assert not np.array_equal(many, other)


@pytest.mark.slow
def test_workers_give_the_same_bits():
    given = (shop(), "uniform", log(1, [1, 1], [4, 2]), 0)
    with Processes(2) as executor:
        found = jm.simulators.simulate_hindsight(*given, infer=infer, num_samples=300, executor=executor)
    assert np.array_equal(found.gaps, jm.simulators.simulate_hindsight(*given, infer=infer, num_samples=300).gaps)


def wrong_ending():
    return game(), 0, jm.Trajectory([0, 2], [0], [2.0], ended=True), 1


def gone_on():
    return game(), 0, jm.Trajectory([0, 4, 6], [1, 0], [2.0, 2.0]), 0


def drawing():
    step = lambda stock, order, noise: (0.0, int(noise["demand"].integers(3)))  # noqa: E731
    return jm.FunctionSimulator(step, start=0, actions=2), 0, jm.Trajectory([0, 0], [0]), 1


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (lambda: (jm.envs.inventory(3, 2, 1.0)[0], 0, log(1, [1], [1]), 0), r"exact: jointmdp.hindsight\(model"),
        (lambda: (jm.GymnasiumSimulator("CartPole-v1"), 0, log(1, [1], [1]), 0), "write the model as a FunctionSim"),
        (drawing, "draws from its noise by itself, .* a sampler for each source"),
        (wrong_ending, "after step 0 of the log the episode is over, but step says that it goes on"),
        (gone_on, "after step 0 of the log the episode goes on, but step says that it is over"),
        (lambda: (shop(), 0, log(1, [1], [1]), 5), "action"),
    ],
)
def test_questions_that_make_no_sense_are_refused(case, words):
    with pytest.raises(jm.ModelError, match=words):
        jm.simulators.simulate_hindsight(
            *case(), infer=lambda x, a, reward, after, rng: int(reward or 0), num_samples=3
        )


def test_noise_that_does_not_explain_the_log_is_refused():
    seen = log(3, [0, 1, 0], [1, 1, 2])
    with pytest.raises(jm.ModelError, match=r"step 2 of the log cannot have had the noise 1: with it 0 pays"):
        jm.simulators.simulate_hindsight(shop(), 0, seen, 1, infer=lambda *_: 1, num_samples=3)
    with pytest.raises(jm.ModelError, match="the noise of the log is not known: give infer"):
        jm.simulators.simulate_hindsight(shop(), 0, seen, 1, num_samples=3)
    with pytest.raises(jm.ModelError, match="infer of day raised ZeroDivisionError in step 0 of replication 0"):
        jm.simulators.simulate_hindsight(shop(), 0, seen, 1, infer=lambda *_: 1 // 0, num_samples=3)
    with pytest.raises(jm.ModelError, match="start"):
        jm.simulators.simulate_hindsight(shop(), 0, seen, 1, infer=infer, start=3, num_samples=3)
    own = np.random.default_rng(1)
    with pytest.raises(jm.ModelError, match="gave something else when it was run again"):
        jm.simulators.simulate_hindsight(
            shop(), lambda stock: int(own.integers(2)), seen, 1, infer=infer, num_samples=3
        )


@pytest.mark.parametrize(
    ("one", "other", "is_close"),
    [
        (3, 3, True),
        (3, 3.0000001, True),
        (10**9, 10**9 + 1, False),  # numbers without a fraction are exact
        (1e9, 1e9 + 1, True),
        ((1, 0.5), (1, 0.5000001), True),
        ((1, 0.5), (1, 0.51), False),
        ((1, 2), (1, 2, 3), False),
        ({"a": 1.0}, {"a": 1.0}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-8]), True),
        (np.array([1.0, 2.0]), np.array([1.0]), False),
        ("open", "open", True),
        ("open", "shut", False),
        ("open", 1.0, False),
    ],
)
def test_what_counts_as_the_same(one, other, is_close):
    assert are_close(one, other, 1e-6) is is_close
