"""Independent oracle for learning from samples: every draw of one step, and the recursion as plain loops.

`SharedDraws` says who shares what, so that wrong rules can be listed beside the right one. Nothing here uses the
library.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import comb, prod
from typing import NamedTuple

import numpy as np
from oracle import RandomModel

Coordinate = tuple[int, int]


class SharedDraws(NamedTuple):
    """Names of the draws that a coordinate at a position of a list uses: equal names are one draw."""

    scenario: list[object]
    action: list[object]


RULES = (
    "right",
    "independent next actions on the diagonal",
    "shared noise at distinct states",
    "one next action a state",
)


def shared_draws(case: RandomModel, xs: Sequence[Coordinate], rule: str = "right") -> SharedDraws:
    """Which draws the coordinates of a list use, under the right rule or a wrong one."""
    by = {"time": lambda x: "all", "state": lambda x: x[0], "none": lambda x: x}[case.sharing]
    scenario: list[object] = [by(x) for x in xs]
    action: list[object] = list(xs)
    if rule == "independent next actions on the diagonal":
        action = list(range(len(xs)))
    elif rule == "shared noise at distinct states":
        scenario = ["all"] * len(xs)
    elif rule == "one next action a state":  # distinct coordinates must draw on their own
        action = [x[0] for x in xs]
    return SharedDraws(scenario, action)


def draws(
    case: RandomModel, xs: Sequence[Coordinate], drawn: SharedDraws
) -> Iterator[tuple[float, list[float], list[Coordinate]]]:
    """Every joint outcome of a list of coordinates: probability, rewards, next coordinates.

    The next action is a uniform number's, cut at the probabilities of the successor, so that one draw can serve
    coordinates that reach different states.
    """
    scenarios = list(dict.fromkeys(drawn.scenario))
    home = {name: xs[drawn.scenario.index(name)][0] for name in scenarios}
    choices = list(dict.fromkeys(drawn.action))
    W = case.probabilities.shape[1]
    for combination in product(range(W), repeat=len(scenarios)):
        w = dict(zip(scenarios, combination, strict=True))
        chance = prod(float(case.probabilities[home[name], w[name]]) for name in scenarios)
        if chance == 0:
            continue
        row = [w[name] for name in drawn.scenario]
        rewards = [float(case.rewards[s, v, a]) for (s, a), v in zip(xs, row, strict=True)]
        to = [int(case.successors[s, v, a]) for (s, a), v in zip(xs, row, strict=True)]
        cuts = {name: sorted({0.0, 1.0, *_cuts(case, to, drawn, name)}) for name in choices}
        for pieces in product(*(range(len(cuts[name]) - 1) for name in choices)):
            at = dict(zip(choices, pieces, strict=True))
            weight = prod(cuts[name][at[name] + 1] - cuts[name][at[name]] for name in choices)
            if weight <= 1e-15:
                continue
            nexts = []
            for s, name in zip(to, drawn.action, strict=True):
                middle = (cuts[name][at[name]] + cuts[name][at[name] + 1]) / 2
                nexts.append((s, int(np.searchsorted(np.cumsum(case.policy[s]), middle, side="right"))))
            yield chance * weight, rewards, nexts


def _cuts(case: RandomModel, to: list[int], drawn: SharedDraws, name: object) -> list[float]:
    ends = [np.cumsum(case.policy[s])[:-1] for s, other in zip(to, drawn.action, strict=True) if other == name]
    return [min(max(float(end), 0.0), 1.0) for row in ends for end in row]


def loop(
    order: int, sharing: str, discount: float, mean: np.ndarray, pair: dict, x: int, y: int, draw: tuple, i: int, j: int
) -> float:
    """The sample backup of E[Z(x)ⁱ Z(y)ʲ] from ``draw = (r, r̃, x', y')``, by the binomial theorem, term by term."""
    r, s, to, fro = draw

    def single(z: int, k: int) -> float:
        return 1.0 if k == 0 else float(mean[z]) if k == 1 else float(pair[k - 1, 1][z, z])

    def both(k: int, m: int) -> float:
        if sharing == "none" and x != y:
            return single(to, k) * single(fro, m)
        return single(to, k) * single(fro, m) if k == 0 or m == 0 else float(pair[k, m][to, fro])

    if x == y:
        n = i + j
        return sum(comb(n, k) * discount**k * r ** (n - k) * single(to, k) for k in range(n + 1))
    return sum(
        comb(i, k) * comb(j, m) * discount ** (k + m) * r ** (i - k) * s ** (j - m) * both(k, m)
        for k in range(i + 1)
        for m in range(j + 1)
    )
