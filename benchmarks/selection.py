"""Deciding among twenty: how many replications elimination takes beside equal sizes, KN and Rinott, and who is right.

    python -m benchmarks selection [--small] [--runs N] [--processes N]

Every procedure is given the same question: with probability 95 %, an alternative within the indifference of the best.
`compare` promises more: that the intervals of all pairs hold together. All draw from the same laws: normal returns with
a common part of correlation 0.75 (common random numbers), which all but Rinott's procedure may use.

- KN: Kim and Nelson, A fully sequential procedure for indifference-zone selection in simulation, 2001, with c = 1:
  after a first stage of n₀, η = ((2α/(k−1))^(−2/(n₀−1)) − 1)/2 and h² = 2η(n₀−1); i stays at size r while
  X̄_i ≥ X̄_l − max(0, δ/(2r)·(h²S²_il/δ² − r)) for all l that stay, with S²_il the first stage's variance of the gap.
- Rinott, On two-stage selection procedures and related probability-inequalities, 1978: sizes max(n₀, ⌈h²S²_i/δ²⌉) from
  independent first stages, with h from its integral.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import scipy

from benchmarks.coverage import replications_of
from benchmarks.interval_coverage import option
from jointmdp.decisions.comparing.compare import Rules, decide
from jointmdp.simulation.montecarlo.alternatives import Alternatives
from jointmdp.simulation.montecarlo.confidence_intervals import proportion
from jointmdp.simulation.montecarlo.samples import Replications

RUNS = 1000
CHUNK = 25  # runs that one process makes at a time
ERROR = 0.05
ROOM = 0.05  # the indifference, in standard deviations of one return
COMMON = 0.75  # correlation of two returns under common random numbers
FIRST = 50  # replications of the first stage of KN and Rinott
K = 20
STEPS = np.arange(K, dtype=np.float64)
CASES = {
    "slippage: one is better by the indifference": np.append(ROOM, np.zeros(K - 1)),
    "spread out: each worse by the indifference": -ROOM * STEPS,
    "two close, eighteen hopeless": np.append([0.0, -ROOM / 2], np.full(K - 2, -0.5)),
    "all equal": np.zeros(K),
}


class Made(NamedTuple):
    """Runs of one procedure."""

    selected: np.ndarray  # [R]
    replications: np.ndarray  # [R] of all alternatives together


def draws(rng: np.random.Generator, means: np.ndarray, shape: tuple[int, ...], common: float = COMMON) -> np.ndarray:
    """Returns ``[…, K]`` of variance 1."""
    shared = np.sqrt(common) * rng.normal(size=(*shape, 1))
    return means + shared + np.sqrt(1 - common) * rng.normal(size=(*shape, len(means)))


def ours(means: np.ndarray, seeds: range, eliminate: bool = True) -> Made:
    """`compare` with its defaults and the indifference given."""
    rules = Rules(indifference=ROOM, confidence=1 - ERROR, eliminate=eliminate)
    labels = tuple(map(str, range(len(means))))

    def sample(seed: int, first: int, count: int, sharing: str) -> Replications:
        return replications_of(draws(np.random.default_rng([seed, first]), means, (count,)))

    rows = []
    for seed in seeds:
        found = decide(Alternatives(partial(sample, seed), labels, "options", "time", ("time",), None), rules)
        rows.append((found.best_index, sum(each.num_replications for each in found.alternatives)))
    return Made(*np.array(rows).T)


def kn(means: np.ndarray, seeds: range, first: int = FIRST) -> Made:
    """Kim and Nelson's procedure, all runs side by side."""
    rng, runs, k = np.random.default_rng([1, seeds.start]), len(seeds), len(means)
    eta = ((2 * ERROR / (k - 1)) ** (-2 / (first - 1)) - 1) / 2
    pilot = draws(rng, means, (runs, first))
    spread = np.var(pilot[:, :, :, None] - pilot[:, :, None, :], axis=1, ddof=1)  # [R, k, k]
    reach = 2 * eta * (first - 1) * spread / ROOM**2
    last = np.floor(reach).max(axis=(1, 2))  # where W is zero for every pair
    total, stays, r = pilot.sum(axis=1), np.ones((runs, k), dtype=bool), first
    selected, made = np.full(runs, -1), np.full(runs, first * k)
    active = np.arange(runs)
    while len(active):
        mean, stay = total[active] / r, stays[active]
        slack = np.maximum(0.0, ROOM / (2 * r) * (reach[active] - r))
        beaten = (mean[:, :, None] < mean[:, None, :] - slack) & stay[:, None, :]
        stays[active] = stay = stay & ~beaten.any(axis=2)
        is_done = (stay.sum(axis=1) == 1) | (r > last[active])
        ended = active[is_done]
        selected[ended] = np.where(stays[ended], total[ended], -np.inf).argmax(axis=1)
        active, stay = active[~is_done], stay[~is_done]
        made[active] += stay.sum(axis=1)
        total[active] += np.where(stay, draws(rng, means, (len(active),)), 0.0)
        r += 1
    return Made(selected, made)


def rinott_constant(k: int, first: int, error: float) -> float:
    """h of ∫ (∫ Φ(h / √((n₀−1)(1/x + 1/y))) f(x) dx)^(k−1) f(y) dy = 1 − α, with f of χ² with n₀ − 1 degrees."""
    nu = first - 1
    nodes, weights = np.polynomial.legendre.leggauss(200)
    lower, upper = (2 * float(scipy.special.gammaincinv(nu / 2, q)) for q in (1e-12, 1 - 1e-12))
    x = lower + (upper - lower) * (nodes + 1) / 2
    log = (nu / 2 - 1) * np.log(x) - x / 2 - nu / 2 * np.log(2) - scipy.special.gammaln(nu / 2)
    mass = weights * (upper - lower) / 2 * np.exp(log)

    def missing(h: float) -> float:
        inner = scipy.special.ndtr(h / np.sqrt(nu * (1 / x[:, None] + 1 / x[None, :]))) @ mass
        return float(mass @ inner ** (k - 1)) - (1 - error)

    return float(scipy.optimize.brentq(missing, 0.0, 50.0))


def rinott(means: np.ndarray, seeds: range, first: int = FIRST) -> Made:
    """Rinott's two stages; the mean of the second stage is drawn as a whole."""
    rng, runs, k = np.random.default_rng([2, seeds.start]), len(seeds), len(means)
    pilot = draws(rng, means, (runs, first), common=0.0)
    h = rinott_constant(k, first, ERROR)
    sizes = np.maximum(first, np.ceil((h / ROOM) ** 2 * pilot.var(axis=1, ddof=1)))
    more = sizes - first
    total = pilot.sum(axis=1) + more * means + np.sqrt(more) * rng.normal(size=sizes.shape)
    return Made((total / sizes).argmax(axis=1), sizes.sum(axis=1))


PROCEDURES: dict[str, Callable[[np.ndarray, range], Made]] = {
    "compare": ours,
    "compare, all get the same": partial(ours, eliminate=False),
    f"KN, n₀ = {FIRST}": kn,
    "KN, n₀ = 200": partial(kn, first=200),
    f"Rinott, n₀ = {FIRST}": rinott,
}


def run(task: tuple[str, str, range]) -> tuple[str, str, Made]:
    """Some runs of one procedure in one case."""
    case, procedure, seeds = task
    return case, procedure, PROCEDURES[procedure](CASES[case], seeds)


def main() -> None:
    runs = 50 if "--small" in sys.argv else option("--runs", RUNS)
    processes = option("--processes", 1)
    parts = [range(begin, min(begin + CHUNK, runs)) for begin in range(0, runs, CHUNK)]
    tasks = [(case, procedure, part) for case in CASES for procedure in PROCEDURES for part in parts]
    began = time.perf_counter()
    made: dict[tuple[str, str], list[Made]] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for case, procedure, found in pool.map(run, tasks) if processes > 1 else map(run, tasks):
            made.setdefault((case, procedure), []).append(found)
    print(f"\n{K} alternatives, indifference {ROOM:g} σ, correlation {COMMON:g}, {runs:,} runs of each")
    for case, means in CASES.items():
        print(f"\n{case}\n{'':<28}{'replications':>14}{'of compare':>12}  right selections")
        base = np.mean(np.concatenate([part.replications for part in made[case, "compare"]]))
        for procedure in PROCEDURES:
            selected, total = (np.concatenate(column) for column in zip(*made[case, procedure], strict=True))
            right = int(np.count_nonzero(means[selected] >= means.max() - ROOM - 1e-12))
            if case.startswith("slippage"):  # what is within the indifference is not meant here
                right = int(np.count_nonzero(selected == 0))
            ends = proportion(np.array([right, right]), runs, 0.05)
            print(
                f"{procedure:<28}{total.mean():>14,.0f}{total.mean() / base:>12.2f}  {right:,} of {runs:,}, P in "
                f"[{ends.lower:.3f}, {ends.upper:.3f}]"
            )
    print(f"\n{time.perf_counter() - began:.0f} s on {processes} process{'es' * (processes > 1)}")


if __name__ == "__main__":
    main()
