"""JAX's settings: whatever a user has set, answers are the same, and samples of a seed are the same bits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground.arrays import random_key

POLICY = np.full((3, 2), 0.5)
SETTINGS: list[tuple[str, Any]] = [
    ("jax_numpy_dtype_promotion", "strict"),
    ("jax_numpy_rank_promotion", "raise"),
    ("jax_transfer_guard", "disallow_explicit"),
    ("jax_transfer_guard_host_to_device", "disallow"),
    ("jax_transfer_guard_device_to_host", "disallow_explicit"),
    ("jax_default_prng_impl", "rbg"),
    ("jax_threefry_partitionable", False),
    ("jax_legacy_prng_key", "error"),
    ("jax_enable_custom_prng", True),
    ("jax_debug_nans", True),
    ("jax_debug_infs", True),
    ("jax_default_matmul_precision", "BF16_BF16_F32"),
    ("jax_check_tracer_leaks", True),
    ("jax_debug_key_reuse", True),
    ("jax_no_tracing", True),
    ("jax_no_execution", True),
]
RARE: list[tuple[str, Any]] = [  # programs are compiled anew under them
    ("jax_disable_jit", True),
    ("jax_random_seed_offset", 7),
    ("jax_explicit_x64_dtypes", "error"),
    ("jax_explicit_x64_dtypes", "allow"),
    ("jax_enable_checks", True),
    ("jax_check_static_indices", True),
    ("jax_default_device", "cpu"),
    ("jax_thread_guard", True),
    ("jax_softmax_custom_jvp", True),
    ("jax_high_dynamic_range_gumbel", True),
    ("eager_constant_folding", True),
]
SOME_AND_LONG = [*SETTINGS[::2], *(pytest.param(*each, marks=pytest.mark.long) for each in [*SETTINGS[1::2], *RARE])]
RARE_AND_LONG = [*RARE[:4], *(pytest.param(*each, marks=pytest.mark.long) for each in RARE[4:])]


@contextmanager
def setting(name: str, value: Any) -> Iterator[None]:
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


def model(sharing: Any) -> jm.JointMDP:
    rng = np.random.default_rng(0)
    rewards, successors = rng.normal(size=(3, 2, 2)), rng.integers(3, size=(3, 2, 2))
    return jm.JointMDP(np.full((3, 2), 0.5), rewards, successors, 0.8, sharing)


def step(key: Any, state: Any, action: Any) -> Any:
    """Several draws of one key, matrices and an old kind of key: what settings could change."""
    drawn = jax.random.uniform(key, (3,), dtype=jnp.float32)
    other = jax.random.uniform(jax.random.wrap_key_data(jax.random.key_data(key)), dtype=jnp.float32)
    after = jnp.float32(0.5) * state + drawn[0] + action.astype(jnp.float32)
    return drawn[1] + other * after, after


def reset(key: Any) -> Any:
    return jax.random.uniform(key, dtype=jnp.float32)


def keyed(observation: Any, key: Any) -> Any:
    return jax.random.bernoulli(key, jnp.float32(0.3)).astype(jnp.int32)


def answers(simulator: jm.JaxSimulator) -> dict[str, Any]:
    """Numbers of every kind of question, to the last bit."""
    found: dict[str, Any] = {}
    for sharing in ("state", "time", "none"):
        solution = jm.evaluate(model(sharing), POLICY)
        gap = solution.gap(0, 0, 1)
        found[f"evaluate {sharing}"] = gap.mean, gap.variance, solution.covariance_between(0, 1, 2, 0)
    table = model("state")
    found["gaps"] = (
        jm.simulate(table, POLICY, 0, [0, 1], num_samples=40, seed=3, gaps_only=True).gap(0, 1).gaps.tolist()
    )
    found["returns"] = jm.simulate(table, POLICY, 0, num_samples=40, seed=3).returns.tolist()
    compared = jm.compare(table, POLICY, 0, [0, 1], pilot=20, max_replications=20, seed=3)
    found["compare"] = compared.gap(0, 1).mean
    learned = jm.learn(table, POLICY, jm.Incremental(replicas=2, seed=3), steps=20)
    found["learn"] = learned.gap(0, 0, 1).mean
    found["engine"] = (
        jm.simulate(simulator, keyed, None, [0, 1], num_samples=20, seed=3, horizon=3, gaps_only=True)
        .gap(0, 1)
        .gaps.tolist()
    )
    found["query"] = simulator.sample(0.5, [0, 1], 4, seed=3).rewards.tolist()
    noise = jm.Noise("query", 3)
    found["step"] = simulator.step(simulator.reset(3), 1, noise).reward, noise.seed
    return found


@pytest.fixture(scope="module")
def simulator() -> jm.JaxSimulator:
    return jm.JaxSimulator(step, reset, actions=2, discount=0.9)


@pytest.fixture(scope="module")
def usual(simulator: jm.JaxSimulator) -> dict[str, Any]:
    return answers(simulator)


@pytest.mark.parametrize(("name", "value"), SETTINGS)
@pytest.mark.slow
def test_a_setting_changes_nothing(
    name: str, value: Any, usual: dict[str, Any], simulator: jm.JaxSimulator, compilations: list[str]
) -> None:
    with setting(name, value):
        assert answers(simulator) == usual
    # Others are a part of how the user's own functions compute, or of how these are debugged.
    if name.startswith(("jax_transfer", "jax_default_prng", "jax_threefry", "jax_no_")):
        assert not compilations


@pytest.mark.slow
def test_our_programs_are_compiled_without_jit_and_inside_of_it() -> None:
    """The everyday part of what is asked of every kind of question in the slow tests."""
    found = []

    def ask(x: Any) -> Any:
        found.append(
            jm.simulate(model("state"), POLICY, 0, [0, 1], num_samples=40, seed=3, gaps_only=True)
            .gap(0, 1)
            .gaps.tolist()
        )
        return x

    ask(1.0)
    with setting("jax_disable_jit", True):
        ask(1.0)
    jax.jit(ask)(1.0)
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), RARE_AND_LONG)
def test_a_rare_setting_changes_nothing(
    name: str, value: Any, usual: dict[str, Any], simulator: jm.JaxSimulator
) -> None:
    with setting(name, value):
        assert answers(simulator) == usual


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), SOME_AND_LONG)
def test_laws_and_moments_under_a_setting(name: str, value: Any) -> None:
    def found() -> list[Any]:
        solution = jm.evaluate(model("state"), POLICY)
        gap = solution.gap(0, 0, 1)
        joint = jm.joint_moments(model("state"), POLICY, 3)
        return [gap.superiority(), gap.quantile(0.5), solution.best_action(0).table(), joint.moment(*[(0, 0)] * 3)]

    usual = found()
    with setting(name, value):
        assert str(found()) == str(usual)


@pytest.mark.slow  # every program is compiled again
def test_precision_concerns_only_what_the_user_wrote(usual: dict[str, Any], simulator: jm.JaxSimulator) -> None:
    with jax.enable_x64(True):  # the simulator says float32 everywhere
        assert answers(simulator) == usual


def test_a_seed_is_one_key() -> None:
    seeds = (0, 3, 2**32 + 5, 2**63 - 1)
    with jax.enable_x64(True):
        known = [jax.random.key_data(jax.random.key(seed)).tolist() for seed in seeds]
    with setting("jax_random_seed_offset", 7), setting("jax_default_prng_impl", "rbg"):
        assert [jax.random.key_data(random_key(seed)).tolist() for seed in seeds] == known


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_keys_of_the_user_are_of_the_users_kind(kind: str) -> None:
    table = model("state")
    with setting("jax_default_prng_impl", kind):
        old, new = (make(5) for make in (jax.random.PRNGKey, jax.random.key))
        first, second = (table.sample_transitions(key, key, POLICY, num_samples=9) for key in (old, new))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_debugging_still_finds_the_users_mistake() -> None:
    simulator = jm.JaxSimulator(lambda key, s, a: (jnp.log(s - 1), s), 0.0, actions=2, name="logs")
    with setting("jax_debug_nans", True), pytest.raises(jm.ModelError, match=r"step of logs fails.*FloatingPointError"):
        simulator.step(0.0, 0, jm.Noise("x"))


@pytest.mark.slow
def test_calls_inside_of_jit_are_calls_on_the_host(usual: dict[str, Any], simulator: jm.JaxSimulator) -> None:
    seen = {}

    def inside(x: Any) -> Any:
        seen.update(answers(simulator))
        return x + seen["learn"]

    jax.jit(inside)(1.0)
    assert seen == usual
    for transform, given in ((jax.grad, 1.0), (jax.vmap, np.ones(2))):
        seen.clear()
        transform(inside)(given)
        assert seen == usual


TRACED = {
    "rewards": lambda x, sim: jm.JointMDP(np.full((1, 1), 1.0), x[None, None, None], np.zeros((1, 1, 1)), 0.5),
    "policy": lambda x, sim: jm.evaluate(model("state"), [[x, 1 - x]] * 3),
    "discount": lambda x, sim: jm.JointMDP(np.ones((1, 1)), np.ones((1, 1, 1)), np.zeros((1, 1, 1)), x),
    "state": lambda x, sim: jm.evaluate(model("state"), POLICY).gap(x, 0, 1),
    "simulated policy": lambda x, sim: jm.simulate(model("state"), [[x, 1 - x]] * 3, 0, num_samples=4),
    "seed": lambda x, sim: jm.simulate(model("state"), POLICY, 0, [0, 1], num_samples=4, seed=x, gaps_only=True).gap(
        0, 1
    ),
    "compare": lambda x, sim: jm.compare(model("state"), POLICY, x, [0, 1]),
    "learn": lambda x, sim: jm.learn(model("state"), [[x, 1 - x]] * 3, steps=2),
    "options": lambda x, sim: jm.Incremental(seed=x),
    "simulator's state": lambda x, sim: sim.query(x, [0, 1], jm.Noise("x")),
    "simulated state": lambda x, sim: jm.simulate(sim, 0, x, [0, 1], num_samples=4, horizon=2, gaps_only=True).gap(
        0, 1
    ),
    "simulator's own": lambda x, sim: jm.simulate(
        jm.JaxSimulator(lambda key, s, a: (x, s), 0.0, actions=2),
        0,
        None,
        [0, 1],
        num_samples=4,
        horizon=2,
        gaps_only=True,
    ).gap(0, 1),
}


def test_traced_keys_are_refused() -> None:
    with pytest.raises(jm.ModelError, match="run on the host"):
        jax.jit(lambda key: model("state").sample_query(key, 0, [0, 1]))(jax.random.key(0))


@pytest.mark.parametrize("transform", [jax.jit, jax.grad])
@pytest.mark.parametrize("case", TRACED)
def test_traced_values_are_refused_in_one_sentence(case: str, transform: Any, simulator: jm.JaxSimulator) -> None:
    with pytest.raises(jm.ModelError, match=r"is a value inside of jax\.jit, vmap or grad.* run on the host"):
        transform(lambda x: TRACED[case](x, simulator))(0.5)
