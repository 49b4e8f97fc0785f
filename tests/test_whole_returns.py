"""`compare` stops most replications where branches are one: gaps are those of `simulate`, returns are whole."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from zoo import build, daily, slow_or_long

import jointmdp as jm
from jointmdp.decisions.comparing.compare import Rules, decide
from jointmdp.simulation.montecarlo.alternatives import Alternatives, SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.compiled_branches import BLOCK, EVERY, WHOLE
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

pytestmark = pytest.mark.optimised

LIMIT = 5.0  # standard errors: false-alarm rate 6e-7
SURE = 1 - 1e-6


def small(sharing: str) -> tuple[jm.JointMDP, np.ndarray]:
    case = oracle.random_model(np.random.default_rng(3), 4, 3, 3, discount=0.8, sharing=sharing)
    return build(case), np.full((4, 3), 1 / 3)


def step(key: jax.Array, stock: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array]:
    demand = jax.random.randint(key, (), 0, 3)
    left = jnp.clip(stock + order - demand, 0, 4)
    return 1.0 * jnp.minimum(stock + order, demand) - 0.5 * order, left


def shop() -> JaxSimulator:
    return JaxSimulator(step, 2, actions=3, discount=0.8, reward_bounds=(-2.0, 4.0))


def rings() -> tuple[jm.JointMDP, np.ndarray]:
    """The second action leads to other states for ever: branches are never one."""
    successors = np.array([[[0, 2], [1, 3]], [[1, 3], [0, 2]], [[2, 0], [3, 1]], [[3, 1], [2, 0]]])
    rewards = np.random.default_rng(1).normal(size=(4, 2, 2))
    return jm.JointMDP(np.full((4, 2), 0.5), rewards, successors, 0.8, "time"), np.tile([1.0, 0.0], (4, 1))


def at_once() -> tuple[jm.JointMDP, np.ndarray]:
    """The scenario alone says where to go on: branches are one after a step, and one of them is simulated for all."""
    model, _ = small("time")
    successors = np.broadcast_to(np.arange(3)[:, None], (4, 3, 3))
    return jm.JointMDP(model.probabilities, model.rewards, successors, 0.8, "time"), np.tile([0.0, 1.0, 0.0], (4, 1))


def compared(source: object, policy: object, count: int, **more: object) -> jm.results.Comparison:
    settings = {"pilot": count, "max_replications": count, "half_width": 1e-9} | more
    return jm.compare(source, policy, 2, [0, 1], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_or_long(["state", "jax", "simulator", "time", "none"], 3))
def test_gaps_are_those_of_simulate_and_some_returns_are_whole(kind: str) -> None:
    if kind == "jax":
        source, policy = shop(), "uniform"
    else:
        model, policy = small("time" if kind == "simulator" else kind)
        source = TableSimulator(model) if kind == "simulator" else model
    count = EVERY * BLOCK + WHOLE + 50
    found = compared(source, policy, count)
    whole = np.concatenate([np.arange(WHOLE), EVERY * BLOCK + np.arange(WHOLE)])
    assert found.whole.tolist() == whole.tolist()
    gap = found.gap(0, 1)
    # Where some branches do not become one, those that are whole go on longer.
    alone = jm.simulate(source, policy, 2, [0, 1], num_samples=count, gaps_only=True).gap(0, 1)
    np.testing.assert_allclose(gap.gaps, alone.gaps, rtol=0, atol=alone.truncation_bound)
    np.testing.assert_allclose(found.returns[:, 0] - found.returns[:, 1], gap.gaps[whole], rtol=0, atol=1e-12)
    assert f"{2 * WHOLE} of them went on" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "at once", "time", "none", "never one"])
def test_whole_returns_have_the_exact_mean_and_deviation(sharing: str) -> None:
    """A standard deviation from n values has relative error √((κ−1)/4n); the kurtosis κ of such sums is below 5."""
    model, policy = {"never one": rings, "at once": at_once}.get(sharing, partial(small, sharing))()
    found, exact = compared(model, policy, 3 * EVERY * BLOCK, confidence=SURE), jm.evaluate(model, policy)
    assert len(found.whole) == 3 * WHOLE
    for action, each in enumerate(found.alternatives):
        assert exact.mean[2, action] in each.mean_interval
        std = float(np.sqrt(exact.covariance[2, action, action]))
        assert each.std == pytest.approx(std, rel=LIMIT / np.sqrt(3 * WHOLE))
        assert each.mean_interval.width < 2 * LIMIT * 2 * std / np.sqrt(3 * WHOLE)
    assert exact.gap(2, 0, 1).mean in found.gap(0, 1).mean_interval
    assert (found.gap(0, 1).truncation_bound == 0) == (sharing == "at once")
    first, second = found.alternatives
    assert first.mean - second.mean == pytest.approx(found.gap(0, 1).mean, abs=1e-9)  # what follows is common


def test_what_is_rare_in_whole_returns_is_seen_in_all() -> None:
    """A prize of 500 in 1 of 250 first steps, then noise: no whole return has won it, mean and deviation know it."""
    rewards = np.array([[[0.0, 0.0], [0.0, 500.0]], [[1.0, 1.0], [-1.0, -1.0]]])
    model = jm.JointMDP([[0.996, 0.004], [0.5, 0.5]], rewards, np.ones((2, 2, 2), int), 0.9, "state")
    policy, exact = np.tile([1.0, 0.0], (2, 1)), 500 * 0.004
    settings = {"pilot": 2000, "max_replications": 2000}
    runs = [jm.compare(model, policy, 0, [0, 1], seed=seed, **settings) for seed in range(8)]
    unseen = [found for found in runs if found.returns.max() < 400]
    assert len(unseen) > 2  # 0.996¹²⁸ is 0.6
    for found in unseen:
        prize = found.alternatives[1]
        assert exact in prize.mean_interval
        assert prize.mean_interval.width < 40
        assert 10 < prize.std < 60  # 31.6, from about 8 prizes


@pytest.mark.parametrize("horizon", daily([100, None, 1, 64, 129]))
def test_a_whole_return_has_every_reward(horizon: int | None) -> None:
    """One reward of 1 a step after branches are one: the return is a geometric sum, whatever portions it is made in."""
    model = jm.JointMDP(np.ones((3, 1)), np.array([[[2.0, 5.0]]] * 3), np.ones((3, 1, 2), int), 0.9, "time")
    jax_model = JaxSimulator(lambda key, s, a: (2.0 + 3.0 * a, s), 1, actions=2, discount=0.9, reward_bounds=(0.0, 5.0))
    truth = 2 * (1 - 0.9 ** (np.inf if horizon is None else horizon)) / 0.1
    for source, state in ((model, 0), (jax_model, None)):
        found = first_actions(source, 0, state, [0, 1], SimulationSettings(horizon=horizon, some_whole=True))
        run = found.sampler(0, WHOLE + 1, "time")
        assert run.is_whole is not None
        assert run.is_whole.tolist() == [True] * WHOLE + [False]
        room = run.left_out[0] * 50 + 1e-9
        np.testing.assert_allclose(run.whole.returns, np.array([[truth, truth + 3]] * WHOLE), rtol=0, atol=room)
        assert (run.left_out == 0).all() if horizon else 0 < run.left_out[0] < 1e-6
        assert run.returns[WHOLE].tolist() == [2, 5]


def test_a_bad_reward_after_branches_are_one_is_named() -> None:
    def counted(key: jax.Array, step: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.where(step == 200, jnp.nan, 1.0 * action), step + 1

    source = JaxSimulator(counted, 0, actions=2, discount=0.99)
    with pytest.raises(jm.ModelError, match=r"in step 200 of replication 0, .* the reward of action 0 is not finite"):
        jm.compare(source, 0, None, [0, 1])
    with pytest.warns(jm.errors.NoiseWarning, match="never mattered"):
        found = jm.compare(source, 0, None, [0, 1], horizon=199)
    assert (found.returns == [0, 1]).all()  # what comes later does not count


def test_episodes_that_end() -> None:
    """Two to four more steps, each paid 1, after a first step of 1 or 3: whole returns are small whole numbers."""
    successors = np.array([[[1, 1], [2, 2]], [[2, 2], [3, 3]], [[3, 3], [3, 3]], [[3, 3], [3, 3]]])
    rewards = np.array([[[1.0, 3.0]] * 2] + [[[1.0, 1.0]] * 2] * 2 + [[[0.0, 0.0]] * 2])
    model = jm.JointMDP(np.full((4, 2), 0.5), rewards, successors, 1.0, "time")
    found = jm.compare(model, 0, 0, [0, 1], pilot=300, max_replications=300)
    assert set(np.unique(found.returns)) == {2, 3, 4, 5}
    assert (found.returns[:, 1] - found.returns[:, 0] == 2).all()


@pytest.mark.slow
def test_an_executor_and_a_file_change_nothing(tmp_path: object) -> None:
    model, policy = small("time")
    found = compared(model, policy, EVERY * BLOCK + 10)
    there = compared(model, policy, EVERY * BLOCK + 10, executor="processes:2")
    jm.save(found, tmp_path / "found")  # type: ignore[operator]
    again = jm.load(tmp_path / "found")  # type: ignore[operator]
    assert isinstance(again, jm.results.Comparison)
    for other in (there, again):
        assert np.array_equal(other.whole, found.whole)
        assert np.array_equal(other.returns, found.returns)
        assert np.array_equal(other.gaps[0].gaps, found.gaps[0].gaps)
    assert found.to_xarray().replication.values.tolist() == found.whole.tolist()


def test_a_few_more_returns_are_not_looked_at() -> None:
    """Sizes of looks at returns grow as those of looks at gaps do: from 100 to 120 is too little, to 200 is enough."""
    rows = np.random.default_rng(0).normal(size=(2000, 2))

    def sampler(limit: int) -> object:
        def sample(first: int, count: int, sharing: str) -> Replications:
            part, none = rows[first : first + count], np.zeros(count, dtype=np.int64)
            leads, is_whole = part - part[:, :1], (np.arange(first, first + count) % 200 < 100)
            is_whole[max(limit - first, 0) :] = False
            leaders = np.tile([0, 1], (count, 1))
            return Replications(part, leads, 1e-15 + 0 * leads, none, leaders, none * 0.0, None, is_whole)

        return sample

    for limit, seen in ((220, 100), (300, 200)):
        names = ("a", "b")
        found = Alternatives(sampler(limit), names, "options", "time", ("time",), None)  # type: ignore[arg-type]
        made = decide(found, Rules(indifference=0.0, pilot=200, max_replications=300))
        assert (made.looks, made.num_replications, len(made.whole), len(made.returns)) == (2, 300, seen, seen)
        assert made.alternatives[0].mean == pytest.approx(rows[made.whole, 0].mean())


def test_the_range_of_returns_is_that_of_all() -> None:
    """A large return that is not whole widens what an unseen gap may be, up to what the rewards allow."""
    zeros = np.zeros((200, 2))
    run = Replications(zeros.copy(), zeros, zeros, np.ones(200, int), zeros.astype(int), zeros[:, 0], None)._replace(
        is_whole=np.arange(200) < 100
    )
    names = ("a", "b")
    found = Alternatives(lambda *_: run, names, "options", "time", ("time",), None, discount=0.9)
    assert found.reach(run) == np.inf
    run.returns[150] = 7.0
    assert found.reach(run) == 7
    assert found._replace(spread=5.0).reach(run) == 5
    run.returns[50, 1] = 9.0
    assert found.reach(run) == 9
