"""How many nurses on call? Learning the difference of two actions from samples, with an error beside every number.

The same ward is asked twice: as a simulator, whose states are discovered on the way, and as a table of which all
entries are updated in every sweep. The ward is small enough to be solved, so the truth is known here. Look at whether
the intervals hold it (each does in 95 cases out of 100). From a simulator the mean is learned quickly; the variance
takes many more samples.
"""

import jointmdp as jm

BEDS = 4
ARRIVALS = {0: 0.25, 1: 0.5, 2: 0.25}


def reward(patients: int, nurses: int, arrivals: int) -> float:
    """Waiting patients cost 1 each, and every nurse on call 0.7."""
    return -1.0 * patients - 0.7 * nurses


def after(patients: int, nurses: int, arrivals: int) -> int:
    return min(max(patients - nurses, 0) + arrivals, BEDS)


def main() -> None:
    ward = jm.FunctionSimulator(
        lambda patients, nurses, arrivals: (reward(patients, nurses, arrivals), after(patients, nurses, arrivals)),
        lambda rng: int(rng.binomial(2, 0.5)),
        start=2,
        actions=3,
        discount=0.7,
        reward_bounds=(-BEDS - 1.4, 0.0),
        name="ward",
    )
    table = jm.from_noise(
        reward,
        after,
        list(ARRIVALS),
        list(ARRIVALS.values()),
        num_states=BEDS + 1,
        num_actions=3,
        discount=0.7,
        sharing="time",
    )
    exact = jm.evaluate(table, [1] * (BEDS + 1)).gap(2, 2, 1)
    print(f"two nurses instead of one, with two patients: mean {exact.mean:.3f}, variance {exact.variance:.3f} exactly")
    states = jm.learn(ward, 1, jm.Incremental(batch=8, seed=2), steps=100)
    sweeps = jm.learn(table, [1] * (BEDS + 1), jm.Incremental(seed=2), steps=1_000)
    print(f"the simulator showed {states.num_states} states")
    for name, learned, place in (("simulator", states, ward.at(2)), ("table", sweeps, 2)):
        gap = learned.gap(place, 2, 1)
        print(
            f"{name}: {learned.updates:,} updates, mean {gap.mean_interval:.2f}, variance {gap.variance_interval:.2f}"
        )
        print("  both hold the truth:", exact.mean in gap.mean_interval and exact.variance in gap.variance_interval)


if __name__ == "__main__":
    main()
