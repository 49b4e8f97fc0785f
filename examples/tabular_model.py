"""Motorway or side streets? A model of your own as three arrays, and what the two routes have in common.

A courier drives between two towns. Weather and traffic of an hour are one of three scenarios, and the table says what
each scenario does to both routes at once. Look at the correlation of the two routes: rain slows both, an accident slows
one and spares the other, and that is what no table of separate actions can say.
"""

import jointmdp as jm

SCENARIOS = {"dry": 0.6, "rain": 0.3, "accident": 0.1}
MINUTES = [  # [state, scenario, route]; a tired driver is slower
    [[30, 40], [40, 45], [80, 42]],  # fresh
    [[38, 52], [52, 60], [95, 55]],  # tired
]
AFTER = [  # [state, scenario, route]: 0 is fresh, 1 is tired; side streets and rain make tired
    [[0, 0], [0, 1], [1, 0]],
    [[0, 1], [1, 1], [1, 1]],
]


def main() -> None:
    model = jm.JointMDP(
        probabilities=[list(SCENARIOS.values())] * 2,
        rewards=[[[-minutes for minutes in row] for row in table] for table in MINUTES],
        successors=AFTER,
        discount=0.8,
        sharing="time",
        state_names=["fresh", "tired"],
        action_names=["motorway", "side streets"],
    )
    print(model)
    solution = jm.evaluate(model, policy=["motorway", "motorway"])
    print(f"the numbers are at most {solution.certificate.mean_error:.0e} minutes from the truth")
    for state in model.state_names:
        place = model.state_index(state)
        gap = solution.gap(state, "motorway", "side streets")
        print(f"{state}: the motorway saves {gap.mean:.1f} ± {gap.std:.1f} minutes", end=", ")
        print(f"on different days ± {gap.independent_variance**0.5:.1f}")
        print(f"  the routes are correlated by {solution.correlation[place, 0, 1]:.2f}", end=", ")
        print(f"the motorway is quicker with probability {gap.superiority().estimate:.2f}")
        print(f"  in the worst 5 % of all cases it loses {-gap.cvar(0.05).estimate:.0f} minutes")


if __name__ == "__main__":
    main()
