"""The figures about linear features, in one folder: one function for each, one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jointmdp.learning.projected.features import polynomial
from jointmdp_experiments import feature_counts, sampled_projections
from jointmdp_experiments.result import FigureResult, save_all

QUICK_SIZES, QUICK_DEGREES = (4, 5), (0, 1, 2)
QUICK_RATE: dict[str, Any] = {"steps": (20, 40, 80), "replicas": 4}
QUICK_CALIBRATION: dict[str, Any] = {"steps": 20, "questions": 6, "num_samples": 30}


def results(announce: Callable[[str], None] = lambda _: None, is_quick: bool = False) -> Iterator[FigureResult]:
    """The experiments one after the other; `announce` is called with what comes next."""
    announce("weightings over the number of features")
    yield feature_counts.run_weightings(QUICK_SIZES, QUICK_DEGREES) if is_quick else feature_counts.run_weightings()
    announce("constraints over the number of features")
    yield (
        feature_counts.run_constraints(QUICK_SIZES[0], QUICK_DEGREES) if is_quick else feature_counts.run_constraints()
    )
    announce("samples beside tables")
    grid = (*feature_counts.ergodic_gridworld(4), polynomial(1))
    yield sampled_projections.run_convergence(*grid, **(QUICK_RATE if is_quick else {}))
    for case in sampled_projections.CASES[: 1 if is_quick else None]:
        chosen = case()
        announce(f"gaps of {chosen.simulator.name}, predicted and simulated")
        yield sampled_projections.run_calibration(chosen, **(QUICK_CALIBRATION if is_quick else {}))


def reproduce(
    folder: Path, announce: Callable[[str], None] = lambda _: None, is_quick: bool = False
) -> list[FigureResult]:
    """Write every figure, its numbers and its text into `folder`, with one page that holds them all."""
    return save_all(folder, "Linear features: projected JIPE-2", results(announce, is_quick))
