"""How often the intervals of `variance_by_stream` hold, and what other estimators of the same shares would be off by.

A gap Σ aᵤ Xᵤ + Σ cᵤᵥ Xᵤ Xᵥ of independent sources with mean 0 and variance 1 has the parts aᵤ² and cᵤᵥ². Its runs are
drawn here and handed to the library's own estimator. All estimators get the same runs, and use them both ways round.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.simulation.montecarlo.stream_variances import Key, answer

SIZES = (100, 300, 1_000)
RUNS = 1_000
Law = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _rare(chance: float) -> Law:
    scale = (chance * (1 - chance)) ** 0.5
    return lambda rng, shape: ((rng.random(shape) < chance) - chance) / scale


LAWS: dict[str, Law] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "coin": lambda rng, shape: rng.integers(0, 2, shape) * 2.0 - 1,
    "1 in 20": _rare(0.05),
    "lognormal": lambda rng, shape: (
        (rng.lognormal(0, 0.5, shape) - np.exp(0.125)) / np.sqrt(np.exp(0.5) - np.exp(0.25))
    ),
}


class Case(NamedTuple):
    """A gap whose parts are known."""

    name: str
    alone: tuple[float, ...]  # [d] the a
    together: dict[tuple[int, int], float]
    laws: tuple[str, ...]

    def runs(self, rng: np.random.Generator, n: int) -> dict[Key, np.ndarray]:
        """All runs of n replications."""
        d = len(self.alone)
        x, y = (np.stack([LAWS[law](rng, (n,)) for law in self.laws]) for _ in range(2))

        def gap(anew: set[int]) -> np.ndarray:
            z = [y[u] if u in anew else x[u] for u in range(d)]
            return sum(a * v for a, v in zip(self.alone, z, strict=True)) + sum(
                c * z[u] * z[v] for (u, v), c in self.together.items()
            )

        every = set(range(d))
        found: dict[Key, np.ndarray] = {("a", -1): gap(set()), ("b", -1): gap(every)}
        for u in every:
            found["a", u], found["b", u] = gap({u}), gap(every - {u})
        return found

    def truth(self) -> np.ndarray:
        """The shares: of each source, of pairs of three, and of what is left."""
        own = [a * a for a in self.alone]
        pairs = {pair: c * c for pair, c in self.together.items()}
        total = sum(own) + sum(pairs.values())
        if len(own) == 3:
            own += [pairs.get(pair, 0.0) for pair in itertools.combinations(range(3), 2)]
        return np.array([*own, *([total - sum(own)] if len(self.alone) > 1 else [])]) / total


CASES = (
    Case("a X + b Y + c X Y", (2.0, 1.0), {(0, 1): 0.6}, ("normal", "normal")),
    Case("the same, exponential", (2.0, 1.0), {(0, 1): 0.6}, ("exponential", "exponential")),
    Case("the same, lognormal and coin", (2.0, 1.0), {(0, 1): 0.6}, ("lognormal", "coin")),
    Case("the same, 1 in 20 and normal", (2.0, 1.0), {(0, 1): 0.6}, ("1 in 20", "normal")),
    Case("X Y alone", (0.0, 0.0), {(0, 1): 1.0}, ("normal", "normal")),
    Case("X + 0.1 Y", (1.0, 0.1), {}, ("normal", "normal")),
    Case("three, two act together", (2.0, 1.0, 0.5), {(0, 1): 0.6}, ("normal", "exponential", "coin")),
    Case("six, one of them idle", (2.0, 1.0, 0.5, 0.5, 0.2, 0.0), {(0, 1): 0.6, (2, 3): 0.3}, ("exponential",) * 6),
)


def correlated(runs: dict[Key, np.ndarray], u: int, kind: str) -> float:
    """The share of one source alone, by another estimator."""
    a, b, a_u, b_u = runs["a", -1], runs["b", -1], runs["a", u], runs["b", u]
    whole = float(np.concatenate([a, b]).var())
    if kind == "Saltelli":  # Saltelli et al., Variance based sensitivity analysis of model output, 2010, table 2 (b)
        return float((b * (a_u - a) + a * (b_u - b)).mean()) / 2 / whole
    if kind == "Jansen":
        return 1 - float(((b - a_u) ** 2 + (a - b_u) ** 2).mean()) / 4 / whole
    # Janon, Klein, Lagnoux, Nodet and Prieur, Asymptotic normality and efficiency of two Sobol index estimators, 2014
    every = np.concatenate([a, b, a_u, b_u])
    return float((a * b_u + b * a_u).mean() / 2 - every.mean() ** 2) / float(every.var())


def coverage(case: Case, n: int, runs: int = RUNS) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """How often each share's interval holds it, its mean width, and mean squared errors by estimator ``[d]``."""
    truth, rng, d = case.truth(), np.random.default_rng(n), len(case.alone)
    held, width = np.zeros(len(truth)), np.zeros(len(truth))
    names = [f"x{u}" for u in range(d)]
    squares = {kind: np.zeros(d) for kind in ("here", "Janon", "Saltelli", "Jansen")}
    for _ in range(runs):
        drawn = case.runs(rng, n)
        split = answer("gap", names, drawn, 0.95, [])
        shares = split.shares[: len(truth)]
        held += [low - 1e-12 <= true <= high + 1e-12 for (low, high), true in zip(shares, truth, strict=True)]
        width += [share.width for share in shares]
        for kind, found in squares.items():
            own = np.asarray(split)[:d] / split.total
            found += (
                (own - truth[:d]) ** 2
                if kind == "here"
                else [(correlated(drawn, u, kind) - truth[u]) ** 2 for u in range(d)]
            )
    return held / runs, width / runs, {kind: found / runs for kind, found in squares.items()}


def main() -> None:
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else RUNS
    print(f"\nShares of a gap's variance by stream: {runs:,} runs of 95 % intervals, mean squared errors beside ours")
    for case, n in itertools.product(CASES, SIZES):
        held, width, squares = coverage(case, n, runs)
        own = squares.pop("here")
        beside = ", ".join(
            " ".join([kind, *(f"{a / b:.1f}" if b > 0 else "–" for a, b in zip(theirs, own, strict=True))])
            for kind, theirs in squares.items()
        )
        shown = " ".join(
            f"{share:.0%} {h:.3f} ±{w / 2:.3f};" for share, h, w in zip(case.truth(), held, width, strict=True)
        )
        print(f"{case.name}, n = {n:,}: {shown} times our mean squared error: {beside}", flush=True)


if __name__ == "__main__":
    main()
