"""Faults of further kinds, each with its healthy twin: compiled code, other processes, objects that remember."""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import os
import random
import time
import zlib
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numba
import numpy as np
import simpy
from faults_worlds import Boat, drift
from planted import Keyed, Steps, Walked, World, registry
from scipy import stats
from scipy.stats import qmc

rng_of = np.random.default_rng
FAULTS, planted = registry()

OUT_OF_STEP, NOT_SHARED = "draws out of step", "noise not shared"
REMEMBERS = "hidden state, hidden state not restored, dropped previous action"
RUNS_ON = "generator not restored, hidden state, hidden state not restored"


# -- compiled code ---------------------------------------------------------------------------------------------------


@numba.njit
def walked(scale: float) -> float:
    """Draws from Numba's own generator, wherever that stands."""
    x = 0.0
    for _ in range(5):
        x += np.random.normal() * scale  # noqa: NPY002
    return x


@numba.njit
def seeded_walk(scale: float, seed: int) -> float:
    """The same, seeded where it draws."""
    np.random.seed(seed)  # noqa: NPY002
    x = 0.0
    for _ in range(5):
        x += np.random.normal() * scale  # noqa: NPY002
    return x


@planted(
    "Numba has a generator of its own", "compiled", f"global numpy.random, {RUNS_ON}", shows="again", decisions=(1, 2)
)
def numba_unseeded(is_broken: bool) -> Any:
    """numpy.random is seeded in Python, which does not reach compiled code; the twin seeds it there."""

    def run(scale: int, seed: int) -> float:
        np.random.seed(seed)  # noqa: NPY002
        base = np.random.normal()  # noqa: NPY002
        return float(base + (walked(scale) if is_broken else seeded_walk(scale, seed)))

    return run


@numba.njit
def inspected(count: int, seed: int) -> float:
    """Inspections first, and then what matters."""
    np.random.seed(seed)  # noqa: NPY002
    found = 0.0
    for _ in range(count):
        found += np.random.random()  # noqa: NPY002
    return 5 * np.random.normal() + 0.01 * found  # noqa: NPY002


@planted("compiled inspections eat the repairs", "compiled", OUT_OF_STEP, shows="gap", decisions=(0, 1, 3))
def numba_eaten(is_broken: bool) -> Any:
    """A compiled loop draws as often as the decision says; the twin's draws for all three."""

    def run(count: int, seed: int) -> float:
        return float(inspected(count if is_broken else 3, seed) + 0.5 * rng_of(seed).normal() + count)

    return run


@numba.njit
def served(rng: Any, count: int) -> float:
    """A compiled function that is given a generator."""
    eaten = 0.0
    for _ in range(count):
        eaten += rng.random()
    return 5 * rng.normal() + 0.01 * eaten


@planted("compiled code eats a generator", "compiled", OUT_OF_STEP, shows="gap", decisions=(0, 1, 3))
def numba_generator(is_broken: bool) -> Any:
    """A generator is handed to compiled code, in which nobody sees it draw."""

    def run(count: int, seed: int) -> float:
        return float(served(rng_of([seed, 1]), count if is_broken else 3) + 0.5 * rng_of(seed).normal() + count)

    return run


@planted("SciPy eats the program's generator", "compiled", OUT_OF_STEP, shows="gap", decisions=(1, 2, 4))
def scipy_eaten(is_broken: bool) -> Any:
    """A distribution of SciPy draws from numpy.random, as often as the decision says, before Python does."""

    def run(count: int, seed: int) -> float:
        np.random.seed(seed)  # noqa: NPY002
        work = stats.gamma.rvs(2.0, size=count if is_broken else 4)[:count].sum()
        return float(0.1 * work + 4 * np.random.normal() + count)  # noqa: NPY002

    return run


# -- other processes, other days -------------------------------------------------------------------------------------


@planted("stream named by hash", "process", "process-dependent", shows="process", decisions=(1, 2))
def hashed(is_broken: bool) -> Any:
    """A stream has the hash of its name as its seed; the twin's has a checksum."""

    def run(lanes: int, seed: int) -> float:
        key = hash("arrivals") % 2**32 if is_broken else zlib.crc32(b"arrivals")
        return float(lanes * rng_of([seed, key]).exponential())

    return run


@planted("children in the order of a set", "process", "process-dependent", shows="process", decisions=(1, 2))
def set_order(is_broken: bool) -> Any:
    """The children of the seed go to regions in the order of a set."""

    def run(lanes: int, seed: int) -> float:
        names, children = {"north", "south", "east", "west", "centre"}, np.random.SeedSequence(seed).spawn(5)
        rngs = dict(zip(names if is_broken else sorted(names), map(rng_of, children), strict=True))
        return float(rngs["north"].normal() * lanes + rngs["west"].exponential())

    return run


@planted("the process number in the seed", "process", "process-dependent", shows="process", decisions=(1, 2))
def process_number(is_broken: bool) -> Any:
    """Workers are told apart by their number, also where there is one."""

    def run(lanes: int, seed: int) -> float:
        return float(rng_of(seed).normal() + lanes * rng_of([seed, os.getpid() if is_broken else 3]).exponential())

    return run


@planted("the second in the seed", "process", f"wall clock, {RUNS_ON}", shows="process", decisions=(1, 2))
def second(is_broken: bool) -> Any:
    """Whole seconds since 1970 are mixed into a seed: within one second all is well."""

    def run(lanes: int, seed: int) -> float:
        salt = int(time.time()) if is_broken else 3
        return float(rng_of(seed).normal() + lanes * rng_of([seed, salt]).exponential())

    return run


# -- what remembers, and where draws hide ----------------------------------------------------------------------------


@dataclasses.dataclass
class Shop:
    """Its default generator is made once, with the class."""

    size: int
    rng: Any = rng_of(12)  # noqa: RUF009

    def day(self) -> float:
        return min(self.size, self.rng.exponential(3.0))


@planted("a default generator in a dataclass", "memory", RUNS_ON, shows="again", decisions=(1, 2, 3))
def dataclass_default(is_broken: bool) -> Any:
    """All shops without a generator of their own share one."""

    def run(size: int, seed: int) -> float:
        shop = Shop(size) if is_broken else Shop(size, rng_of([seed, 4]))
        return float(shop.day() + rng_of(seed).normal())

    return run


@planted("dice of the system", "memory", RUNS_ON, shows="again", decisions=(1, 2))
def system_dice(is_broken: bool) -> Any:
    """SystemRandom takes no seed."""

    def run(lots: int, seed: int) -> float:
        dice = random.SystemRandom() if is_broken else random.Random(seed)
        return float(lots * dice.gauss(0, 1) + rng_of(seed).normal())

    return run


@planted("permuted in place", "memory", REMEMBERS, shows="again", decisions=(1, 2))
def permuted(is_broken: bool) -> Any:
    """A route that outlives the run is permuted into itself."""
    route = np.arange(7.0)

    def run(vans: int, seed: int) -> float:
        mine = route if is_broken else route.copy()
        rng_of(seed).permuted(mine, out=mine)
        return float((mine * np.arange(7)).sum() / vans)

    return run


@planted("a list as default", "memory", REMEMBERS, shows="again", decisions=(2, 3))
def list_default(is_broken: bool) -> Any:
    """A queue is the default of an argument, and so one queue for all calls."""

    def queue(seed: int, desks: int, given: Any = None, waiting: list[float] = []) -> float:  # noqa: B006
        mine = waiting if given is None else given
        mine.extend(rng_of(seed).exponential(size=3))
        done = [mine.pop(0) for _ in range(min(desks, len(mine)))]
        return float(sum(done) + 0.1 * len(mine))

    return lambda desks, seed: queue(seed, desks, None if is_broken else [])


LEVEL: contextvars.ContextVar[float] = contextvars.ContextVar("level", default=0.0)


@planted("a level in a context variable", "memory", REMEMBERS, shows="again", decisions=(1, 2))
def context_level(is_broken: bool) -> Any:
    """What is left over is handed on in a context variable."""

    def run(order: int, seed: int) -> float:
        left, asked = LEVEL.get() if is_broken else 0.0, rng_of(seed).exponential(2.0)
        LEVEL.set(max(0.0, left + order - asked))
        return float(min(left + order, asked))

    return run


@planted("suppliers in turn", "memory", REMEMBERS, shows="again", decisions=(1, 2))
def in_turn(is_broken: bool) -> Any:
    """An endless iterator over suppliers goes on from run to run."""
    turn = itertools.cycle([1.0, 2.0, 5.0])

    def run(orders: int, seed: int) -> float:
        mine = turn if is_broken else itertools.cycle([1.0, 2.0, 5.0])
        return float(sum(next(mine) for _ in range(orders)) + rng_of(seed).normal())

    return run


SOBOL = qmc.Sobol(2, seed=5)


@planted("Sobol points run on", "memory", RUNS_ON, shows="again", decisions=(1, 2))
def sobol(is_broken: bool) -> Any:
    """A quasi-random sequence of the module goes on from run to run."""

    def run(lots: int, seed: int) -> float:
        points = SOBOL if is_broken else qmc.Sobol(2, rng=rng_of(seed))
        return float(lots * points.random(4).sum() + rng_of([seed, 3]).normal())

    return run


class Gauge:
    """Whoever reads it draws."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    @property
    def reading(self) -> float:
        return float(1.0 + 0.01 * self.rng.normal())


@planted("a property draws", "memory", OUT_OF_STEP, shows="gap", decisions=(0, 1, 4))
def property_draws(is_broken: bool) -> Any:
    """Each alarm reads a gauge, whose blur comes from the stream of what matters."""

    def run(alarms: int, seed: int) -> float:
        rng = rng_of(seed)
        gauge = Gauge(rng if is_broken else rng_of([seed, 9]))
        log = [gauge.reading for _ in range(alarms)]
        return float(3 * rng.normal() + alarms + 0.1 * sum(log))

    return run


@planted("a counter that begins at the plan", "memory", NOT_SHARED, shows="gap", decisions=(1, 2, 3))
def counter(is_broken: bool) -> Any:
    """A counter-based generator begins where the decision says."""

    def run(plan: int, seed: int) -> float:
        bits = np.random.Philox(key=seed, counter=plan if is_broken else 0)
        return float(3 * np.random.Generator(bits).normal() + plan)

    return run


@planted("the warm-up is as long as the plan says", "memory", OUT_OF_STEP, shows="gap", decisions=(3, 4, 6))
def warm_up(is_broken: bool) -> Any:
    """Two loops, one after the other, draw from one stream by one method."""

    def run(length: int, seed: int) -> float:
        rng, own, x, y = rng_of(seed), rng_of([seed, 1]), 0.0, 0.0
        for _ in range(length):
            x = 0.5 * x + (rng if is_broken else own).normal()
        for _ in range(5):
            y = 0.5 * y + rng.normal()
        return float(0.1 * x + y)

    return run


@planted("the state is set by hand", "memory", f"{NOT_SHARED}, {OUT_OF_STEP}", shows="gap", decisions=(1, 2, 3))
def by_hand(is_broken: bool) -> Any:
    """A generator of a fixed seed is given another state, from the seed and the decision; the twin's from the seed."""

    def run(plan: int, seed: int) -> float:
        rng = rng_of(0)
        rng.bit_generator.state = np.random.PCG64([seed, plan if is_broken else 0]).state
        return float(3 * rng.normal() + plan)

    return run


@planted("breakdowns until the end of work", "events", OUT_OF_STEP, shows="gap", decisions=(1, 2, 3))
def breakdowns(is_broken: bool) -> Any:
    """Breakdowns come from the stream of the work, as long as that lasts."""

    def run(speed: int, seed: int) -> float:
        env, rng, total = simpy.Environment(), rng_of(seed), [0.0]
        down = rng if is_broken else rng_of([seed, 1])

        def work() -> Any:
            for i in range(6):
                load = rng.exponential()
                total[0] += (i + 1) * load
                yield env.timeout(load * 3 / speed)

        def breaks() -> Any:
            while True:
                yield env.timeout(down.exponential(1.5))
                total[0] += 0.01

        done = env.process(work())
        env.process(breaks())
        env.run(done)
        return float(total[0])

    return run


@planted("random is seeded at the reset alone", "gymnasium", "global random", shows="again")
def reset_alone(is_broken: bool) -> Any:
    """Each reset seeds random; the steps of the fault draw from it, those of the twin do not."""

    class Gusts(Boat):
        def prepare(self, seed: int | None) -> None:
            random.seed(int(self.np_random.integers(2**31)))

        def wind(self, action: int) -> float:
            return random.gauss(0, 1) if is_broken else float(self.np_random.normal())

    return World(Gusts())


@planted("a sticky wrapper with random", "gymnasium", "global random", shows="again")
def sticky(is_broken: bool) -> Any:
    """A wrapper repeats the last action by a draw from random; the twin draws from the environment's generator."""

    class Sticky(gymnasium.ActionWrapper[Any, Any, Any]):
        last = 0

        def reset(self, **settings: Any) -> Any:
            self.last = 0
            return super().reset(**settings)

        def action(self, action: int) -> int:
            draw = random.random() if is_broken else self.unwrapped.np_random.random()
            self.last = self.last if draw < 0.25 else action
            return self.last

    return World(Sticky(Boat()))


@planted("a key in a run that holds the plan", "jax", NOT_SHARED, shows="gap", decisions=(1, 2, 3), runs=60)
def folded_plan(is_broken: bool) -> Any:
    """A function of a seed folds the decision into its key; the twin a constant."""

    def run(plan: int, seed: int) -> float:
        key = jax.random.fold_in(jax.random.key(seed), plan if is_broken else 0)
        return float(jax.random.normal(key)) + plan

    return run


@planted("a key of its own beside the given one", "jax", "frozen generator", shows="law")
def own_key(is_broken: bool) -> Any:
    """The weather comes from a key that only the day enters; the twin folds the day into the given key."""

    def step(key: Any, place: Any, action: Any) -> Any:
        weather = jax.random.fold_in(jax.random.key(5) if is_broken else key, 1)
        reward, after = drift(key, place, action)
        return reward + 3 * jax.random.normal(weather), after

    return Keyed(step, jnp.float32(0.0))


@planted("split as often as the action says", "jax", NOT_SHARED, shows="gap")
def split_often(is_broken: bool) -> Any:
    """A loop splits the key as often as the action says."""

    def step(key: Any, place: Any, action: Any) -> Any:
        turns = action if is_broken else 2
        return drift(jax.lax.fori_loop(0, turns, lambda i, k: jax.random.split(k)[0], key), place, action)

    return Keyed(step, jnp.float32(0.0))


@planted("one key for every round of a scan", "jax", "one stream for two sources", shows="law")
def round_key(is_broken: bool) -> Any:
    """Ten customers in a scan draw from one key; the twin splits it for them."""

    def step(key: Any, place: Any, action: Any) -> Any:
        def serve(served: Any, own: Any) -> Any:
            return served + jax.random.normal(key if is_broken else own), None

        served, _ = jax.lax.scan(serve, place + action, jax.random.split(key, 10))
        return served, jnp.float32(0.0)

    return Keyed(step, jnp.float32(0.0))


# -- whose draw it is, and what comes before the first -----------------------------------------------------------------


@planted("patience of those who wait", "entities", OUT_OF_STEP, shows="gap", decisions=(2, 3))
def patience_of_some(is_broken: bool) -> Any:
    """Patience is drawn by callers who must wait; the twin's callers bring theirs."""

    def run(clerks: int, noise: Any) -> float:
        env, lost = simpy.Environment(), [0.0]
        desk = simpy.Resource(env, clerks)

        def caller(k: int) -> Any:
            with desk.request() as turn:
                if not turn.triggered:
                    patience = noise["patience" if is_broken else ("patience", k)].exponential(4.0)
                    lost[0] += k % 5 * patience
                    found = yield turn | env.timeout(patience)
                    if turn not in found:
                        return
                yield turn
                yield env.timeout(3.0)

        def calls() -> Any:
            for k in range(60):
                env.process(caller(k))
                yield env.timeout(0.5)

        env.process(calls())
        env.run()
        return -lost[0]

    return run


@planted("machines numbered in one go", "entities", OUT_OF_STEP, shows="gap", decisions=(6, 7, 8))
def numbered(is_broken: bool) -> Any:
    """The generator of a day and a machine has their number in all; the twin's has both."""

    def run(machines: int, seed: int) -> float:
        made = 0.0
        for day in range(8):
            for k in range(machines):
                own = [seed, day * machines + k] if is_broken else [seed, day, k]
                made += (1 + day % 4) * min(10.0, rng_of(own).exponential(8.0))
        return made

    return run


@planted("as many of all as asked", "entities", OUT_OF_STEP, shows="gap", decisions=(80, 85, 90))
def subset(is_broken: bool) -> Any:
    """A larger sample does not contain the smaller one; the twin takes the first of one order."""
    worth = [random.Random(i).lognormvariate(3, 1) for i in range(300)]

    def run(size: int, seed: int) -> float:
        dice = random.Random(seed)
        chosen = dice.sample(range(300), size) if is_broken else dice.sample(range(300), 300)[:size]
        return sum(worth[i] for i in chosen)

    return run


@planted(
    "fifteen bits of the seed", "entities", "seeds that coincide", shows="coincides", decisions=(80, 100), runs=400
)
def few_bits(is_broken: bool) -> Any:
    """An old component takes seeds below 64; the twin's takes all."""

    def run(order: int, noise: Any) -> float:
        dice = random.Random(noise.seed & 63 if is_broken else noise.seed)
        return 3.0 * min(order, dice.gammavariate(4.0, 25.0))

    return run


SHARES = rng_of().uniform(1.0, 2.0, 3)
ZONES = {name: zlib.crc32(name.encode()) % 4 for name in ("Ana", "Ben", "Cleo")}
HASHED_ZONES = {name: hash(name) % 4 for name in ZONES}


@planted("data drawn at the start", "process", "process-dependent", shows="process", decisions=(0, 1, 2))
def drawn_at_start(is_broken: bool) -> Any:
    """The problem's data are drawn when the program starts, without a seed."""

    def run(product: int, seed: int) -> float:
        share = SHARES[product] if is_broken else 1.0 + product / 3
        return float(share * rng_of(seed).gamma(4.0, 25.0))

    return run


@planted("zones by hash", "process", "process-dependent", shows="process", decisions=(0, 3))
def zones(is_broken: bool) -> Any:
    """Customers were put into zones by the hash of their names, before any run."""

    def run(depot: int, seed: int) -> float:
        rng, zone = rng_of(seed), HASHED_ZONES if is_broken else ZONES
        return float(sum(rng.poisson(5) * abs(zone[name] - depot) for name in ZONES))

    return run


class Learner:
    """Prefers, more with each call, another action; frozen it prefers nothing."""

    def __init__(self, is_frozen: bool) -> None:
        self.values, self.rate = [1.0, 1.05, 0.9], 0.0 if is_frozen else 1e-3

    def __call__(self, state: int) -> int:
        self.values[2] += self.rate
        return int(np.argmax(self.values)) if state < 3 else 0


@planted("a policy that learns slowly", "policies", "policy not reproducible", shows="again")
def slow_learner(is_broken: bool) -> Any:
    """A table of values goes on learning whenever it is asked."""
    agent = Learner(is_frozen=not is_broken)
    return Walked(Steps(sells), lambda state: agent(state))


def sells(stock: int, order: int, noise: Any) -> Any:
    """A shop: what is in stock and comes in is sold as far as somebody asks for it."""
    sold = min(stock + order, int(noise.rng.poisson(4)))
    return 5.0 * sold - 2.5 * order, stock + order - sold
