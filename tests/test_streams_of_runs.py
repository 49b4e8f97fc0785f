"""Streams of run functions, set back, out of a file, or children: faults are named, and twins are not blamed."""

from __future__ import annotations

import asyncio
import functools
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.watching.recorded_draws import DrawLog, recorded
from jointmdp.simulation.watching.stream_checks import FIXED, OUT_OF_STEP, TWICE, UNSHARED, RecordedRun, judged

rng_of = np.random.default_rng
Run = Callable[[int, int], float]


def faults(run: Run, decisions: tuple[int, ...] = (1, 2, 3), seeds: int = 3) -> set[str]:
    """What is wrong with its streams, by name."""
    runs = []
    for decision in decisions:
        for seed in range(10, 10 + seeds):
            with recorded(DrawLog(is_thorough=seed == 10)) as log:
                run(decision, seed)
            runs.append(RecordedRun(str(decision), f"seed {seed}", log))
    return {fault.fault for fault in judged(runs)}


def waited(gaps: Any, work: Any, servers: int) -> float:
    wait = total = 0.0
    for gap, job in zip(gaps, work, strict=True):
        wait = max(0.0, wait + job / servers - gap)
        total += wait
    return total + servers


# -- set back --------------------------------------------------------------------------------------------------------


def state_set_back(servers: int, seed: int) -> float:
    rng = rng_of(seed)
    start = rng.bit_generator.state
    gaps = rng.exponential(1.0, 40)
    rng.bit_generator.state = start
    return waited(gaps, rng.exponential(1.5, 40), servers)


def legacy_set_back(servers: int, seed: int) -> float:
    rng = np.random.RandomState(seed)
    start = rng.get_state()
    gaps = rng.exponential(1.0, 40)
    rng.set_state(start)
    return waited(gaps, rng.exponential(1.5, 40), servers)


def python_set_back(servers: int, seed: int) -> float:
    rng = random.Random(seed)
    start = rng.getstate()
    gaps = [rng.expovariate(1.0) for _ in range(5)]
    rng.setstate(start)
    return waited(gaps, [rng.expovariate(1.5) for _ in range(5)], servers)


def only_kept(servers: int, seed: int) -> float:
    """Where it stands is kept, and nobody goes back there; a draw of nothing leaves it where it was."""
    rng = rng_of(seed)
    start = rng.bit_generator.state
    rng.random(0)
    gaps = rng.exponential(1.0, 40)
    return waited(gaps, rng.exponential(1.5, 40), servers) + 0 * len(start)


# -- out of a file ---------------------------------------------------------------------------------------------------

KEPT = {name: pickle.dumps(rng) for name, rng in [("new", rng_of(123)), ("old", np.random.RandomState(123))]}
KEPT["Python's"] = pickle.dumps(random.Random(123))


def pickled_copy(servers: int, seed: int) -> float:
    rng = rng_of(seed)
    other = pickle.loads(pickle.dumps(rng))
    return waited(rng.exponential(1.0, 40), other.exponential(1.5, 40), servers)


def copied_later(servers: int, seed: int) -> float:
    """A copy that goes on from where the original stands, which goes on as well."""
    rng = rng_of(seed)
    rng.random(7)
    other = pickle.loads(pickle.dumps(rng))
    return waited(rng.exponential(1.0, 40), other.exponential(1.5, 40), servers)


def handed_on(servers: int, seed: int) -> float:
    """A copy that goes on alone."""
    rng = rng_of(seed)
    gaps = rng.exponential(1.0, 40)
    return waited(gaps, pickle.loads(pickle.dumps(rng)).exponential(1.5, 40), servers)


def from_a_file(kind: str) -> Run:
    def run(level: int, seed: int) -> float:
        demand = pickle.loads(KEPT[kind])
        return level * float(demand.normalvariate(4, 1) if kind == "Python's" else demand.normal(4)) + rng_of(
            seed
        ).normal(0, 0.2)

    return run


# -- children --------------------------------------------------------------------------------------------------------


async def _job(i: int, gate: asyncio.Semaphore, rng: np.random.Generator, out: dict[int, float]) -> None:
    async with gate:
        for _ in range(i % 3):
            await asyncio.sleep(0)
        out[i] = rng.exponential(1 + i % 3)
        await asyncio.sleep(0)


def in_turns(crew: int, seed: int) -> float:
    """Jobs in turns that depend on the crew, each with a child of its own."""

    async def main() -> float:
        gate, out, rngs = asyncio.Semaphore(crew), dict[int, float](), rng_of(seed).spawn(12)
        await asyncio.gather(*(_job(i, gate, rngs[i], out) for i in range(12)))
        return sum(out.values()) + crew

    return asyncio.run(main())


def in_threads(level: int, seed: int) -> float:
    """Regions that draw alike, each in a thread of its own: which comes first is nobody's doing."""
    children, found = [rng_of(child) for child in np.random.SeedSequence(seed).spawn(3)], dict[int, float]()
    done, turns = threading.Barrier(3), [threading.Event() for _ in range(4)]
    turns[0].set()

    def region(k: int) -> None:
        turn = (k + level) % 3
        turns[turn].wait(10)
        found[k] = children[k].poisson(4)
        turns[turn + 1].set()
        done.wait(10)

    threads = [threading.Thread(target=region, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found.values()) - level


def handed_out(level: int, seed: int) -> float:
    """Children that go to three sources which draw alike, in an order that the decision says."""
    order = [(i + level) % 3 for i in range(3)]
    children = dict(zip(order, rng_of(seed).spawn(3), strict=True))
    return sum(weight * float(children[i].normal()) for i, weight in enumerate((9.0, 3.0, 1.0)))


# -- keys of JAX -----------------------------------------------------------------------------------------------------


def repaired(speed: int, keys: list[Any]) -> float:
    """Repairs whose number depends on the decision, from the last of the keys' chains."""

    def roll(chain: int) -> float:
        keys[chain], own = jax.random.split(keys[chain])
        return float(jax.random.uniform(own))

    wait = total = 0.0
    for _ in range(6):
        wait = max(0.0, wait + 2 * roll(0) / speed - 0.5)
        if wait > 0.4:
            wait *= 0.5 if roll(-1) < 0.5 else 1
        total += wait
    return total


def one_chain(speed: int, seed: int) -> float:
    return repaired(speed, [jax.random.key(seed)])


def two_chains(speed: int, seed: int) -> float:
    return repaired(speed, list(jax.random.split(jax.random.key(seed))))


def in_one_go(speed: int, seed: int) -> float:
    return float(jax.random.exponential(jax.random.key(seed), (3,)).sum()) / speed


def one_way_each(speed: int, seed: int) -> float:
    """Decisions that use the same keys in arms of their own."""
    one, other = jax.random.split(jax.random.key(seed))
    if speed == 1:
        return float(jax.random.uniform(one) - jax.random.uniform(other))
    return float(jax.random.uniform(one) - 2 * jax.random.uniform(other))


@jax.jit
def rolled(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    key, own = jax.random.split(key)
    return key, jax.random.uniform(own)


def compiled_chain(speed: int, seed: int) -> float:
    key, first = rolled(jax.random.PRNGKey(seed))
    return float(first if speed == 1 else rolled(key)[1]) - speed


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        *((run, TWICE) for run in (state_set_back, legacy_set_back, python_set_back, pickled_copy, copied_later)),
        *((from_a_file(kind), FIXED) for kind in KEPT),
        (handed_out, UNSHARED),
        (one_chain, OUT_OF_STEP),
    ],
)
def test_what_is_wrong_with_the_streams_is_named(run: Run, fault: str) -> None:
    assert faults(run) == {fault}


@pytest.mark.parametrize("run", [only_kept, handed_on, in_turns, in_threads, two_chains, in_one_go, one_way_each])
def test_healthy_streams_are_not_blamed(run: Run) -> None:
    assert not faults(run)


def by_value(make: Any, level: int, seed: int) -> float:
    """It is handed the function that makes generators."""
    return level * float(make(seed).normal(4))


def by_default(level: int, seed: int, make: Any = rng_of) -> float:
    return by_value(make, level, seed)


def by_closure(make: Any) -> Run:
    def run(level: int, seed: int) -> float:
        return by_value(make, level, seed)

    return run


@pytest.mark.parametrize("run", [functools.partial(by_value, rng_of), by_default, by_closure(rng_of)])
def test_what_makes_generators_is_followed_where_it_is_handed_over_by_value(run: Run) -> None:
    simulator, found = RunSimulator(run, [1, 2]), list[list[str]]()
    for i in range(2):
        with recorded() as log:
            simulator.query(False, [0], jm.Noise("run", i))
        found.append([stream.kind for stream in log.drawn])
    assert found == [["default_rng"]] * 2
    assert simulator.query(False, [0], jm.Noise("run", 1))[0].reward == run(1, jm.Noise("run", 1).seed)


def test_keys_that_only_compiled_code_uses_are_not_followed() -> None:
    report = jm.audit(compiled_chain, decisions=[1, 2], seconds=2)
    assert not report.failures
    assert not report.is_ok
    assert "a key of jax.random.PRNGKey, which only compiled code uses" in report["noise"].message


def test_a_comparison_says_that_a_generator_is_set_back() -> None:
    with pytest.warns(jm.errors.NoiseWarning, match="default_rng.* is set back, so that exponential"):
        jm.compare(state_set_back, decisions=[1, 2], pilot=100, max_replications=100)


DEMANDS = rng_of(0).poisson(4, (20, 15))


def test_a_comparison_says_that_replications_come_again() -> None:
    def from_a_table(level: int, seed: int) -> float:
        return float((3 * np.minimum(level, DEMANDS[seed % 20]) - level).sum())

    with pytest.warns(jm.errors.NoiseWarning) as told:
        jm.compare(from_a_table, decisions=[3, 4], pilot=100, max_replications=100)
    texts = [str(each.message) for each in told]
    assert any("Seeds that coincide: seeds that differ by 720,720 gave the same" in text for text in texts)
    assert any("What from_a_table draws cannot be followed" in text for text in texts)


def test_few_results_are_no_seeds_that_coincide() -> None:
    def won(level: int, seed: int) -> float:
        """Dice that nobody can follow, and a result that is one of two."""
        dice = (seed + 1) * 48271 % 2147483647
        return float(dice % 997 < 300 + 200 * level)

    with pytest.warns(jm.errors.NoiseWarning, match="What won draws cannot be followed"):
        found = jm.compare(won, decisions=[1, 2], pilot=100, max_replications=100)
    assert len(found.warnings) == 1


def test_what_comes_out_of_a_file_draws_the_same_whether_recorded_or_not() -> None:
    for kind, kept in KEPT.items():
        with recorded():
            found = pickle.loads(kept)
        assert found.random() == pickle.loads(kept).random(), kind
