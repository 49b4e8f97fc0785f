"""A slow simulation in other processes: the same result to the last bit.

An airline sells more tickets than seats. `compare` and `simulate` take `executor=`; tasks go to worker processes,
and the answers do not depend on how many there are. Look at the bits, and at the seconds: workers need a moment to
start, so they gain time only where there is work for much longer than that, and cores are free.
"""

import time

import numpy as np

import jointmdp as jm

SEATS = 120


def season(limit: int, noise: jm.Noise) -> float:
    """Profit of 80 flights, each booked up to a limit; who is turned away gets 400."""
    profit = 0.0
    for flight in range(80):
        rng = noise["flight", flight]
        wanted = rng.poisson(125)
        shows = rng.random(300) < 0.93  # passenger by passenger, the same ones whatever the limit
        boarding = int(np.count_nonzero(shows[: min(wanted, limit)]))
        profit += 150.0 * min(wanted, limit) - 400.0 * max(boarding - SEATS, 0)
    return profit / 1000


def run(executor: str) -> jm.results.Comparison:
    begin = time.perf_counter()
    found = jm.compare(season, decisions=[120, 126, 130, 134], half_width=2.0, pilot=100, executor=executor)
    taken, seasons = time.perf_counter() - begin, found.num_replications
    print(f"{executor:<12} {taken:4.1f} s, {seasons} seasons of each, best: {found.best}")
    return found


def main() -> None:
    here, there = run("serial"), run("processes:2")
    print("the same to the last bit:", here.returns.tobytes() == there.returns.tobytes())
    gap = there.gap(130, 126)
    print(f"a limit of 130 instead of 126 brings {gap.mean_interval:.1f} thousand more in a season")


if __name__ == "__main__":
    main()
