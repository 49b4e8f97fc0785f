"""The Gumbel-max coupling (Oberst and Sontag, ICML 2019): one noise for each outcome, shared by all actions.

Action ``a`` gets the outcome ``argmax_i (log p_a(i) + g_i)``, where ``g_i`` are independent standard Gumbel variables:
equally ``argmin_i E_i/p_a(i)`` with ``E_i = exp(−g_i)`` exponential. Each action keeps its law, and the coupling is
*counterfactually stable*: where action a got outcome i, action b gets another outcome j only if that became more likely
relative to i, ``p_b(j)/p_a(j) > p_b(i)/p_a(i)``.

Its scenarios are drawn, so they are an approximation whose error falls like ``1/√draws``; the marginals are exact:

1. draws of E, and one more given that action a gets outcome i wherever no draw had that. By the lack of memory of E
   that is ``E = p_a T + E'`` with T and E' exponential, and ``E_i = p_a(i) T``;
2. draws in which all actions get the same outcomes are one scenario;
3. weights ``w ∝ w₀ exp(Σ_a θ_a(outcome of a))``, those with the right marginals that are nearest to the frequencies w₀
   in relative entropy (raking): some sweeps of iterative proportional fitting, then Newton's method for θ;
4. where the draws admit no such weights, these are lowered until no marginal is too large. A state in which much is
   missing then gets four times as many draws, and sixteen times at most; what is missing after that is joined in listed
   order, or refused where it is more than `MOST_MISSING`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.action_laws import NumberedLaw, common_edges

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
