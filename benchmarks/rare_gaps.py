"""Whether every interval of `simulate_*` and `compare` keeps its promise where two alternatives seldom differ.

Both give the same but for a fraction of the pairs, in which the second gives D more: G = −D with that chance, else 0.
Everything about G is known from the quantile function of D, so every interval can be held against the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

import jointmdp as jm
from benchmarks.coverage import CONFIDENCE, replications_of
from jointmdp.decisions.comparing.compare import Rules, decide
from jointmdp.simulation.montecarlo.alternatives import Alternatives
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.montecarlo.simulate import ReturnSample

CHANCES = (0.01, 0.05, 0.5)
SIZES = (20, 50, 100, 200)
RUNS = 1000
MOST = 600  # replications of one decision
QUANTILES, TAILS = (0.05, 0.5, 0.95), (0.05, 0.25)
LAWS: dict[str, Any] = {
    "always 1": scipy.stats.rv_discrete(values=([1], [1.0]))(),
    "exponential": scipy.stats.expon(),
    "normal": scipy.stats.norm(),
}
KINDS = ("mean", "variance", "better", "tie", "worse", "quantile", "cvar")


class Rare(NamedTuple):
    """G = −D with a chance, else 0."""

    law: str
    chance: float

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Returns ``[n, 2]`` with normal noise in common."""
        common, differs = rng.normal(size=n), rng.random(n) < self.chance
        return np.column_stack([common, common + LAWS[self.law].ppf(rng.random(n)) * differs])

    def quantile(self, q: np.ndarray) -> np.ndarray:
        """Of G: the atom at 0 lies between the values below and those above it."""
        law, c = LAWS[self.law], self.chance
        below = c * float(law.sf(0))  # P(G < 0)
        low, high = np.minimum(q, below), np.maximum(q, below + 1 - c)
        left, right = -law.ppf(1 - low / c), -law.ppf(np.clip((1 - high) / c, 0.0, 1.0))
        return np.where(q <= below, left, np.where(q <= below + 1 - c, 0.0, right))

    def truth(self) -> dict[str, list[float]]:
        """All that is asked for, by kind."""
        law, c = LAWS[self.law], self.chance
        mean, second = -c * float(law.mean()), c * float(law.var() + law.mean() ** 2)
        below = c * float(law.sf(0))
        middles = (np.arange(200_000) + 0.5) / 200_000
        return {
            "mean": [mean],
            "variance": [second - mean**2],
            "better": [c - below],
            "tie": [1 - c],
            "worse": [below],
            "quantile": self.quantile(np.array(QUANTILES)).tolist(),
            "cvar": [float(self.quantile(alpha * middles).mean()) for alpha in TAILS],
        }


def asked(gap: jm.results.GapSample) -> dict[str, list[jm.Interval]]:
    """Every interval that a gap gives, by kind."""
    return {
        "mean": [gap.mean_interval],
        "variance": [gap.variance_interval],
        "better": [gap.superiority()],
        "tie": [gap.tie()],
        "worse": [gap.inferiority()],
        "quantile": [gap.quantile(q) for q in QUANTILES],
        "cvar": [gap.cvar(alpha) for alpha in TAILS],
    }


def simulated(case: Rare, n: int, runs: int) -> Iterator[jm.results.GapSample]:
    """Gaps as `simulate` gives them, from n pairs."""
    for seed in range(runs):
        run = replications_of(case.draw(np.random.default_rng([seed, n]), n))
        yield ReturnSample(("a", "b"), run, None, run.reach, seed).gap("a", "b")


def compared(case: Rare, n: int, runs: int) -> Iterator[jm.results.GapSample]:
    """Gaps as `compare` gives them, from a pilot of n."""
    for seed in range(runs):
        rows = case.draw(np.random.default_rng([seed, n]), MOST)

        def sample(first: int, count: int, sharing: str, rows: np.ndarray = rows) -> Replications:
            return replications_of(rows[first : first + count])

        found = Alternatives(sample, ("a", "b"), "rare gaps", "time", ("time",), None)
        yield decide(found, Rules(None, 0.05, CONFIDENCE, n, MOST)).gaps[0]


def misses(case: Rare, gaps: Iterator[jm.results.GapSample]) -> dict[str, int]:
    """How often the worst interval of each kind missed the truth."""
    truth = case.truth()
    counts = {kind: np.zeros(len(values), dtype=int) for kind, values in truth.items()}
    for gap in gaps:
        for kind, intervals in asked(gap).items():
            counts[kind] += [
                value not in found.widened(1e-9) for value, found in zip(truth[kind], intervals, strict=True)
            ]
    return {kind: int(count.max()) for kind, count in counts.items()}


WAYS = {"simulate": simulated, "compare": compared}


def main(runs: int = RUNS, ways: Sequence[str] = tuple(WAYS)) -> None:
    for title in ways:
        print(f"\nCoverage of each interval of {title} over {runs:,} runs; 95 % are promised")
        print(f"{'differing pairs':<26}{'n':>5}" + "".join(f"{kind:>10}" for kind in KINDS) + f"{'seconds':>9}")
        for law in LAWS:
            for chance in CHANCES:
                for n in SIZES:
                    began, case = time.perf_counter(), Rare(law, chance)
                    found = misses(case, WAYS[title](case, n, runs))
                    cells = "".join(f"{1 - found[kind] / runs:>10.3f}" for kind in KINDS)
                    print(f"{f'{chance:.0%}, {law}':<26}{n:>5}{cells}{time.perf_counter() - began:>9.0f}", flush=True)


if __name__ == "__main__":
    main()
