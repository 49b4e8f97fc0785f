"""The maximal coupling: equal outcomes of different actions coincide as often as they can.

No coupling of two laws p and q makes outcomes equal with a probability above ``Σ_i min(p_i, q_i)``, and this one does:
both actions get outcome i together with probability ``min(p_i, q_i)``, and what is left of the two laws, which has no
outcome in common, is joined in listed order, as the comonotone coupling joins laws.

With more actions not every pair can have its own maximum. Actions are joined one after the other, in the order of
their numbers. Each coincides with the first available action as often as it can; where it does not, with the second as
often as what is left of its law allows, and so on; what remains after that goes in listed order. So

- every action coincides with the first with probability ``Σ_i min(p_a(i), p_first(i))``, the maximum;
- all actions coincide with probability ``Σ_i min_a p_a(i)``, the maximum, too;
- other pairs may coincide less often than two actions by themselves could. Number the actions accordingly.
"""

from collections.abc import Sequence

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.model.equal_outcomes import NumberedLaw
from jointmdp.model.one_uniform import SAME_POINT, common_edges

Scenarios = tuple[Floats, Ints]  # of one state: probabilities [W], and the outcome that each action gets [W, A]
Cell = tuple[float, list[int]]  # a probability, and the number of the outcome that each action so far gets

OPEN = -1  # the action has no outcome yet


def maximal_scenarios(laws: Sequence[NumberedLaw]) -> Scenarios:
    """The scenarios of one state; an action that is unavailable gets outcome 0."""
    cells: list[Cell] = [(1.0, [])]
    for a, law in enumerate(laws):
        cells = [(p, [*got, OPEN]) for p, got in cells]
        left = dict(zip(law.numbers.tolist(), law.probabilities.tolist(), strict=True))
        for other in range(a):
            cells = _matched(cells, left, other)
        cells = _filled(cells, left)
    places = [dict(zip(law.numbers.tolist(), law.places.tolist(), strict=True)) for law in laws]
    choices = [[place.get(number, 0) for place, number in zip(places, got, strict=True)] for _, got in cells]
    return np.array([p for p, _ in cells]), np.array(choices, dtype=np.int64).reshape(len(cells), len(laws))


def _matched(cells: list[Cell], left: dict[int, float], other: int) -> list[Cell]:
    """The last action gets what the action `other` gets, as far as its law has it left."""
    found = []
    for p, got in cells:
        number = got[other]
        here = min(p, left.get(number, 0.0)) if got[-1] == OPEN and number != OPEN else 0.0
        if here <= SAME_POINT:
            found.append((p, got))
            continue
        is_whole = p - here <= SAME_POINT
        left[number] -= p if is_whole else here
        found.append((p if is_whole else here, [*got[:-1], number]))
        if not is_whole:
            found.append((p - here, got))
    return found


def _filled(cells: list[Cell], left: dict[int, float]) -> list[Cell]:
    """Where the last action has no outcome yet it gets those that are left, in listed order."""
    if not left:  # the action is unavailable
        return cells
    queue = [(number, rest) for number, rest in left.items() if rest > SAME_POINT] or [(next(reversed(left)), 0.0)]
    found = []
    for p, got in cells:
        if got[-1] != OPEN:
            found.append((p, got))
            continue
        while len(queue) > 1 and p - queue[0][1] > -SAME_POINT:
            number, rest = queue.pop(0)
            here = p if p - rest <= SAME_POINT else rest
            found.append((here, [*got[:-1], number]))
            p -= here
            if p == 0:
                break
        if p > 0:
            number, rest = queue[0]
            found.append((p, [*got[:-1], number]))
            queue[0] = (number, rest - p)
    return found


def on_one_grid(scenarios: Sequence[Scenarios]) -> list[Scenarios]:
    """The same laws with scenarios that mean the same interval of one uniform in all states."""
    ends = [chances.cumsum() for chances, _ in scenarios]
    edges = common_edges(np.concatenate(ends))
    middles = (edges[1:] + edges[:-1]) / 2
    return [
        (np.diff(edges), choices[np.minimum(np.searchsorted(end, middles), len(end) - 1)])
        for end, (_, choices) in zip(ends, scenarios, strict=True)
    ]
