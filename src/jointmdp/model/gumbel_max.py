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
4. where the draws admit no such weights, they are lowered until no marginal is too large, and what is missing is joined
   in listed order. That is refused where it is more than `MOST_MISSING`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jointmdp.arrays import Floats, Ints, summed
from jointmdp.errors import ModelError
from jointmdp.model.equal_outcomes import NumberedLaw
from jointmdp.model.one_uniform import common_edges

EXACT = 1e-14  # of a marginal: as near as sums of weights come
FITTED = 1e-13  # a probability below it is rounding, and needs no scenario
SWEEPS = 30
NEWTON_STEPS = 40
MOST_EQUATIONS = 2000  # for Newton's method, whose matrix is dense
RIDGE = 1e-12  # of the largest entry of that matrix, since equations follow from each other
MOST_MISSING = 0.05


@dataclass(frozen=True)
class GumbelMax:
    """The Gumbel-max coupling for ``from_mdp(…, coupling=)``; the text ``"gumbel-max"`` stands for the defaults."""

    draws: int = 1000
    """Draws of the noise in each state; more of them come nearer to the true coupling and may need more scenarios."""
    seed: int = 0


def gumbel_scenarios(laws: Sequence[NumberedLaw], draws: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Probabilities ``[W]``, and the outcome that each law gets ``[W, L]``, by its place in the law."""
    present = [i for i, law in enumerate(laws) if len(law.numbers)]
    own = [laws[i] for i in present]
    size = 1 + max(int(law.numbers.max()) for law in own)
    noise = rng.exponential(size=(draws, size))
    got = _race(own, noise)
    rare = _given_rare(own, got, rng, size)
    rows, which = np.unique(np.vstack([got, _race(own, rare[1])]), axis=0, return_inverse=True)
    start = summed(which.reshape(-1), np.append(np.full(draws, 1 / draws), rare[0]), len(rows))
    chances, rows = _exact(_raked(start / start.sum(), rows, own), rows, own)
    choices = np.zeros((len(rows), len(laws)), dtype=np.int64)
    for column, (i, law) in enumerate(zip(present, own, strict=True)):
        choices[:, i] = law.places[rows[:, column]]
    return chances, choices


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

    gets = np.zeros((len(w), len(wanted)))
    np.put_along_axis(gets, places, 1.0, axis=1)
    gap = missing(w)
    for _ in range(NEWTON_STEPS):
        if np.max(np.abs(gap)) <= EXACT:
            break
        matrix = gets.T @ (w[:, None] * gets)
        matrix[np.diag_indices_from(matrix)] += RIDGE * np.max(matrix)
        step = np.linalg.solve(matrix, gap)[places].sum(axis=1)
        length = 1.0
        while length > 1e-3:
            tried = w * np.exp(np.clip(length * step, -50.0, 50.0))
            after = missing(tried)
            if np.max(np.abs(after)) < np.max(np.abs(gap)):
                w, gap = tried, after
                break
            length /= 2
        else:
            break
    return w


def _exact(w: Floats, rows: Ints, laws: Sequence[NumberedLaw]) -> tuple[Floats, Ints]:
    """Weights and rows with exact marginals: too much is taken away, and what is missing is joined in listed order."""
    factor = np.ones(len(w))
    for column, law in enumerate(laws):
        marginal = np.maximum(summed(rows[:, column], w, len(law.numbers)), np.finfo(np.float64).tiny)
        factor = np.minimum(factor, (law.probabilities / marginal)[rows[:, column]])
    w = w * np.where(factor < 1 - EXACT, factor, 1.0)
    kept = w > 0
    w, rows = w[kept], rows[kept]
    missing = max(1 - float(w.sum()), 0.0)
    if missing <= FITTED:
        return w, rows
    if missing > MOST_MISSING:
        raise ModelError(
            f"draws of Gumbel noise leave {missing:.0%} of the probability without a scenario, since the laws of "
            f"{len(laws)} actions have to come out exactly; take more draws, as in GumbelMax(draws={20 * len(w)}), or "
            'sharing="state", where each state has draws of its own'
        )
    ends = []
    for column, law in enumerate(laws):
        rest = np.maximum(law.probabilities - summed(rows[:, column], w, len(law.numbers)), 0.0)
        ends.append(np.cumsum(rest) / rest.sum())
    edges = common_edges(np.concatenate(ends))
    middles = (edges[1:] + edges[:-1]) / 2
    more = np.stack([np.searchsorted(end, middles) for end in ends], axis=1)
    return np.append(w, missing * np.diff(edges)), np.vstack([rows, more])
