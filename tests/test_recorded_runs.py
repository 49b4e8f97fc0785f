"""Recorded samples: asked again for another action or policy, they answer on the same noise, to the last bit."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import STATE_AND_SLOW, daily

import jointmdp as jm
from jointmdp.simulation.executors import Processes
from jointmdp.simulation.montecarlo.compiled_branches import columns_of

SEED, HORIZON = 5, 8


def table():
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    return model, policy, 2, [0, 1, 3]


def grid():
    model, policy = jm.envs.windy_gridworld(5)
    return model, policy, 3, [0, 1, 2]


def asked_table():
    """A table in the query engine: the policy is a function."""
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    return model, lambda stock: policy[stock], 2, [0, 1, 3]


def shop():
    def day(stock, order, noise):
        sold = min(stock + order, noise["demand"])
        left = stock + order - sold
        return 10 * sold - noise["price"] * order - 0.2 * left, left, left > 11

    noise = {"demand": lambda rng: int(rng.poisson(4)), "price": lambda rng: rng.uniform(3, 5)}
    simulator = jm.FunctionSimulator(day, noise, start=4, actions=[0, 4, 8], discount=0.9)
    return simulator, lambda stock: [0.2, 0.5, 0.3] if stock < 4 else [0.6, 0.4, 0.0], 4, [8, 0, 4]


def walk():
    def step(key, state, action):
        noise_key, other = jax.random.split(key)
        after = state + action - 1 + jax.random.randint(noise_key, (), -1, 2)
        return after * jax.random.bernoulli(other), after, abs(after) > 3

    simulator = jm.JaxSimulator(step, lambda key: jnp.int32(0), actions=3, discount=0.5)
    return simulator, "uniform", simulator.reset(), [0, 1, 2]


def lake():
    return jm.GymnasiumSimulator("FrozenLake-v1", discount=0.9), "uniform", 14, ["down", "up", "right"]


SLOW = pytest.mark.slow
DAILY = [
    table,
    asked_table,
    shop,
    pytest.param(walk, marks=SLOW),
    pytest.param(lake, marks=SLOW),
]  # programs of JAX take long to compile


def assert_same_bits(found, wanted):
    for name, one, other in zip(found._fields, found, wanted, strict=True):
        assert (one is None) == (other is None), name
        assert one is None or one.tobytes() == other.tobytes(), name


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("case", DAILY)
@pytest.mark.slow
def test_asked_again_is_what_a_run_with_all_actions_gives(case, sharing):
    source, policy, state, actions = case()
    how = {"num_samples": 30, "seed": SEED, "horizon": HORIZON, "sharing": sharing}
    found = jm.simulate(source, policy, state, actions[:2], **how)
    whole = jm.simulate(source, policy, state, actions, **how)
    again = found.again(actions[2])
    assert again.actions == whole.actions
    assert_same_bits(again.replications, whole.replications)
    assert again.gap(actions[2], actions[0]).mean_interval == whole.gap(actions[2], actions[0]).mean_interval
    # What was simulated before is what it was, and something was added.
    assert found.returns.tobytes() == np.ascontiguousarray(whole.returns[:, :2]).tobytes()
    assert np.any(whole.gap(actions[2], actions[0]).gaps != 0)
    assert again.again(actions[0]).actions == again.actions  # nothing is there twice


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("case", [asked_table, *(pytest.param(case, marks=SLOW) for case in (shop, table, walk))])
def test_asked_one_by_one_or_at_once(case, sharing):
    source, policy, state, actions = case()
    how = {"num_samples": 30, "seed": SEED, "horizon": HORIZON, "sharing": sharing}
    found = jm.simulate(source, policy, state, actions[:1], **how)
    whole = jm.simulate(source, policy, state, actions, **how)
    assert_same_bits(found.again(actions[1]).again([actions[2]]).replications, whole.replications)
    assert_same_bits(found.again(actions[1:]).replications, whole.replications)
    assert found.returns.tobytes() == whole.returns[:, :1].tobytes()


@pytest.mark.parametrize("case", DAILY)
def test_a_replay_pays_the_return_step_by_step(case):
    source, policy, state, actions = case()
    found = jm.simulate(source, policy, state, actions[:2], num_samples=20, seed=SEED, horizon=HORIZON)
    whole = found.again(actions[2])
    simulator = found.origin.simulator
    for i, action in [(0, actions[1]), (7, actions[0]), (3, actions[2]), (19, actions[2])]:
        path, j = found.replay(i, action), actions.index(action)
        assert path.total == whole.returns[i, j]
        assert path.rewards @ simulator.discount ** np.arange(len(path.rewards)) == pytest.approx(path.total)
        assert len(path.states) == len(path.actions) + 1 == len(path.rewards) + 1
        assert path.actions[0] == simulator.action_value(simulator.action_index(action))
        assert path.ended == simulator.is_over(path.states[-1])
        assert path.ended or len(path.actions) == HORIZON
        assert not any(map(simulator.is_over, path.states[:-1]))


def test_a_replayed_step_is_the_simulators_own():
    """The second way: the noise of step t of replication i under "time", by its address."""
    simulator, policy, state, actions = shop()
    found = jm.simulate(simulator, policy, state, actions[:2], num_samples=5, seed=SEED, horizon=HORIZON)
    path = found.replay(3, actions[2])
    for t, (here, action, reward) in enumerate(zip(path.states, path.actions, path.rewards, strict=False)):
        outcome = simulator.step(here, simulator.action_index(action), jm.Noise("noise", SEED, 3, t, 0))
        assert (outcome.reward, outcome.state) == (reward, path.states[t + 1])


@pytest.mark.slow
def test_replayed_steps_of_a_table_stand_in_the_table():
    model, policy, state, actions = table()
    found = jm.simulate(model, policy, state, actions[:2], num_samples=5, horizon=HORIZON)
    path = found.replay(2, actions[2])
    for t, (here, action, reward) in enumerate(zip(path.states, path.actions, path.rewards, strict=False)):
        rows = list(zip(model.rewards[here, :, action], model.successors[here, :, action], strict=True))
        assert (reward, path.states[t + 1]) in rows
    assert len({found.replay(i, actions[0]).states for i in range(5)}) > 1


@pytest.mark.parametrize("case", [shop, pytest.param(grid, marks=pytest.mark.long), pytest.param(walk, marks=SLOW)])
@pytest.mark.slow
def test_another_policy_on_the_same_noise(case):
    source, _, state, actions = case()
    policy = 0  # deterministic: a copy of it does the same, on the same noise
    found = jm.simulate(source, policy, state, actions[:2], num_samples=20, seed=SEED, horizon=HORIZON, sharing="time")
    simulator = found.origin.simulator
    label = simulator.action_names[0]
    same = found.again(policy=label)  # the same action for ever, by its name: another object
    assert same.actions[2:] == tuple(f"{name}, then {label}" for name in found.actions)
    assert np.array_equal(same.returns[:, 2:], found.returns)
    assert np.all(same.gap(same.actions[2], same.actions[0]).gaps == 0)
    second = simulator.action_value(1)
    other = found.again(actions[1], policy=second)
    assert np.array_equal(other.returns[:, :2], found.returns)
    # Nothing but the first action is that of the first policy.
    path = found.replay(4, actions[1], policy=second)
    assert path.total == other.returns[4, 2]
    assert path.actions == (
        simulator.action_value(simulator.action_index(actions[1])),
        *[second] * (len(path.actions) - 1),
    )
    whole = jm.simulate(source, second, state, [actions[1]], num_samples=20, seed=SEED, horizon=HORIZON, sharing="time")
    assert np.allclose(other.returns[:, 2], whole.returns[:, 0], rtol=1e-12)


@pytest.mark.slow
def test_starting_states_of_their_own_are_the_same_again():
    simulator, policy, _, actions = shop()
    simulator = jm.FunctionSimulator(
        simulator._step, simulator._noise, start=lambda rng: int(rng.integers(5)), actions=[0, 4, 8], discount=0.9
    )
    how = {"num_samples": 20, "seed": SEED, "horizon": HORIZON}
    found = jm.simulate(simulator, policy, None, actions[:2], **how)
    whole = jm.simulate(simulator, policy, None, actions, **how)
    assert_same_bits(found.again(actions[2]).replications, whole.replications)
    assert len({found.replay(i, actions[0]).states[0] for i in range(20)}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_endless_returns_of_a_table_are_those_of_the_whole_run(sharing):
    """Blocks stop where little is left, which another branch may put off: then for all."""
    model, policy, state, actions = table()
    how = {"num_samples": 100, "seed": SEED, "sharing": sharing}
    found = jm.simulate(model, policy, state, actions[:2], **how)
    whole, again = jm.simulate(model, policy, state, actions, **how), found.again(actions[2])
    assert_same_bits(again.replications, whole.replications)
    assert np.abs(again.returns[:, :2] - found.returns).max() <= found.truncation_bound + again.truncation_bound
    assert found.replay(60, actions[2]).total == whole.returns[60, 2]


@pytest.mark.slow
def test_workers_give_the_same_bits():
    with Processes(2) as executor:
        for case in (table, shop):
            source, policy, state, actions = case()
            how = {"num_samples": 50, "seed": SEED, "horizon": HORIZON}
            found = jm.simulate(source, policy, state, actions[:2], executor=executor, **how)
            again = found.again(actions[2], executor=executor)
            assert_same_bits(again.replications, jm.simulate(source, policy, state, actions, **how).replications)


@pytest.mark.parametrize("draw", daily([jax.random.split, jax.random.uniform, jax.random.bits]))
def test_columns_of_draws_do_not_depend_on_how_many_there_are(draw):
    key, plain = jax.random.key(3), (lambda x: jax.random.key_data(x)) if draw is jax.random.split else np.asarray
    wide = np.asarray(plain(columns_of(draw, key, (6, 7))))
    for m in range(1, 7):
        assert np.array_equal(np.asarray(plain(columns_of(draw, key, (6, m)))), wide[:, :m])
    # No two draws are the same one, and the first rows of a longer column are the column.
    assert len({row.tobytes() for row in wide.reshape(42, -1)}) == 42
    assert np.array_equal(np.asarray(plain(columns_of(draw, key, (9, 7))))[:6], wide)


@pytest.mark.slow
def test_a_simulator_that_has_changed_is_noticed():
    rate = [4]

    def day(stock, order, noise):
        return float(noise["demand"] * rate[0]), stock + order

    simulator = jm.FunctionSimulator(day, {"demand": lambda rng: rng.normal()}, start=0, actions=3)
    found = jm.simulate(simulator, 0, 0, [0, 1], num_samples=4, horizon=3)
    found.replay(1, 2)
    rate[0] = 5
    with pytest.raises(jm.ModelError, match="gave other returns when it was asked again: the simulator, the policy or"):
        found.again(2)
    with pytest.raises(jm.ModelError, match=r"replication 1 of day \(action 0\) gave .* at first and .* run again"):
        found.replay(1, 0)


def test_questions_that_make_no_sense_are_refused(tmp_path):
    model, policy, state, actions = table()
    found = jm.simulate(model, policy, state, actions, num_samples=20, horizon=3)
    jm.save(found, tmp_path / "sample.npz")  # what it was made from stays behind
    loaded = jm.load(tmp_path / "sample.npz")
    assert np.array_equal(loaded.gap(actions[2], actions[0]).gaps, found.gap(actions[2], actions[0]).gaps)
    assert loaded.best_action().probability == found.best_action().probability
    for ask in (lambda sample: sample.again(2), lambda sample: sample.replay(0, 2)):
        with pytest.raises(jm.ModelError, match="comes from a file, which does not hold the simulator"):
            ask(loaded)
    with pytest.raises(jm.ModelError, match="other first actions, or another policy"):
        found.again()
    with pytest.raises(jm.ModelError, match="index"):
        found.replay(20, 0)
    with pytest.raises(jm.ModelError, match="action"):
        found.again("no such action")


def test_actions_that_are_not_numbered():
    simulator = jm.GymnasiumSimulator(gymnasium.make("Pendulum-v1"))
    first, other, third = np.array([-1.0]), np.array([1.0]), np.array([0.5])
    how = {"num_samples": 3, "horizon": 4}
    found = jm.simulate(simulator, lambda x: np.array([0.0]), simulator.reset(), [first, other], **how)
    whole = jm.simulate(simulator, lambda x: np.array([0.0]), simulator.reset(), [first, other, third], **how)
    assert np.array_equal(found.again(third).returns, whole.returns)
    assert found.again(np.array([1.0])).actions == found.actions
