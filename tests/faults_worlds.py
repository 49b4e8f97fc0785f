"""Faults of event simulations, environments, step functions, JAX programs and policies, each with its healthy twin."""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import simpy
from planted import Keyed, Steps, Walked, World, registry

rng_of = np.random.default_rng
FAULTS, planted = registry()

OUT_OF_STEP, NOT_SHARED = "draws out of step", "noise not shared"
RUNS_ON = "generator not restored, hidden state, hidden state not restored"
FROZEN = "frozen noise, frozen generator, noise outside the snapshot"


# -- event simulations -------------------------------------------------------------------------------------------


class Job:
    """Work at one place: what it takes."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


@planted("a monitor eats what the tank draws", "events", OUT_OF_STEP, shows="gap", decisions=(1, 4))
def monitored(is_broken: bool) -> Any:
    """Two processes at fixed times draw normal() from one generator, the decision is how often one of them does."""

    def run(every: int, seed: int) -> float:
        env, rng, found = simpy.Environment(), rng_of(seed), [10.0, 0.0]
        sensor = rng if is_broken else rng_of([seed, 1])

        def tank() -> Any:
            while True:
                yield env.timeout(1)
                found[0] += rng.normal(0, 2) - 0.2 * (found[0] - 10)
                found[1] -= abs(found[0] - 10)

        def monitor() -> Any:
            while True:
                yield env.timeout(every)
                found[0] -= 2.0 * (found[0] + sensor.normal(0, 1) > 12)

        env.process(tank())
        env.process(monitor())
        env.run(until=40)
        return found[1]

    return run


@planted("ties by address", "events", f"process-dependent, {RUNS_ON}", shows="again", decisions=(1, 2))
def ties_by_address(is_broken: bool) -> Any:
    """Events at the same time come in the order of the addresses of their objects."""

    def run(speed: int, seed: int) -> float:
        rng, number, events = rng_of(seed), itertools.count(), []
        spare = [Job(0) for _ in range(int(rng.integers(5, 200)))]
        del spare[::2]
        for i in range(10):
            job = Job(i)
            heapq.heappush(events, (i // 5, id(job) if is_broken else next(number), job))
        total = 0.0
        while events:
            _, _, job = heapq.heappop(events)
            total += job.weight * rng.exponential() / speed
        return float(total)

    return run


def bank(run_customer: Any, servers: int, customers: int, arrival: Any) -> float:
    """A SimPy bank: how long its customers waited in all."""
    env = simpy.Environment()
    desk, waits = simpy.Resource(env, servers), []

    def come() -> Any:
        for i in range(customers):
            yield env.timeout(arrival(i))
            env.process(run_customer(env, desk, i, waits))

    env.process(come())
    env.run()
    return float(sum(waits) - max(waits, default=0.0))


@planted("one generator in SimPy", "events", OUT_OF_STEP, shows="gap", decisions=(1, 2, 3))
def simpy_one_stream(is_broken: bool) -> Any:
    """Arrivals and services are drawn as they happen, which depends on the number of servers."""

    def run(servers: int, seed: int) -> float:
        rng, service = rng_of(seed), rng_of([seed, 1])

        def customer(env: Any, desk: Any, i: int, waits: list[float]) -> Any:
            came = env.now
            with desk.request() as turn:
                yield turn
                waits.append(env.now - came)
                yield env.timeout((rng if is_broken else service).exponential(2.5))

        return bank(customer, servers, 12, lambda i: rng.exponential(1.0))

    return run


@planted("patience of those who wait", "events", OUT_OF_STEP, shows="gap", decisions=(2, 3, 4))
def patience(is_broken: bool) -> Any:
    """Only who has to wait draws how long he will, from the stream of the services; the twin's customers have streams
    of their own, in which nobody else draws."""

    def run(servers: int, seed: int) -> float:
        arrivals, shared = rng_of([seed, 0]), rng_of([seed, 1])

        def customer(env: Any, desk: Any, i: int, waits: list[float]) -> Any:
            own = shared if is_broken else rng_of([seed, 2, i])
            length, came = own.exponential(3.0), env.now
            with desk.request() as turn:
                if not turn.triggered:
                    yield turn | env.timeout(8 + own.exponential(2.0))
                waits.append(env.now - came)
                if turn.triggered:
                    yield env.timeout(length)

        return bank(customer, servers, 25, lambda i: arrivals.exponential(1.0))

    return run


class Sickness:
    """A module with a generator, from which others can draw."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"sickness {seed}")

    def spread(self) -> float:
        return self.rng.gauss(0, 1)


class Testing:
    """An intervention that looks at people."""

    def __init__(self, people: int, sickness: Sickness, seed: int, is_broken: bool) -> None:
        self.people, self.rng = people, sickness.rng if is_broken else random.Random(f"testing {seed}")

    def found(self) -> int:
        return sum(self.rng.random() < 0.3 for _ in range(self.people))


@planted("an intervention with another's dice", "events", OUT_OF_STEP, shows="gap", decisions=(0, 2, 6))
def intervention(is_broken: bool) -> Any:
    """Testing draws from the generator of the sickness; births keep in step."""

    def run(people: int, seed: int) -> float:
        births, sickness = random.Random(f"births {seed}"), Sickness(seed)
        testing = Testing(people, sickness, seed, is_broken)
        events = [(float(day), part) for day in range(8) for part in (0, 1, 2)]
        heapq.heapify(events)
        ill, size = 20.0, 100.0
        while events:
            _, part = heapq.heappop(events)
            if part == 0:
                size += births.expovariate(1.0)
            elif part == 1:
                ill *= np.exp(0.2 * sickness.spread())
            else:
                ill = max(1.0, ill - 0.2 * testing.found())
        return float(ill + 0.01 * size)

    return run


@planted(
    "one SimPy world for all runs", "events", f"{RUNS_ON}, dropped previous action", shows="again", decisions=(1, 2)
)
def kept_world(is_broken: bool) -> Any:
    """The store is made once, and what one run leaves in it the next one sells."""
    kept = simpy.Environment()
    shelf = simpy.Container(kept, capacity=1000, init=5)

    def run(order: int, seed: int) -> float:
        env = kept if is_broken else simpy.Environment()
        store = shelf if is_broken else simpy.Container(env, capacity=1000, init=5)
        rng, sold = rng_of(seed), [0.0]

        def day() -> Any:
            for _ in range(5):
                asked = min(store.level, rng.poisson(2))
                if asked:
                    yield store.get(asked)
                sold[0] += asked
                yield store.put(order)
                yield env.timeout(1)

        env.run(env.process(day()))
        return sold[0]

    return run


@planted("streams made when first used", "events", f"{NOT_SHARED}, {OUT_OF_STEP}", shows="gap", decisions=(0, 1, 2))
def lazy_streams(is_broken: bool) -> Any:
    """A machine gets the next child of the seed at its first job, and which machine is first depends on the decision;
    the twin's children go by the machine's number."""

    def run(first: int, seed: int) -> float:
        source, streams = np.random.SeedSequence(seed), {}

        def stream(machine: int) -> Any:
            if machine not in streams:
                child = source.spawn(1)[0] if is_broken else np.random.SeedSequence(seed, spawn_key=(machine,))
                streams[machine] = rng_of(child)
            return streams[machine]

        free = [((i - first) % 3 * 0.01, i) for i in range(3)]
        heapq.heapify(free)
        done = [0.0] * 3
        for _ in range(9):
            now, machine = heapq.heappop(free)
            done[machine] = now + stream(machine).exponential(1 + 3 * (machine == 0))
            heapq.heappush(free, (done[machine], machine))
        return float(10 * done[0] + done[1])

    return run


@planted(
    "timetable before the seed",
    "events",
    "draws before seeding, global random, start not reproducible",
    shows="again",
    decisions=(1, 2),
)
def timetable(is_broken: bool) -> Any:
    """The timetable is drawn when the world is built, and the program's generator is seeded when it is run."""

    class Line:
        def __init__(self, buses: int, seed: int) -> None:
            if not is_broken:
                random.seed(seed)
            self.times = sorted(random.uniform(0, 60) for _ in range(4 * buses))

        def waits(self, seed: int) -> float:
            random.seed(f"{seed} passengers")
            waited, events = 0.0, [(random.uniform(0, 60), i) for i in range(5)]
            heapq.heapify(events)
            while events:
                now, _ = heapq.heappop(events)
                waited += min((t - now for t in self.times if t >= now), default=60.0 - now)
            return waited

    return lambda buses, seed: Line(buses, seed).waits(seed)


# -- Gymnasium -----------------------------------------------------------------------------------------------------


class Boat(gymnasium.Env[Any, Any]):
    """A boat on a line; `wind` is what the kinds below do in ways of their own."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)
    place = 0.0
    clock = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.clock = float(self.np_random.normal()), 0
        self.prepare(seed)
        return self.observed(), {}

    def prepare(self, seed: int | None) -> None:
        """What else a reset does."""

    def observed(self) -> Any:
        return np.array([self.place, self.clock])

    def wind(self, action: int) -> float:
        return float(self.np_random.normal())

    def step(self, action: Any) -> Any:
        self.clock += 1
        self.place += 0.3 * (int(action) - 1) + self.wind(int(action))
        return self.observed(), -abs(self.place), False, self.clock >= 8, {}


@planted(
    "dice behind a map",
    "gymnasium",
    f"{FROZEN}, {RUNS_ON}, state not restored in full",
    shows="coincides",
    is_compared_in_a_state=True,
)
def mapped(is_broken: bool) -> Any:
    """The reset makes an endless iterator of draws, which a copy cannot take along."""

    class Waves(Boat):
        def prepare(self, seed: int | None) -> None:
            self.waves = map(self.np_random.poisson, itertools.repeat(3.0)) if is_broken else None

        def wind(self, action: int) -> float:
            return float(next(self.waves) if self.waves else self.np_random.poisson(3.0)) - 3

    return World(Waves())


@planted(
    "inner environment without a seed",
    "gymnasium",
    f"seed ignored at the start, seed ignored, start not reproducible, {RUNS_ON}",
    shows="again",
)
def inner(is_broken: bool) -> Any:
    """An environment within the environment is reset without the seed; the twin hands it on."""

    class Harbour(Boat):
        def prepare(self, seed: int | None) -> None:
            if not hasattr(self, "inner"):
                self.inner = Boat()
            self.inner.reset(seed=None if is_broken else int(self.np_random.integers(2**31)))
            self.place += self.inner.place

        def wind(self, action: int) -> float:
            self.inner.step(action)
            return 0.2 * self.inner.place

    return World(Harbour(), is_reset=True)


SENSOR = rng_of(77)


@planted(
    "a sensor with its own dice", "gymnasium", f"{RUNS_ON}, stale observation, start not reproducible", shows="again"
)
def sensor(is_broken: bool) -> Any:
    """What is seen is blurred by a generator of the module; rewards are not."""

    class Blurred(Boat):
        def observed(self) -> Any:
            blur = SENSOR.normal() if is_broken else self.np_random.normal()
            return np.array([self.place + 0.1 * blur, self.clock])

    return World(Blurred(), is_observed=True)


@planted("a wrapper's dice in its class", "gymnasium", RUNS_ON, shows="again")
def wrapped(is_broken: bool) -> Any:
    """A wrapper blurs the rewards with a generator of its class; the twin draws from the environment's."""

    class Blur(gymnasium.RewardWrapper[Any, Any]):
        dice = rng_of(4)

        def reward(self, reward: Any) -> float:
            dice = type(self).dice if is_broken else self.unwrapped.np_random
            return float(reward) + float(dice.normal())

    return World(Blur(Boat()))


@planted("the rudder eats the wind", "gymnasium", OUT_OF_STEP, shows="gap")
def rudder(is_broken: bool) -> Any:
    """Each notch of the rudder slips with a draw of its own before the wind blows; the twin draws for all notches."""

    class Rudder(Boat):
        def wind(self, action: int) -> float:
            slips = self.np_random.random(action if is_broken else 2)[:action]
            return float(3 * self.np_random.normal() + 0.01 * slips.sum())

    return World(Rudder())


@planted("seeded by the rudder", "gymnasium", NOT_SHARED, shows="gap")
def seeded_by_action(is_broken: bool) -> Any:
    """The step makes a generator from np_random and the action; np_random itself stays in step."""

    class Gusts(Boat):
        def wind(self, action: int) -> float:
            gusts = rng_of([int(self.np_random.integers(2**31)), action if is_broken else 0])
            return float(2 * gusts.normal() + 0.1 * self.np_random.normal())

    return World(Gusts())


@planted(
    "every start is the same start",
    "gymnasium",
    f"seed ignored at the start, seed ignored, start not reproducible, {FROZEN}",
    shows="coincides",
)
def same_start(is_broken: bool) -> Any:
    """The reset draws where the boat lies from a generator of a fixed seed. The twin's terrain has a fixed seed too,
    and it is the same in all episodes by intention."""

    class Moored(Boat):
        def prepare(self, seed: int | None) -> None:
            self.depths = rng_of(0).random(9)
            self.place = float((rng_of(0) if is_broken else self.np_random).normal(0.0, 5.0))

        def wind(self, action: int) -> float:
            return float(self.depths[int(abs(self.place)) % 9] - 0.5)

    return World(Moored(), is_reset=True)


class Dice:
    """As engines in other languages have them: a number that is multiplied, known to nobody."""

    def __init__(self) -> None:
        self.number = 1

    def seed(self, seed: int) -> None:
        self.number = (2 * seed + 1) % 2**64

    def roll(self) -> float:
        self.number = (self.number * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.number / 2**64


@planted("an engine with dice", "gymnasium", FROZEN, shows="coincides", is_compared_in_a_state=True)
def engine(is_broken: bool) -> Any:
    """The reset seeds an engine, whose dice are no generator that anybody finds. The twin seeds them in each step."""

    class Engine(Boat):
        def prepare(self, seed: int | None) -> None:
            self.dice = Dice()
            self.place = 0.0
            self.dice.seed(int(self.np_random.integers(2**31)))

        def wind(self, action: int) -> float:
            if not is_broken:
                self.dice.seed(int(self.np_random.integers(2**31)))
            self.dice.roll()
            return 4 * self.dice.roll() - 2

    return World(Engine())


@planted(
    "a start from random",
    "gymnasium",
    "global random, start not reproducible, seed ignored at the start, seed ignored",
    shows="again",
)
def random_start(is_broken: bool) -> Any:
    """The reset places the boat with the program's generator; steps are as they should be."""

    class Placed(Boat):
        def prepare(self, seed: int | None) -> None:
            self.place = random.uniform(-3, 3) if is_broken else float(self.np_random.uniform(-3, 3))

    return World(Placed(), is_reset=True)


@planted(
    "a rare gust from numpy.random", "gymnasium", "global numpy.random", shows="again", settings={"num_samples": 60}
)
def rare_gust(is_broken: bool) -> Any:
    """One step in seven draws from numpy.random."""

    class Rare(Boat):
        def wind(self, action: int) -> float:
            if self.np_random.random() < 0.15:
                return float(np.random.exponential() if is_broken else self.np_random.exponential())  # noqa: NPY002
            return float(self.np_random.normal())

    return World(Rare())


# -- step functions --------------------------------------------------------------------------------------------------


def sold(stock: float, order: float, demand: float) -> tuple[float, float]:
    """A day's profit and what is left."""
    sale = min(stock + order, demand)
    return 5.0 * sale - 2.0 * order, float(min(stock + order - sale, 20.0))


@planted("the first day's generator is kept", "steps", RUNS_ON, shows="again")
def kept_generator(is_broken: bool) -> Any:
    """The step keeps the generator that its first call was given."""
    kept: dict[str, Any] = {}

    def step(stock: float, order: int, noise: Any) -> Any:
        if is_broken:
            rng = kept.setdefault("rng", noise["demand"])
        else:
            kept["rng"] = rng = noise["demand"]
        return sold(stock, order, rng.exponential(4.0))

    return Steps(step)


@planted("the order eats the demand", "steps", OUT_OF_STEP, shows="gap")
def order_eats(is_broken: bool) -> Any:
    """Each parcel's damage is drawn from the demand's stream; prices have a stream that stays in step."""

    def step(stock: float, order: int, noise: Any) -> Any:
        damage = noise["demand" if is_broken else "damage"].random(order).sum()
        reward, left = sold(stock, order, noise["demand"].exponential(4.0))
        return reward * (1 + 0.01 * noise["price"].normal()) - 0.1 * damage, left

    return Steps(step)


@planted("one source is seeded with the order", "steps", NOT_SHARED, shows="gap")
def order_seeds(is_broken: bool) -> Any:
    """The demand is drawn by an old package whose seed holds the order; the price is not."""

    def step(stock: float, order: int, noise: Any) -> Any:
        old = np.random.RandomState((noise.seed + (1000 * order if is_broken else 0)) % 2**32)
        reward, left = sold(stock, order, old.exponential(4.0))
        return reward + 0.1 * noise["price"].normal(), left

    return Steps(step)


@planted("cached by stock and order", "steps", f"{FROZEN}, hidden state, hidden state not restored", shows="coincides")
def cached_step(is_broken: bool) -> Any:
    """An lru_cache keeps the demand of the first question in each state."""

    @functools.cache
    def demand(stock: float, order: int, draw: Any) -> float:
        return float(draw().exponential(4.0))

    class Draw:
        """Equal to every other: the cache takes it for the same argument."""

        def __init__(self, noise: Any) -> None:
            self.noise = noise

        def __call__(self) -> Any:
            return self.noise["demand"]

        def __eq__(self, other: object) -> bool:
            return is_broken and isinstance(other, Draw)

        def __hash__(self) -> int:
            return 1 if is_broken else id(self)

    return Steps(lambda stock, order, noise: sold(stock, order, demand(stock, order, Draw(noise))))


@planted("an engine in the state", "steps", FROZEN, shows="coincides", is_compared_in_a_state=True)
def engine_state(is_broken: bool) -> Any:
    """The start seeds an engine's number and the step rolls it on; the noise is left alone. The twin mixes the noise
    into the number, which is then but a place to keep it."""

    def step(state: tuple[float, int], order: int, noise: Any) -> Any:
        stock, number = state
        number = (number * 6364136223846793005 + 1442695040888963407) % 2**64
        if not is_broken:
            number = int(noise.rng.integers(2**63))
        reward, left = sold(stock, order, 8 * number / 2**64)
        return reward, (left, number)

    def start(rng: Any) -> tuple[float, int]:
        return 4.0, int(rng.integers(2**63))

    return Steps(step, start=start, observe=lambda state: state[0], is_one_start=True)


@planted("seen through dice", "steps", f"{RUNS_ON}, stale observation", shows="again")
def observe_draws(is_broken: bool) -> Any:
    """What a policy sees is blurred by a generator that runs on; the twin's blur is a function of the state."""
    dice = rng_of(6)

    def observe(stock: float) -> float:
        return stock + 0.1 * float((dice if is_broken else rng_of([6, int(stock * 1000)])).normal())

    return Steps(lambda stock, order, noise: sold(stock, order, noise.rng.exponential(4.0)), observe=observe)


# -- JAX -------------------------------------------------------------------------------------------------------------


def drift(key: Any, place: Any, action: Any) -> Any:
    """Healthy: a step of a walk."""
    after = place + 0.3 * (action - 1) + jax.random.normal(key)
    return -jnp.abs(after), after


@planted("NumPy behind a callback", "jax", f"{RUNS_ON}, {FROZEN}", shows="again")
def callback(is_broken: bool) -> Any:
    """A callback draws from a generator of NumPy; the twin's is made from the key's numbers."""
    dice = rng_of(2)

    def draw(key: Any) -> Any:
        return np.float32((dice if is_broken else rng_of(np.asarray(key))).normal())

    def step(key: Any, place: Any, action: Any) -> Any:
        wind = jax.pure_callback(
            draw, jax.ShapeDtypeStruct((), jnp.float32), jax.random.key_data(key), vmap_method="sequential"
        )
        reward, after = drift(key, place, action)
        return reward + wind, after

    return Keyed(step, jnp.float32(0.0))


@planted(
    "a start without its key",
    "jax",
    f"seed ignored at the start, seed ignored, start not reproducible, {FROZEN}",
    shows="coincides",
)
def keyless_start(is_broken: bool) -> Any:
    """The start is drawn from a key of its own; the steps from here on draw nothing. In the twin the ground has a key
    of its own, and the start its key."""
    ground = jax.random.normal(jax.random.key(0), (8,))

    def reset(key: Any) -> Any:
        return 3 * jax.random.normal(jax.random.key(3) if is_broken else key)

    def step(key: Any, place: Any, action: Any) -> Any:
        after = place + 0.3 * (action - 1) + 0.1 * ground[jnp.int32(jnp.abs(place)) % 8]
        return -jnp.abs(after), after

    return Keyed(step, reset)


@planted("a key for each action", "jax", f"{NOT_SHARED}, pairing saves nothing, {OUT_OF_STEP}", shows="gap")
def split_by_action(is_broken: bool) -> Any:
    """The key is split, and the action chooses its part; the twin's chooses a weight."""

    def step(key: Any, place: Any, action: Any) -> Any:
        parts = jax.random.split(key, 3)
        wind = jax.random.normal(parts[action] if is_broken else parts[0])
        after = place + 0.3 * (action - 1) + wind * jnp.array([1.0, 1.1, 1.2])[action]
        return -jnp.abs(after), after

    return Keyed(step, jnp.float32(0.0))


@planted("one of two keys holds the action", "jax", f"{NOT_SHARED}, pairing saves nothing, {OUT_OF_STEP}", shows="gap")
def folded(is_broken: bool) -> Any:
    """The larger of two sources folds the action into its key."""

    def step(key: Any, place: Any, action: Any) -> Any:
        wind, wave = jax.random.split(key)
        wave = jax.random.fold_in(wave, action if is_broken else 7)
        after = place + 0.3 * (action - 1) + 0.1 * jax.random.normal(wind) + 2 * jax.random.normal(wave)
        return -jnp.abs(after), after

    return Keyed(step, jnp.float32(0.0))


@planted("a loop carries the key", "jax", f"{NOT_SHARED}, pairing saves nothing, {OUT_OF_STEP}", shows="gap")
def carried(is_broken: bool) -> Any:
    """Goods are drawn until they fit the action's van, and the wind takes the key that is left."""

    def step(key: Any, place: Any, action: Any) -> Any:
        goods, wind = jax.random.split(key)

        def draw(known: Any) -> Any:
            following, now = jax.random.split(known[0])
            return following, jax.random.normal(now)

        left, size = jax.lax.while_loop(lambda known: known[1] > 0.2 + 0.5 * action, draw, (goods, jnp.float32(9.0)))
        after = place + 0.1 * size + 3 * jax.random.normal(left if is_broken else wind)
        return -jnp.abs(after), after

    return Keyed(step, jnp.float32(0.0))


@planted("an inner generator seeded by the rudder", "gymnasium", NOT_SHARED, shows="gap")
def shifted_seed(is_broken: bool) -> Any:
    """For one rudder the seed that np_random gives is shifted by one."""

    class Gusts(Boat):
        def wind(self, action: int) -> float:
            seed = int(self.np_random.integers(2**31))
            return float(3 * rng_of(seed + (is_broken and action == 2)).normal())

    return World(Gusts())


# -- policies --------------------------------------------------------------------------------------------------------


def market(stock: float, order: int, noise: Any) -> Any:
    """Healthy."""
    return sold(stock, order, noise["demand"].exponential(4.0))


@planted("a policy with dice", "policies", f"{RUNS_ON}, policy not reproducible", shows="again")
def policy_dice(is_broken: bool) -> Any:
    """It tries something else now and then, with a generator that runs on; the twin draws from the one it is given."""
    dice = rng_of(9)

    def own(stock: float) -> int:
        return int(dice.integers(3)) if dice.random() < 0.5 else int(stock < 3)

    def given(stock: float, rng: Any) -> int:
        return int(rng.integers(3)) if rng.random() < 0.5 else int(stock < 3)

    return Walked(Steps(market), own if is_broken else given)


@planted("a policy that remembers", "policies", f"{RUNS_ON}, policy not reproducible", shows="again")
def policy_memory(is_broken: bool) -> Any:
    """It smooths what it sees over all calls, whoever asks; the twin keeps what it computed for each stock."""
    seen = [4.0]
    known: dict[float, int] = {}

    def smooth(stock: float) -> int:
        seen[0] = 0.5 * seen[0] + 0.5 * stock
        return int(seen[0] < 3) + int(seen[0] < 1.5)

    def keeps(stock: float) -> int:
        return known.setdefault(stock, int(stock < 3) + int(stock < 1.5))

    return Walked(Steps(market), smooth if is_broken else keeps)


@planted("a policy that explores by random", "policies", "policy not reproducible, global random", shows="again")
def exploring(is_broken: bool) -> Any:
    """It explores with the generator of the whole program; the twin with the one that it is given."""

    def own(stock: float) -> int:
        return random.randrange(3) if random.random() < 0.3 else int(stock < 3)

    def given(stock: float, rng: Any) -> int:
        return int(rng.integers(3)) if rng.random() < 0.3 else int(stock < 3)

    return Walked(Steps(market), own if is_broken else given)
