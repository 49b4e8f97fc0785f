"""Replace a pump at age 3 or at age 5? Two whole policies under the same failures, exactly and by sampling.

`evaluate` follows each of several policies from the first month on. Look at the two spreads: the stress of a month is
the same for both policies, and that removes part of the luck. `compare` samples the same difference.
"""

import jointmdp as jm

OLDEST = 6
STRESS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a month, each as probable; an old pump stands less


def fails(age: int, stress: float) -> bool:
    return stress > 1.0 - 0.15 * age


def reward(age: int, replace: int, stress: float) -> float:
    """A month of work earns 10, a new pump costs 8, a failure 25."""
    return 10.0 - 8.0 * replace - 25.0 * fails(0 if replace else age, stress)


def older(age: int, replace: int, stress: float) -> int:
    age = 0 if replace else age
    return 0 if fails(age, stress) else min(age + 1, OLDEST)


def main() -> None:
    pump = jm.from_noise(
        reward,
        older,
        STRESS,
        [1 / len(STRESS)] * len(STRESS),
        num_states=OLDEST + 1,
        num_actions=2,
        discount=0.9,
        sharing="time",
        state_names=[f"age {age}" for age in range(OLDEST + 1)],
        action_names=["keep", "replace"],
    )
    policies = {f"at {limit}": [int(age >= limit) for age in range(OLDEST + 1)] for limit in (2, 3, 5)}
    policies["best"] = jm.optimal_policy(pump)
    returns = jm.evaluate(pump, policies)
    for name, mean in zip(returns.names, returns.mean[:, 0], strict=True):
        print(f"replace {name:<5} earns {mean:.2f} on average, from a new pump on")
    gap = returns.gap("at 3", "at 5", "age 0")
    print(f"at 3 instead of at 5: {gap.mean:.2f} ± {gap.std:.1f} with the same stress", end=", ")
    print(
        f"± {gap.independent_variance**0.5:.1f} with different stress; better with probability {gap.superiority():.2f}"
    )
    sampled = jm.compare(pump, policies={name: policies[name] for name in ("at 3", "at 5")}, state="age 0")
    print(f"sampled: {sampled.gap('at 3', 'at 5').mean_interval:.2f} from {sampled.num_replications} pairs", end=" ")
    print("holds the exact mean:", gap.mean in sampled.gap("at 3", "at 5").mean_interval)


if __name__ == "__main__":
    main()
