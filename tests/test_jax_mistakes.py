"""What people get wrong about JAX environments, each told in one error; noise that is not the key's; legal actions.

Nearly all of it is found while JAX traces, and compiles nothing.
"""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.montecarlo import compiled_branches
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.compiled_branches import BlockSampler
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator
from jointmdp.simulation.simulators.jax_functions import function_key
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator, as_chooser
from jointmdp.simulation.simulators.noise import Noise

Case = tuple[Any, Any, str]
GENERATOR = np.random.default_rng(0)


def good(key: Any, state: Any, action: Any) -> Any:
    return jax.random.normal(key), state + action


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


def sampled(simulator: JaxSimulator, policy: Any, actions: Any, count: int = 20, **settings: Any) -> Replications:
    how = SimulationSettings(**{"horizon": 3, **settings})
    found = first_actions(simulator, policy, None, actions, how)
    assert isinstance(found.sampler, BlockSampler), found.remark
    return found.sampler(0, count, "time")


# -- steps, resets and states ------------------------------------------------------------------------------------

WRONG: dict[str, Case] = {
    "order by name": (lambda s, a, key: good(key, s, a), 0.0, r"\(s, a, key\), but is called as step\(key, state, act"),
    "order that would run": (
        lambda key, a, s: good(key, s, a),
        0.0,
        r"action: f\(key, action, state\)",
    ),
    "order without names": (
        lambda x, y, z: good(z, x, y),
        0.0,
        r"in line .* it works as step\(state, action, key",
    ),
    "two arguments": (lambda s, a: (s, s), 0.0, r"takes \(s, a\), but is called as step\(key, state, action\)"),
    "four arguments": (lambda key, s, a, params: (s, s), 0.0, r"takes \(key, s, a, params\), but"),
    "reset with observation": (
        lambda key, s, a: (s["x"], {"x": s["x"] + a}),
        lambda key: (jnp.zeros(2), {"x": 0.0}),
        r"works with the second part of what reset returns: did reset return an observation",
    ),
    "reset with observation, unnoticed": (
        lambda key, s, a: (0.0, {"x": a}),
        (0.0, {"x": 1}),
        "did reset return",
    ),
    "reset without a key": (good, lambda: 0.0, r"reset of good takes \(\), but is called as reset\(key\)"),
    "five values": (lambda key, s, a: (s, s, 0.0, False, {}), 0.0, r"not 5 values; of \(observation, state, reward"),
    "swapped results": (lambda key, s, a: (s, 0.0), jnp.zeros(2), r"does step return \(next_state, reward\)"),
    "an object as state": (lambda key, s, a: (s.x, s), lambda key: Plain(0.0), "begins in holds a Plain, which is no"),
    "an object as next state": (lambda key, s, a: (s, Plain(s)), 0.0, "the state after a step of .* holds a Plain"),
    "a text in the state": (lambda key, s, a: (0.0, s), {"x": 0.0, "name": "a"}, r"holds a str at \['name'\]"),
    "no state": (lambda key, s, a: (0.0, s), None, "holds no array .* forget to return"),
    "a flag for each player": (lambda key, s, a: (0.0, s, jnp.zeros(2)), 0.0, r"is_over of .* has shape \(2,\)"),
    "a mistake of another kind": (lambda key, s, a: (s["y"], s), {"x": 0.0}, "fails in line .*KeyError: 'y'"),
    "NumPy": (lambda key, s, a: (np.sin(s), s), 0.0, "step of the JAX env.*: NumPy asks for a value, and inside jit"),
    "item": (lambda key, s, a: (s.item(), s), 0.0, r"float\(\), int\(\) or .item\(\) asks for a value"),
    "if": (lambda key, s, a: (1.0 if a == 0 else 0.0, s), 0.0, "a Python `if`.* use jnp.where"),
    "range": (lambda key, s, a: (float(len(range(a))), s), 0.0, r"range\(\) or the index of a list asks"),
    "numpy.random": (lambda key, s, a: (s + np.random.normal(), s), 0.0, "draws from numpy.random outside of JAX"),  # noqa: NPY002
    "a generator": (
        lambda key, s, a, rng=GENERATOR: (s + rng.normal(), s),
        0.0,
        "uses a number that differs from call to call",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_mistakes_of_steps_end_in_one_error(case: Case) -> None:
    step, reset, message = case
    with pytest.raises(jm.ModelError, match=message) as caught:
        JaxSimulator(step, reset, actions=2).query(JaxSimulator(step, reset, actions=2).reset(), [0, 1], Noise(0))
    assert caught.value.__cause__ is None  # JAX's own error is not shown
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_other_functions_are_named() -> None:
    with pytest.raises(jm.ModelError, match=r"observe of good fails.*: NumPy asks"):
        as_chooser(lambda seen: 0, JaxSimulator(good, 0.0, actions=2, observe=np.asarray))
    with pytest.raises(jm.ModelError, match=r"is_over of good .*a Python `if`"):
        JaxSimulator(good, 0.0, actions=2, is_over=lambda s: bool(s > 1))
    with pytest.raises(jm.ModelError, match="for numbered actions"):
        JaxSimulator(good, 0.0, actions=None, available=lambda s: s > 0)


def test_a_state_of_another_shape_is_told_and_an_observation_by_its_name() -> None:
    simulator = JaxSimulator(lambda key, s, a: (0.0, s), {"x": jnp.zeros(3)}, actions=2, observe=lambda s: s["x"])
    with pytest.raises(jm.ModelError, match="this is an observation of the JAX environment, not a state"):
        simulator.at(jnp.zeros(3))
    with pytest.raises(jm.ModelError, match=r"another structure .* shapes \{'x': \(4,\)\} and \{'x': \(3,\)\}"):
        simulator.at({"x": jnp.zeros(4)})


POLICIES = {
    "names": (lambda key, obs: jax.random.randint(key, (), 0, 2), r"lambda observation, key: f\(key, observation\)"),
    "without names": (lambda x, y: jax.random.randint(x, (), 0, 2), r"it works as policy\(key, observation\)"),
    "a generator": (lambda obs, rng: rng.integers(2), "its second argument is a JAX key"),
    "three": (lambda obs, key, t: 0, r"takes \(obs, key, t\), but is called as policy\(observation, key\)"),
    "a mistake": (lambda obs: obs.missing, "policy '<lambda>' fails in line .* AttributeError"),
}


@pytest.mark.parametrize("case", POLICIES.values(), ids=POLICIES.keys())
def test_mistakes_of_policies_end_in_one_error(case: tuple[Any, str]) -> None:
    with pytest.raises(jm.ModelError, match=case[1]):
        as_chooser(case[0], JaxSimulator(good, jnp.float32(0), actions=2))


# -- noise that does not come from the key -----------------------------------------------------------------------


def from_state(key: Any, state: Any, action: Any) -> Any:
    own, x = state["key"], state["x"]
    own, now = jax.random.split(own)
    return x + jax.random.normal(now), {"key": own, "x": x + action}


def handed_on(key: Any, state: Any, action: Any) -> Any:
    """Splits the key in the state and uses it for nothing: a deterministic environment."""
    return state["x"], {"key": jax.random.split(state["key"])[0], "x": state["x"] + action}


def both(key: Any, state: Any, action: Any) -> Any:
    reward, after = from_state(key, state, action)
    return reward + jax.random.uniform(key), after


def cured(key: Any, state: Any, action: Any) -> Any:
    reward, after = from_state(key, {**state, "key": key}, action)
    return reward, {**after, "key": state["key"]}


def rarely(key: Any, state: Any, action: Any) -> Any:
    """The key matters in one branch of a condition, inside of a loop."""
    drawn = jax.lax.cond(action > 0, lambda: jax.random.normal(key), lambda: 0.0)
    return jax.lax.fori_loop(0, 3, lambda i, x: x + drawn, 0.0), state


FROZEN = {
    "a typed key in the state": (from_state, jax.random.key, r"ignores the key .* kept in the state \(\['key'\]\)"),
    "an old key in the state": (from_state, jax.random.PRNGKey, r"ignores the key .* kept in the state \(\['key'\]\)"),
    "inside of a jit": (jax.jit(from_state), jax.random.PRNGKey, r"kept in the state \(\['key'\]\)"),
    "a part": (both, jax.random.key, r"takes part of its noise from a key kept in the state"),
    "a fixed key": (
        lambda key, s, a: (jax.random.normal(jax.random.key(3)), s),
        jax.random.key,
        "that it makes itself",
    ),
    "a key from a counter": (
        lambda key, s, a: (jax.random.normal(jax.random.key(s["x"])), {**s, "x": s["x"] + 1}),
        jax.random.key,
        "that it makes itself",
    ),
    "cured": (cured, jax.random.PRNGKey, ""),
    "handed on": (handed_on, jax.random.PRNGKey, ""),
    "no noise at all": (lambda key, s, a: (s["x"], {**s, "x": s["x"] + a}), jax.random.key, ""),
    "in a condition": (rarely, jax.random.key, ""),
}


@pytest.mark.parametrize("case", FROZEN.values(), ids=FROZEN.keys())
def test_noise_that_is_not_the_keys_is_found(case: tuple[Any, Any, str]) -> None:
    step, make, message = case
    start = {"key": make(0), "x": jnp.int32(0)}
    if message:
        with pytest.warns(UserWarning, match=message):
            found = JaxSimulator(step, start, actions=2).frozen_noise
        assert "so replications" in found
    else:
        assert JaxSimulator(step, start, actions=2).frozen_noise == ""  # and no warning, which would be an error


OWN, TABLE = jax.random.key(7), np.arange(5.0)


def fixed_beside(draw: Any) -> Any:
    return lambda key, s, a: (draw(jax.random.fold_in(jax.random.key(7), s["x"])) + jax.random.normal(key), s)


BESIDE = {
    "a closure": (lambda key, s, a: (jax.random.normal(OWN) + jax.random.normal(key), s), True),
    "a counter": (fixed_beside(jax.random.normal), True),
    "in a loop": (fixed_beside(lambda key: jax.random.poisson(key, 3.0) * 1.0), True),
    "in a condition": (fixed_beside(lambda k: jax.lax.cond(True, lambda: jax.random.normal(k), lambda: 0.0)), True),
    "a key of its own": (lambda key, s, a: (jax.random.normal(key) + jax.random.normal(s["key"]), s), False),
    "folded": (lambda key, s, a: (jax.random.poisson(jax.random.fold_in(key, s["x"]), 3.0) * 1.0, s), False),
    "a table": (lambda key, s, a: (jnp.asarray(TABLE)[a] + jax.random.normal(key), s), False),
}


@pytest.mark.parametrize("case", BESIDE.values(), ids=BESIDE.keys())
@pytest.mark.filterwarnings("ignore:step of .* takes part of its noise from a key kept in the state")
def test_a_fixed_key_beside_the_given_one_is_found(case: tuple[Any, bool]) -> None:
    step, is_fixed = case
    simulator = JaxSimulator(step, {"key": jax.random.key(0), "x": jnp.int32(0)}, actions=2)
    found = [text for fault, text in simulator.key_faults if fault == "frozen generator"]
    assert len(found) == is_fixed
    assert all("draws from a key that it makes itself" in text and "test_jax_mistakes.py:" in text for text in found)


@pytest.mark.parametrize("draw", [lambda: np.random.random(), lambda: np.random.default_rng().random()])  # noqa: NPY002
def test_a_start_that_numpy_draws_once_for_all_is_told(draw: Any) -> None:
    simulator = JaxSimulator(good, lambda key: jnp.float32(draw()), actions=2)
    assert "takes numbers from" in simulator.frozen_start
    assert "outside of JAX, once for all" in simulator.frozen_start
    assert JaxSimulator(good, lambda key: jax.random.uniform(key), actions=2).frozen_start == ""


def test_noise_of_actions_that_are_not_numbered_is_looked_at_with_the_first_of_them() -> None:
    start = {"key": jax.random.key(0), "x": jnp.float32(0)}
    simulator = JaxSimulator(from_state, start, actions=None)
    with pytest.warns(UserWarning, match="ignores the key"):
        simulator.types(jnp.float32(0.5))


# -- legal actions -----------------------------------------------------------------------------------------------


def ladder(key: Any, state: Any, action: Any) -> Any:
    """On rung s the actions 0 … s are legal, and action a pays a; it climbs by one or two."""
    climbs = 1 + jax.random.randint(key, (), 0, 2)
    return 1.0 * action + jnp.where(state > 90, jnp.log(1.0 - state), 0.0), state + climbs


@functools.cache
def climb() -> JaxSimulator:
    return JaxSimulator(ladder, 0, actions=4, available=lambda s: jnp.arange(4) <= s, discount=0.5)


def test_legal_actions_of_a_query() -> None:
    simulator = climb()
    assert simulator.available(1) == [0, 1]
    assert simulator.available(9) == [0, 1, 2, 3]
    assert [outcome.reward for outcome in simulator.query(1, [1, 0], Noise(0))] == [1, 0]
    for ask in (simulator.query, simulator.sample):
        with pytest.raises(jm.ModelError, match="action 2 is not available in this state"):
            ask(1, [0, 2], Noise(0) if ask == simulator.query else 3)
    drawn = [simulator.observe(simulator.walk("uniform", 2, seed)) for seed in range(5)]
    assert {int(rung) for rung in drawn} <= {2, 3, 4}
    for mask, message in ((lambda s: s > 0, r"gives bool\[\]"), (lambda s: jnp.zeros(4), r"gives float32\[4\]")):
        with pytest.raises(jm.ModelError, match=message):
            JaxSimulator(ladder, 0, actions=4, available=mask).available(0)
    with pytest.raises(jm.ModelError, match="allows no action"):
        JaxSimulator(ladder, 0, actions=4, available=lambda s: jnp.zeros(4, dtype=bool)).available(0)


@pytest.mark.slow
def test_legal_actions_of_simulations() -> None:
    """Rung 1 or 2 after the first step: a uniform legal action pays 1/2 or 1 in the mean, and variance 1/4 or 2/3."""
    found = sampled(climb(), "uniform", (0, 0), 2048, horizon=2).returns[:, 0] / 0.5
    # 4.5 standard errors; the variance is the mean of 1/4 and 2/3 and that of the two means, 1/16.
    assert abs(found.mean() - 0.75) <= 4.5 * np.sqrt((1 / 4 + 2 / 3) / 2 + 1 / 16) / np.sqrt(2048)
    assert set(found) == {0.0, 1.0, 2.0}
    # A first action, and an action of the policy, that are illegal in the middle of thousands.
    with pytest.raises(jm.ModelError, match=r"step 0 of replication 0, alternative 2 of 2, which .* action 3 is taken"):
        sampled(climb(), "uniform", (0, 3))
    with pytest.raises(jm.ModelError, match=r"step 1 of replication \d+, alternative 1 of 2, .* not available in its"):
        sampled(climb(), 2, (0, 0))


# -- returns that are not finite ---------------------------------------------------------------------------------


def test_a_return_that_is_not_finite_says_whose() -> None:
    def step(key: Any, state: Any, action: Any) -> Any:
        spoilt = jnp.where((state["n"] == 1) & (action == 2), jnp.nan, state["x"])
        pays = jnp.where((state["n"] == 2) & (action == 1), jnp.inf, jnp.where(state["n"] > 1, state["x"], 0.0))
        return pays + jax.random.uniform(key), {"n": state["n"] + 1, "x": spoilt}

    simulator = JaxSimulator(step, {"n": 0, "x": 1.0}, actions=["stay", "go", "break"], name="game")
    place = r"of game is not a finite number: in step 2 of replication 0, alternative 1 of 2, which began with stay, "
    with pytest.raises(jm.ModelError, match=place + "the reward of go is not finite"):
        sampled(simulator, 1, (0, 1))
    with pytest.raises(jm.ModelError, match=place + r"the state before the step is not finite at \['x'\]"):
        sampled(simulator, 2, (0, 1))


# -- programs that are compiled once -----------------------------------------------------------------------------

LEVEL = 1


def test_functions_that_do_the_same_have_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(limit: Any, table: Any = None) -> Any:
        return lambda seen, scale=2: jnp.where(seen * scale > limit, 0, table)

    same = [
        (1, None),
        (1.5, (1, "a")),
        (np.arange(3), jnp.ones(2)),
        ({"w": np.ones(2)}, jnp.tanh),
        (good, np.float32(1)),
    ]
    for values in same:
        copies = (tuple(np.array(v) if isinstance(v, np.ndarray) else v for v in values), values)
        assert function_key(made(*copies[0])) == function_key(made(*copies[1]))
    different = [
        (1, 2),
        (1, 1.0),
        (True, 1),
        (0.0, -0.0),
        (np.arange(2), np.arange(3)),
        (Plain(1), Plain(1)),
        (good, both),
    ]
    for one, other in different:
        assert function_key(made(one)) != function_key(made(other))
    # What could change unseen makes a key of its own, and the same function is always itself.
    held = Plain(1)
    assert function_key(made(held)) != function_key(made(held))
    policy = made(held)
    assert function_key(policy) == function_key(policy)
    # An array that was changed in place, a global that has another value, and a default.
    array = np.arange(3)
    before = function_key(made(array))
    array[0] = 7
    assert function_key(made(array)) != before

    def reads() -> Any:
        return lambda seen: seen > LEVEL

    before = function_key(reads())
    assert function_key(reads()) == before
    monkeypatch.setitem(globals(), "LEVEL", 2)
    assert function_key(reads()) != before
    assert function_key(lambda x, y=1: x) != function_key(lambda x, y=2: x)
    assert function_key(functools.partial(good, 1)) == function_key(functools.partial(good, 1))
    assert function_key(functools.partial(good, 1)) != function_key(functools.partial(good, 2))


@pytest.mark.slow
def test_a_lambda_written_anew_compiles_nothing() -> None:
    def work(limit: float) -> tuple[Any, int]:
        simulator = JaxSimulator(good, 0.0, actions=2)  # new, of the same functions
        found = sampled(simulator, lambda seen: jnp.where(seen > limit, 1, 0), (0, 1)).returns
        return found, compiled_branches.advance._cache_size()

    (first, programs), (again, later) = work(0.5), work(0.5)
    assert later == programs
    assert np.array_equal(first, again)
    assert work(-0.5)[1] == programs + 1  # another limit is another program


# -- long replications -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_few_of_long_replications_are_quick_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, sizes = JaxSimulator(good, 0.0, actions=2, discount=0.5), []
    simulate = BlockSampler._simulated

    def counted(self: BlockSampler, blocks: list[tuple[int, int]], sharing: Any) -> Any:
        sizes.extend(size for _, size in blocks)
        return simulate(self, blocks, sharing)

    def some(first: int, count: int) -> Replications:
        found = first_actions(simulator, 1, None, (0, 1), SimulationSettings()).sampler
        return found(first, count, "none")

    monkeypatch.setattr(BlockSampler, "_simulated", counted)
    whole = some(0, 70)
    monkeypatch.setattr(compiled_branches, "STEP_LIMIT", 10)  # 0.5²⁰ is the first power below 1e-6
    few, rest = some(0, 5), some(60, 10)
    assert sizes == [2048, 64, 64, 2048]
    # The same keys in another program: sums of 20 rewards, each rounded to single precision.
    room = 20 * 4 * 2.0**-23
    assert np.abs(few.returns - whole.returns[:5]).max() <= room
    assert np.abs(rest.returns - whole.returns[60:]).max() <= room
    assert (few.steps == 20).all()
    monkeypatch.setattr(compiled_branches, "LONG_WAIT", 0.0)
    monkeypatch.setattr(compiled_branches, "CHUNK", 4)
    with pytest.warns(UserWarning, match=r"more seconds: with a discount of 0.5 and no horizon .* 20 steps; a hor"):
        some(0, 5)


# -- environments in the manner of gymnax ------------------------------------------------------------------------


class OldManner:
    """As craftax is: no `observe`, no `is_truncated`."""

    name, default_params = "old", SimpleNamespace(limit=3)

    def reset_env(self, key: Any, params: Any) -> Any:
        return self.get_obs(jnp.int32(0)), jnp.int32(0)

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = state + action + jax.random.randint(key, (), 0, 2)
        return self.get_obs(after), after, 1.0, after >= params.limit, {}

    def get_obs(self, state: Any) -> Any:
        return jnp.stack([state, 2 * state])

    def action_space(self, params: Any) -> Any:
        return SimpleNamespace(n=2, sample=lambda key: jax.random.randint(key, (), 0, 2))


def test_environments_in_the_manner_of_older_gymnax() -> None:
    simulator = gymnax_simulator(OldManner())
    assert simulator.frozen_noise == ""
    (outcome,) = simulator.query(2, [1], Noise(0))
    assert simulator.is_over(outcome.state)
    assert simulator.observe(2).tolist() == [2, 4]
    with pytest.raises(jm.ModelError, match="does not tell its limit of steps from an end"):
        gymnax_simulator(OldManner(), time_limit=False)


def test_an_environment_of_several_agents_is_told_apart_from_gymnax() -> None:
    class Several:
        agents = ("one", "other")

        def step_env(self) -> None: ...

    with pytest.raises(ModelError, match="it has several agents"):
        gymnax_simulator(Several())
