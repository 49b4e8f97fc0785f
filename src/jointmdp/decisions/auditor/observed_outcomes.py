"""What an outcome looks like from outside, kept as values, and how two such outcomes differ."""

import math
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.simulator import Snapshot

ROUNDING = 2.0**6  # in units of the last place: two ways through the same arithmetic, compiled differently
MOST_NUMBERS = 4096  # observations with more, pictures say, are compared by their fingerprint alone


class ObservedOutcome(NamedTuple):
    """All that can be seen of an outcome, independent of what becomes of the simulator's buffers later."""

    reward: float
    is_over: bool
    observation: bytes  # fingerprint
    numbers: Floats  # of the observation, [K]
    precision: float  # unit in the last place of those numbers
    identity: Hashable
    state: Snapshot
    is_bare: bool = False
    """Whether what is observed is the whole state as an object, caches and all: then it tells no more than identity."""


class Difference(NamedTuple):
    """How two observations of what should be the same outcome differ."""

    text: str
    is_rounding: bool
    is_identity: bool
    """Whether the identity alone tells them apart."""


def difference(one: ObservedOutcome, other: ObservedOutcome, is_blind: bool = False) -> Difference | None:
    """The difference between two outcomes, None where there is none; a blind look leaves out the observation."""
    parts = []
    is_close = True
    if not (one.reward == other.reward or (math.isnan(one.reward) and math.isnan(other.reward))):
        parts.append(f"reward {one.reward:.6g} and {other.reward:.6g}")
        is_close &= _is_close(one, other, np.array([one.reward]), np.array([other.reward]))
    if one.is_over != other.is_over:
        parts.append("over and not over")
        is_close = False
    is_bare = one.is_bare and other.is_bare and np.array_equal(one.numbers, other.numbers, equal_nan=True)
    if not (is_blind or is_bare) and one.observation != other.observation:
        parts.append(f"observation {shown(one.numbers)} and {shown(other.numbers)}")
        is_close &= _is_close(one, other, one.numbers, other.numbers)
    if parts:
        return Difference("; ".join(parts), is_close, False)
    if one.identity != other.identity or (not is_blind and one.observation != other.observation):
        held, others = numbers(one.state)[0], numbers(other.state)[0]
        return Difference("states of different identity", _is_close(one, other, held, others), True)
    return None


def _is_close(one: ObservedOutcome, other: ObservedOutcome, x: Floats, y: Floats) -> bool:
    """Whether two rows of numbers are the same up to rounding; what is no number, or too much, is not close."""
    if x.shape != y.shape or not 0 < x.size <= MOST_NUMBERS or np.array_equal(x, y):
        return False
    tolerance = ROUNDING * max(one.precision, other.precision)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))


def numbers(value: Any) -> tuple[Floats, float]:
    """Every number in a nested value in a fixed order, and the coarsest unit in the last place among their types."""
    arrays = list(_arrays(value, 0))
    precisions = [float(np.finfo(array.dtype).eps) for array in arrays if array.dtype.kind == "f"]
    found = [array.astype(np.float64).reshape(-1) for array in arrays]
    return np.concatenate([np.zeros(0), *found]), max([float(np.finfo(np.float64).eps), *precisions])


def _arrays(value: Any, depth: int) -> Iterator[NDArray[Any]]:
    if isinstance(value, dict | list | tuple):
        parts = [value[key] for key in sorted(value, key=repr)] if isinstance(value, dict) else value
        for part in parts if depth <= 20 else ():
            yield from _arrays(part, depth + 1)
        return
    try:
        array = np.asarray(float(value) if isinstance(value, int) else value)
    except (TypeError, ValueError, OverflowError):
        return
    if array.dtype.kind in "fiub":
        yield array


def safe_fingerprint(value: Any) -> bytes:
    """A fingerprint, or its text where a value has none."""
    try:
        return fingerprint(value)
    except (ValueError, TypeError, RuntimeError):
        return repr(value).encode()


def shown(values: Floats) -> str:
    """A few numbers of an observation."""
    if not values.size:
        return "(no numbers)"
    return np.array2string(values[:6], precision=4, separator=" ") + ("…" if values.size > 6 else "")


def same_law_level(x: Floats, y: Floats) -> float:
    """How unlikely two equally large samples of one law are to be this far apart, an upper bound.

    Twice the exact one-sided level of Kolmogorov and Smirnov's test, ``P(n·D⁺ ≥ k) = C(2n, n+k) / C(2n, n)``. It holds
    for laws with atoms too, where it is conservative.
    """
    n = len(x)
    pooled = np.sort(np.concatenate([x, y]))
    apart = np.searchsorted(np.sort(x), pooled, side="right") - np.searchsorted(np.sort(y), pooled, side="right")
    k = int(np.abs(apart).max())
    return min(1.0, 2 * math.exp(sum(math.log((n - i) / (n + i + 1)) for i in range(k)))) if k <= n else 0.0


def without_rounding(x: Floats, y: Floats, precision: float) -> tuple[Floats, Floats]:
    """Two samples in which values that differ by rounding alone are equal; symmetric in the samples."""
    pooled = np.nan_to_num(np.concatenate([x, y]), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = np.argsort(pooled, kind="stable")
    ranked = pooled[order]
    scale = max(1.0, float(np.abs(ranked[np.isfinite(ranked)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        steps = np.diff(ranked) > ROUNDING * precision * scale
    groups = np.empty(len(ranked))
    groups[order] = np.concatenate([[0], np.cumsum(steps)])
    return groups[: len(x)], groups[len(x) :]
