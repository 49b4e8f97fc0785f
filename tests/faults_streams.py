"""Faults beside intact streams, in functions of a decision and a seed, each with its healthy twin.

Most runs draw from several streams of which one is broken, for some decisions, in some replications. The twin is the
same model done right, as a careful person would have written it: it often looks more suspicious than the fault.
``build(is_broken)`` makes either; `planted.proof` shows without the library that the fault is one and the twin is not.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from faults_kinds import FAULTS as KINDS
from faults_worlds import FAULTS as WORLDS
from planted import registry
from scipy import stats

rng_of = np.random.default_rng
RUNS, planted = registry()

OUT_OF_STEP, NOT_SHARED = "draws out of step", "noise not shared"
REMEMBERS = "hidden state, hidden state not restored, dropped previous action"
RUNS_ON = "generator not restored, hidden state, hidden state not restored"


# -- one of several streams is eaten -----------------------------------------------------------------------------


@planted("inspections eat the repairs", "run", OUT_OF_STEP, shows="gap", decisions=(0, 2, 3))
def eaten(is_broken: bool) -> Any:
    """Each inspection draws from the stream of the repairs; arrivals stay in step."""

    def run(inspections: int, seed: int) -> float:
        arrivals, repairs, inspected = rng_of([seed, 1]), rng_of([seed, 2]), rng_of([seed, 3])
        found = (repairs if is_broken else inspected).random(inspections).sum()
        return 10 * repairs.normal() + arrivals.normal() - 0.1 * found + inspections

    return run


@planted("vaccinations eat the epidemic", "run", OUT_OF_STEP, shows="gap", decisions=(0, 3, 5))
def epidemic(is_broken: bool) -> Any:
    """Who is vaccinated is drawn from the epidemic's named stream."""

    def run(doses: int, noise: Any) -> float:
        chosen = noise["epidemic" if is_broken else "vaccination"].random(doses)
        infected = 10.0
        for _ in range(6):
            infected *= np.exp(0.3 * noise["epidemic"].normal() + 0.1 - 0.02 * doses)
        return float(infected + 0.1 * noise["reporting"].normal() - 0.01 * chosen.sum())

    return run


@planted("the last of twelve eats a draw", "run", OUT_OF_STEP, shows="gap", decisions=tuple(range(12)))
def last_of_twelve(is_broken: bool) -> Any:
    """Only the largest order pays for a quote, which is drawn from the demand."""

    def run(order: int, seed: int) -> float:
        demand, quotes = rng_of([seed, 0]), rng_of([seed, 1])
        discount = 0.1 * (demand if is_broken else quotes).random() if order == 11 else 0.0
        return float(min(order, demand.gamma(5.0)) + 4 * demand.normal() - (0.3 - discount) * order)

    return run


@planted("one replication in ten", "run", OUT_OF_STEP, shows="gap", decisions=(1, 2, 4))
def one_in_ten(is_broken: bool) -> Any:
    """Where a machine fails, in one run of ten, a crew of two or more draws lots before the demand is drawn."""

    def run(crew: int, seed: int) -> float:
        rng = rng_of(seed)
        if rng.random() < 0.1 and crew > 1:
            (rng if is_broken else rng_of([seed, 9])).integers(crew)
        return float(5 * rng.normal() + rng.exponential() + 0.1 * crew)

    return run


@planted("slow, and the third is broken", "run", OUT_OF_STEP, shows="gap", decisions=("low", "middle", "high"), runs=30)
def slow_third(is_broken: bool) -> Any:
    """A model of 0.05 s; the third decision draws one price more."""

    def run(level: str, seed: int) -> float:
        time.sleep(0.05)
        prices, demand = rng_of([seed, 4]), rng_of([seed, 5])
        shown = prices.normal(size=3 if level == "high" and is_broken else 2)
        return float(shown[:2].sum() + 8 * prices.normal() + demand.normal() + len(level))

    return run


@planted("rejected until they fit", "run", OUT_OF_STEP, shows="gap", decisions=(1.0, 2.0, 3.0))
def rejection(is_broken: bool) -> Any:
    """Parcels are drawn until one fits into the van: the smaller the van, the more draws."""

    def run(van: float, seed: int) -> float:
        parcels, traffic = rng_of([seed, 0]), rng_of([seed, 1])
        load = 0.0
        for i in range(5):
            mine = parcels if is_broken else rng_of([seed, 2, i])
            size = mine.exponential()
            while size > van:
                size = mine.exponential()
            load += size
        return float(load + 6 * parcels.normal() + 0.1 * traffic.normal())

    return run


@planted("order of as many stops as asked", "run", OUT_OF_STEP, shows="gap", decisions=(4, 6, 9))
def permuted(is_broken: bool) -> Any:
    """The round is a permutation of as many stops as the decision says, and the weather is drawn after it."""

    def run(stops: int, seed: int) -> float:
        rng = rng_of(seed)
        order = rng.permutation(stops) if is_broken else np.argsort(rng.random(10)[:stops])
        return float(np.abs(np.diff(order)).sum() * 0.1 + 4 * rng.normal() + rng.normal())

    return run


@planted("half words", "run", OUT_OF_STEP, shows="gap", decisions=(100, 10**12))
def half_words(is_broken: bool) -> Any:
    """Small whole numbers take half a word of the generator, large ones a whole one; calls are the same."""

    def run(tickets: int, seed: int) -> float:
        rng = rng_of(seed)
        if is_broken:
            drawn = [rng.integers(tickets) / tickets for _ in range(4)]
        else:
            drawn = [int(rng.random() * tickets) / tickets for _ in range(4)]
        return float(sum(drawn) + 5 * rng.normal())

    return run


@planted("lots among equals", "run", OUT_OF_STEP, shows="gap", decisions=(1, 2, 3))
def tie_breaks(is_broken: bool) -> Any:
    """A customer takes the shortest queue; ties are broken by one draw a queue, from the service's stream."""

    def run(queues: int, seed: int) -> float:
        service, lots, arrivals = rng_of([seed, 0]), rng_of([seed, 1]), rng_of([seed, 2])
        free = [0.0] * queues
        now = waited = 0.0
        for _ in range(12):
            now += arrivals.exponential()
            draw = service if is_broken else lots
            chosen = min(range(queues), key=lambda i: (max(free[i] - now, 0.0), draw.random()))
            waited += max(free[chosen] - now, 0.0)
            free[chosen] = max(free[chosen], now) + service.exponential(1.5)
        return float(max(free) + waited)

    return run


@planted(
    "threads that take turns", "run", f"{OUT_OF_STEP}, {RUNS_ON}, wall clock", shows="gap", decisions=(0, 2), runs=60
)
def threads(is_broken: bool) -> Any:
    """Two threads share a generator, and which of them draws first depends on the decision."""

    def run(delay: int, seed: int) -> float:
        shared = rng_of(seed)

        def part(i: int) -> float:
            time.sleep(0.012 if i else 0.004 + 0.01 * delay)
            return float((shared if is_broken else rng_of([seed, i])).normal())

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(part, (0, 1))
        return 10 * one - other + delay

    return run


# -- seeds ---------------------------------------------------------------------------------------------------------


@planted("one seed of two is shifted", "run", NOT_SHARED, shows="gap", decisions=(0, 1, 2))
def shifted(is_broken: bool) -> Any:
    """The second generator's seed depends on the decision."""

    def run(site: int, seed: int) -> float:
        season, local = rng_of(seed), rng_of(seed + 7 * site) if is_broken else rng_of([seed, 7])
        return float(season.normal() + 10 * local.normal() + site)

    return run


@planted("the last of twelve has its own seed", "run", NOT_SHARED, shows="gap", decisions=tuple(range(40, 160, 10)))
def last_seed(is_broken: bool) -> Any:
    """Orders above a limit are planned by another team, with a seed of its own."""

    def run(order: int, seed: int) -> float:
        rng = random.Random(seed if order < 150 or not is_broken else seed ^ 0xBEEF)
        return float(min(order, rng.gauss(60, 20)) - 0.3 * order)

    return run


@planted("checksum of the plan", "run", NOT_SHARED, shows="gap", decisions=("lean", "wide"))
def checksum(is_broken: bool) -> Any:
    """Streams are named by a checksum, and one name holds the plan."""

    def run(plan: str, seed: int) -> float:
        def stream(*words: object) -> np.random.Generator:
            return rng_of(zlib.crc32("/".join(map(str, words)).encode()))

        lead = stream("lead time", plan, seed) if is_broken else stream("lead time", seed)
        return float(stream("demand", seed).normal() + 5 * lead.normal() + len(plan))

    return run


@planted("stream of the decision", "run", NOT_SHARED, shows="gap", decisions=(1, 2, 3))
def named_by_decision(is_broken: bool) -> Any:
    """The service is drawn under a name that holds the number of servers; the arrivals are not."""

    def run(servers: int, noise: Any) -> float:
        late = 0.0
        for customer in range(8):
            service = noise["service", servers, customer] if is_broken else noise["service", customer]
            late += max(0.0, service.exponential(3.0) / servers - noise["arrivals"].exponential())
        return late

    return run


@planted(
    "spawned in another order", "run", f"{NOT_SHARED}, {OUT_OF_STEP}", shows="gap", decisions=("press", "lathe", "saw")
)
def spawned(is_broken: bool) -> Any:
    """The machine that is bought comes first, and takes the first child of the seed."""

    def run(bought: str, seed: int) -> float:
        machines = ["lathe", "press", "saw"]
        order = sorted(machines, key=lambda m: m != bought) if is_broken else sorted(machines)
        streams = {m: rng_of(child) for m, child in zip(order, np.random.SeedSequence(seed).spawn(3), strict=True)}
        return sum(w * float(streams[m].normal()) for w, m in zip((9.0, 3.0, 1.0), machines, strict=True)) + len(bought)

    return run


@planted("children of a generator", "run", f"{NOT_SHARED}, {OUT_OF_STEP}", shows="gap", decisions=(1, 2, 4))
def children(is_broken: bool) -> Any:
    """A generator spawns one child a server, and then the child of the weather."""

    def run(servers: int, seed: int) -> float:
        parent = rng_of(seed)
        if is_broken:
            *hands, weather = parent.spawn(servers + 1)
        else:
            (weather,) = parent.spawn(1)
            hands = parent.spawn(servers)
        return float(sum(h.exponential() for h in hands) / servers + 5 * weather.normal())

    return run


@planted("jumped ahead", "run", f"{NOT_SHARED}, {OUT_OF_STEP}", shows="gap", decisions=(0, 1, 2))
def jumped(is_broken: bool) -> Any:
    """Each route gets a jump of the bit generator of its own."""

    def run(route: int, seed: int) -> float:
        bits = np.random.PCG64(seed)
        road = np.random.Generator(bits.jumped(route if is_broken else 1))
        return float(np.random.Generator(bits).normal() + 4 * road.normal() - route)

    return run


@planted("seed of the noise and the decision", "run", NOT_SHARED, shows="gap", decisions=(10, 20))
def noise_seed(is_broken: bool) -> Any:
    """An old package takes a seed: it is given that of the noise, plus the decision."""

    def run(size: int, noise: Any) -> float:
        old = np.random.RandomState((noise.seed + (size if is_broken else 0)) % 2**32)
        return float(noise["demand"].normal() + 6 * old.normal() + 0.1 * size)

    return run


@planted("sixteen winters", "run", "seeds that coincide", shows="law", decisions=(0, 1), settings={"num_samples": 60})
def sixteen(is_broken: bool) -> Any:
    """The demand has the whole seed, the winter four bits of it: results differ, winters come again and again."""

    def run(boilers: int, seed: int) -> float:
        winter, demand = rng_of(seed % 16 if is_broken else [seed, 16]), rng_of([seed, 1])
        cold = winter.normal()
        return float(np.exp(3 * cold) + demand.normal() - boilers)

    return run


@planted("hundreds of seeds are one", "run", "seeds that coincide", shows="neighbours", decisions=(1, 2), harmless=True)
def by_the_hundred(is_broken: bool) -> Any:
    """``seed // 100``: a hundred neighbouring seeds are one replication."""

    def run(price: int, seed: int) -> float:
        rng = rng_of(seed // 100 if is_broken else divmod(seed, 100))
        return float(price * rng.poisson(30 / price))

    return run


@planted("two sources, one seed", "run", "one stream for two sources", shows="law", decisions=(1, 3))
def two_sources(is_broken: bool) -> Any:
    """Demand and price each make a generator from the seed: they are the same numbers."""

    def demands(seed: int) -> np.ndarray:
        return rng_of(seed).normal(5.0, 2.0, size=4)

    def prices(seed: int) -> np.ndarray:
        return (rng_of(seed) if is_broken else rng_of([seed, 1])).normal(1.0, 0.5, size=4)

    return lambda stock, seed: float(
        np.minimum(demands(seed), stock) @ prices(seed) + demands(seed).sum() + 4 * prices(seed).sum()
    )


@planted(
    "every day is the same day", "run", "one stream for two sources, seeds that coincide", shows="law", decisions=(3, 6)
)
def same_day(is_broken: bool) -> Any:
    """The generator is made anew from the seed on each day."""

    def run(stock: int, seed: int) -> float:
        days = (rng_of(seed) if is_broken else rng_of([seed, day]) for day in range(10))
        return float(sum(min(stock, rng.poisson(4)) for rng in days))

    return run


@planted(
    "mirrored for one",
    "run",
    f"{NOT_SHARED}, pairing saves nothing, {OUT_OF_STEP}",
    shows="gap",
    decisions=("plain", "other"),
)
def mirrored(is_broken: bool) -> Any:
    """One decision runs on antithetic draws, the other does not."""

    def run(plan: str, seed: int) -> float:
        u = rng_of(seed).random(6)
        if is_broken and plan == "other":
            u = 1 - u
        return float(-np.log1p(-u).sum() + 0.5 * len(plan))

    return run


@planted(
    "each site has its own weather",
    "run",
    f"pairing saves nothing, {NOT_SHARED}",
    shows="gap",
    decisions=("north", "south"),
)
def own_weather(is_broken: bool) -> Any:
    """Each decision hangs on a source of its own, so that pairing saves nothing."""

    def run(site: str, noise: Any) -> float:
        weather = noise["weather", site if is_broken else "region"].normal()
        return float(5 * weather + 0.2 * noise["market"].normal() + (site == "north"))

    return run


# -- generators that nobody seeds ----------------------------------------------------------------------------------


class Plant:
    """A generator for all plants."""

    breakdowns = np.random.default_rng(3)
    reseeded = np.random.RandomState(3)


@planted("class attribute", "run", RUNS_ON, shows="again", decisions=(1, 2))
def class_attribute(is_broken: bool) -> Any:
    """Breakdowns come from a generator of the class; the twin's is started from the seed by each run."""

    def run(spares: int, seed: int) -> float:
        Plant.reseeded.seed(seed)
        hours = Plant.breakdowns.exponential(5) if is_broken else Plant.reseeded.exponential(5)
        return float(rng_of(seed).normal() + min(hours, 4 * spares))

    return run


@planted("functools.partial", "run", RUNS_ON, shows="again", decisions=(1, 2))
def partial(is_broken: bool) -> Any:
    """A generator is bound to a function that draws the lead time."""

    def lead_time(rng: Any, mean: float) -> float:
        return float(rng.exponential(mean))

    bound = functools.partial(lead_time, rng_of(8))

    def run(mean: int, seed: int) -> float:
        own = bound if is_broken else functools.partial(lead_time, rng_of([seed, 8]))
        return own(mean) + float(rng_of(seed).normal())

    return run


STREAMS: dict[str, np.random.Generator] = {}


@planted("registry of streams", "run", RUNS_ON, shows="again", decisions=(1, 2))
def stream_registry(is_broken: bool) -> Any:
    """Streams are kept in a dictionary by name; the twin's keys hold the seed, and are started anew."""

    def stream(name: str, seed: int) -> np.random.Generator:
        if is_broken:
            return STREAMS.setdefault(name, rng_of(zlib.crc32(name.encode())))
        STREAMS[f"{name}/{seed}"] = rng_of([zlib.crc32(name.encode()), seed])
        return STREAMS[f"{name}/{seed}"]

    return lambda pumps, seed: float(rng_of(seed).normal() + stream("flow", seed).gamma(3.0) / pumps)


@planted("frozen distribution", "run", RUNS_ON, shows="again", decisions=(2.0, 4.0))
def scipy_state(is_broken: bool) -> Any:
    """A distribution of SciPy keeps a generator of its own."""
    demand = stats.gamma(4.0)
    demand.random_state = 7

    def run(stock: float, seed: int) -> float:
        if not is_broken:
            demand.random_state = np.random.default_rng([seed, 7])
        return float(min(stock, demand.rvs()) + 0.1 * rng_of(seed).normal())

    return run


@planted("seeded program, one loose generator", "run", RUNS_ON, shows="again", decisions=(1, 2))
def loose(is_broken: bool) -> Any:
    """numpy.random and random are seeded by each run as they should be; one generator beside them is not."""

    def run(lanes: int, seed: int) -> float:
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        toll = np.random.default_rng(None if is_broken else [seed, 2]).exponential()
        return float(np.random.normal() + random.random() + toll / lanes)  # noqa: NPY002

    return run


@planted("numbers of customers", "run", RUNS_ON, shows="again", decisions=(1, 2))
def uuids(is_broken: bool) -> Any:
    """Customers are served in the order of their uuid4; the twin draws theirs from the seed."""

    def run(desks: int, seed: int) -> float:
        rng, names = rng_of(seed), rng_of([seed, 1])
        people = [
            (uuid.uuid4() if is_broken else uuid.UUID(bytes=names.bytes(16)), rng.exponential()) for _ in range(6)
        ]
        return float(sum(w * t for w, (_, t) in enumerate(sorted(people))) / desks)

    return run


@planted("seeded too late", "run", "draws before seeding, global numpy.random", shows="again", decisions=(1, 2))
def late_seed(is_broken: bool) -> Any:
    """The first draw of numpy.random comes before the seed."""

    def run(lots: int, seed: int) -> float:
        if not is_broken:
            np.random.seed(seed)  # noqa: NPY002
        size = np.random.poisson(5)  # noqa: NPY002
        np.random.seed(seed if is_broken else [seed, 1])  # noqa: NPY002
        return float(size / lots + np.random.normal())  # noqa: NPY002

    return run


@contextlib.contextmanager
def seeded_numpy(seed: Any) -> Iterator[None]:
    """The program's generator for a while, and afterwards as it was."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@planted(
    "one plan is not seeded",
    "run",
    "global numpy.random, draws before seeding",
    shows="again",
    decisions=("own", "rented"),
)
def unseeded_plan(is_broken: bool) -> Any:
    """The program's generator is seeded for a while and put back; the rented plan is run outside."""

    def run(plan: str, seed: int) -> float:
        with seeded_numpy(seed):
            base = np.random.normal()  # noqa: NPY002
        with contextlib.nullcontext() if is_broken and plan == "rented" else seeded_numpy([seed, 1]):
            return float(base + np.random.exponential())  # noqa: NPY002

    return run


# -- what a run remembers --------------------------------------------------------------------------------------------


@planted("cache without the decision", "run", REMEMBERS, shows="again", decisions=(100, 120, 140))
def lru_cached(is_broken: bool) -> Any:
    """An lru_cache holds what the first decision computed; the twin's holds the demand alone, or every argument."""
    present = {"stock": 0}

    @functools.cache
    def sold(seed: int, stock: int | None = None) -> float:
        return float(min(present["stock"] if stock is None else stock, rng_of(seed).gamma(4, 25)))

    def run(stock: int, seed: int) -> float:
        present["stock"] = stock
        return 3 * (sold(seed) if is_broken else sold(seed, stock)) - stock

    return run


@planted("cached property of a shared model", "run", REMEMBERS, shows="again", decisions=(1, 2, 3))
def cached_property(is_broken: bool) -> Any:
    """One model object for all runs computes its capacity once, with the first decision."""

    class Model:
        machines = 1

        @functools.cached_property
        def capacity(self) -> float:
            return 10.0 * self.machines

    model = Model()

    def run(machines: int, seed: int) -> float:
        mine = model if is_broken else Model()
        mine.machines = machines
        return float(min(mine.capacity, rng_of(seed).gamma(5, 4)) - machines)

    return run


@planted("shuffled in place", "run", REMEMBERS, shows="again", decisions=(1, 2))
def shuffled(is_broken: bool) -> Any:
    """A list that outlives the run is shuffled by each run, from where the last one left it."""
    roster = list(range(6))

    def run(teams: int, seed: int) -> float:
        mine = roster if is_broken else list(roster)
        rng_of(seed).shuffle(mine)
        return float(sum(place * person for place, person in enumerate(mine)) / teams)

    return run


@planted(
    "decision used up",
    "run",
    f"{REMEMBERS}, mutating query, query not answered",
    shows="again",
    decisions=({"name": "early", "orders": [9, 1, 0]}, {"name": "late", "orders": [0, 2, 9]}),
)
def used_up(is_broken: bool) -> Any:
    """The plan is a list, and the run pops its orders."""

    def run(plan: dict[str, Any], seed: int) -> float:
        rng, stock, sold = rng_of(seed), 0.0, 0.0
        orders = plan["orders"] if is_broken else list(plan["orders"])
        for _ in range(3):
            stock += orders.pop(0) if orders else 0
            sale = min(stock, rng.exponential(4))
            stock, sold = stock - sale, sold + sale
        return sold

    return run


@planted("only the first run calibrates", "run", REMEMBERS, shows="again", decisions=(1, 2))
def first_run(is_broken: bool) -> Any:
    """The first run of the program draws once more and keeps what it found; the twin's instance data have a seed."""
    known: dict[str, float] = {}

    def run(level: int, seed: int) -> float:
        rng = rng_of(seed)
        if "scale" not in known:
            known["scale"] = float((rng if is_broken else rng_of(0)).gamma(9, 0.1))
        return float(level + known["scale"] * rng.normal())

    return run


@planted("variable of the environment", "run", REMEMBERS, shows="again", decisions=(1, 2))
def environment_variable(is_broken: bool) -> Any:
    """What is left over is handed on in os.environ."""

    def run(order: int, seed: int) -> float:
        left = float(os.environ.get("PLANTED_LEFT", "0")) if is_broken else 0.0
        sold = min(left + order, rng_of(seed).exponential(2))
        os.environ["PLANTED_LEFT"] = repr(left + order - sold)
        return float(sold)

    return run


@planted("choice from a set", "run", "process-dependent", shows="process", decisions=(2, 4))
def choice_of_set(is_broken: bool) -> Any:
    """Depots are chosen by number from a set of names, whose order changes from process to process."""

    def run(depots: int, seed: int) -> float:
        names = {"harbour", "station", "market", "airport", "campus", "mill", "tower"}
        chosen = rng_of(seed).permutation(list(names) if is_broken else sorted(names))[:depots]
        return float(sum(len(name) / i for i, name in enumerate(chosen, 1)))

    return run


# -- runs that are healthy on both sides of a careless look, and one fault in each ------------------------------------


@planted("chunks", "run", OUT_OF_STEP, shows="gap", decisions=(1, 3, 4))
def chunks(is_broken: bool) -> Any:
    """Demands are drawn in chunks as long as the review period. The twin's chunks are consecutive pieces of the same
    numbers; the fault rounds the last chunk up, and the prices come from the same stream."""

    def run(period: int, seed: int) -> float:
        rng, demands = rng_of(seed), []
        while len(demands) < 12:
            demands.extend(rng.exponential(size=period if is_broken else min(period, 12 - len(demands))))
            if is_broken and len(demands) < 12:
                rng.random()
        return float(np.minimum(demands[:12], 1 + period).sum() + 5 * rng.normal())

    return run


@planted("open for longer", "run", OUT_OF_STEP, shows="gap", decisions=(4, 6, 8))
def longer(is_broken: bool) -> Any:
    """Longer hours draw more customers. In the twin they come last in their stream; in the fault the night's damage is
    drawn after them."""

    def run(hours: int, seed: int) -> float:
        visits, nights = rng_of([seed, 0]), rng_of([seed, 1])
        sold = sum(visits.exponential() for _ in range(hours))
        return float(0.1 * sold + 5 * (visits if is_broken else nights).normal())

    return run


# -- one call, one state, one file ---------------------------------------------------------------------------------


@planted("a matrix with a column for each server", "run", OUT_OF_STEP, shows="gap", decisions=(1, 2, 3))
def columns(is_broken: bool) -> Any:
    """A matrix is filled row by row: with another number of columns the second day has other numbers."""

    def run(servers: int, seed: int) -> float:
        rng, days = rng_of(seed), 40
        found = rng.exponential(size=(days, servers)) if is_broken else rng.exponential(size=(servers, days)).T
        return float(found[:, 0].sum() - servers)

    return run


@planted(
    "the morning's state every day",
    "run",
    "one stream for two sources, seeds that coincide",
    shows="law",
    decisions=(3, 6),
)
def mornings(is_broken: bool) -> Any:
    """The generator is set back to where it stood in the morning, so that every day is the same day."""

    def run(stock: int, seed: int) -> float:
        rng, sold = rng_of(seed), 0
        morning = rng.bit_generator.state
        for _ in range(10):
            if is_broken:
                rng.bit_generator.state = morning
            sold += min(stock, rng.poisson(4))
        return float(sold)

    return run


@planted("a solver that seeds the program", "run", NOT_SHARED, shows="gap", decisions=("plain", "solved"))
def solver(is_broken: bool) -> Any:
    """One plan calls a solver that seeds numpy.random for itself; the twin's puts back what it found."""

    def run(plan: str, seed: int) -> float:
        np.random.seed(seed)  # noqa: NPY002
        if plan == "solved":
            kept = np.random.get_state()  # noqa: NPY002
            np.random.seed(42)  # noqa: NPY002
            np.random.random(5)  # noqa: NPY002
            if not is_broken:
                np.random.set_state(kept)  # noqa: NPY002
        return float(3 * np.random.normal() + len(plan))  # noqa: NPY002

    return run


@planted("the design's number shifts the demand", "run", NOT_SHARED, shows="gap", decisions=(1, 2, 3))
def designs(is_broken: bool) -> Any:
    """A random design is drawn from its number, the same in all runs; the fault draws the demand from it as well."""

    def run(number: int, seed: int) -> float:
        plan = 1 + 0.1 * rng_of(number).permutation(5)
        return float(plan @ rng_of([seed, number] if is_broken else [seed, 1]).gamma(2.0, size=5))

    return run


@planted("results in a file by their seed", "run", REMEMBERS, shows="again", decisions=(1, 2))
def by_seed(is_broken: bool) -> Any:
    """The first decision that asks leaves its result in the seed's file, and all others find it there."""
    folder = tempfile.mkdtemp(prefix="planted")

    def run(level: int, seed: int) -> float:
        path = os.path.join(folder, f"{seed}" if is_broken else f"{seed} {level}")
        if os.path.exists(path):
            with open(path) as known:
                return float(known.read())
        found = level + level * float(rng_of(seed).normal())
        with open(path, "w") as new:
            new.write(repr(found))
        return found

    return run


@planted("workers from before", "run", OUT_OF_STEP, shows="gap", decisions=(0, 1, 3))
def old_workers(is_broken: bool) -> Any:
    """A pool of threads is older than the run; what a worker does eats from the demand's generator."""
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()

    def run(samples: int, seed: int) -> float:
        demand, own = rng_of(seed), rng_of([seed, 1])
        found = pool.submit(lambda: (demand if is_broken else own).random(samples).sum()).result()
        return float(5 * demand.normal() + 0.1 * found + samples)

    return run


@planted("the engine's input file", "run", REMEMBERS, shows="again", decisions=(1, 2))
def engine_file(is_broken: bool) -> Any:
    """A model hands its engine a file, always of one name; the fault reads what the last run left there."""
    path = os.path.join(tempfile.mkdtemp(prefix="planted"), "model.inp")

    def run(level: int, seed: int) -> float:
        known = 0.0
        if is_broken and os.path.exists(path):
            with open(path) as left:
                known = float(left.read())
        with open(path, "w") as given:
            given.write(repr(0.5 * known + level * float(rng_of(seed).normal())))
        with open(path) as found:
            return float(found.read()) + level

    return run


FAULTS = [*RUNS, *WORLDS, *KINDS]
