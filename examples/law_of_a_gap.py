"""Strawberries keep for two days: is a full tray worth it? The whole law of the difference, and what moments say of it.

The state is how many punnets are left from yesterday; they are sold first and thrown away in the evening. Look at how
much less the moments guarantee than the law knows, and at how four moments say more than two.
"""

import jointmdp as jm

DEMAND = {1: 0.08, 2: 0.17, 3: 0.24, 4: 0.21, 5: 0.16, 6: 0.11, 9: 0.03}
MOST = 6


def earned(old: int, fresh: int, demand: int) -> float:
    """Price 5, cost 2, and 0.5 for each punnet that must be thrown away."""
    sold = min(old + fresh, demand)
    return 5.0 * sold - 2.0 * fresh - 0.5 * max(old - demand, 0)


def left(old: int, fresh: int, demand: int) -> int:
    return fresh - min(max(demand - old, 0), fresh)


def main() -> None:
    model = jm.from_noise(
        earned,
        left,
        list(DEMAND),
        list(DEMAND.values()),
        num_states=MOST + 1,
        num_actions=MOST + 1,
        discount=0.9,
        sharing="time",
        state_names=[f"{n} old" for n in range(MOST + 1)],
        action_names=[f"{n} fresh" for n in range(MOST + 1)],
    )
    gap = jm.evaluate(model, "3 fresh", order=4).gap("1 old", "6 fresh", "3 fresh")
    print(f"6 fresh instead of 3: {gap.mean:.2f} ± {gap.std:.2f} more, skewness {gap.skewness:.1f}")
    print(f"better {gap.superiority():.3f}, equal {gap.tie():.3f}, worse {gap.inferiority():.3f}: certified")
    for q in (0.05, 0.5, 0.9):
        print(f"{q:.0%} quantile {gap.quantile(q, tolerance=0.02):.2f}")
    worst = gap.cvar(0.1)
    print(f"mean of the worst tenth {worst:.2f}")
    for order in (2, 4):
        known = gap.moment_bounds(order=order)
        print(f"{order} moments alone: P(not better) in {known.cdf(0):.2f}, worst tenth in {known.cvar(0.1):.2f}")
    low, high = gap.law().support
    print(f"whatever happens, the difference lies between {low:.1f} and {high:.1f}")


if __name__ == "__main__":
    main()
