"""Step sizes α(n) for the n-th update of a coordinate, and the conditions of Robbins and Monro that they must meet.

    Σ α(n) = ∞     every start is forgotten, however far off
    Σ α(n)² < ∞    the noise of the samples is averaged away

``α(n) = scale · (offset + n)^(−power)`` meets both for ½ < power ≤ 1. The power is not the whole story: with
``α(n) = 1/n`` a start is forgotten like ``n^(−(1−γ))`` only, for ever at γ near 1. So our default begins near 1, stays
there for about ``offset = 10/(1−γ)`` updates, ten times what a discounted future is long, and then falls with power
0.65; averaging of the iterates after that time takes care of the noise that so large steps let through. The exponents
that follow:

    averaged iterates       root mean square error ~ n^(−1/2), whatever the power
    last iterate            ~ n^(−power/2)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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

Function = Callable[[Array], Array]


class Rates(NamedTuple):
    """The numbers of a schedule, as arrays: another discount compiles nothing."""

    scale: Array
    power: Array
    offset: Array


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
    def rates(self) -> Rates:
        """As the compiled loop reads it."""
        scale = max(self.offset, 1.0) ** self.power if self.scale is None else self.scale
        return Rates(jnp.asarray(float(scale)), jnp.asarray(float(self.power)), jnp.asarray(float(self.offset)))

    def __call__(self, n: Any) -> Floats:
        """α at the given numbers of updates."""
        with float64():
            return np.asarray(rate(self.rates, None, jnp.asarray(n)))


Schedule = Polynomial | Function


def rate(rates: Rates, function: Function | None, n: Array) -> Array:
    """α(n), in (0, 1]."""
    if function is not None:
        return jnp.asarray(function(n), dtype=jnp.float64)
    # A power as exponential and logarithm: XLA vectorises these on a CPU, and its power it does not.
    return jnp.minimum(1.0, rates.scale * jnp.exp(-rates.power * jnp.log(rates.offset + n)))


def as_schedule(schedule: Any, discount: float) -> tuple[Rates, Function | None]:
    """A schedule in any of its forms, checked: None, a `Polynomial`, or a function of arrays of update numbers."""
    if schedule is None:
        return Polynomial.for_discount(discount).rates, None
    if isinstance(schedule, Polynomial):
        return schedule.rates, None
    if callable(schedule):
        _check_function(schedule)
        return Polynomial().rates, schedule
    if isinstance(schedule, int | float | np.number):
        raise ModelError(
            f"the schedule is the constant {schedule!r}: Σ α² = ∞, so the noise never averages away (Robbins and Monro "
            "ask for Σ α = ∞ and Σ α² < ∞); take Polynomial(power=0.65), or leave it out"
        )
    raise ModelError(f"the schedule must be Polynomial(...) or a function of the update number, not {schedule!r}")


def _check_power(power: float, words: str) -> None:
    if not power > 0.5:
        raise ModelError(f"{words}: Σ α² = ∞, so the noise never averages away; Robbins and Monro need a power above ½")
    if power > 1:
        raise ModelError(f"{words}: Σ α < ∞, so a wrong start is never forgotten; Robbins and Monro need at most 1")


def _check_function(function: Function) -> None:
    """Look at a function where it matters: far out. What it does in between is the user's word."""
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
    far = values[-len(TAIL) - 1 :]
    powers = -np.diff(np.log2(far))
    low, high = float(powers.min()), float(powers.max())
    if low <= 0.5 + EDGE:
        _check_power(min(low, 0.5), f"the schedule falls like n^(−{low:.3f}) far out (n about 10^{_decades()})")
    if high > 1 + EDGE:
        _check_power(high, f"the schedule falls like n^(−{high:.3f}) far out (n about 10^{_decades()})")


def _decades() -> int:
    return int(TAIL[0] * math.log10(2))
