"""The settings of incremental learning, and step sizes that meet the conditions of Robbins and Monro.

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
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, float64, random_key
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.learning.runs import SamplingMethod, whole
from jointmdp.learning.walks import Choice

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
            "ask for Σ α = ∞ and Σ α² < ∞); take Incremental.Polynomial(power=0.65), or leave it out"
        )
    raise ModelError(
        f"the schedule must be Incremental.Polynomial(...) or a function of the update number, not {schedule!r}"
    )


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


WEIGHT = 1.0  # averages weigh the n-th iterate by n: what is left of the start falls like 1/n², at 1.15 times the noise
BURN_IN = 5.0  # effective horizons before averaging begins, for each order: at 2, e^(−8) of the start is left
HIGHEST_ORDER = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunSettings:
    """The settings of a run as the compiled loops read them: new static ones compile, new numbers do not."""

    order: int = field(metadata={"static": True})
    sharing: Sharing = field(metadata={"static": True})
    choice: Choice = field(metadata={"static": True})
    function: ScheduleFunction | None = field(metadata={"static": True})  # a user's, in place of `schedule`
    schedule: Array  # `Polynomial.numbers`
    discount: Array
    reward_bound: Array
    weight: Array  # averages weigh the n-th iterate by n to this power; below 0: the last iterate alone
    burn_in: Array  # updates that are left out of the averages
    key: Array

    def step_size(self, n: Array) -> Array:
        """α(n) of the n-th update, in (0, 1]."""
        return step_size(self.schedule, n) if self.function is None else jnp.asarray(self.function(n), jnp.float64)

    def average_share(self, n: Array) -> Array:
        """Share of the n-th iterate in an average with weights ~ (n−b)ᵖ: (1+p)/(n−b+p) after b updates, else 1."""
        p, later = self.weight, n - self.burn_in
        return jnp.where((p < 0) | (later < 1), 1.0, (1 + p) / (jnp.maximum(later, 1) + jnp.maximum(p, 0.0)))


@dataclass(frozen=True, eq=False)
class IncrementalSettings(SamplingMethod):
    """What the user of `jointmdp.Incremental` chooses, checked."""

    Polynomial: ClassVar[type[Polynomial]] = Polynomial

    order: int = 2
    """Highest moment."""
    coordinates: Choice | None = None
    """Which coordinates a step updates: all of them in a ``"sweep"``, ``"uniform"`` pairs, those along a
    ``"trajectory"``, or along ``"pairs"`` of branches. Sweeps for tables, pairs for simulators by default."""
    joint: bool = False
    """Learn the moments of any number of returns up to the order, not of pairs alone: for small tables, in sweeps."""
    schedule: Schedule | None = None
    """Step sizes by the number of updates: ``Incremental.Polynomial(...)``, or a function; see docs/incremental.md."""
    averaging: bool | float = True
    """Average the iterates, the n-th with weight n, or n to another power; False: the last iterate."""
    burn_in: int | None = None
    """Updates of a coordinate that are left out of its average; by default 5·order/(1 − γ)."""
    start: ArrayLike | None = None
    """Law of the states in which walkers begin, or one state; uniform by default."""
    restart: float | None = None
    """Probability that a walker begins again in a step; 1 − γ by default."""
    reward_bound: float | None = None
    """Largest absolute reward, where a simulator does not say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("order", checks.as_count, 2, HIGHEST_ORDER)
        self._keep("restart", checks.as_probability)
        self._keep("burn_in", checks.as_count, 0, 2**31 - 1)
        if self.coordinates is not None and self.coordinates not in get_args(Choice):
            known = ", ".join(f'"{name}"' for name in get_args(Choice))
            raise ModelError(f"coordinates is {self.coordinates!r}; known are {known}")
        if not isinstance(self.averaging, bool):
            self._keep("averaging", checks.as_amount)

    def settings(self, discount: float, reward_bound: float, sharing: Sharing, choice: Choice) -> RunSettings:
        """What the compiled loops read; to be called in `arrays.float64`."""
        schedule, function = as_schedule(self.schedule, discount)
        power = (WEIGHT if self.averaging else -1.0) if isinstance(self.averaging, bool) else self.averaging
        burn_in = whole(BURN_IN * self.order / (1 - discount)) if self.burn_in is None else self.burn_in
        gamma, bound, weight = (jnp.asarray(float(each)) for each in (discount, reward_bound, power))
        updates, key = jnp.asarray(burn_in, dtype=jnp.int64), random_key(self.seed)
        return RunSettings(self.order, sharing, choice, function, schedule, gamma, bound, weight, updates, key)

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be continued; a user's schedule by its name, its body has no equality."""
        is_known = self.schedule is None or isinstance(self.schedule, Polynomial)
        name = getattr(self.schedule, "__qualname__", type(self.schedule).__name__)
        same = ("order", "batch", "averaging", "burn_in", "replicas", "seed")
        schedule = repr(self.schedule) if is_known else f"function {name}"
        return {"schedule": schedule, **{each: getattr(self, each) for each in same}}
