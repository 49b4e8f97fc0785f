"""How many agents should a call centre have? Five candidate decisions of one simulation function.

`compare` runs all five on the same calls until it is known which is cheapest, or that the rest does not matter. Look at
the intervals of the differences, and at how many days the same answer would take with other calls for each decision.
"""

import jointmdp as jm


def day(agents: int, noise: jm.Noise) -> float:
    """Cost of one day: wages, and what callers lose who wait for more than three minutes."""
    free_at = [0.0] * agents
    clock, lost = 0.0, 0
    for gap, talk in zip(noise["arrivals"].exponential(1.2, 400), noise["talk"].lognormal(1.2, 0.6, 400), strict=True):
        clock += gap
        first = min(range(agents), key=free_at.__getitem__)
        if free_at[first] - clock > 3.0:
            lost += 1
        else:
            free_at[first] = max(clock, free_at[first]) + talk
    return 120.0 * agents + 6.0 * lost


def main() -> None:
    found = jm.compare(day, decisions=[3, 4, 5, 6, 7], minimise=True, indifference=10.0, max_replications=2_000)
    print(f"cheapest: {found.best} agents, {found.num_replications} days of each; {found.status.value}")
    for alternative in found.alternatives:
        print(f"  {alternative.label} agents cost {alternative.mean:.0f} ± {alternative.std:.0f} on a day")
    print(f"{found.best} agents instead of (how much less they cost, all intervals at {found.confidence:.0%} together)")
    for other in found.others:
        gap = found.gap(found.best, other)
        print(f"  {other}: {gap.mean:.1f} in {gap.mean_interval:.1f}, ± {gap.std:.0f} on the same calls", end=" ")
        print(f"and ± {gap.std_unpaired:.0f} on different ones")
    print(f"with different calls the same answer takes about {found.replications_unpaired:,.0f} days of each")


if __name__ == "__main__":
    main()
