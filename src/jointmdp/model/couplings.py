"""Couplings as scenario tables: how the outcomes of different actions go together.

A *coupling* joins the laws of the actions of a state and leaves every action's own law as it is:

- ``"comonotone"``: one uniform ``u`` goes through every action's inverse distribution function, outcomes in
  listed order: action ``a`` gets outcome ``i`` when ``F_a(i−1) ≤ u < F_a(i)``;
- ``"antithetic"``: the same, but the actions 1, 3, 5, … see ``1 − u``;
- ``"independent"``: every action has a uniform of its own;
- ``"maximal"``: equal outcomes coincide as often as they can, see below;
- ``"gumbel-max"``: every outcome has a noise of its own that all actions share, see below;
- a function of the state and the actions' laws that returns the scenarios itself.

All but ``"gumbel-max"`` are exact: the scenarios of a state are the intervals between all break points ``F_a(i)`` of a
uniform, and their products over independent uniforms. With a *common grid* the break points of all states are
taken together, so that a scenario means the same ``u`` (the same noise) everywhere, which ``sharing="time"`` needs.

*The maximal coupling.* No coupling of two laws p and q makes outcomes equal with a probability above
``Σ_i min(p_i, q_i)``, and this one does: both actions get outcome i together with probability ``min(p_i, q_i)``, and
what is left of the two laws, which has no outcome in common, is joined in listed order, as the comonotone coupling
joins laws. With more actions not every pair can have its own maximum. Actions are joined one after the other, in the
order of their numbers. Each coincides with the first available action as often as it can; where it does not, with the
second as often as what is left of its law allows, and so on; what remains after that goes in listed order. So

- every action coincides with the first with probability ``Σ_i min(p_a(i), p_first(i))``, the maximum;
- all actions coincide with probability ``Σ_i min_a p_a(i)``, the maximum, too;
- other pairs may coincide less often than two actions by themselves could. Number the actions accordingly.

*The Gumbel-max coupling* (Oberst and Sontag, ICML 2019). Action ``a`` gets the outcome ``argmax_i (log p_a(i) + g_i)``,
where ``g_i`` are independent standard Gumbel variables: equally ``argmin_i E_i/p_a(i)`` with ``E_i = exp(−g_i)``
exponential. Each action keeps its law, and the coupling is *counterfactually stable*: where action a got outcome i,
action b gets another outcome j only if that became more likely relative to i, ``p_b(j)/p_a(j) > p_b(i)/p_a(i)``.

The joint law of two actions has a closed form (`gumbel_pair_law`), which a state with no more than two actions gets
as it is. With more actions, or with scenarios that are common to all states, scenarios are drawn: an approximation
whose error falls like ``1/√draws``; the marginals are exact:

1. draws of E, and one more given that action a gets outcome i wherever no draw had that. By the lack of memory of E
   that is ``E = p_a T + E'`` with T and E' exponential, and ``E_i = p_a(i) T``;
2. draws in which all actions get the same outcomes are one scenario;
3. weights ``w ∝ w₀ exp(Σ_a θ_a(outcome of a))``, those with the right marginals that are nearest to the frequencies w₀
   in relative entropy (raking): some sweeps of iterative proportional fitting, then Newton's method for θ;
4. where the draws admit no such weights, these are lowered until no marginal is too large. A state in which much is
   missing then gets four times as many draws, and sixteen times at most; what is missing after that is joined in listed
   order, or refused where it is more than `MOST_MISSING`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.action_laws import (
    SAME_POINT,
    ActionLaw,
    ActionLaws,
    NumberedLaw,
    check_size,
    common_edges,
    numbered_laws,
    one_uniform_tables,
)
from jointmdp.model.gumbel_pair_law import pair_cells
from jointmdp.model.tables import ScenarioTables, blank_tables

Scenarios = tuple[Floats, Ints]  # of one state: probabilities [W], and the outcome that each action gets [W, A]
Cell = tuple[float, list[int]]  # a probability, and the number of the outcome that each action so far gets

OPEN = -1  # the action has no outcome yet

EXACT = 1e-14  # of a marginal: as near as sums of weights come
FITTED = 1e-13  # a probability below it is rounding, and needs no scenario
SWEEPS = 30
NEWTON_STEPS = 40
MOST_EQUATIONS = 2000  # for Newton's method, whose matrix is dense
PROGRESS = 0.99  # of the largest gap is left after a step: less progress is none
RIDGE = 1e-12  # of the largest entry of that matrix, since equations follow from each other
MORE = 4  # times as many draws, where
MUCH_MISSING = 0.01  # of the probability has no scenario
MOST_MISSING = 0.05


@dataclass(frozen=True)
class GumbelMax:
    """The Gumbel-max coupling for ``from_mdp(…, coupling=)``; the text ``"gumbel-max"`` stands for the defaults."""

    draws: int = 1000
    """Draws of the noise in each state; more of them come nearer to the true coupling and may need more scenarios.

    A state whose laws these draws cannot match gets up to sixteen times as many.
    """
    seed: int = 0


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


CouplingFunction = Callable[[int, list[Floats]], tuple[ArrayLike, ArrayLike]]
Coupling = Literal["comonotone", "antithetic", "independent", "maximal", "gumbel-max"] | GumbelMax | CouplingFunction

MAX_ENTRIES = 20_000_000  # of a table, where nobody says otherwise

# Couplings from a linear program or another solver meet their marginals this closely; farther is a mistake.
MARGINAL_TOLERANCE = 1e-9


def coupled_tables(laws: ActionLaws, coupling: Coupling, common: bool, max_entries: int) -> ScenarioTables:
    """The scenario tables; states with fewer scenarios than others get more of them with probability zero."""
    if coupling in ("comonotone", "antithetic"):
        return one_uniform_tables(laws, str(coupling), common, max_entries)
    rows = [laws.of_state(s) for s in range(laws.num_states)]
    if callable(coupling):
        scenarios = [_given_scenarios(s, row, coupling) for s, row in enumerate(rows)]
        check_size(laws, max(len(chances) for chances, _ in scenarios), "given", max_entries)
    elif coupling == "independent":
        grids = _independent_grids(rows, common)
        check_size(laws, max(math.prod(len(e) - 1 for e in grid) for grid in grids), coupling, max_entries)
        scenarios = [_independent_scenarios(row, grid) for row, grid in zip(rows, grids, strict=True)]
    elif coupling == "maximal":
        scenarios = [maximal_scenarios(numbered_laws([row])) for row in rows]
        scenarios = on_one_grid(scenarios) if common else scenarios
        check_size(laws, max(len(chances) for chances, _ in scenarios), coupling, max_entries)
    elif coupling == "gumbel-max" or isinstance(coupling, GumbelMax):
        scenarios = _gumbel_scenarios(rows, coupling if isinstance(coupling, GumbelMax) else GumbelMax(), common)
        check_size(laws, max(len(chances) for chances, _ in scenarios), "gumbel-max", max_entries)
    else:
        raise ModelError(
            f'coupling is {coupling!r}; it must be "comonotone", "antithetic", "independent", "maximal", "gumbel-max", '
            "a GumbelMax or a function"
        )
    width = max(len(chances) for chances, _ in scenarios)
    table, gains, targets = blank_tables(len(rows), width, laws.num_actions)
    for s, (chances, choices) in enumerate(scenarios):
        table[s, : len(chances)] = chances
        for a, law in enumerate(rows[s]):
            if len(law.successors):
                gains[s, : len(chances), a] = law.rewards[choices[:, a]]
                targets[s, : len(chances), a] = law.successors[choices[:, a]]
    return table, gains, targets


def _independent_grids(rows: list[list[ActionLaw]], common: bool) -> list[list[Floats]]:
    """The break points of each action's own uniform in each state; with `common` those of all states together."""
    ends = [[law.probabilities.cumsum() for law in row] for row in rows]
    if common:
        return [[common_edges(np.concatenate(column)) for column in zip(*ends, strict=True)]] * len(rows)
    return [[common_edges(end) for end in row] for row in ends]


def _independent_scenarios(row: list[ActionLaw], grid: list[Floats]) -> Scenarios:
    """Every combination of one cell per uniform: each action reads its own through its inverse distribution."""
    sizes = [len(edges) - 1 for edges in grid]
    chances, scenario, choices = np.ones(1), np.arange(math.prod(sizes)), []
    for i, (law, edges) in enumerate(zip(row, grid, strict=True)):
        chances = np.outer(chances, np.diff(edges)).ravel()
        ends = law.probabilities.cumsum()[:-1]
        last_cell = np.where(ends < 1 - SAME_POINT, np.searchsorted(edges, ends, side="right") - 1, sizes[i])
        # As `numpy.unravel_index` does, which stops at 64 uniforms.
        cell = scenario // math.prod(sizes[i + 1 :]) % sizes[i]
        choices.append(np.searchsorted(last_cell, np.arange(sizes[i]), side="right")[cell])
    return chances, np.stack(choices, axis=1)


def _gumbel_scenarios(rows: list[list[ActionLaw]], coupling: GumbelMax, common: bool) -> list[Scenarios]:
    """Draws for each state by itself; with `common` the same noise of outcomes for all states."""
    draws, seed = checks.as_count("draws", coupling.draws), checks.as_count("seed", coupling.seed, 0)
    if not common:
        seeded = ((numbered_laws([row]), np.random.default_rng([seed, s])) for s, row in enumerate(rows))
        return [_of_pair(laws) or gumbel_scenarios(laws, draws, rng, attempts=3) for laws, rng in seeded]
    # One attempt: among all states hardly two draws are alike, so that more draws are as many more scenarios.
    chances, choices = gumbel_scenarios(numbered_laws(rows), draws, np.random.default_rng(seed), attempts=1)
    return [(chances, of_state) for of_state in choices.reshape(len(chances), len(rows), -1).swapaxes(0, 1)]


def _of_pair(laws: Sequence[NumberedLaw]) -> Scenarios | None:
    """The exact joint law where there are no more than two actions."""
    present = [i for i, law in enumerate(laws) if len(law.numbers)]
    if len(present) > 2:
        return None
    one, two = laws[present[0]], laws[present[-1]]
    chances, places = pair_cells((one.numbers, two.numbers), (one.probabilities, two.probabilities))
    choices = np.zeros((len(chances), len(laws)), dtype=np.int64)
    for column, i in zip((0, -1), (present[0], present[-1]), strict=True):
        choices[:, i] = laws[i].places[places[:, column]]
    return chances, choices


def _given_scenarios(state: int, row: list[ActionLaw], coupling: CouplingFunction) -> Scenarios:
    """What the user's coupling says about a state; it must keep every action's law."""
    laws = [law.probabilities.copy() for law in row]
    with checks.blamed(f"the coupling failed in state {state}"):
        given_chances, given_choices = coupling(state, laws)
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


# -- draws of Gumbel noise --------------------------------------------------------------------------------------------


def gumbel_scenarios(
    laws: Sequence[NumberedLaw], draws: int, rng: np.random.Generator, attempts: int
) -> tuple[Floats, Ints]:
    """Probabilities ``[W]``, and the outcome that each law gets ``[W, L]``, by its place in the law."""
    present = [i for i, law in enumerate(laws) if len(law.numbers)]
    own = [laws[i] for i in present]
    for attempt in range(attempts):
        w, rows = _drawn(own, draws * MORE**attempt, rng)
        missing = max(1 - float(w.sum()), 0.0)
        if missing <= MUCH_MISSING:
            break
    if missing > MOST_MISSING:
        raise ModelError(
            f"draws of Gumbel noise leave {missing:.0%} of the probability without a scenario, since the laws of "
            f"{len(own)} actions have to come out exactly; take more draws, as in GumbelMax(draws={20 * len(w)}), or "
            'sharing="state", where each state has draws of its own'
        )
    if missing > FITTED:
        w, rows = _joined(w, rows, own, missing)
    choices = np.zeros((len(rows), len(laws)), dtype=np.int64)
    for column, (i, law) in enumerate(zip(present, own, strict=True)):
        choices[:, i] = law.places[rows[:, column]]
    return w, choices


def _drawn(laws: Sequence[NumberedLaw], draws: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Weights and rows of places whose marginals are nowhere too large."""
    size = 1 + max(int(law.numbers.max()) for law in laws)
    got = _race(laws, rng.exponential(size=(draws, size)))
    chances, noise = _given_rare(laws, got, rng, size)
    rows, which = np.unique(np.vstack([got, _race(laws, noise)]), axis=0, return_inverse=True)
    start = summed(which.reshape(-1), np.append(np.full(draws, 1 / draws), chances), len(rows))
    return _lowered(_raked(start / start.sum(), rows, laws), rows, laws)


def _race(laws: Sequence[NumberedLaw], noise: Floats) -> Ints:
    """What each law gets, ``[N, L]``, from the noise ``[N, K]`` of the outcomes."""
    with np.errstate(over="ignore"):
        return np.stack([np.argmin(noise[:, law.numbers] / law.probabilities, axis=1) for law in laws], axis=1)


def _given_rare(laws: Sequence[NumberedLaw], got: Ints, rng: np.random.Generator, size: int) -> tuple[Floats, Floats]:
    """For each outcome that a law never got, its probability and noise ``[N, K]`` with which it gets it."""
    chances, noises = [], []
    for column, law in enumerate(laws):
        for i in np.flatnonzero(np.bincount(got[:, column], minlength=len(law.numbers)) == 0).tolist():
            noise, time = rng.exponential(size=size), rng.exponential()
            noise[law.numbers] += law.probabilities * time
            noise[law.numbers[i]] = law.probabilities[i] * time
            chances.append(law.probabilities[i])
            noises.append(noise)
    return np.array(chances), np.array(noises).reshape(-1, size)


def _raked(start: Floats, rows: Ints, laws: Sequence[NumberedLaw]) -> Floats:
    """Weights with the marginals of all laws, or as near as some steps come."""
    starts = np.cumsum([0, *(len(law.numbers) for law in laws)])
    places = rows + starts[:-1]  # [W, L] numbers of equations
    wanted = np.concatenate([law.probabilities for law in laws])
    w = start
    for _ in range(SWEEPS):
        for column, law in enumerate(laws):
            marginal = summed(rows[:, column], w, len(law.numbers))
            w = w * (law.probabilities / np.maximum(marginal, np.finfo(np.float64).tiny))[rows[:, column]]
    if len(wanted) > MOST_EQUATIONS:
        return w

    def missing(w: Floats) -> Floats:
        marginals = np.bincount(places.ravel(), np.repeat(w, places.shape[1]), minlength=len(wanted))
        return np.asarray(wanted - marginals)

    owners = np.repeat(np.arange(len(w)), len(laws))
    gets = sp.csr_array((np.ones(places.size), (owners, places.ravel())), shape=(len(w), len(wanted)))
    gap = missing(w)
    for _ in range(NEWTON_STEPS):
        if np.max(np.abs(gap)) <= EXACT:
            break
        matrix = (gets.T @ gets.multiply(w[:, None]).tocsr()).toarray()
        matrix[np.diag_indices_from(matrix)] += RIDGE * np.max(matrix)
        step = np.linalg.solve(matrix, gap)[places].sum(axis=1)
        length = 1.0
        while length > 1e-3:
            tried = w * np.exp(np.clip(length * step, -50.0, 50.0))
            after = missing(tried)
            if np.max(np.abs(after)) < PROGRESS * np.max(np.abs(gap)):
                w, gap = tried, after
                break
            length /= 2
        else:
            break
    return w


def _lowered(w: Floats, rows: Ints, laws: Sequence[NumberedLaw]) -> tuple[Floats, Ints]:
    """Weights and rows without what is too much."""
    factor = np.ones(len(w))
    for column, law in enumerate(laws):
        marginal = np.maximum(summed(rows[:, column], w, len(law.numbers)), np.finfo(np.float64).tiny)
        factor = np.minimum(factor, (law.probabilities / marginal)[rows[:, column]])
    w = w * np.where(factor < 1 - EXACT, factor, 1.0)
    return w[w > 0], rows[w > 0]


def _joined(w: Floats, rows: Ints, laws: Sequence[NumberedLaw], missing: float) -> tuple[Floats, Ints]:
    """What is missing of each law joined in listed order."""
    ends = []
    for column, law in enumerate(laws):
        rest = np.maximum(law.probabilities - summed(rows[:, column], w, len(law.numbers)), 0.0)
        ends.append(np.cumsum(rest) / rest.sum())
    edges = common_edges(np.concatenate(ends))
    middles = (edges[1:] + edges[:-1]) / 2
    more = np.stack([np.searchsorted(end, middles) for end in ends], axis=1)
    return np.append(w, missing * np.diff(edges)), np.vstack([rows, more])
