"""A newcomer's walk: how many people does a call centre need? A SimPy model with one generator, audited and mended.

The first model draws arrivals and lengths of calls from one generator, as most first models do. With another staffing
calls are taken in another order, each draw goes to somebody else, and the staffings no longer see the same day. The
auditor says so; the second model gives each source a stream of its own.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import simpy

import jointmdp as jm
from wild.walk_agents import Clock

STAFFINGS = [5, 6, 7, 8, 9]
DAY, CALLS_PER_MINUTE, MINUTES_PER_CALL = 240.0, 1.2, 4.0
WAGE, MINUTE_WAITED = 30.0, 1.0


def day(staff: int, gaps: Iterator[float], lengths: Iterator[float], draws_early: bool) -> float:
    """What a day costs: wages, and the minutes that callers wait."""
    env, waited = simpy.Environment(), []
    desk = simpy.Resource(env, staff)

    def call(length: float | None) -> Any:
        came = env.now
        with desk.request() as turn:
            yield turn
            waited.append(env.now - came)
            yield env.timeout(next(lengths) if length is None else length)

    def calls() -> Any:
        while True:
            yield env.timeout(next(gaps))
            env.process(call(next(lengths) if draws_early else None))

    env.process(calls())
    env.run(until=DAY)
    return WAGE * staff + MINUTE_WAITED * sum(waited)


def exponentials(rng: np.random.Generator, mean: float) -> Iterator[float]:
    """A stream of waiting times."""
    while True:
        yield float(rng.exponential(mean))


def broken(staff: int, seed: int) -> float:
    """One generator for both sources, and lengths drawn when a call is taken."""
    rng = np.random.default_rng(seed)
    return day(staff, exponentials(rng, 1 / CALLS_PER_MINUTE), exponentials(rng, MINUTES_PER_CALL), draws_early=False)


def mended(staff: int, noise: jm.Noise) -> float:
    """A stream for each source, and lengths drawn when a call comes in: the third caller is the same everywhere."""
    gaps = exponentials(noise["arrivals"], 1 / CALLS_PER_MINUTE)
    return day(staff, gaps, exponentials(noise["lengths"], MINUTES_PER_CALL), draws_early=True)


def main() -> None:
    """Audit and compare both; the mended model must pass without a warning about draws, and its gaps vary less."""
    clock = Clock("A call centre with five staffings")
    deviations = []
    for run in (broken, mended):
        report = jm.audit(run, decisions=STAFFINGS)
        clock(report.summary)
        print(report)
        found = jm.compare(run, decisions=STAFFINGS, minimise=True, max_replications=200)
        clock(f"compared {run.__name__}")
        print(found)
        deviations.append(found.gap(7, 6).std)
    print(f"One gap between 7 and 6 people varies by ± {deviations[0]:.0f} broken, ± {deviations[1]:.0f} mended.")
    if not report.is_ok or "draws out of step" in report.faults or deviations[1] >= deviations[0]:
        sys.exit(1)


if __name__ == "__main__":
    main()
