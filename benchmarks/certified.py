"""Certified error against true error as the discount comes near 1: geometric stopping, and a ring that never ends.

The truth is the same recursion in rational arithmetic (python-flint), on the table as it stands. Errors of the mean of
a gap are relative to its standard deviation, those of its variance to the variance itself; 1−γ goes from 1e-2 to 1e-9.
With ``--figure PATH`` after the name the picture of docs/certificates.md is drawn.
"""

import math
import sys
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flint import fmpq, fmpq_mat

import jointmdp as jm

POWERS = range(2, 10)  # of 1−γ


class Errors(NamedTuple):
    """Certified and true, of the mean and of the variance of the gap of two actions in state 0."""

    mean: tuple[float, float]
    variance: tuple[float, float]


def geometric_stopping(discount: float) -> jm.JointMDP:
    """Every step ends the game with chance 1/4; two actions are paid by one coin. A state never reached pays."""
    chances = np.full((3, 4), [0.375, 0.375, 0.125, 0.125])
    rewards, successors = np.zeros((3, 4, 2)), np.ones((3, 4, 2), dtype=int)
    rewards[0, :, 0], rewards[0, :, 1], rewards[2] = [1, -1, 1, -1], [0.25, 0.5, 0.25, 0.5], 1
    successors[0, :2], successors[2] = 0, 2
    return jm.JointMDP(chances, rewards, successors, discount)


def ring(discount: float, size: int = 6) -> jm.JointMDP:
    """Steps of −1, 0, 1 or 2 by scenario and action, and normal rewards."""
    here = np.arange(size)
    first = np.stack([(here + 1) % size, (here + 2) % size], axis=1)
    second = np.stack([(here - 1) % size, here], axis=1)
    rewards = np.random.default_rng(0).normal(size=(size, 2, 2))
    return jm.JointMDP(np.full((size, 2), 0.5), rewards, np.stack([first, second], axis=1), discount)


def _exact(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def _solved(count: int, equation: Callable[[int], tuple[fmpq, dict[int, fmpq]]]) -> list[fmpq]:
    """x_i = constant + Σ coefficient · x_j."""
    matrix, right = fmpq_mat(count, count), fmpq_mat(count, 1)
    for i in range(count):
        right[i, 0], terms = equation(i)
        matrix[i, i] += 1
        for j, coefficient in terms.items():
            matrix[i, j] -= coefficient
    return list(matrix.solve(right).entries())


def true_gap(model: jm.JointMDP) -> tuple[fmpq, fmpq]:
    """Mean and variance of Z(0,0) − Z(0,1) under the uniform policy: values, then G = d + γG' on pairs of states."""
    S, W, A = model.num_states, model.num_scenarios, model.num_actions
    g, half = _exact(model.discount), fmpq(1, A)
    p = [[_exact(x) for x in row] for row in model.probabilities]
    R, N = model.rewards, model.successors

    def add(terms: dict[int, fmpq], j: int, amount: fmpq) -> None:
        terms[j] = terms.get(j, fmpq(0)) + amount

    def value(s: int) -> tuple[fmpq, dict[int, fmpq]]:
        reward, terms = fmpq(0), dict[int, fmpq]()
        for w in range(W):
            for a in range(A):
                reward += p[s][w] * half * _exact(R[s, w, a])
                add(terms, int(N[s, w, a]), g * p[s][w] * half)
        return reward, terms

    v = _solved(S, value)

    def outcome(s: int, w: int, a: int) -> fmpq:
        return _exact(R[s, w, a]) + g * v[int(N[s, w, a])]

    def pair(i: int) -> tuple[fmpq, dict[int, fmpq]]:
        s, t = divmod(i, S)
        square, terms = fmpq(0), dict[int, fmpq]()
        for w in range(W):
            for u in [w] if s == t else range(W):
                chance = p[s][w] * half * half * (fmpq(1) if s == t else p[t][u])
                for a in range(A):
                    for b in range(A):
                        if s == t and a == b:
                            continue  # one branch from here on
                        d = outcome(s, w, a) - v[s] - outcome(t, u, b) + v[t]
                        square += chance * d * d
                        add(terms, int(N[s, w, a]) * S + int(N[t, u, b]), g * g * chance)
        return square, terms

    D = _solved(S * S, pair)
    steps = [outcome(0, w, 0) - outcome(0, w, 1) for w in range(W)]
    mean = sum((p[0][w] * steps[w] for w in range(W)), fmpq(0))
    later = (D[int(N[0, w, 0]) * S + int(N[0, w, 1])] for w in range(W))
    return mean, sum(
        (p[0][w] * ((d - mean) ** 2 + g * g * x) for w, (d, x) in enumerate(zip(steps, later, strict=True))), fmpq(0)
    )


def measured(model: jm.JointMDP) -> Errors:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        gap = jm.evaluate(model, "uniform").gap(0, 0, 1)
    mean, variance = true_gap(model)
    off = [abs(_exact(found) - truth) for found, truth in ((gap.mean, mean), (gap.variance, variance))]
    true = [int(x.p) / int(x.q) for x in (*off, variance)]
    std = math.sqrt(true[2])
    return Errors((gap.mean_error / std, true[0] / std), (gap.variance_error / true[2], true[1] / true[2]))


def main() -> None:
    print("\nCertified / true error of a gap, by 1−γ")
    found = {}
    for name, make in (("geometric stopping", geometric_stopping), ("ring of 6", ring)):
        found[name] = [measured(make(1 - 10.0**-k)) for k in POWERS]
        print(f"{name:<22}{'mean':>20}{'variance':>22}")
        for k, errors in zip(POWERS, found[name], strict=True):
            words = (f"{certified:.1e} / {true:.1e}" for certified, true in errors)
            print(f"{f'1e-{k}':<22}" + "".join(f"{word:>21}" for word in words), flush=True)
    if "--figure" in sys.argv:
        draw(found, sys.argv[sys.argv.index("--figure") + 1])


def draw(found: dict[str, list[Errors]], path: str) -> None:
    """One panel a model; errors that are exactly zero are drawn at 1e-19."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left = [10.0**-k for k in POWERS]
    for axes, (name, errors) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        for colour, kind in (("C0", "mean"), ("C1", "variance")):
            certified, true = zip(*(getattr(each, kind) for each in errors), strict=True)
            axes.loglog(left, certified, "o-", color=colour, label=f"{kind}, certified")
            axes.loglog(left, np.maximum(true, 1e-19), "x:", color=colour, label=f"{kind}, true")
        axes.set(title=name, xlabel="1 − γ", ylim=(1e-20, 1e-8))
        axes.invert_xaxis()
    figure.axes[0].set_ylabel("relative error of a gap")
    figure.axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=120, metadata={"Software": None})
