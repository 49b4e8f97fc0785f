"""Checks of what the user hands in: each raises a `ModelError` that names the place and guesses the cause."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError

Sharing = Literal["state", "time", "none"]

# Sums this far from 1 come from float32 tables or printed decimals and are rescaled; farther ones are mistakes.
SUM_TOLERANCE = 1e-6


def as_floats(name: str, values: ArrayLike, shape_words: str, ndim: int) -> Floats:
    """`values` as a new float64 array with `ndim` axes."""
    try:
        raw = np.asarray(values)
        if raw.dtype == object or raw.dtype.kind in "USMm":
            raise TypeError(f"it holds {raw.dtype} entries")
        if np.iscomplexobj(raw):
            raise TypeError("it holds complex numbers")
        array = np.array(raw, dtype=np.float64, order="C")  # one layout, so that sums round alike wherever it came from
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} must be a numeric array of shape {shape_words}: {error}") from None
    if array.ndim != ndim:
        raise ModelError(f"{name} must have shape {shape_words}, but it has {array.ndim} axes, shape {array.shape}")
    return array


def check_shape(name: str, array: NDArray[Any], expected: tuple[int, ...], shape_words: str) -> None:
    """Raise unless `array` has the expected shape."""
    if array.shape != expected:
        hint = ""
        if sorted(array.shape) == sorted(expected):
            hint = "; are the axes in another order?"
        raise ModelError(f"{name} has shape {array.shape}, expected {shape_words} = {expected}{hint}")


def place(index: Sequence[Any], *words: str) -> str:
    """``place((7, 2), "state", "scenario")`` is ``"state 7, scenario 2"``."""
    return ", ".join(f"{word} {int(i)}" for word, i in zip(words, index, strict=True))


def check_finite(name: str, array: Floats, *words: str) -> None:
    """Raise at the first NaN or infinity, naming its place."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        value = array[tuple(bad[0])]
        raise ModelError(f"{name} of {place(bad[0], *words)} is {value}; every entry must be a finite number")


def normalised(name: str, rows: Floats, row_word: str, column_word: str) -> Floats:
    """Rows of probabilities, checked; rescaled when they sum to 1 only up to single precision."""
    check_finite(name, rows, row_word, column_word)
    negative = np.argwhere(rows < 0)
    if len(negative):
        i, j = negative[0]
        raise ModelError(f"{name} of {place((i, j), row_word, column_word)} is negative: {rows[i, j]:g}")
    large = np.argwhere(rows > 1 + SUM_TOLERANCE)
    if len(large):
        i, j = large[0]
        raise ModelError(f"{name} of {place((i, j), row_word, column_word)} is {rows[i, j]:g}, above 1")
    sums = rows.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(off):
        i = off[0]
        cause = "did you forget to normalise?"
        if sums[i] == 0:
            cause = "the row is all zero; was it ever filled in?"
        raise ModelError(f"{name} of {row_word} {i} sum to {sums[i]:.6g}, not 1; {cause}")
    # Rows that are off by no more than their own summation error stay bit for bit what the user gave. Certificates
    # count on this bound, entry by nonzero entry.
    loose = np.abs(sums - 1) > np.count_nonzero(rows, axis=1) * np.finfo(np.float64).eps
    return np.where(loose[:, None], rows / sums[:, None], rows)


def as_successors(values: ArrayLike, num_states: int) -> Ints:
    """Successor states as whole numbers, not yet checked against their range."""
    floats = as_floats("successors", values, "[S, W, A]", 3)
    words = ("state", "scenario", "action")
    bad = np.argwhere(~(np.isfinite(floats) & (floats == np.floor(floats))))
    if len(bad):
        where = place(bad[0], *words)
        raise ModelError(
            f"successor of {where} is {floats[tuple(bad[0])]}, not a whole number; successors are state "
            "indices, one for each scenario and action (not transition probabilities)"
        )
    outside = np.argwhere((floats < 0) | (floats >= num_states))
    if len(outside):
        value = int(floats[tuple(outside[0])])
        hint = "; states count from 0" if value == num_states else ""
        raise ModelError(f"successor of {place(outside[0], *words)} is {value}, outside 0..{num_states - 1}{hint}")
    return floats.astype(np.int64)


def as_discount(value: Any) -> float:
    """A discount in (0, 1]; 1 is for evaluation over a horizon only, which `evaluate` enforces."""
    discount = as_number("discount", value)
    if not 0 < discount <= 1:
        raise ModelError(f"discount is {discount:g}, outside (0, 1); 1 is allowed for finite horizons only")
    return discount


def as_sharing(value: Any) -> Sharing:
    """One of the three regimes: who shares the luck."""
    if not isinstance(value, str) or value not in get_args(Sharing):
        raise ModelError(
            f'sharing is {value!r}; it must be "state" (branches in the same state share their scenario), '
            '"time" (all branches share it at all times) or "none" (branches never share)'
        )
    return cast(Sharing, value)


def as_available(values: ArrayLike | None, num_states: int, num_actions: int) -> Bools:
    """Which actions exist in which state."""
    if values is None:
        return np.ones((num_states, num_actions), dtype=bool)
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ModelError(f"available must be an [S, A] array of booleans: {error}") from None
    if raw.dtype.kind not in "bui" or not np.isin(raw, (0, 1)).all():
        raise ModelError("available must hold booleans, one for each state and action")
    check_shape("available", raw, (num_states, num_actions), "[S, A]")
    empty = np.flatnonzero(~raw.any(axis=1))
    if len(empty):
        raise ModelError(f"state {empty[0]} has no available action")
    return raw.astype(bool)


def as_names(kind: str, names: Sequence[Any] | None, count: int) -> tuple[str, ...] | None:
    """Names of states or actions: one each, all different."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ModelError(f"{kind}_names must be a sequence of {count} names, not {names!r}")
    result = tuple(str(name) for name in names)
    if len(result) != count:
        raise ModelError(f"{len(result)} {kind} names for {count} {kind}s")
    if len(set(result)) != count:
        twice = next(name for name in result if result.count(name) > 1)
        raise ModelError(f"{kind} name {twice!r} is used twice")
    return result


def as_index(kind: str, value: Any, names: tuple[str, ...] | None, count: int) -> int:
    """A state or action given by index or by name."""
    if isinstance(value, str):
        if names is not None and value in names:
            return names.index(value)
        known = f"the {kind}s have no names; give an index"
        if names:
            close = difflib.get_close_matches(value, names, n=3, cutoff=0.5)
            known = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {_some(names)}"
        raise ModelError(f"unknown {kind} {value!r}; {known}")
    try:
        index = int(value)
        if isinstance(value, bool | np.bool_) or index != value:
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"{kind} must be an index or a name, not {value!r}") from None
    if not 0 <= index < count:
        raise ModelError(f"unknown {kind} {index}; there are {count} {kind}s, 0..{count - 1}")
    return index


def _some(names: tuple[str, ...]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def as_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least `least` and at most `most`."""
    try:
        count = int(value)
        if isinstance(value, bool) or count != value:
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"{name} must be a whole number, not {value!r}") from None
    if count < least:
        raise ModelError(f"{name} is {count}; it must be at least {least}")
    if most is not None and count > most:
        raise ModelError(f"{name} is {count}; it must be at most {most}")
    return count


def as_number(name: str, value: Any) -> float:
    """A number; NaN and infinities are left to the caller."""
    try:
        if isinstance(value, str | bool | np.bool_):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{name} must be a number, not {value!r}") from None


def as_fraction(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = as_number(name, value)
    if not 0 < number < 1:
        raise ModelError(f"{name} is {number:g}; it must lie strictly between 0 and 1")
    return number


def as_positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    number = as_number(name, value)
    if not 0 < number < float("inf"):
        raise ModelError(f"{name} is {number:g}; it must be positive and finite")
    return number


def as_amount(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    number = as_number(name, value)
    if not 0 <= number < float("inf"):
        raise ModelError(f"{name} is {number:g}; it must be finite and not negative")
    return number


def as_probability(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    number = as_amount(name, value)
    if number > 1:
        raise ModelError(f"{name} is {number:g}; a probability lies between 0 and 1")
    return number
