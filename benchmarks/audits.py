"""How long an audit of a slow model takes: three decisions, 0.3 s of one core a run, and the 60 s of the default.

Every decision must have been asked, and a fault in the last of them found.
"""

import time

import numpy as np

import jointmdp as jm

SECONDS = 0.3  # of one run
DECISIONS = [1.0, 1.5, 2.0]


def shop(clerks: float, seed: int) -> float:
    """The longest wait of a day; it computes for a while."""
    begun = time.perf_counter()
    arrivals = np.random.default_rng([seed, 1]).exponential(1.0, 500).cumsum()
    lengths = np.random.default_rng([seed, 2]).exponential(0.9, 500) / clerks
    ends = np.zeros(501)
    for i in range(500):
        ends[i + 1] = max(ends[i], arrivals[i]) + lengths[i]
    while time.perf_counter() - begun < SECONDS:
        pass
    return float((ends[1:] - arrivals).max())


def broken(clerks: float, seed: int) -> float:
    """The last decision has another seed."""
    return shop(clerks, seed + 7 * (clerks == DECISIONS[-1]))


def main() -> None:
    print(f"\nAudits of {len(DECISIONS)} decisions, {SECONDS:g} s a run (aim: within 60 s, all asked)")
    for run in (shop, broken):
        begun = time.perf_counter()
        found = jm.audit(run, decisions=DECISIONS)
        print(f"{run.__name__:<8}{time.perf_counter() - begun:>6.1f} s  {found.summary}; {', '.join(found.faults)}")


if __name__ == "__main__":
    main()
