"""How often every interval of a sampled gap holds, over laws with ordinary and heavy tails, ties and rare events.

    python -m benchmarks coverage [--runs N] [--processes N] [--only intervals|decisions]

Each law is known by its quantile function, so every truth is a sum over a fine grid. Beside the coverage stands that of
the same law without what the caveat excludes: its values beyond the quantiles of the rate that a sample of this size
can hide are moved there. Widths are held against those of ``tails="light"``.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.special

import jointmdp as jm
from benchmarks.coverage import CASES, RARE_CASES, Tally, tally
from jointmdp.simulation.montecarlo.confidence_intervals import Tails, unseen_rate

SIZES = (200, 1_000, 10_000)
RUNS = 1_000
CHUNK = 50  # runs that one process makes at a time
TAILS, QUANTILES = (0.01, 0.05, 0.25, 0.5), (0.05, 0.5)
KINDS = ("mean", "variance", *(f"CVaR {a:g}" for a in TAILS), *(f"q {q:g}" for q in QUANTILES), "P(G>0)")
LEAST = 0.93
DECIDED = [*CASES, *RARE_CASES]
K, R = TypeVar("K"), TypeVar("R")
Quantiles = Callable[[np.ndarray], np.ndarray]


def _normal(u: np.ndarray) -> np.ndarray:
    return scipy.special.ndtri(u)


RARE = {
    "noise, 0.2 % of 50": (0.002, 50.0),
    "noise, 0.05 % of 100": (0.0005, 100.0),
    "noise, 0.4 % of −60": (0.004, -60.0),
    "noise, 0.1 % of −100": (0.001, -100.0),
}


def _rare(chance: float, size: float) -> Quantiles:
    """Normal noise, and `size` more with a chance: the distribution function is inverted by bisection."""

    def quantiles(u: np.ndarray) -> np.ndarray:
        low, high = np.full(u.shape, min(size, 0.0) - 40), np.full(u.shape, max(size, 0.0) + 40)
        for _ in range(70):
            middle = (low + high) / 2
            below = (1 - chance) * scipy.special.ndtr(middle) + chance * scipy.special.ndtr(middle - size) < u
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high

    return quantiles


def _mostly_zero(chance: float) -> Quantiles:
    """0, and with a chance minus an exponential variable."""
    return lambda u: np.where(u < chance, np.log(np.minimum(u / chance, 1.0)), 0.0)


LAWS: dict[str, Quantiles] = {
    "normal": _normal,
    "exponential": lambda u: -np.log1p(-u),
    "minus exponential": np.log,
    "lognormal": lambda u: np.exp(_normal(u)),
    "minus lognormal": lambda u: -np.exp(-_normal(u)),
    "Student's t, 3 degrees": lambda u: scipy.special.stdtrit(3, u),
    "two values, 30 %": lambda u: -1.0 * (u < 0.3),
    "80 % zeros": _mostly_zero(0.2),
    "95 % zeros": _mostly_zero(0.05),
    **{name: _rare(*event) for name, event in RARE.items()},
}


def draw(law: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """Samples, without inverting what takes a bisection."""
    if law in RARE:
        chance, size = RARE[law]
        return rng.normal(size=n) + size * (rng.random(n) < chance)
    return LAWS[law](np.clip(rng.random(n), 1e-17, 1 - 1e-16))


class Cell(NamedTuple):
    """One law at one size, whole or without what is rarer than the caveat's rate."""

    law: str
    n: int
    is_cut: bool


@cache
def _ends(law: str, n: int) -> tuple[float, float]:
    low, high = LAWS[law](np.array([unseen_rate(n), 1 - unseen_rate(n)]))
    return float(low), float(high)


@cache
def truths(law: str, cut: tuple[float, float]) -> list[float]:
    """Everything that is asked for, with the values moved into `cut`."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    # Pieces that shrink towards 0 and 1, where tails are, and break where the laws and the questions do.
    edges = {*(10.0**-k for k in range(1, 15)), *(1 - 10.0**-k for k in range(1, 14)), *TAILS}
    edges |= {0.3, 0.2, 0.002, 0.0005, 0.004, 0.001, 0.998, 0.9995, 0.75, 0.9, 1e-300, *np.linspace(0.001, 0.999, 200)}
    ordered = np.array(sorted(edges))
    half = np.diff(ordered) / 2
    u = ((ordered[:-1] + half)[:, None] + half[:, None] * nodes).ravel()
    w, x = (half[:, None] * weights).ravel(), np.clip(LAWS[law](u), *cut)
    w = w / w.sum()
    mean = float(w @ x)
    tails = [float((w * (u < a)) @ x) / a for a in TAILS]
    quantiles = [float(np.clip(LAWS[law](np.array([q])), *cut)[0]) for q in QUANTILES]
    return [mean, float(w @ (x - mean) ** 2), *tails, *quantiles, float(w @ (x > 0))]


def asked(gap: jm.results.GapSample) -> list[jm.Interval]:
    """The intervals, in the order of the truths."""
    tails = [gap.cvar(a) for a in TAILS]
    return [gap.mean_interval, gap.variance_interval, *tails, *map(gap.quantile, QUANTILES), gap.superiority()]


def measured(task: tuple[Cell, range]) -> tuple[np.ndarray, list[list[float]]]:
    """How often each kind held in these runs, and in the first hundred its width over that with light tails."""
    cell, runs = task
    cut = _ends(cell.law, cell.n) if cell.is_cut else (-np.inf, np.inf)
    truth, held, widths = np.array(truths(cell.law, cut)), np.zeros(len(KINDS)), []
    for run in runs:
        rng = np.random.default_rng([list(LAWS).index(cell.law), cell.n, cell.is_cut, run])
        gaps = np.clip(draw(cell.law, rng, cell.n), *cut)
        reach = 3 * float(np.ptp(gaps))  # returns vary more than gaps
        gap = jm.results.GapSample("a", "b", gaps, np.zeros(cell.n), 0.0, 1, reach, run)
        found = asked(gap)
        held += [t in each.widened(1e-6 * (1 + abs(t))) for t, each in zip(truth, found, strict=True)]
        if run < 100 and not cell.is_cut:
            light = asked(dataclasses.replace(gap, tails="light"))
            widths.append([a.width / b.width if b.width > 0 else 1.0 for a, b in zip(found, light, strict=True)])
    return held, widths


def option(name: str, default: int) -> int:
    """``--name N`` of the command line."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def decided(task: tuple[tuple[int, Tails], range]) -> Tally:
    """Decisions of one case of `coverage`."""
    (number, tails), seeds = task
    return tally(DECIDED[number], seeds, tails=tails)


def gathered(call: Callable[[tuple[K, range]], R], keys: list[K], runs: int, pool: Executor) -> dict[K, list[R]]:
    """What came out of all runs of each key, in portions that keep every process busy."""
    parts = [range(begin, min(begin + CHUNK, runs)) for begin in range(0, runs, CHUNK)]
    tasks = [(key, part) for key in keys for part in parts]
    found: dict[K, list[R]] = {key: [] for key in keys}
    for (key, _), made in zip(tasks, pool.map(call, tasks), strict=True):
        found[key].append(made)
    return found


def show_intervals(runs: int, pool: Executor) -> None:
    """The table of every kind of interval of one sample."""
    # The longest first.
    cells = [Cell(law, n, cut) for n, law, cut in itertools.product(sorted(SIZES, reverse=True), LAWS, (False, True))]
    made = gathered(measured, cells, runs, pool)
    found = {cell: np.sum([held for held, _ in parts], axis=0) / runs for cell, parts in made.items()}
    print(f"\nCoverage of every interval of a sampled gap over {runs:,} runs; 95 % each are promised, with the caveat.")
    print(f"In brackets, where it is below {LEAST:.0%}: of the same law without events rarer than the caveat says.")
    for n in SIZES:
        print(f"\nn = {n:,}: holds unless events rarer than 1 in {int(1 / unseen_rate(n)):,} matter")
        print(f"| {'law':<24} | " + " | ".join(f"{kind:<13}" for kind in KINDS) + " |")
        print("|---" * (len(KINDS) + 1) + "|")
        for law in LAWS:
            whole, cut = (found[Cell(law, n, is_cut)] for is_cut in (False, True))
            shown = [f"{a:.3f}" if a >= LEAST else f"{a:.3f} ({b:.3f})" for a, b in zip(whole, cut, strict=True)]
            print(f"| {law:<24} | " + " | ".join(f"{text:<13}" for text in shown) + " |")
        for law in ("normal", "exponential", "lognormal"):
            row = np.median([widths for _, part in made[Cell(law, n, False)] for widths in part], axis=0)
            print(
                f"width, {law}, over light tails: " + ", ".join(f"{k} {x:.2f}" for k, x in zip(KINDS, row, strict=True))
            )
    low = [
        f"{cell.law}, n = {cell.n:,}, {kind}: {share:.3f}"
        for cell, shares in found.items()
        for kind, share in zip(KINDS, shares, strict=True)
        if share < LEAST and (cell.is_cut or kind.startswith(("q", "P")))
    ]
    print(f"\nBelow {LEAST:.0%} where the caveat does not apply: " + ("; ".join(low) or "none"))


def show_decisions(runs: int, pool: Executor) -> None:
    """The table of `compare`."""
    keys: list[tuple[int, Tails]] = [(i, tails) for i in range(len(DECIDED)) for tails in ("any", "light")]
    found = gathered(decided, keys, runs, pool)
    print(f"\nDecisions by compare, {runs:,} of each kind: how often all gaps, and all other intervals, hold together")
    print("| case | gaps | others | right | replications | with light tails: gaps | others | right | replications |")
    print("|---" * 9 + "|")
    for i, case in enumerate(DECIDED):
        shown = []
        for tails in ("any", "light"):
            parts = found[i, tails]
            gaps, others, all_decided, correct = (
                sum(getattr(part, name) for part in parts) for name in ("gaps", "others", "decided", "correct")
            )
            size = sum(part.replications * part.decisions for part in parts) / runs
            shown.append(f"{gaps / runs:.3f} | {others / runs:.3f} | {correct / max(all_decided, 1):.3f} | {size:,.0f}")
        print(f"| {case.name} | " + " | ".join(shown) + " |")


def main() -> None:
    runs, processes = option("--runs", RUNS), option("--processes", 1)
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    began = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        for name, show in {"decisions": show_decisions, "intervals": show_intervals}.items():
            if only in ("", name):
                show(runs, pool)
    print(f"{time.perf_counter() - began:.0f} s on {processes} process{'es' * (processes > 1)}")


if __name__ == "__main__":
    main()
