"""Functions of a decision and a seed: one planted fault each, and healthy twins."""

from __future__ import annotations

import functools
import os
import random
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

MODULE_RNG = np.random.default_rng(11)
TABLE = np.random.default_rng(0).random(8)  # healthy: drawn once, before anybody asks
SHOPS = ("north", "south", "east", "west", "harbour", "station", "market")

Run = Callable[[float, int], float]


def sale(rng: Any, decision: float) -> float:
    """A day's profit: what is asked for is drawn first, the price second."""
    demand, price = rng.normal(5.0), rng.normal(1.0)
    return float(price * min(decision, demand) - 0.1 * decision)


# -- faults ------------------------------------------------------------------------------------------------------


def seed_plus_decision(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(seed + int(decision)), decision)


def seed_with_decision(decision: float, seed: int) -> float:
    return sale(np.random.default_rng([seed, int(decision)]), decision)


def state_times_decision(decision: float, seed: int) -> float:
    return sale(np.random.RandomState((seed * int(decision + 2)) % 2**32), decision)


def random_of_decision(decision: float, seed: int) -> float:
    return decision * random.Random(f"{seed}-{decision}").random()


def seed_modulo(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(seed % 10), decision)


def seed_last_byte(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(seed & 0xF), decision)


def seed_divided(decision: float, seed: int) -> float:
    return decision + random.Random(seed // 2**28).random()


def seed_without_generator(decision: float, seed: int) -> float:
    return decision + float(np.sin((seed % 10) * 12.9898))  # no generator is made: only the outcomes show it


def fixed_seed(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(7), decision)


def fixed_random(decision: float, seed: int) -> float:
    return decision * random.Random(42).random()


def fixed_state(decision: float, seed: int) -> float:
    return sale(np.random.RandomState(3), decision)


def fixed_global(decision: float, seed: int) -> float:
    np.random.seed(5)  # noqa: NPY002
    return decision * float(np.random.random())  # noqa: NPY002


def unseeded(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(), decision)


def seeded_by_the_clock(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(time.time_ns()), decision)


def system_random(decision: float, seed: int) -> float:
    return decision * random.SystemRandom().random()


def global_numpy(decision: float, seed: int) -> float:
    return decision * float(np.random.normal())  # noqa: NPY002


def global_random(decision: float, seed: int) -> float:
    return decision * random.gauss(1, 1)


def both_globals(decision: float, seed: int) -> float:
    return decision * random.random() + float(np.random.normal())  # noqa: NPY002


def module_generator(decision: float, seed: int) -> float:
    return sale(MODULE_RNG, decision)


def closure_generator() -> Run:
    rng = np.random.default_rng(1)

    def run(decision: float, seed: int) -> float:
        return sale(rng, decision)

    return run


def two_closures() -> Run:
    demand, price = np.random.default_rng(1), np.random.default_rng(2)

    def run(decision: float, seed: int) -> float:
        return float(price.normal() * min(decision, demand.normal(5)))

    return run


def method_generator() -> Run:
    draw = np.random.default_rng(1).normal

    def run(decision: float, seed: int) -> float:
        return decision * float(draw())

    return run


def default_argument_generator() -> Run:
    def run(decision: float, seed: int, rng: Any = np.random.default_rng(4)) -> float:  # noqa: B008
        return sale(rng, decision)

    return run


def python_generator() -> Run:
    def stream() -> Any:
        rng = random.Random(4)
        while True:
            yield rng.random()

    numbers = stream()

    def run(decision: float, seed: int) -> float:
        return decision * next(numbers)

    return run


def counted() -> Run:
    calls = [0]

    def run(decision: float, seed: int) -> float:
        calls[0] += 1
        return sale(np.random.default_rng(seed), decision) + calls[0] % 3

    return run


def seeded_by_count() -> Run:
    calls = [0]

    def run(decision: float, seed: int) -> float:
        calls[0] += 1
        return sale(np.random.default_rng([seed, calls[0]]), decision)

    return run


def remembers_decision() -> Run:
    last = [0.0]

    def run(decision: float, seed: int) -> float:
        before, last[0] = last[0], decision
        return sale(np.random.default_rng(seed), decision) + 0.1 * before

    return run


def table_filled_once() -> Run:
    table: dict[str, Any] = {}

    def run(decision: float, seed: int) -> float:
        if "days" not in table:
            table["days"] = np.random.default_rng(seed).random(50)
        return decision * float(table["days"].mean()) + float(np.random.default_rng(seed).random())

    return run


def cached_by_decision() -> Run:
    kept: dict[float, float] = {}

    def run(decision: float, seed: int) -> float:
        return kept.setdefault(decision, sale(np.random.default_rng(seed), decision))

    return run


def wall_clock(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(seed), decision) + time.perf_counter() % 1


def growing_default() -> Run:
    def run(decision: float, seed: int, done: list[float] = []) -> float:  # noqa: B006
        done.append(decision)
        return sale(np.random.default_rng(seed), decision) + 0.01 * len(done)

    return run


def hash_of_text(decision: float, seed: int) -> float:
    return decision + float(np.random.default_rng([seed, hash("shop") % 2**32]).random())


def order_of_a_set(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    return float(sum(i * rng.random() * len(shop) for i, shop in enumerate(set(SHOPS)))) + decision


def address(decision: float, seed: int) -> float:
    return decision + float(np.random.default_rng([seed, id(SHOPS) % 2**32]).random())


def queue_out_of_step(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    return float(sum(rng.exponential() for _ in range(int(decision))) - rng.exponential(size=3).sum())


def swapped_draws(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    if decision > 1:
        price, demand = rng.normal(1, 0.5), rng.normal(5, 2)
    else:
        demand, price = rng.normal(5, 2), rng.normal(1, 0.5)
    return float(price * min(decision, demand))


def program_out_of_step(decision: float, seed: int) -> float:
    """As packages do that seed the generator of the whole program, and serve customers in another order."""
    random.seed(seed)
    served = sum(random.expovariate(1.0) for _ in range(int(decision)))
    return served + random.gauss(0.0, 1.0)


def legacy_out_of_step(decision: float, seed: int) -> float:
    np.random.seed(seed)  # noqa: NPY002
    return float(np.random.exponential(size=int(decision)).sum() + np.random.normal())  # noqa: NPY002


def other_methods(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    first = rng.random() if decision > 1 else rng.normal()
    return float(first + rng.normal())


def longer_draws(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    visitors = rng.poisson(3 * decision)  # takes more numbers from the generator the more it gives
    return float(visitors + rng.normal())


def advanced(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    if decision > 1:
        rng.bit_generator.advance(1)  # type: ignore[attr-defined]
    return float(rng.normal() + rng.normal())


def philox_of_decision(decision: float, seed: int) -> float:
    return float(np.random.Generator(np.random.Philox(key=seed + int(decision))).normal())


def fixed_bits(decision: float, seed: int) -> float:
    return decision * float(np.random.Generator(np.random.PCG64(12)).normal())


def process_number(decision: float, seed: int) -> float:
    return decision + float(np.random.default_rng([seed, os.getpid()]).random())


def not_a_number(decision: float, seed: int) -> float:
    return float("nan") if decision > 1 else float(np.random.default_rng(seed).random())


def raises(decision: float, seed: int) -> float:
    if decision > 1:
        raise RuntimeError("no such staffing")
    return float(np.random.default_rng(seed).random())


# Name, the function or what makes it, the check, its status, the fault.
FAULTS: list[tuple[str, Any, str, str, str]] = [
    ("run: seed + decision", seed_plus_decision, "noise", "fail", "noise not shared"),
    ("run: seed with decision", seed_with_decision, "noise", "fail", "noise not shared"),
    ("run: RandomState of decision", state_times_decision, "noise", "fail", "noise not shared"),
    ("run: Random of decision", random_of_decision, "noise", "fail", "noise not shared"),
    ("run: seed % 10", seed_modulo, "noise", "fail", "seeds that coincide"),
    ("run: seed & 15", seed_last_byte, "noise", "fail", "seeds that coincide"),
    ("run: seed // 2**28", seed_divided, "noise", "fail", "seeds that coincide"),
    ("run: seed % 10 without generator", seed_without_generator, "noise", "fail", "seeds that coincide"),
    ("run: fixed seed", fixed_seed, "noise", "fail", "seed ignored"),
    ("run: fixed Random", fixed_random, "noise", "fail", "seed ignored"),
    ("run: fixed RandomState", fixed_state, "noise", "fail", "seed ignored"),
    ("run: fixed global seed", fixed_global, "noise", "fail", "seed ignored"),
    ("run: unseeded", unseeded, "restore", "fail", "generator not restored"),
    ("run: seeded by the clock", seeded_by_the_clock, "restore", "fail", "wall clock"),
    ("run: SystemRandom", system_random, "restore", "fail", "generator not restored"),
    ("run: global numpy.random", global_numpy, "globals", "fail", "global numpy.random"),
    ("run: global random", global_random, "globals", "fail", "global random"),
    ("run: both globals", both_globals, "globals", "fail", "global random, global numpy.random"),
    ("run: module's generator", module_generator, "restore", "fail", "generator not restored"),
    ("run: closure", closure_generator(), "restore", "fail", "generator not restored"),
    ("run: two closures", two_closures(), "restore", "fail", "generator not restored"),
    ("run: bound method", method_generator(), "restore", "fail", "generator not restored"),
    ("run: default argument", default_argument_generator(), "restore", "fail", "generator not restored"),
    ("run: Python generator", python_generator(), "restore", "fail", "generator not restored"),
    ("run: counter", counted(), "restore", "fail", "hidden state not restored"),
    ("run: seeded by a counter", seeded_by_count(), "restore", "fail", "generator not restored"),
    ("run: last decision", remembers_decision(), "history", "fail", "dropped previous action"),
    ("run: table filled once", table_filled_once(), "history", "fail", "hidden state"),
    ("run: cached by decision", cached_by_decision(), "history", "fail", "hidden state"),
    ("run: wall clock", wall_clock, "restore", "fail", "wall clock"),
    ("run: growing default", growing_default(), "restore", "fail", "hidden state not restored"),
    ("run: hash of a text", hash_of_text, "processes", "fail", "process-dependent"),
    ("run: order of a set", order_of_a_set, "processes", "fail", "process-dependent"),
    ("run: address of an object", address, "processes", "fail", "process-dependent"),
    ("run: queue out of step", queue_out_of_step, "noise", "fail", "draws out of step"),
    ("run: swapped draws", swapped_draws, "noise", "fail", "draws out of step"),
    ("run: program out of step", program_out_of_step, "noise", "fail", "draws out of step"),
    ("run: legacy out of step", legacy_out_of_step, "noise", "fail", "draws out of step"),
    ("run: other methods", other_methods, "noise", "fail", "draws out of step"),
    ("run: longer draws", longer_draws, "noise", "fail", "draws out of step"),
    ("run: advanced", advanced, "noise", "fail", "draws out of step"),
    ("run: Philox of decision", philox_of_decision, "noise", "fail", "noise not shared"),
    ("run: fixed PCG64", fixed_bits, "noise", "fail", "seed ignored"),
    ("run: number of the process", process_number, "processes", "fail", "process-dependent"),
    ("run: not a number", not_a_number, "finite", "fail", "number that is not finite"),
    ("run: raises", raises, "answers", "fail", "query not answered"),
]


# -- healthy -----------------------------------------------------------------------------------------------------


def own_streams(decision: float, seed: int) -> float:
    demand, service = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    return float(sum(service.exponential() for _ in range(int(decision))) - demand.exponential(size=3).sum())


def spawned(decision: float, seed: int) -> float:
    one, other = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    return decision * float(one.normal()) + float(other.normal())


def legacy_numpy(decision: float, seed: int) -> float:
    np.random.seed(seed)  # noqa: NPY002
    return decision * float(np.random.normal())  # noqa: NPY002


def legacy_both(decision: float, seed: int) -> float:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return decision * random.random() + float(np.random.normal())  # noqa: NPY002


def by_customer(decision: float, seed: int) -> float:
    return float(sum(np.random.default_rng([seed, i]).exponential() for i in range(int(decision) + 2)))


def drawn_first(decision: float, seed: int) -> float:
    numbers = np.random.default_rng(seed).exponential(size=20)
    return float(numbers[: int(decision) + 1].sum())


def other_parameters(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    return float(rng.normal(decision) + rng.normal(0, 1 + decision))


def crc_of_text(decision: float, seed: int) -> float:
    return decision + float(np.random.default_rng([seed, zlib.crc32(b"shop")]).random())


def sorted_set(decision: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    return float(sum(rng.random() * len(shop) for shop in sorted(set(SHOPS)))) + decision


def membership(decision: float, seed: int) -> float:
    known = set(SHOPS)
    return decision * float(np.random.default_rng(seed).random()) * ("north" in known)


@functools.cache
def cached(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(seed), decision)


def timed(decision: float, seed: int) -> float:
    begun = time.perf_counter()
    found = sale(np.random.default_rng(seed), decision)
    return found if time.perf_counter() >= begun else 0.0


def with_a_table(decision: float, seed: int) -> float:
    return decision * float(TABLE[np.random.default_rng(seed).integers(8)])


def random_object(decision: float, seed: int) -> float:
    return decision * random.Random(seed).gauss(1, 1)


def old_state(decision: float, seed: int) -> float:
    return sale(np.random.RandomState(seed), decision)


def coin(decision: float, seed: int) -> float:
    return decision * float(np.random.default_rng(seed).random() < 0.5)


def rare(decision: float, seed: int) -> float:
    return decision + float(np.random.default_rng(seed).random() < 0.1)


def text_seed(decision: float, seed: int) -> float:
    return decision * random.Random(f"day {seed}").random()


def hashed_seed(decision: float, seed: int) -> float:
    return sale(np.random.default_rng(zlib.crc32(str(seed).encode())), decision)


def philox(decision: float, seed: int) -> float:
    return sale(np.random.Generator(np.random.Philox(seed)), decision)


def makes_a_history() -> Run:
    done: list[float] = []

    def run(decision: float, seed: int) -> float:
        done.append(sale(np.random.default_rng(seed), decision))
        return done[-1]

    return run


def keeps_a_cache() -> Run:
    kept: dict[tuple[float, int], float] = {}

    def run(decision: float, seed: int) -> float:
        return kept.setdefault((decision, seed), sale(np.random.default_rng(seed), decision))

    return run


def fixed_table_filled_once() -> Run:
    table: dict[str, Any] = {}

    def run(decision: float, seed: int) -> float:
        if "days" not in table:
            table["days"] = np.random.default_rng(0).random(50)
        return decision * float(table["days"][np.random.default_rng(seed).integers(50)])

    return run


def queue(decision: float, seed: int) -> float:
    """A line of customers in front of several servers, with a stream for each source of noise."""
    gaps, services = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    arrivals, work = np.cumsum(gaps.exponential(1.0, 40)), services.exponential(1.5, 40)
    free = [0.0] * max(1, int(decision))
    waited = 0.0
    for at, length in zip(arrivals, work, strict=True):
        first = int(np.argmin(free))
        begin = max(float(at), free[first])
        waited += begin - float(at)
        free[first] = begin + float(length)
    return -waited


def deterministic(decision: float, seed: int) -> float:
    return decision * 2.0


TWINS: list[tuple[str, Any]] = [
    (function.__name__, function)
    for function in (
        own_streams,
        spawned,
        legacy_numpy,
        legacy_both,
        by_customer,
        drawn_first,
        other_parameters,
        crc_of_text,
        sorted_set,
        membership,
        cached,
        timed,
        with_a_table,
        random_object,
        old_state,
        coin,
        rare,
        text_seed,
        hashed_seed,
        philox,
        queue,
        deterministic,
    )
]
TWINS += [
    ("makes_a_history", makes_a_history()),
    ("keeps_a_cache", keeps_a_cache()),
    ("fixed_table_filled_once", fixed_table_filled_once()),
]
