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


def ciw_streams() -> Any:
    """Arrivals and services have a generator each. A queue that is served in order begins services in order."""
    import ciw
    import numpy as np

    class Stream(ciw.dists.Distribution):
        def __init__(self, rng: Any, mean: float) -> None:
            self.own, self.length = rng, mean

        def sample(self, t: Any = None, ind: Any = None) -> float:
            return float(self.own.exponential(self.length))

    def run(staff: int, seed: int) -> float:
        arrivals, services = (np.random.default_rng([seed, i]) for i in range(2))
        ciw.seed(seed)
        network = ciw.create_network(
            arrival_distributions=[Stream(arrivals, 1.0)],
            service_distributions=[Stream(services, 4.5)],
            number_of_servers=[staff],
        )
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(120)
        records = simulation.get_all_records()
        return -sum(r.waiting_time for r in records) / len(records) - 0.5 * staff

    return run


def ciw_queue() -> Any:
    """As ciw's own pages have it."""
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


def salabim_queue(streams: str) -> Any:
    """A queue whose random numbers come from streams of their own, from the environment's, or from its default seed."""

    def make() -> Any:
        import random

        import salabim

        salabim.yieldless(False)

        def run(staff: int, seed: int) -> float:
            given = {} if streams == "default" else {"random_seed": seed}
            env = salabim.Environment(trace=False, **given)
            desk = salabim.Resource("desk", capacity=staff, env=env)
            own = [{"randomstream": random.Random(f"{seed} {i}")} if streams == "own" else {} for i in range(2)]
            gaps = salabim.Exponential(1.0, env=env, **own[0])
            lengths = salabim.Exponential(4.5, env=env, **own[1])
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

    return make


def mesa_shops(has_own: bool) -> Any:
    """Ten shops order up to a level. Each has a generator of its own, or all draw from the model's, in any order."""

    def make() -> Any:
        import mesa
        import numpy as np

        class Shop(mesa.Agent):  # type: ignore[misc]
            def __init__(self, model: Any, seed: int) -> None:
                super().__init__(model)
                self.own = np.random.default_rng([seed, self.unique_id]) if has_own else None
                self.stock, self.profit = 0, 0.0

            def step(self) -> None:
                if self.own is not None:
                    demand = int(self.own.integers(0, 6))
                elif self.stock > 0:  # an empty shop is closed: nobody comes, and nothing is drawn
                    demand = self.model.random.randint(0, 5)
                else:
                    demand = 0
                sold = min(self.stock, demand)
                self.profit += 3.0 * sold - 0.2 * self.stock
                self.stock += max(0, min(self.model.level - self.stock, 2)) - sold

        class Town(mesa.Model):  # type: ignore[misc]
            def __init__(self, level: int, seed: int) -> None:
                super().__init__(seed=seed)
                self.level = level
                Shop.create_agents(self, 10, seed)

            def step(self) -> None:
                self.agents.shuffle_do("step")

        def run(level: int, seed: int) -> float:
            town = Town(level, seed)
            for _ in range(20):
                town.step()
            return float(sum(shop.profit for shop in town.agents))

        return run

    return make


def stockpyl_stock(how: str) -> Any:
    """A base stock under Poisson demand. ``simulation`` seeds numpy.random, and all that it draws comes from there."""

    def make() -> Any:
        from stockpyl.sim import simulation
        from stockpyl.supply_chain_network import single_stage_system

        def run(level: int, seed: int) -> float:
            network = single_stage_system(
                holding_cost=1.0,
                stockout_cost=8.0,
                demand_type="P",
                mean=10.0,
                policy_type="BS",
                base_stock_level=level,
                shipment_lead_time=1,
            )
            if how == "disrupted" and level < 15:  # the smaller stock is held by a supplier who fails now and then
                from stockpyl.disruption_process import DisruptionProcess

                network.nodes[0].disruption_process = DisruptionProcess(
                    random_process_type="M", disruption_type="SP", disruption_probability=0.1, recovery_probability=0.5
                )
            return -float(
                simulation(network, 40, rand_seed=None if how == "unseeded" else seed % 2**32, progress_bar=False)
            )

        return run

    return make


def starsim_epidemic(how: str) -> Any:
    """An SIR epidemic with a vaccine for some; who gets it is drawn from the intervention's own distribution, or from
    the generator of the network."""

    def make() -> Any:
        import numpy as np
        import starsim as ss

        class Vaccine(ss.Intervention):  # type: ignore[misc]
            def __init__(self, coverage: float) -> None:
                super().__init__(name="vaccine")
                self.coverage, self.chosen = coverage, ss.bernoulli(p=coverage)

            def start_step(self) -> None:
                super().start_step()
                if how == "before the network":
                    self.vaccinate()

            def step(self) -> None:
                if how != "before the network":
                    self.vaccinate()

            def vaccinate(self) -> None:
                if self.ti != 2:
                    return
                people = self.sim.people.auids
                if how == "own":
                    chosen = self.chosen.filter(people)
                else:
                    rng, count = self.sim.networks[0].dist.rng, int(self.coverage * len(people))
                    chosen = ss.uids(np.unique((rng.random(count) * len(people)).astype(int)))
                self.sim.diseases[0].rel_sus[chosen] = 0.2

        def run(coverage: float, seed: int) -> float:
            sim = ss.Sim(
                n_agents=200,
                networks=ss.RandomNet(n_contacts=4),
                diseases=ss.SIR(beta=ss.peryear(0.3), init_prev=0.05, p_death=0.0),
                interventions=Vaccine(coverage),
                start=2000,
                stop=2006,
                rand_seed=seed % 2**31,
                verbose=0,
            )
            sim.run()
            return -float(sim.results.sir.cum_infections[-1]) - 40.0 * coverage

        return run

    return make


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
        verdict="failed",
        says=("draws out of step",),
        compares=False,
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
        "M/M/c queue, a generator for each source",
        ciw_streams,
        "Both distributions are the user's own, each with a generator made from the seed. ciw draws a length when "
        "service begins, which in a queue served in order is the order of arrivals, whatever the staffing.",
        decisions=STAFF,
    ),
    Configuration(
        "ciw",
        "M/M/c queue",
        ciw_queue,
        "ciw.seed(seed) seeds the module random and ciw.rng: the same seed gives the same run. But lengths are drawn "
        "when service begins, from the stream of the arrivals, so draws fall out of step between staffings.",
        verdict="failed",
        says=("draws out of step",),
        compares=False,
        decisions=STAFF,
    ),
    Configuration(
        "salabim",
        "M/M/c queue, a stream for each source",
        salabim_queue("own"),
        "Each distribution has a random.Random of its own, made from the seed; a queue served in order begins services "
        "in the order of arrivals.",
        decisions=STAFF,
    ),
    Configuration(
        "salabim",
        "M/M/c queue",
        salabim_queue("environment"),
        "The seed makes the environment's only stream; lengths are drawn when service begins, so draws fall out of "
        "step between staffings.",
        verdict="failed",
        says=("draws out of step",),
        compares=False,
        decisions=STAFF,
    ),
    Configuration(
        "salabim",
        "M/M/c queue, no seed given",
        salabim_queue("default"),
        "Without random_seed an environment starts from 1234567: every replication is the same run.",
        verdict="failed",
        says=("1234567",),
        compares=False,
        decisions=STAFF,
    ),
    Configuration(
        "mesa",
        "shops, a generator for each agent",
        mesa_shops(True),
        "Every shop draws its demand each day from a generator made from the seed and its id. The model's random "
        "shuffles the order of shops, by the same draws whatever the level.",
        decisions=(2, 4, 6),
    ),
    Configuration(
        "mesa",
        "shops, the model's random for all",
        mesa_shops(False),
        "Shops draw from model.random in shuffled order, and a shop that has sold out draws nothing: another level "
        "sells out at other times, and all later draws shift, the shuffles too.",
        verdict="failed",
        says=("draws out of step",),
        compares=False,
        decisions=(2, 4, 6),
    ),
    Configuration(
        "stockpyl",
        "base stock",
        stockpyl_stock("seeded"),
        "simulation(rand_seed=seed) seeds numpy.random, from which one demand a period is drawn, whatever the level.",
        decisions=(10, 15, 20, 25),
    ),
    Configuration(
        "stockpyl",
        "base stock, a supplier that fails",
        stockpyl_stock("disrupted"),
        "The disruptions of one decision's supplier are drawn between the demands, from the same numpy.random: the "
        "other decisions see other demands.",
        verdict="failed",
        says=("draws out of step",),
        compares=False,
        decisions=(10, 15, 20, 25),
    ),
    Configuration(
        "stockpyl",
        "base stock, no seed given",
        stockpyl_stock("unseeded"),
        "rand_seed=None, the default, seeds numpy.random from the system: no run can be repeated.",
        verdict="failed",
        says=("numpy.random",),
        compares=False,
        decisions=(10, 15, 20, 25),
    ),
    Configuration(
        "starsim",
        "SIR, a vaccine with its own distribution",
        starsim_epidemic("own"),
        "Every distribution has a generator of its own, seeded by the run's seed and its name, and moves on to a place "
        "fixed by the step; draws for people are hashed by person. Nobody dies or is born, so the network draws alike.",
        decisions=(0.1, 0.3, 0.5),
    ),
    Configuration(
        "starsim",
        "SIR, a vaccine that draws from the network's generator after it",
        starsim_epidemic("after the network"),
        "Who is vaccinated is drawn from the generator of the network, as many numbers as there are doses, but after "
        "the contacts of the step; the next step begins at a place of its own, so that nothing shifts.",
        decisions=(0.0, 0.3, 0.5),
    ),
    Configuration(
        "starsim",
        "SIR, a vaccine that draws from the network's generator before it",
        starsim_epidemic("before the network"),
        "The same at the start of the step, before the contacts are drawn: they are others for every coverage.",
        verdict="failed",
        says=("draws out of step", "networks.py"),
        compares=False,
        decisions=(0.0, 0.3, 0.5),
    ),
)
