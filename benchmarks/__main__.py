"""Run the benchmarks named on the command line, or all of them."""

import sys

from benchmarks import (
    alternatives,
    atari,
    certified,
    comparing,
    coverage,
    ergodic,
    gpu_sweep,
    hindsight,
    incremental,
    large_models,
    law_limits,
    laws,
    moments,
    neural,
    pair_simulation,
    projected,
    rare_gaps,
    simulators,
    solve,
    sweep,
)

ALL = {
    "sweep": sweep.main,
    "solve": solve.main,
    "alternatives": alternatives.main,
    "ergodic": ergodic.main,
    "gpu": gpu_sweep.main,
    "large_models": large_models.main,
    "moments": moments.main,
    "certified": certified.main,
    "laws": laws.main,
    "limits": law_limits.main,
    "pairs": pair_simulation.main,
    "hindsight": hindsight.main,
    "simulators": simulators.main,
    "comparing": comparing.main,
    "coverage": coverage.main,
    "rare": rare_gaps.main,
    "incremental": incremental.main,
    "projected": projected.main,
    "neural": neural.main,
    "atari": atari.main,
}


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--small"] or list(ALL)  # a benchmark that knows it, reads it
    if "--figure" in names:  # of the benchmarks that draw one, a path follows
        names = names[: names.index("--figure")]
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}; there are {', '.join(ALL)}")
    for name in names:
        ALL[name]()


if __name__ == "__main__":
    main()
