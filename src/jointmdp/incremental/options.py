"""The settings of a run: what a user gives, checked once, and what the compiled loops read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import random_key
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.files.atomic_write import FilePath
from jointmdp.incremental.step_sizes import Polynomial, Schedule, ScheduleFunction, as_schedule, step_size

WEIGHT = 1.0  # averages weigh the n-th iterate by n: what is left of the start falls like 1/n², at 1.15 times the noise
BURN_IN = 5.0  # effective horizons before averaging begins, for each order: at 2, e^(−8) of the start is left
RUN = 100.0  # effective horizons of a run whose length is not given
LEAST = 1000  # steps of such a run at least
HIGHEST_ORDER = 8

Choice = Literal["sweep", "uniform", "trajectory", "pairs"]


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
class LearnOptions:
    """Settings of `learn`; each has a default that serves."""

    order: int = 2
    """Highest moment."""
    coordinates: Choice | None = None
    """Which coordinates a step updates: all of them in a ``"sweep"``, ``"uniform"`` pairs, those along a
    ``"trajectory"``, or along ``"pairs"`` of branches. Sweeps for tables, pairs for simulators by default."""
    batch: int = 32
    """Lists of coordinates in one step of one replica; a sweep is one list of all."""
    schedule: Schedule | None = None
    """Step sizes by the number of updates; by default `Polynomial.for_discount`."""
    averaging: bool | float = True
    """Average the iterates, the n-th with weight n, or n to another power; False: the last iterate."""
    burn_in: int | None = None
    """Updates of a coordinate that are left out of its average; by default 5·order/(1 − γ)."""
    replicas: int = 8
    """Independent runs, whose disagreement gives the error; 1 for no error."""
    start: ArrayLike | None = None
    """Law of the states in which walkers begin, or one state; uniform by default."""
    restart: float | None = None
    """Probability that a walker begins again in a step; 1 − γ by default."""
    reward_bound: float | None = None
    """Largest absolute reward, where a simulator does not say."""
    seed: int = 0
    checkpoint: FilePath | None = None
    """Where the run is saved now and then, and continued from."""
    checkpoint_seconds: float = 10.0
    """Seconds between two savings."""
    memory_limit: float = 2 * 2**30
    """Bytes that the moments may take."""

    def __post_init__(self) -> None:
        def keep(name: str, check: Callable[..., float], *limits: int) -> None:
            object.__setattr__(self, name, check(name, getattr(self, name), *limits))

        keep("order", checks.as_count, 2, HIGHEST_ORDER)
        keep("batch", checks.as_count)
        keep("seed", checks.as_count, 0, 2**63 - 1)
        keep("memory_limit", checks.as_positive)
        keep("checkpoint_seconds", checks.as_amount)
        keep("replicas", checks.as_count)
        if self.coordinates is not None and self.coordinates not in get_args(Choice):
            known = ", ".join(f'"{name}"' for name in get_args(Choice))
            raise ModelError(f"coordinates is {self.coordinates!r}; known are {known}")
        if self.restart is not None:
            keep("restart", checks.as_probability)
        if not isinstance(self.averaging, bool):
            keep("averaging", checks.as_amount)
        if self.burn_in is not None:
            keep("burn_in", checks.as_count, 0, 2**31 - 1)

    def settings(self, discount: float, reward_bound: float, sharing: Sharing, choice: Choice) -> RunSettings:
        """What the compiled loops read; to be called in `arrays.float64`."""
        schedule, function = as_schedule(self.schedule, discount)
        power = (WEIGHT if self.averaging else -1.0) if isinstance(self.averaging, bool) else self.averaging
        burn_in = _whole(BURN_IN * self.order / (1 - discount)) if self.burn_in is None else self.burn_in
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


def as_options(options: Any) -> LearnOptions:
    """The options given, or the defaults."""
    if options is not None and not isinstance(options, LearnOptions):
        raise ModelError(f"options must be jointmdp.LearnOptions(...), not {options!r}")
    return options or LearnOptions()


def default_steps(discount: float) -> int:
    """Steps of a run whose length is not given: ten times the burn-in of order 2."""
    return max(LEAST, _whole(RUN / (1 - discount)))


def _whole(number: float) -> int:
    """Rounded up, except for what is rounding already."""
    return math.ceil(number * (1 - 1e-12))
