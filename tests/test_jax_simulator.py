"""JAX environments: queries, the compiled engine, gymnax; against exact models, closed forms and the query engine.

Statistical tests have fixed seeds and computed standard errors. With a limit of 4.5 standard errors a correct program
fails one comparison with probability 7e-6 (normal), so the about 70 comparisons here give a false alarm with
probability below 0.05 % had the seeds not been fixed. The shop's demand is one of 16 equally likely numbers and its
amounts are multiples of 1/4: single precision and the draws of JAX are exact for it.

A simulator is part of what JAX compiles, so nearly all tests share one of each kind.
"""

import importlib
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import SHARINGS

import jointmdp as jm
from jointmdp.simulation.montecarlo import compiled_branches
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions, whole_policies
from jointmdp.simulation.montecarlo.compiled_branches import BLOCK, BlockSampler
from jointmdp.simulation.montecarlo.jax_dynamics import jax_dynamics
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.montecarlo.simulator_branches import QuerySampler
from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator, UntraceableError
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import as_agent
from jointmdp.simulation.simulators.table_simulator import TableSimulator

pytestmark = pytest.mark.usefixtures("quick_compilation")

LIMIT = 4.5
TIME_AND_SLOW = ["time", *(pytest.param(sharing, marks=pytest.mark.slow) for sharing in ("state", "none"))]

# -- a shop, as a JAX environment and as a table -----------------------------------------------------------------

DEMANDS = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5])
TOP, MOST, DISCOUNT, HORIZON = 6, 2, 0.75, 12


def shop_step(key: jax.Array, stock: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array]:
    demand = jnp.asarray(DEMANDS)[jax.random.randint(key, (), 0, 16)]
    offered = jnp.minimum(stock + order, TOP)
    sold = jnp.minimum(offered, demand)
    return 4.0 * sold - 1.5 * order - 0.25 * (offered - sold) - 1.0 * (demand - sold), offered - sold


@cache
def shop() -> JaxSimulator:
    return new_shop()


def new_shop() -> JaxSimulator:
    return JaxSimulator(shop_step, 2, actions=MOST + 1, discount=DISCOUNT)


def shop_model(sharing: str) -> jm.JointMDP:
    """Written again in plain Python, so that a slip in one is not a slip in both."""

    def reward(s: int, a: int, d: int) -> float:
        have = min(s + a, TOP)
        return 4 * min(have, d) - 1.5 * a - 0.25 * max(have - d, 0) - max(d - have, 0)

    return jm.from_noise(
        reward,
        lambda s, a, d: max(min(s + a, TOP) - d, 0),
        DEMANDS.tolist(),
        np.full(16, 1 / 16),
        num_states=TOP + 1,
        num_actions=MOST + 1,
        discount=DISCOUNT,
        sharing=sharing,
    )


LAW = np.array([[0.25, 0.25, 0.5]] * 3 + [[0.5, 0.5, 0.0]] * 2 + [[0.75, 0.125, 0.125]] * 2)


def rolled(simulator: Any, policy: Any, state: Any, actions: Any, **settings: Any) -> BlockSampler:
    """First actions, or without them whole policies, in the compiled engine."""
    how = SimulationSettings(**{"seed": 1, "horizon": HORIZON, **settings})
    if actions is None:
        found = whole_policies(simulator, dict(zip("abc", policy, strict=False)), state, how)
    else:
        found = first_actions(simulator, policy, state, actions, how)
    assert isinstance(found.sampler, BlockSampler), found.remark
    return found.sampler


def check_gaps(
    found: Replications, exact: jm.results.Solution, state: int, actions: tuple[int, ...], room: float = 0
) -> None:
    n = len(found.leads)
    for i in range(len(actions)):
        for j in range(i):
            gaps = found.leads[:, i] - found.leads[:, j]
            gap = exact.gap(state, actions[i], actions[j])
            squares = (gaps - gaps.mean()) ** 2
            assert abs(gaps.mean() - gap.mean) <= LIMIT * gaps.std() / np.sqrt(n) + room
            assert abs(gaps.var(ddof=1) - gap.variance) <= LIMIT * squares.std() / np.sqrt(n) + room


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.slow
def test_blocks_agree_with_the_exact_joint_model(sharing: str) -> None:
    """A stochastic policy: branches meet, part and merge."""
    found = rolled(shop(), LAW, 2, (0, 1, 2))(0, 16 * BLOCK, sharing)
    exact = jm.evaluate(shop_model(sharing), LAW, horizon=HORIZON)
    check_gaps(found, exact, 2, (0, 1, 2))
    errors = found.returns.std(axis=0) / np.sqrt(len(found.returns))
    assert (np.abs(found.returns.mean(axis=0) - exact.mean[2]) <= LIMIT * errors).all()
    # Another rule is told apart by far.
    other = jm.evaluate(shop_model("none" if sharing == "time" else "time"), LAW, horizon=HORIZON).gap(2, 1, 2)
    gaps = found.leads[:, 1] - found.leads[:, 2]
    squares = (gaps - gaps.mean()) ** 2
    assert abs(gaps.var() - other.variance) > 10 * squares.std() / np.sqrt(len(gaps))


@pytest.mark.parametrize("sharing", TIME_AND_SLOW)
@pytest.mark.slow
def test_tables_in_blocks_agree_with_the_exact_joint_model(sharing: str) -> None:
    model = shop_model(sharing)
    found = rolled(TableSimulator(model), LAW, 2, (0, 2))(0, 8 * BLOCK, sharing)
    check_gaps(found, jm.evaluate(model, LAW, horizon=HORIZON), 2, (0, 2))


@pytest.mark.slow
def test_both_engines_follow_the_same_law() -> None:
    """Means of the gap under "time": the two engines draw other numbers, and agree within their errors."""
    simulator = shop()
    agent = as_agent(LAW, simulator)
    asked = QuerySampler(simulator, (agent, agent), (0, 2), simulator.at(2), 0, DISCOUNT, 6)(0, 300, "time")
    block = rolled(simulator, LAW, 2, (0, 2), horizon=6)(0, 4 * BLOCK, "time")
    one, other = (x.leads[:, 1] for x in (asked, block))
    error = np.hypot(one.std() / np.sqrt(len(one)), other.std() / np.sqrt(len(other)))
    assert abs(one.mean() - other.mean()) <= LIMIT * error


# -- replications by number --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replication_depends_on_the_seed_and_its_number_alone() -> None:
    for source in (shop(), TableSimulator(shop_model("time"))):
        whole = rolled(source, LAW, 2, (0, 1))(0, 2 * BLOCK + 5, "time")
        part = rolled(source, LAW, 2, (0, 1))(BLOCK - 3, 10, "time")
        for a, b in zip(whole.rows(slice(BLOCK - 3, BLOCK + 7)), part, strict=True):  # across two blocks
            assert (a is None and b is None) or np.array_equal(a, b)
        other = rolled(source, LAW, 2, (0, 1), seed=2)(BLOCK - 3, 10, "time")
        assert not np.array_equal(part.returns, other.returns)
        assert not np.array_equal(whole.returns[:BLOCK], whole.returns[BLOCK : 2 * BLOCK])


def test_a_block_is_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = rolled(shop(), LAW, 2, (0, 1))
    calls: list[int] = []
    simulate = BlockSampler._simulated

    def counted(self: BlockSampler, blocks: list[tuple[int, int]], *settings: Any) -> Any:
        calls.extend(number for number, _ in blocks)
        return simulate(self, blocks, *settings)

    monkeypatch.setattr(BlockSampler, "_simulated", counted)
    parts = [sampler(first, 100, "time") for first in range(0, 500, 100)]
    assert calls == [0]
    assert len({part.returns.tobytes() for part in parts}) == 5
    for block in range(1, 6):
        sampler(block * BLOCK, 1, "time")
    sampler(0, 1, "time")  # long forgotten
    assert calls == [0, 1, 2, 3, 4, 5, 0]


# -- ends --------------------------------------------------------------------------------------------------------


def game_step(key: jax.Array, state: Any, action: Any) -> tuple[Any, Any, Any]:
    """Action 0 plays on and is out with probability 1/4, paid 1 a round; action 1 takes 2.5 and goes."""
    rounds, ended = state
    out = (jax.random.randint(key, (), 0, 4) == 0) | (action == 1)
    pay = jnp.where(action == 1, 2.5, 1.0)
    return jnp.where(ended, jnp.nan, pay), (rounds + 1, out), out


@cache
def game() -> JaxSimulator:
    return JaxSimulator(game_step, (0, False), actions=["play", "go"])


@pytest.mark.parametrize("sharing", TIME_AND_SLOW)
def test_what_is_over_pays_nothing(sharing: str) -> None:
    """Rounds are geometric: mean 4, variance 12. A step beyond the end would pay NaN."""
    found = rolled(game(), "play", None, (0, 1), horizon=None)(0, 8 * BLOCK, sharing)
    rounds, error = found.returns[:, 0], np.sqrt(12 / (8 * BLOCK))
    assert abs(rounds.mean() - 4) <= LIMIT * error
    squares = (rounds - 4) ** 2
    assert abs(squares.mean() - 12) <= LIMIT * squares.std() / np.sqrt(len(rounds))
    assert (found.returns[:, 1] == 2.5).all()
    assert np.array_equal(found.steps, rounds.astype(int))  # until both are over


@pytest.mark.slow
def test_branches_that_are_over_are_one() -> None:
    """Both go: nothing more can come after one step, though their states differ under "none"."""
    for sharing in ("none", "time"):
        found = rolled(game(), "play", None, (1, 1), horizon=None, until_merged=True)(0, 10, sharing)
        assert not found.leads.any()
        both = rolled(game(), "go", None, (0, 1), horizon=None, until_merged=True)(0, 200, sharing)
        assert both.steps.max() == 2
        assert set(np.unique(both.leads[:, 1])) == {-1.0, 1.5}


def test_a_start_that_is_over_brings_nothing() -> None:
    simulator = JaxSimulator(game_step, (0, False), actions=2, is_over=lambda state: state[1])
    over = simulator.at((3, True))
    assert simulator.is_over(over)
    assert [outcome.reward for outcome in simulator.query(over, [0, 1], Noise(1))] == [0, 0]
    found = rolled(simulator, 0, over, (0, 1), horizon=None)(0, 5, "time")
    assert not found.returns.any()
    assert not found.steps.any()
    assert not simulator.sample(over, [0, 1], 3).rewards.any()


@pytest.mark.slow
def test_endless_replications_are_refused_or_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_branches, "STEP_LIMIT", 100)
    with pytest.raises(jm.ModelError, match="have not ended after 100 steps; give a horizon"):
        rolled(shop(), LAW, 2, (0, 1), horizon=None, discount=1.0)(0, 1, "time")
    cut = rolled(shop(), LAW, 2, (0, 1), horizon=None)(0, 5, "none")
    assert (cut.steps == 49).all()  # 0.75⁴⁹ is the first power below 1e-6
    assert (cut.left_out == DISCOUNT**49).all()
    # Nobody said how large a reward can be: what is left out is a return like the largest that was seen.
    found, ahead = cut.gap(0, 1, None), 2 * DISCOUNT**49 * np.abs(cut.returns).max()
    assert found.truncation_bound == ahead > 0
    assert (found.slack >= ahead).all()
    assert not rolled(shop(), LAW, 2, (0, 1))(0, 5, "time").left_out.any()  # a horizon leaves nothing out


# -- queries -----------------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.slow
def test_a_query_is_its_steps_under_one_key() -> None:
    simulator = shop()
    for i in range(20):
        noise = Noise("test", i)
        found = simulator.query(simulator.at(3), [2, 0, 2, 1], noise)
        assert same(found[0], found[2])
        for action, outcome in zip((2, 0, 2, 1), found, strict=True):
            assert same(simulator.step(simulator.at(3), action, noise.fresh()), outcome)
            reward, after = shop_step(noise.key, jnp.int32(3), jnp.int32(action))
            assert (float(reward), int(after)) == (outcome.reward, int(outcome.state.state))
    draws = simulator.sample(3, [2, 0], 20, seed=4)
    for i in range(20):
        row = simulator.query(3, [2, 0], Noise("query", 4, i))
        assert draws.rewards[i].tolist() == [outcome.reward for outcome in row]
        assert same(draws.states[i], tuple(outcome.state for outcome in row))


def test_a_batch_of_queries() -> None:
    simulator = game()
    keys = jax.random.split(jax.random.key(0), 4)
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[simulator.reset()] * 3, simulator.at((1, True)))
    states = states._replace(is_over=jnp.array([False, False, False, True]))
    rewards, after = simulator.query_batch(keys, states, ["play", "go"])
    assert rewards.tolist() == [[1, 2.5]] * 3 + [[0, 0]]
    assert after.is_over[:, 1].all()
    assert after.state[0][3].tolist() == [1, 1]


def test_states_are_told_apart_by_what_they_hold() -> None:
    simulator = JaxSimulator(
        lambda key, s, a: (0.0, {"x": s["x"] + a, "key": s["key"]}),
        lambda key: {"x": jnp.zeros(2), "key": key},
        actions=2,
    )
    first = simulator.reset(1)
    stay, move = (outcome.state for outcome in simulator.query(first, [0, 1], Noise(0)))
    assert simulator.identity(stay) == simulator.identity(first) != simulator.identity(move)
    assert simulator.identity(simulator.reset(2)) != simulator.identity(first)  # the key inside
    negative = first._replace(state={**first.state, "x": -first.state["x"]})
    assert simulator.identity(negative) == simulator.identity(first)
    found = rolled(simulator, 0, first, (0, 1, 0), horizon=3)(0, 4, "state")
    assert found.leaders.tolist() == [[0, 1, 0]] * 4  # the policy is the same for all: who met would be one


def test_a_query_compiles_once_for_any_number_of_actions(compilations: list[str]) -> None:
    simulator = new_shop()
    state = simulator.reset()

    def ask(count: int) -> int:
        before = len(compilations)
        after = simulator.query(state, [0, 1, 2, 0][:count], Noise("count", count))[-1].state
        simulator.query(after, [2, 1, 0, 1][:count], Noise("again", count))
        return len(compilations) - before

    ask(1)  # and whatever making a key compiles
    assert [ask(2), ask(3), ask(2), ask(3), ask(1)] == [0, 0, 0, 0, 0]


def test_new_numbers_compile_nothing(compilations: list[str]) -> None:
    simulator = shop()

    def policy(stock: jax.Array) -> jax.Array:
        return jnp.where(stock > 2, jnp.array([1.0, 0, 0]), jnp.array([0, 0.5, 0.5]))

    def work(seed: int) -> None:
        for law in (policy, LAW):
            rolled(simulator, law, seed, (seed % 3, 1), seed=seed, discount=0.5 + seed / 100)(0, 5, "time")

    work(0)
    first = len(compilations)
    assert first > 0
    for seed in range(1, 4):
        work(seed)
    assert len(compilations) == first


# -- policies ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_forms_of_one_policy_are_one_policy() -> None:
    simulator = shop()
    orders = np.array([2, 2, 1, 1, 0, 0, 0])
    forms = [
        orders,
        np.eye(3)[orders],
        lambda stock: jnp.asarray(orders)[stock],
        lambda stock: jnp.eye(3)[jnp.asarray(orders)[stock]],
        lambda stock, key: jnp.asarray(orders)[stock],
    ]
    found = [rolled(simulator, form, 2, (0, 2))(0, 50, "time").returns for form in forms]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert len(np.unique(found[0])) > 10
    constant = [rolled(simulator, form, 2, (0, 2))(0, 50, "time").returns for form in (1, "action 1", np.ones(7, int))]
    assert all(np.array_equal(constant[0], other) for other in constant[1:])
    assert not np.array_equal(constant[0], found[0])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["keyed", "function", "table", "uniform"])
def test_stochastic_policies_have_their_law(form: str) -> None:
    law = np.full((TOP + 1, MOST + 1), 1 / 3) if form == "uniform" else LAW
    table = jnp.asarray(LAW, dtype=jnp.float32)
    policy: Any = {
        "table": LAW,
        "function": lambda stock: table[stock],
        "keyed": lambda stock, key: jax.random.choice(key, 3, p=table[stock]),
        "uniform": "uniform",
    }[form]
    found = rolled(shop(), policy, 2, (0, 2))(0, 4 * BLOCK, "state")
    check_gaps(found, jm.evaluate(shop_model("state"), law, horizon=HORIZON), 2, (0, 2))


@pytest.mark.slow
def test_whole_policies_are_compared_and_never_become_one() -> None:
    """Without first actions, from one state: the difference of values, and different policies stay two branches."""
    eager, lazy = np.array([2] * 7), np.array([2, 2, 0, 0, 0, 0, 0])
    simulator, model = shop(), shop_model("time")
    policies = (eager, lazy, eager)
    sampler = rolled(simulator, policies, 2, None, until_merged=True)
    found = sampler(0, 8 * BLOCK, "time")
    values = [jm.evaluate(model, law, horizon=HORIZON).mean[2, law[2]] for law in (eager, lazy)]
    gaps = found.leads[:, 1]
    assert abs(gaps.mean() - (values[1] - values[0])) <= LIMIT * gaps.std() / np.sqrt(len(gaps))
    assert gaps.std() > 0
    assert not found.leads[:, 2].any()  # the same policy twice is one branch
    # They are in one state now and then, and two all the same.
    paths = [[sampler.traced(i, "time", j, 0.0).states for j in (0, 1)] for i in range(4)]
    assert any(one.state == other.state for pair in paths for one, other in [*zip(*pair, strict=True)][1:])
    assert (found.leaders[:, 1] == 1).all()
    alike = rolled(simulator, policies, 0, None, until_merged=True)(0, 50, "time")
    assert (alike.steps == HORIZON).all()  # all order 2 at first, and are two all the same


def test_policies_that_cannot_be_traced_say_so() -> None:
    simulator = shop()

    class Network:
        def predict(self, observation: Any) -> int:
            return 0

    def plain(stock: Any) -> int:
        return 1 if stock > 2 else 0

    def drawing(stock: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(3))

    def traced(policy: Any) -> object:
        return jax_dynamics(simulator, [policy], (0, 0), (0, 1), 2, DISCOUNT)

    with pytest.raises(UntraceableError, match="one observation at a time"):
        traced(Network())
    with pytest.raises(UntraceableError, match="cannot trace the policy 'plain'"):
        traced(plain)
    with pytest.raises(jm.ModelError, match=r"policy 'drawing' fails in line .* second argument is a JAX key"):
        traced(drawing)
    with pytest.raises(UntraceableError, match="of the kind"):
        traced({"a": 1})
    # Whoever simulates them is told why it takes so long.
    found = first_actions(simulator, plain, 2, (0, 1), SimulationSettings(horizon=2))
    assert isinstance(found.sampler, QuerySampler)
    assert "One replication at a time: " in found.remark
    assert "cannot trace the policy 'plain'" in found.remark


def test_mistakes_of_policies_are_told() -> None:
    simulator = shop()
    with pytest.raises(jm.ModelError, match="did you return values or logits"):
        rolled(simulator, lambda stock: jnp.array([1.0, 2.0, 3.0]), 2, (0, 1))
    with pytest.raises(jm.ModelError, match="2 probabilities for the 3 actions"):
        rolled(simulator, lambda stock: jnp.array([0.5, 0.5]), 2, (0, 1))
    with pytest.raises(jm.ModelError, match="2 columns for the 3 actions"):
        rolled(simulator, np.full((7, 2), 0.5), 2, (0, 1))
    with pytest.raises(jm.ModelError, match="no state numbers"):
        rolled(game(), LAW, None, (0, 1))
    with pytest.raises(jm.ModelError, match="is not a finite number"):
        rolled(simulator, np.array([[1.0, 0, 0]] * 3), 6, (0, 1))(0, 50, "time")  # too few rows


@pytest.mark.slow
def test_mistakes_of_policies_that_show_later_are_told() -> None:
    simulator = shop()
    early: list[Any] = [
        lambda stock: jnp.where(stock == 2, 1.0, 0.5) * jnp.array([1.0, 0, 0]),
        lambda stock: jnp.where(stock == 2, 0, 7),
        lambda stock, key: jnp.where(stock == 2, 0, -3),
        np.array([0, 0, 0, 0.5, 0.5, 0.5, 0]),
    ]
    for policy, state in zip(early, (2, 2, 2, 6), strict=True):
        with pytest.raises(jm.ModelError, match="is not a finite number"):
            rolled(simulator, policy, state, (0, 1))(0, 50, "time")


# -- shapes and types --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_counters_may_become_fractions() -> None:
    simulator = JaxSimulator(lambda key, s, a: (s, s + 0.5 * a), 0, actions=2, discount=0.5)
    (outcome,) = simulator.query(0, [1], Noise(0))
    assert outcome.state.state.dtype == np.float32
    found = rolled(simulator, 1, 0, (0, 1), horizon=3)(0, 2, "time")
    assert found.returns.tolist() == [[0.125, 0.25 + 0.25]] * 2  # 0 + 0/2 + .5/4 and 0 + .5/2 + 1/4
    # Where actions are not numbered, what they make of the state is known with the first of them only.
    free = JaxSimulator(lambda key, s, a: (s, s + a), 0, actions=None, discount=0.5)
    moved = rolled(free, lambda s: 0.5 * s, 0, (0.5, 1.0), horizon=3)(0, 2, "time")
    assert moved.returns.tolist() == [[0.25 + 0.1875, 0.5 + 0.375]] * 2  # 0 + .5/2 + .75/4, and twice as much


@pytest.mark.slow
def test_double_precision_is_the_users_choice() -> None:
    def step(key: jax.Array, s: Any, a: Any) -> Any:
        return s, s + jax.random.uniform(key) * 0 + jnp.asarray(0.1) * a

    narrow = rolled(JaxSimulator(step, 0.0, actions=2), 1, 0.0, (0, 1), horizon=2)(0, 1, "time")
    with jax.enable_x64(True):
        wide = rolled(JaxSimulator(step, 0.0, actions=2), 1, 0.0, (0, 1), horizon=2)(0, 1, "time")
    assert narrow.returns[0, 1] == np.float32(0.1)
    assert wide.returns[0, 1] == 0.1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda key, s, a: s, "must return"),
        (lambda key, s, a: (0.0, jnp.zeros(3)), r"changes the shape of the state from \(\) to \(3,\)"),
        (lambda key, s, a: (0.0, (s, s)), "changes the structure"),
        (lambda key, s, a: (jnp.zeros(2), s), r"reward of .* has shape \(2,\)"),
    ],
)
def test_bad_steps(step: Any, message: str) -> None:
    with pytest.raises(jm.ModelError, match=message):
        JaxSimulator(step, 0, actions=2).query(0, [0, 1], Noise(0))


def test_bad_requests() -> None:
    simulator = shop()
    with pytest.raises(jm.ModelError, match="unknown action 5"):
        simulator.query(2, [5], Noise(0))
    with pytest.raises(jm.ModelError, match="another structure"):
        simulator.query((1, 2), [0], Noise(0))
    with pytest.raises(jm.ModelError, match="step must be a function"):
        JaxSimulator(3, 0, actions=2)  # type: ignore[arg-type]
    free = JaxSimulator(lambda key, s, a: (s, s + a), 0.0, actions=None)
    with pytest.raises(jm.ModelError, match="one shape"):
        free.query(0.0, [np.zeros(2), np.zeros(3)], Noise(0))
    with pytest.raises(jm.ModelError, match="uniform policy is not defined"):
        rolled(free, "uniform", 0.0, (0.5, 1.0))
    with pytest.raises(jm.ModelError, match="random_action, or first actions"):
        rolled(free, (lambda x: x, lambda x: -x), 0.0, None)
    with pytest.raises(jm.ModelError, match=r"policy's actions .* have shape"):
        rolled(free, lambda x: jnp.zeros(2), 0.0, (0.5, 1.0))(0, 1, "time")


# -- gymnax ------------------------------------------------------------------------------------------------------


def lake_model(sharing: str) -> jm.JointMDP:
    """gymnax's lake by hand: the move that comes is the one chosen, or one to its left or right, each with 1/3."""
    lake = "SFFFFHFHFFFHHFFG"

    def to(s: int, a: int, slip: int) -> int:
        row, column = divmod(s, 4)
        move = (a + slip) % 4
        row, column = (row + (move == 1) - (move == 3), column + (move == 2) - (move == 0))
        return s if lake[s] in "HG" else min(max(row, 0), 3) * 4 + min(max(column, 0), 3)

    def pay(s: int, a: int, slip: int) -> float:
        return float(lake[s] not in "HG" and lake[to(s, a, slip)] == "G")

    return jm.from_noise(
        pay, to, [0, -1, 1], np.full(3, 1 / 3), num_states=16, num_actions=4, discount=0.9, sharing=sharing
    )


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_gymnax_lake_agrees_with_the_exact_joint_model(sharing: str) -> None:
    simulator = gymnax_simulator("FrozenLake-misc", discount=0.9)
    ways = np.array([0, 3, 0, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0])
    state = simulator.reset()
    place = simulator.at(state.state.replace(position=np.int32(14)))
    found = rolled(simulator, ways, place, (1, 2, 0), horizon=40)(0, 8 * BLOCK, sharing)
    exact = jm.evaluate(lake_model(sharing), ways, horizon=40)
    # A third in single precision moves a step's law by 2⁻²⁴ at most, and a return lies between 0 and 1.
    check_gaps(found, exact, 14, (1, 2, 0), room=4 * 40 * 2.0**-24)
    assert exact.gap(14, 1, 0).variance > 0.05


@pytest.mark.slow
def test_gymnax_cart_pole() -> None:
    """No luck but the start: the two engines take the same steps, and the time limit ends what does not fall."""
    simulator = gymnax_simulator("CartPole-v1")
    assert simulator.action_names == ("action 0", "action 1")
    state = simulator.reset(4)

    def balance(seen: jax.Array) -> jax.Array:
        return (seen[2] + seen[3] > 0).astype(int)

    found = rolled(simulator, balance, state, (0, 1), horizon=None)(0, 3, "time")
    assert found.returns.tolist() == [[500, 500]] * 3
    fallen = rolled(simulator, 0, state, (0, 1), horizon=None)(0, 1, "time")
    agent = as_agent(0, simulator)
    asked = QuerySampler(simulator, (agent, agent), (0, 1), state, 0, 1.0, None)(0, 1, "time")
    assert np.array_equal(fallen.returns, asked.returns)
    assert np.array_equal(fallen.steps, asked.steps)
    assert 5 < fallen.returns[0, 0] < fallen.returns[0, 1] < 20
    endless = gymnax_simulator("CartPole-v1", time_limit=False)
    assert rolled(endless, balance, state, (0, 1), horizon=600)(0, 1, "time").returns.tolist() == [[600, 600]]


def test_gymnax_time_limit_is_in_the_state() -> None:
    for limit, is_over in ((True, True), (False, False)):
        simulator = gymnax_simulator("FrozenLake-misc", time_limit=limit, is_slippery=False)
        state = simulator.reset().state.replace(time=np.int32(99))
        (outcome,) = simulator.query(simulator.at(state), [0], Noise(0))
        assert simulator.is_over(outcome.state) is is_over


@pytest.mark.slow
def test_gymnax_observations_with_luck_of_their_own_belong_to_the_state() -> None:
    """The umbrella's distractors are drawn with each observation: looking twice must not show two things."""
    simulator = gymnax_simulator("UmbrellaChain-bsuite", n_distractor=20)
    state = simulator.reset(0)
    assert same(simulator.observe(state), simulator.observe(state))
    seen = [simulator.observe(simulator.query(state, [0], Noise(i))[0].state)[3:].tobytes() for i in range(20)]
    assert len(set(seen)) > 5
    assert not hasattr(gymnax_simulator("CartPole-v1").reset().state, "observation")


@pytest.mark.slow
def test_gymnax_continuous_actions() -> None:
    simulator = gymnax_simulator("Pendulum-v1", discount=0.9)
    assert simulator.action_names is None
    state = simulator.reset(0)

    def push(seen: jax.Array) -> jax.Array:
        return -seen[2:3]

    left, right = np.array([-1.0]), np.array([1.0])
    found = rolled(simulator, push, state, (left, right, left), horizon=10)(0, 2, "time")
    agent = as_agent(push, simulator)
    asked = QuerySampler(simulator, (agent,) * 3, (left, right, left), state, 0, 0.9, 10)(0, 2, "time")
    # 10 steps of a smooth map in single precision; each reward is at most 17 and carries some 10 rounding errors.
    assert np.allclose(found.returns, asked.returns, rtol=0, atol=10 * 17 * 100 * 2.0**-24)
    assert abs(found.leads[0, 1]) > 0.1
    assert not found.leads[:, 2].any()
    drawn = rolled(simulator, "uniform", state, (left, right), horizon=5)(0, 10, "time")
    assert len(np.unique(drawn.returns[:, 0])) == 10


def test_gymnax_by_environment_and_bad_names(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    short = gymnax_simulator((env, params.replace(max_steps_in_episode=7)))
    assert rolled(short, 1, None, (0, 1), horizon=None)(0, 5, "time").returns.max() == 7
    assert gymnax_simulator(env).name == short.name == "gymnax:CartPole-v1"
    with pytest.raises(jm.ModelError, match="cannot make 'CartPole-v9'"):
        gymnax_simulator("CartPole-v9")
    with pytest.raises(jm.ModelError, match="given by name"):
        gymnax_simulator(env, size=3)
    with pytest.raises(jm.ModelError, match="no step_env"):
        gymnax_simulator(object())

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[gymnax\]'"):
        gymnax_simulator("CartPole-v1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "Catch-bsuite",
        "MemoryChain-bsuite",
        "FourRooms-misc",
        *(
            pytest.param(name, marks=pytest.mark.long)  # like others: the pole, the pendulum, and those above
            for name in ("Acrobot-v1", "MountainCarContinuous-v0", "Asterix-MinAtar", "BernoulliBandit-misc")
        ),
    ],
)
def test_gymnax_environments_are_queried_and_simulated(name: str) -> None:
    simulator = gymnax_simulator(name, discount=0.9)
    state = simulator.reset(1)
    actions: Any = [0, 1] if simulator.action_names else [np.array([-1.0]), np.array([1.0])]
    one, other, again = simulator.query(state, [*actions, actions[0]], Noise("query"))
    assert same(one, again)
    # Another number of actions is another program: XLA may round otherwise. A step is taken for 100 operations deep.
    alone = simulator.step(state, actions[1], Noise("query"))
    for one_leaf, leaf in zip(jax.tree.leaves(alone), jax.tree.leaves(other), strict=True):
        assert np.allclose(one_leaf, leaf, rtol=100 * 2.0**-24, atol=100 * 2.0**-24)
    for sharing in ("time", "state"):
        sampler = rolled(simulator, "uniform", None, tuple(actions), horizon=10)
        found = sampler(0, 20, sharing)
        assert np.isfinite(found.returns).all()
        assert 1 <= found.steps.max() <= 10
        assert np.array_equal(sampler(5, 3, sharing).returns, found.returns[5:8])


@pytest.mark.slow
def test_an_outcome_is_the_same_to_the_last_bit_in_any_company() -> None:
    """A program for two actions at once rounds some of these rewards otherwise than one for each."""

    def step(key: Any, x: Any, action: Any) -> Any:
        u, v = jax.random.split(key)
        y = jnp.clip(x + action + jax.random.randint(u, (), -2, 3), 0, 4)
        return y + jax.random.normal(v), y

    simulator = jm.JaxSimulator(step, jnp.int32(2), actions=2, discount=0.95)
    state = simulator.reset(0)
    for i in range(200):
        noise = jm.Noise("company", i)
        (alone,), both = simulator.query(state, [0], noise), simulator.query(state, [1, 0], noise)
        assert alone.reward == both[1].reward
    assert jm.audit(simulator, num_samples=20)["order"].status == "pass"
