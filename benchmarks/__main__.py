"""Run the benchmarks named on the command line, or all of them."""

import importlib
import itertools
import sys

# What they are called by, and the modules that hold them. A module is imported when its benchmark runs: what one needs
# (an emulator, a GPU) need not be there for another.
MODULES = {
    "sweep": "sweep",
    "solve": "solve",
    "alternatives": "alternatives",
    "ergodic": "ergodic",
    "gpu": "gpu_sweep",
    "large_models": "large_models",
    "moments": "moments",
    "certified": "certified",
    "laws": "laws",
    "limits": "law_limits",
    "pairs": "pair_simulation",
    "hindsight": "hindsight",
    "study": "sepsis_study",
    "simulators": "simulators",
    "comparing": "comparing",
    "audits": "audits",
    "coverage": "interval_coverage",
    "decisions": "coverage",
    "selection": "selection",
    "rare": "rare_gaps",
    "streams": "stream_shares",
    "incremental": "incremental",
    "projected": "projected",
    "neural": "neural",
    "atari": "atari",
}


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--small"]  # a benchmark that knows it, reads it
    # Of the benchmarks that draw a figure a path follows, of others numbers of runs and of processes.
    names = list(itertools.takewhile(lambda name: not name.startswith("--"), names)) or list(MODULES)
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}; there are {', '.join(MODULES)}")
    for name in names:
        importlib.import_module(f"benchmarks.{MODULES[name]}").main()


if __name__ == "__main__":
    main()
