"""The settings of a run, one sentence each, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.files.atomic_write import Path
from jointmdp.incremental.recursion import RunNumbers
from jointmdp.incremental.schedules import Function, Polynomial, Schedule, as_schedule
from jointmdp.incremental.table_draws import Choice

WEIGHT = 1.0  # averages weigh the n-th iterate by n: what is left of the start falls like 1/n², at 1.15 times the noise
BURN_IN = 5.0  # effective horizons 1/(1−γ) before averaging begins, for each order: at 2, e^(−8) of the start is left
RUN = 100.0  # effective horizons of a run whose length is not given
LEAST = 1000  # steps of such a run at least
HIGHEST_ORDER = 8


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
    checkpoint: Path | None = None
    """Where the run is saved now and then, and taken up again."""
    checkpoint_seconds: float = 10.0
    """Seconds between two savings."""
    memory_limit: float = 2 * 2**30
    """Bytes that the moments may take."""

    def __post_init__(self) -> None:
        checks.as_count("order", self.order, 2, HIGHEST_ORDER)
        checks.as_count("batch", self.batch)
        checks.as_count("seed", self.seed, 0, 2**63 - 1)
        checks.as_positive("memory_limit", self.memory_limit)
        checks.as_amount("checkpoint_seconds", self.checkpoint_seconds)
        checks.as_count("replicas", self.replicas)
        if self.coordinates is not None and self.coordinates not in get_args(Choice):
            known = ", ".join(f'"{name}"' for name in get_args(Choice))
            raise ModelError(f"coordinates is {self.coordinates!r}; known are {known}")
        if self.restart is not None:
            checks.as_probability("restart", self.restart)
        if not isinstance(self.averaging, bool):
            checks.as_amount("averaging", self.averaging)
        if self.burn_in is not None:
            checks.as_count("burn_in", self.burn_in, 0, 2**31 - 1)

    def settings(self, discount: float, reward_bound: float) -> tuple[RunNumbers, Function | None]:
        """The numbers of the run, and a user's own schedule; to be called in `arrays.float64`."""
        rates, function = as_schedule(self.schedule, discount)
        weight = (WEIGHT if self.averaging else -1.0) if isinstance(self.averaging, bool) else float(self.averaging)
        burn_in = _whole(BURN_IN * self.order / (1 - discount)) if self.burn_in is None else self.burn_in
        numbers = jnp.asarray(float(reward_bound)), jnp.asarray(weight), jnp.asarray(burn_in, dtype=jnp.int64)
        return RunNumbers(rates, *numbers, jax.random.key(self.seed, impl="threefry2x32")), function

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be taken up again."""
        return {
            "order": self.order,
            "batch": self.batch,
            "schedule": _name(self.schedule),
            "averaging": float(self.averaging) if not isinstance(self.averaging, bool) else self.averaging,
            "burn_in": self.burn_in,
            "replicas": self.replicas,
            "seed": self.seed,
        }


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


def _name(schedule: Schedule | None) -> str:
    """A schedule in words; a user's function by its name, as its body cannot be compared."""
    if schedule is None or isinstance(schedule, Polynomial):
        return repr(schedule)
    return f"function {getattr(schedule, '__qualname__', type(schedule).__name__)}"
