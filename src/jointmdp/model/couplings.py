"""Couplings as scenario tables: how the outcomes of different actions go together.

A *coupling* joins the laws of the actions of a state and leaves every action's own law as it is:

- ``"comonotone"``: one uniform ``u`` goes through every action's inverse distribution function, outcomes in
  listed order: action ``a`` gets outcome ``i`` when ``F_a(i−1) ≤ u < F_a(i)``;
- ``"antithetic"``: the same, but the actions 1, 3, 5, … see ``1 − u``;
- ``"independent"``: every action has a uniform of its own;
- a function of the state and the actions' laws that returns the scenarios itself.

The named ones are exact: the scenarios of a state are the intervals between all break points ``F_a(i)`` of a
uniform, and their products over independent uniforms. With a *common grid* the break points of all states are
taken together, so that a scenario means the same ``u`` everywhere, which ``sharing="time"`` needs.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.errors import ModelError

CouplingFunction = Callable[[int, list[Floats]], tuple[ArrayLike, ArrayLike]]
Coupling = Literal["comonotone", "antithetic", "independent"] | CouplingFunction

# Break points this close are one: 1/3 + 1/3 and 2/3 differ by a rounding, and a scenario as thin as that is
# not part of the model. Outcomes less likely than this can be lost; no probability is off by more than twice it.
SAME_POINT = 16 * float(np.finfo(np.float64).eps)
# Couplings from a linear program or another solver meet their marginals this closely; farther is a mistake.
MARGINAL_TOLERANCE = 1e-9


class ActionLaw(NamedTuple):
    """The possible outcomes of one action in one state, in listed order; none where it is unavailable."""

    probabilities: Floats  # [K]
    rewards: Floats  # [K]
    successors: Ints  # [K]


NO_LAW = ActionLaw(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
ActionLaws = list[list[ActionLaw]]  # laws[s][a]
Scenarios = tuple[Floats, Ints]  # of one state: probabilities [W], and the outcome that each action gets [W, A]
ScenarioTables = tuple[Floats, Floats, Ints]  # the first three arguments of JointMDP


def coupled_tables(laws: ActionLaws, coupling: Coupling, common: bool, max_entries: int) -> ScenarioTables:
    """The scenario tables; states with fewer scenarios than others get more of them with probability zero."""
    if callable(coupling):
        scenarios = [_given_scenarios(s, row, coupling) for s, row in enumerate(laws)]
        _check_size(laws, max(len(chances) for chances, _ in scenarios), "given", max_entries)
    elif coupling in ("comonotone", "antithetic", "independent"):
        scenarios = _quantile_scenarios(laws, coupling, common, max_entries)
    else:
        raise ModelError(
            f'coupling is {coupling!r}; it must be "comonotone", "antithetic", "independent" or a function'
        )
    shape = (len(laws), max(len(chances) for chances, _ in scenarios), len(laws[0]))
    table, gains = np.zeros(shape[:2]), np.zeros(shape)
    targets = np.tile(np.arange(shape[0])[:, None, None], (1, *shape[1:]))
    for s, (chances, choices) in enumerate(scenarios):
        table[s, : len(chances)] = chances
        for a, law in enumerate(laws[s]):
            if len(law.successors):
                gains[s, : len(chances), a] = law.rewards[choices[:, a]]
                targets[s, : len(chances), a] = law.successors[choices[:, a]]
    return table, gains, targets


def _quantile_scenarios(laws: ActionLaws, coupling: str, common: bool, max_entries: int) -> list[Scenarios]:
    """Every action reads a uniform through its inverse distribution function."""
    everyone = range(len(laws[0]))
    # The actions of a block read the same uniform, the states of a group have the same scenarios.
    blocks = [[a] for a in everyone] if coupling == "independent" else [list(everyone)]
    groups = [list(range(len(laws)))] if common else [[s] for s in range(len(laws))]
    # 1 − u through a law is u through the law listed backwards.
    step = [-1 if coupling == "antithetic" and a % 2 == 1 else 1 for a in everyone]
    ends = [[law.probabilities[:: step[a]].cumsum() for a, law in enumerate(row)] for row in laws]
    grids = [[_edges([ends[s][a] for s in group for a in block]) for block in blocks] for group in groups]
    _check_size(laws, max(math.prod(len(e) - 1 for e in grid) for grid in grids), coupling, max_entries)
    scenarios = []
    for group, grid in zip(groups, grids, strict=True):
        chances, cells = _product(grid)
        for s in group:
            choices = np.zeros((len(chances), len(everyone)), dtype=np.int64)
            for block, edges, cell in zip(blocks, grid, cells, strict=True):
                for a in block:
                    choice = _outcome_of_cell(ends[s][a], edges)[cell]
                    choices[:, a] = choice if step[a] == 1 else len(ends[s][a]) - 1 - choice
            scenarios.append((chances, choices))
    return scenarios


def _edges(ends: list[Floats]) -> Floats:
    """The common refinement: all break points from 0 to 1, those closer than `SAME_POINT` taken as one."""
    points = np.unique(np.concatenate(ends))
    edges = [0.0]
    for point in points[points < 1 - SAME_POINT].tolist():
        if point - edges[-1] > SAME_POINT:
            edges.append(point)
    return np.array([*edges, 1.0])


def _outcome_of_cell(ends: Floats, edges: Floats) -> Ints:
    """For each cell between two edges, the outcome whose interval of ``u`` contains it."""
    last = len(edges) - 1
    edge = np.where(ends[:-1] < 1 - SAME_POINT, np.searchsorted(edges, ends[:-1], side="right") - 1, last)
    return np.searchsorted(edge, np.arange(last), side="right")


def _product(grid: list[Floats]) -> tuple[Floats, list[Ints]]:
    """Every combination of one cell per uniform: its probability, and for each uniform its cell."""
    sizes = [len(edges) - 1 for edges in grid]
    chances, scenario = np.ones(1), np.arange(math.prod(sizes))
    for edges in grid:
        chances = np.outer(chances, np.diff(edges)).ravel()
    # As `numpy.unravel_index` does, which stops at 64 uniforms.
    return chances, [scenario // math.prod(sizes[i + 1 :]) % size for i, size in enumerate(sizes)]


def _given_scenarios(state: int, row: list[ActionLaw], coupling: CouplingFunction) -> Scenarios:
    """What the user's coupling says about a state; it must keep every action's law."""
    laws = [law.probabilities.copy() for law in row]
    try:
        given_chances, given_choices = coupling(state, laws)
    except Exception as error:
        raise ModelError(f"the coupling failed in state {state}: {words(error)}") from error
    name, choice_name = (f"the coupling's {what} in state {state}" for what in ("probabilities", "choices"))
    chances = checks.as_floats(name, given_chances, "[W]", 1)
    chances = checks.as_law(name, "scenario", np.arange(len(chances)), chances)
    choices = checks.as_floats(choice_name, given_choices, "[W, A]", 2)
    checks.check_shape(choice_name, choices, (len(chances), len(row)), "[W, A]")
    for a, (law, *_) in enumerate(row):
        if not len(law):
            choices[:, a] = 0
            continue
        gets = choices[:, a, None] == np.arange(len(law))
        if at := checks.first_place(~gets.any(axis=1)):
            raise ModelError(
                f"{choice_name}: action {a} gets outcome {choices[*at, a]:g} in {checks.place(at, 'scenario')}, but "
                f"its outcomes are 0..{len(law) - 1}"
            )
        marginal = chances @ gets
        i = int(np.argmax(np.abs(marginal - law)))
        if abs(marginal[i] - law[i]) > MARGINAL_TOLERANCE:
            raise ModelError(
                f"the coupling gives state {state}, action {a}, outcome {i} the probability "
                f"{marginal[i]:.10g}, but the MDP says {law[i]:.10g}; a coupling keeps every action's own law"
            )
    return chances, choices.astype(np.int64)


def _check_size(laws: ActionLaws, num_scenarios: int, coupling: str, max_entries: int) -> None:
    entries = len(laws) * num_scenarios * len(laws[0])
    if entries > max_entries:
        hint = '; coupling="comonotone" needs far fewer scenarios' if coupling == "independent" else ""
        raise ModelError(
            f"the {coupling} coupling has {num_scenarios} scenarios, S·W·A = {len(laws)}·{num_scenarios}·"
            f"{len(laws[0])} = {entries} table entries, more than max_entries = {max_entries}{hint}"
        )


def words(error: Exception) -> str:
    """What went wrong in a user's function, for the message that says where."""
    return str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
