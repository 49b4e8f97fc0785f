"""Timing of alternatives in turn, so that a noisy machine disturbs all of them alike."""

import time
from collections.abc import Callable

import jax
import numpy as np


def medians(repeats: int, **alternatives: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each alternative over interleaved repeats, after one call that warms it up."""
    for run in alternatives.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(repeats):
        for name, run in alternatives.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}
