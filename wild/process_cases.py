"""Rows of packages for discrete events: whole runs as functions of a decision and a seed."""

from typing import Any

from wild.configuration import Configuration

STAFF = (4, 5, 6, 7, 8)


def simpy_named() -> Any:
    """An M/M/c call centre; arrivals and services have a generator each, drawn for every caller whatever happens."""
    import numpy as np
    import simpy

    def run(staff: int, seed: int) -> float:
        arrivals, services = (np.random.default_rng([seed, i]) for i in range(2))
        env, waits = simpy.Environment(), []
        desk = simpy.Resource(env, staff)

        def caller(length: float) -> Any:
            came = env.now
            with desk.request() as turn:
                yield turn
                waits.append(env.now - came)
                yield env.timeout(length)

        def callers() -> Any:
            while True:
                yield env.timeout(arrivals.exponential(1.0))
                env.process(caller(services.exponential(4.5)))

        env.process(callers())
        env.run(until=120)
        return -float(np.mean(waits)) - 0.5 * staff

    return run


def simpy_one_stream() -> Any:
    """The same with one generator for both, and services drawn when they begin: draws out of step between staffings."""
    import numpy as np
    import simpy

    def run(staff: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        env, waits = simpy.Environment(), []
        desk = simpy.Resource(env, staff)

        def caller() -> Any:
            came = env.now
            with desk.request() as turn:
                yield turn
                waits.append(env.now - came)
                yield env.timeout(rng.exponential(4.5))

        def callers() -> Any:
            while True:
                yield env.timeout(rng.exponential(1.0))
                env.process(caller())

        env.process(callers())
        env.run(until=120)
        return -float(np.mean(waits)) - 0.5 * staff

    return run


def simpy_global() -> Any:
    """SimPy's own bank example draws from the module `random`, seeded once outside of the run."""
    import random

    import simpy

    def run(staff: int, seed: int) -> float:
        env, waits = simpy.Environment(), []
        desk = simpy.Resource(env, staff)

        def caller() -> Any:
            came = env.now
            with desk.request() as turn:
                yield turn
                waits.append(env.now - came)
                yield env.timeout(random.expovariate(1 / 4.5))

        def callers() -> Any:
            for _ in range(100):
                yield env.timeout(random.expovariate(1.0))
                env.process(caller())

        env.process(callers())
        env.run()
        return -sum(waits) / len(waits) - 0.5 * staff

    return run


def ciw_queue() -> Any:
    import ciw

    def run(staff: int, seed: int) -> float:
        ciw.seed(seed)
        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(rate=1.0)],
            service_distributions=[ciw.dists.Exponential(rate=1 / 4.5)],
            number_of_servers=[staff],
        )
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(120)
        records = simulation.get_all_records()
        return -sum(r.waiting_time for r in records) / len(records) - 0.5 * staff

    return run


def salabim_queue() -> Any:
    import salabim

    salabim.yieldless(False)

    def run(staff: int, seed: int) -> float:
        env = salabim.Environment(trace=False, random_seed=seed)
        desk = salabim.Resource("desk", capacity=staff, env=env)
        gaps, lengths = salabim.Exponential(1.0, env=env), salabim.Exponential(4.5, env=env)
        waits = []

        class Caller(salabim.Component):
            def process(self) -> Any:
                came = env.now()
                yield self.request(desk)
                waits.append(env.now() - came)
                yield self.hold(lengths.sample())

        class Source(salabim.Component):
            def process(self) -> Any:
                while True:
                    yield self.hold(gaps.sample())
                    Caller(env=env)

        Source(env=env)
        env.run(till=120)
        return -sum(waits) / len(waits) - 0.5 * staff

    return run


CASES = (
    Configuration(
        "simpy",
        "call centre, a generator for each source",
        simpy_named,
        "Arrivals and lengths of calls come from generators of their own, made from the seed; every caller's length is "
        "drawn when the call comes in, whatever the staffing.",
        decisions=STAFF,
    ),
    Configuration(
        "simpy",
        "call centre, one generator for all",
        simpy_one_stream,
        "Lengths are drawn when a call is taken, from the generator of the arrivals: another staffing takes calls in "
        "another order, and all later draws shift.",
        says=("draws out of step",),
        decisions=STAFF,
    ),
    Configuration(
        "simpy",
        "call centre, the module random",
        simpy_global,
        "Nothing comes from the seed: the module random goes on from run to run.",
        verdict="failed",
        says=("global random",),
        compares=False,
        decisions=STAFF,
    ),
    Configuration(
        "ciw",
        "M/M/c queue",
        ciw_queue,
        "ciw.seed(seed) seeds the module random: the same seed gives the same run. Lengths are drawn when service "
        "begins, from the stream of the arrivals, so draws fall out of step between staffings.",
        decisions=STAFF,
    ),
    Configuration(
        "salabim",
        "M/M/c queue",
        salabim_queue,
        "The seed makes the environment's only stream; lengths are drawn when service begins, so draws fall out of "
        "step between staffings.",
        decisions=STAFF,
    ),
)
