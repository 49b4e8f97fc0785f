"""The same work with this version and with another, in turns: ``python -m benchmarks.beside CHECKOUT [WORDS …]``.

`CHECKOUT` is a copy of the repository at another commit; words choose among the measurements. Each runs in a process of
its own with the source of one of the two, after one call that warms it up; the two take turns, so that a busy machine
slows down both. Names that an older version has elsewhere are looked for there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TURNS = 3

BEGINNING = """
import json, time, warnings
import jointmdp as jm

warnings.simplefilter("ignore")

envs = getattr(jm, "envs", jm)

def simulated(source, policy, state, action, other, **settings):
    if hasattr(jm, "simulate"):
        return jm.simulate(source, policy, state, [action, other], gaps_only=True, **settings).gap(action, other)
    return jm.simulate_gap(source, policy, state, action, other, **settings)

def measured(run, repeats):
    run()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    print(json.dumps(min(taken)))
"""
SHOP = """
def day(stock, order, demand):
    sold = min(stock + order, demand)
    return 5.0 * sold - 2.0 * order, stock + order - sold

def order(stock):
    return [0.2, 0.1, 0.1, 0.2, 0.2, 0.2]

shop = jm.FunctionSimulator(day, lambda rng: int(rng.poisson(4.0)), start=4, actions=6, discount=0.9)
"""
RUN = """
import numpy as np

def run(clerks, seed):
    calls, talk = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    arrivals, lengths = calls.exponential(1.0, 2000).cumsum(), talk.exponential(1.5, 2000)
    free, waited = 0.0, 0.0
    for arrival, length in zip(arrivals, lengths):
        begins = max(free, arrival)
        waited += begins - arrival
        free = begins + length / clerks
    return -waited / 2000
"""
WORK = {
    "sweeps: the paper's iteration, gridworld 8×8": """
model, policy = envs.windy_gridworld(8, discount=0.9)
measured(lambda: jm.evaluate(model, policy, jm.Iterate()), 3)
""",
    "evaluate: gridworld 20×20, γ = 0.99": """
model, policy = envs.windy_gridworld(20)
measured(lambda: jm.evaluate(model, policy), 10)
""",
    "evaluate: gridworld 50×50, γ = 0.99": """
model, policy = envs.windy_gridworld(50)
measured(lambda: jm.evaluate(model, policy), 3)
""",
    "queries: 300 of FrozenLake-v1": """
lake = jm.GymnasiumSimulator("FrozenLake-v1")
state = lake.reset(0)
measured(lambda: [lake.query(state, [0, 1], jm.Noise("bench", i)) for i in range(300)], 5)
""",
    "queries: 300 of a function": SHOP
    + """
state = shop.reset(0)
measured(lambda: [shop.query(state, [0, 3], jm.Noise("bench", i)) for i in range(300)], 5)
""",
    "learning: 2,000 sweeps, gridworld 4×4": """
model, policy = envs.windy_gridworld(4)
measured(lambda: jm.learn(model, policy, steps=2000), 3)
""",
    "simulation: 4,096 pairs, gridworld 20×20": """
model, policy = envs.windy_gridworld(20)
measured(lambda: simulated(model, policy, 0, 0, 1, num_samples=4096, horizon=200), 3)
""",
    "simulation: 100 pairs of a function": SHOP
    + """
measured(lambda: simulated(shop, order, 4, 3, 0, num_samples=100), 3)
""",
    "simulation: 2 pairs on 2 new workers": SHOP
    + """
measured(lambda: simulated(shop, order, 4, 3, 0, num_samples=2, executor="processes:2"), 3)
""",
    "draws: 10,000 that are recorded": """
import numpy as np
try:
    from jointmdp.simulation.watching.recorded_draws import recorded as opened
except ImportError:
    from jointmdp.auditor.recorded_draws import DrawLog, places, recorded
    opened = lambda: recorded(DrawLog(), places())

def drawn():
    with opened():
        for seed in range(100):
            rng = np.random.default_rng(seed)
            for _ in range(100):
                rng.normal()

measured(drawn, 5)
""",
    "compare: 200 runs of two decisions": RUN
    + """
measured(lambda: jm.compare(run, decisions=[1.0, 2.0], pilot=200, max_replications=200), 3)
""",
    "audit: two decisions": RUN
    + """
measured(lambda: jm.audit(run, decisions=[1.0, 2.0]), 3)
""",
    "a new process that imports evaluate": """
import subprocess, sys
measured(lambda: subprocess.run([sys.executable, "-c", "import jointmdp as jm; jm.evaluate"], check=True), 3)
""",
}


def seconds(source: Path, work: str) -> float:
    """One measurement with the package that lies in `source`."""
    found = subprocess.run(
        [sys.executable, "-c", BEGINNING + work],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )
    if found.returncode:
        sys.exit(f"with {source}:\n{found.stderr}")
    return float(json.loads(found.stdout.splitlines()[-1]))


def main() -> None:
    if len(sys.argv) < 2 or not (other := Path(sys.argv[1]) / "src").is_dir():
        sys.exit("usage: python -m benchmarks.beside CHECKOUT [WORDS …], a copy of the repository at another commit")
    here = Path(__file__).resolve().parents[1] / "src"
    print(f"\nThis version and that in {sys.argv[1]}: medians of {TURNS} turns, and the range of the ratios of turns")
    print(f"{'work':<42}{'other':>12}{'this':>12}{'this / other':>14}{'range':>16}")
    chosen = {name: work for name, work in WORK.items() if any(words in name for words in sys.argv[2:] or [""])}
    for name, work in chosen.items():
        turns = np.array([(seconds(other.resolve(), work), seconds(here, work)) for _ in range(TURNS)])
        before, after = np.median(turns, axis=0)
        ratios = np.sort(turns[:, 1] / turns[:, 0])
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"{name:<42}{before * 1e3:>9.1f} ms{after * 1e3:>9.1f} ms{after / before:>14.2f}{spread:>16}", flush=True)


if __name__ == "__main__":
    main()
