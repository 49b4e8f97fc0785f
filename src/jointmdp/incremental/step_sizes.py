"""Step sizes, and the check that they meet the conditions of Robbins and Monro.

A step size α(n) belongs to the n-th update of a coordinate. The conditions:

    Σ α(n) = ∞     every start is forgotten, however far away
    Σ α(n)² < ∞    the noise of the samples is averaged away

``α(n) = scale · (offset + n)^(−power)`` meets both for ½ < power ≤ 1. That is not enough in practice: with
``α(n) = 1/n`` a start is forgotten like ``n^(−(1−γ))`` only, which takes far too long at γ near 1. So the default stays
near 1 for about ``offset = 10/(1−γ)`` updates, ten effective horizons, and then falls with power 0.65; averaging of the
iterates after that time removes the noise that such large steps let through. The root mean square error of averaged
iterates falls like n^(−1/2), whatever the power, and that of the last iterate like n^(−power/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp import checks
from jointmdp.arrays import Floats, float64
from jointmdp.errors import ModelError

POWER = 0.65  # nearer to ½ forgets faster and is noisier before averaging
FUTURES = 10.0  # effective horizons 1/(1−γ) before the steps begin to fall
EDGE = 1e-3  # a function's measured power may miss the edges ½ and 1 by rounding, not by more
TAIL = np.arange(24, 44)  # powers of two at which a function's tail is looked at

ScheduleFunction = Callable[[Array], Array]


@dataclass(frozen=True)
class Polynomial:
    """``α(n) = scale · (offset + n)^(−power)``, n = 1, 2, …, at most 1."""

    power: float = POWER
    """In (½, 1]."""
    offset: float = 0.0
    """Updates before the steps begin to fall."""
    scale: float | None = None
    """By default ``max(offset, 1)^power``: the first steps are near 1."""

    def __post_init__(self) -> None:
        power = checks.as_number("power", self.power)
        checks.as_amount("offset", self.offset)
        if self.scale is not None:
            checks.as_positive("scale", self.scale)
        _check_power(power, f"α(n) ~ n^(−{power:g})")

    @classmethod
    def for_discount(cls, discount: float) -> Polynomial:
        """The default: steps near 1 for about ten effective horizons, then falling with power 0.65."""
        return cls(POWER, FUTURES / (1 - discount))

    @property
    def numbers(self) -> Array:
        """Scale, power and offset as compiled loops read them: another schedule compiles nothing."""
        scale = max(self.offset, 1.0) ** self.power if self.scale is None else self.scale
        return jnp.asarray([float(scale), float(self.power), float(self.offset)])

    def __call__(self, n: Any) -> Floats:
        """α at the given numbers of updates."""
        with float64():
            return np.asarray(step_size(self.numbers, jnp.asarray(n)))


Schedule = Polynomial | ScheduleFunction


def step_size(numbers: Array, n: Array) -> Array:
    """α(n) of the numbers of a polynomial schedule, in (0, 1]."""
    scale, power, offset = numbers
    # A power as exponential and logarithm: XLA vectorises these on a CPU, but not its power.
    return jnp.minimum(1.0, scale * jnp.exp(-power * jnp.log(offset + n)))


def as_schedule(schedule: Any, discount: float) -> tuple[Array, ScheduleFunction | None]:
    """A schedule, checked, as the numbers of a polynomial and a function of update numbers that replaces them."""
    if schedule is None or isinstance(schedule, Polynomial):
        return (schedule or Polynomial.for_discount(discount)).numbers, None
    if callable(schedule):
        _check_function(schedule)
        return Polynomial().numbers, schedule
    if isinstance(schedule, int | float | np.number):
        raise ModelError(
            f"the schedule is the constant {schedule!r}: Σ α² = ∞, so the noise never averages away (Robbins and Monro "
            "ask for Σ α = ∞ and Σ α² < ∞); take Polynomial(power=0.65), or leave it out"
        )
    raise ModelError(f"the schedule must be Polynomial(...) or a function of the update number, not {schedule!r}")


def _check_power(power: float, words: str, edge: float = 0.0) -> None:
    if not power > 0.5 + edge:
        raise ModelError(f"{words}: Σ α² = ∞, so the noise never averages away; Robbins and Monro need a power above ½")
    if power > 1 + edge:
        raise ModelError(f"{words}: Σ α < ∞, so a wrong start is never forgotten; Robbins and Monro need at most 1")


def _check_function(function: ScheduleFunction) -> None:
    """Look at a function where it matters: far out. What it does in between cannot be checked."""
    n = np.concatenate([np.arange(1, 1025), 2 ** np.arange(11, TAIL[-1] + 2)])
    try:
        with float64():
            values = np.asarray(jax.jit(function)(jnp.asarray(n)), dtype=np.float64)
    except Exception as error:
        raise ModelError(
            f"the schedule must take an array of update numbers and give as many step sizes ({error}); write it with "
            "jax.numpy, as in lambda n: 1 / n**0.7"
        ) from None
    if values.shape != n.shape:
        raise ModelError(
            f"the schedule gave shape {values.shape} for {n.shape} update numbers: a constant? Σ α² = ∞ then, and the "
            "noise never averages away"
        )
    bad = np.flatnonzero(~((values > 0) & (values <= 1)))
    if len(bad):
        raise ModelError(f"the schedule gives α({n[bad[0]]}) = {values[bad[0]]:g}; step sizes lie in (0, 1]")
    powers, decades = -np.diff(np.log2(values[-len(TAIL) - 1 :])), int(TAIL[0] * math.log10(2))
    for power in (float(powers.min()), float(powers.max())):
        _check_power(power, f"the schedule falls like n^(−{power:.3f}) far out (n about 10^{decades})", EDGE)
