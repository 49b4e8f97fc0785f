"""Checks of what the user hands in: each raises a `ModelError` that names the place and guesses the cause."""

import contextlib
import difflib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointmdp.ground.arrays import Floats, Ints, refuse_traced
from jointmdp.ground.errors import ModelError

T = TypeVar("T")
Sharing = Literal["state", "time", "none"]
SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
SHARING_WORDS: dict[Sharing, str] = {
    "state": "noise shared in the same state",
    "time": "noise shared at the same time",
    "none": "noise not shared",
}

# Sums this far from 1 come from float32 tables or printed decimals and are rescaled; farther ones are mistakes.
SUM_TOLERANCE = 1e-6
PLURALS = {"policy": "policies"}
FIXED = {int, str, float, bool}  # components of names that are as they should be


def refuse_keywords(unknown: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Raise at a keyword that a front door does not have, with the one that was probably meant."""
    for name in unknown:
        known = inspect.signature(function).parameters
        close = difflib.get_close_matches(name, [each for each in known if each != "unknown"], n=1)
        is_direction = name in ("minimise", "minimize") and "minimise" not in known
        hint = f"did you mean {close[0]}=…?" if close else f"help(jointmdp.{function.__name__}) lists what there is"
        if is_direction:
            hint = "it takes returns: hand in costs with their signs changed, rewards = -costs"
            hint = "no check asks what is better: leave it out" if function.__name__ == "audit" else hint
        raise TypeError(f"{function.__name__}() has no argument {name}=; {hint}")


@contextlib.contextmanager
def blamed(where: str | Callable[[], str], form: str = "") -> Iterator[None]:
    """Around calls of a user's function: whatever it raises becomes an error that says where, and what was wanted."""
    try:
        yield
    except Exception as error:
        words = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
        place = where if isinstance(where, str) else where()
        raise ModelError(f"{place}: {words}{'; ' * bool(form)}{form}") from error


def by_state(policy: Mapping[Any, Any], state: Any) -> Any:
    """What a policy that is a dictionary says of a state."""
    if state in policy:
        return policy[state]
    named = [key for key in policy if isinstance(key, str)] if isinstance(state, str) else []
    close = difflib.get_close_matches(str(state), named, n=1)
    guess = f" ({close[0]!r} may be a slip for it)" if close else ""
    raise ModelError(f"the dictionary has no such state{guess}; give an action for each state that it reaches")


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function must be given two things."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that does not say what it takes
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in known) == 2


def as_floats(name: str, values: ArrayLike, shape_words: str, *ndims: int) -> Floats:
    """`values` as a new float64 array with as many axes as one of `ndims`."""
    try:
        raw = np.asarray(values)
        if raw.dtype.kind in "OUSMmc":
            raise TypeError(f"it holds {'complex numbers' if np.iscomplexobj(raw) else f'{raw.dtype} entries'}")
        array = np.array(raw, dtype=np.float64, order="C")  # one layout, so that sums round alike wherever it came from
    except (TypeError, ValueError) as error:
        refuse_traced(name, error)
        raise ModelError(f"{name} must be a numeric array of shape {shape_words}: {error}") from None
    if array.ndim not in ndims:
        raise ModelError(f"{name} must have shape {shape_words}, but it has {array.ndim} axes, shape {array.shape}")
    return array


def check_shape(name: str, array: NDArray[Any], expected: tuple[int, ...], shape_words: str) -> None:
    """Raise unless `array` has the expected shape."""
    if array.shape != expected:
        hint = "; are the axes in another order?" if sorted(array.shape) == sorted(expected) else ""
        raise ModelError(f"{name} has shape {array.shape}, expected {shape_words} = {expected}{hint}")


def first_place(mask: ArrayLike) -> tuple[int, ...]:
    """The index of the first True; empty, and so false, where there is none."""
    flags = np.asarray(mask)
    if not flags.any():  # many times as quick as a list of places, in the tables of large models
        return ()
    return tuple(np.argwhere(flags)[0].tolist())


def place(index: Sequence[Any], *words: str) -> str:
    """``place((7, 2), "state", "scenario")`` is ``"state 7, scenario 2"``."""
    return ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=True))


def check_finite(name: str, array: Floats, *words: str) -> None:
    """Raise at the first NaN or infinity, naming its place."""
    if at := first_place(~np.isfinite(array)):
        raise ModelError(f"{name} of {place(at, *words)} is {array[at]}; every entry must be a finite number")


def normalised(name: str, rows: Floats, row_word: str, column_word: str) -> Floats:
    """Rows of probabilities, checked; rescaled when they sum to 1 only up to single precision."""
    if not (rows.size and rows.min() >= 0 and rows.max() <= 1 + SUM_TOLERANCE):  # two passes where nothing is wrong
        check_finite(name, rows, row_word, column_word)
        if at := first_place(rows < 0):
            raise ModelError(f"{name} of {place(at, row_word, column_word)} is negative: {rows[at]:g}")
        if at := first_place(rows > 1 + SUM_TOLERANCE):
            raise ModelError(f"{name} of {place(at, row_word, column_word)} is {rows[at]:g}, above 1")
    sums = rows.sum(axis=1)
    if at := first_place(np.abs(sums - 1) > SUM_TOLERANCE):
        raise _wrong_sum(f"{name} of {place(at, row_word)}", sums[at])
    return rescaled(rows, sums)


def as_law(name: str, word: str, labels: Ints, chances: Floats) -> Floats:
    """One law whose entries have labels, checked and rescaled as `normalised` does with rows."""
    if at := first_place(~(np.isfinite(chances) & (chances >= 0))):
        raise ModelError(f"{name}: {word} {labels[at]} has {chances[at]:g}, which is negative or not finite")
    total = chances.sum()
    if abs(total - 1) > SUM_TOLERANCE:
        raise _wrong_sum(name, total)
    return rescaled(chances, total)


def _wrong_sum(name: str, total: float) -> ModelError:
    cause = "all are zero; were they ever filled in?" if total == 0 else "did you forget to normalise?"
    return ModelError(f"{name} sum to {total:.6g}, not 1; {cause}")


def rescaled(rows: Floats, sums: Floats) -> Floats:
    """Rows over their sums; those off by no more than their own summation error stay bit for bit as given.

    Certificates count on this bound, entry by nonzero entry.
    """
    off, eps = np.abs(sums - 1), np.finfo(np.float64).eps
    if not np.any(off > eps):  # even for a single entry
        return rows.copy()
    loose = off > np.count_nonzero(rows, axis=-1) * eps
    return np.where(loose[..., None], rows / sums[..., None], rows)


def as_successors(floats: Floats, num_states: int) -> Ints:
    """Successors ``[S, W, A]`` as whole numbers from 0 to ``num_states − 1``."""
    words = ("state", "scenario", "action")
    if at := first_place(~(np.isfinite(floats) & (floats == np.floor(floats)))):
        raise ModelError(
            f"successor of {place(at, *words)} is {floats[at]}, not a whole number; successors are state indices, one "
            "for each scenario and action (not transition probabilities)"
        )
    if at := first_place((floats < 0) | (floats >= num_states)):
        value = int(floats[at])
        hint = "; states count from 0" if value == num_states else ""
        raise ModelError(f"successor of {place(at, *words)} is {value}, outside 0..{num_states - 1}{hint}")
    return floats.astype(np.int64)


def as_discount(value: Any, *, may_be_zero: bool = False) -> float:
    """A discount in (0, 1]; 1 is for returns that come to an end, which `evaluate` checks."""
    begins = "[" if may_be_zero else "("
    rule = f"it must lie in {begins}0, 1); 1 is for horizons and for models that surely end"
    return _number_that(lambda x: 0 < x <= 1 or (may_be_zero and x == 0), rule)("discount", value)


def as_sharing(value: Any) -> Sharing:
    """One of the three kinds of sharing."""
    if not isinstance(value, str) or value not in SHARINGS:
        raise ModelError(
            f'sharing is {value!r}; it must be "state" (branches in the same state share their scenario), '
            '"time" (all branches share it at all times) or "none" (branches never share)'
        )
    return value


def as_names(kind: str, names: Sequence[Any] | None, count: int) -> tuple[Any, ...] | None:
    """Names of states or actions: one each, all different.

    Names stay what they are, tuples for example. Numbers become text, since numbers are indices; lists become tuples.
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ModelError(f"{kind}_names must be a sequence of {count} names, not {names!r}")
    result = tuple(name if type(name) is str else _name(kind, name) for name in names)
    if len(result) != count:
        raise ModelError(f"{len(result)} {kind} names for {count} {kind}s")
    for labels in (result, tuple(map(str, result))):
        if len(set(labels)) != count:
            twice = next(name for name, number in Counter(labels).items() if number > 1)
            raise ModelError(f"{kind} name {twice!r} is used twice")
    return result


def _name(kind: str, name: Any) -> Any:
    if type(name) is tuple and FIXED.issuperset(map(type, name)):
        return name  # by far the most frequent, a million times in a large model
    fixed = as_fixed(name)
    if isinstance(fixed, Number):
        return str(name)
    try:
        hash(fixed)
    except TypeError:
        raise ModelError(
            f"{kind} name {name!r} cannot be looked up; names are text, tuples or other fixed values"
        ) from None
    return fixed


def as_fixed(value: Any) -> Any:
    """Lists and arrays as tuples, NumPy's numbers as Python's: what can be looked up."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(as_fixed, value)) if isinstance(value, list) or type(value) is tuple else value


def as_index(kind: str, value: Any, names: tuple[Any, ...] | None, count: int) -> int:
    """A state or action given by index, by name, or by its name in words."""
    if type(value) is int and 0 <= value < count:  # by far the most frequent, in every step of a simulator
        return value
    if isinstance(value, list):
        value = as_fixed(value)
    refuse_traced(f"the {kind}", value)
    is_number = value is None or isinstance(value, Number | np.generic | np.ndarray)
    if isinstance(value, str | tuple) or (names is not None and not is_number):
        labels = () if names is None else names if value in names else tuple(map(str, names))
        known = value if value in labels else str(value)
        if known in labels:
            return labels.index(known)
        hint = f"the {kind}s have no names; give an index"
        if names:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            hint = f"known: {', '.join(map(repr, names[:8]))}{more}"
            if close := difflib.get_close_matches(str(value), labels, n=3, cutoff=0.5):
                hint = f"did you mean {' or '.join(map(repr, close))}?"
        raise ModelError(f"unknown {kind} {value!r}; {hint}")
    index = _whole(kind, value, "an index or a name")
    if not 0 <= index < count:
        if str(index) in (texts := list(map(str, names or ()))):  # a number can be a name, where it is no place
            return texts.index(str(index))
        raise ModelError(f"unknown {kind} {index}; there are {count} {kind}s, 0..{count - 1}")
    return index


def subtracted(first: T, second: T, minimise: bool) -> tuple[T, T]:
    """What the gap of two alternatives is made of, the first of these minus the second: an advantage of `first`."""
    return (second, first) if minimise else (first, second)


def difference(first: str, second: str, minimise: bool) -> str:
    """The gap of two alternatives as what is subtracted from what."""
    of = "cost of " if minimise else ""
    return " − ".join(f"{of}{each}" for each in subtracted(first, second, minimise))


def as_called(kind: str, given: Any, names: Sequence[str], values: Sequence[Any]) -> int:
    """The place of what is called by its value, or by its name in words. A number is never a place in a list.

    Values are what an environment or a user calls the things listed. A number that is none of them, but the name of
    one and the place of another, is refused with both readings, and so is one that is a place alone.
    """
    place = int(given) if isinstance(given, int | np.integer) and not isinstance(given, bool) else -1
    label = str(as_fixed(given))
    named = names.index(label) if label in names else None
    found = next((i for i, value in enumerate(values) if _is_same(value, given)), None)
    if found is not None and (named in (None, found) or not isinstance(values, range)):
        return found
    if named is not None and (named == place or place not in range(len(names))):
        return named
    if named is not None:  # the name of one, and the number of another
        raise ModelError(
            f"{place} could be the {kind} that is called {label!r}, or number {place} of the list, {names[place]!r}; "
            "give the name as text"
        )
    if isinstance(given, str | tuple | list):
        return as_index(kind, given, tuple(names), len(names))  # which raises, and guesses what was meant
    listed = ", ".join(map(str, names[:8])) + f" and {len(names) - 8} more" * (len(names) > 8)
    reading = f"; number {place} of the list, from 0, is called {names[place]}" if 0 <= place < len(names) else ""
    raise ModelError(f"{label} is none of the {PLURALS.get(kind, f'{kind}s')} {listed}{reading}")


def _is_same(value: Any, given: Any) -> bool:
    if value is given:
        return True
    if isinstance(value, bool | np.bool_) != isinstance(given, bool | np.bool_) or isinstance(given, str):
        return isinstance(value, str) and isinstance(given, str) and value == given
    try:
        return bool(np.array_equal(value, given))
    except (TypeError, ValueError):
        return False


def _whole(name: str, value: Any, wanted: str) -> int:
    refuse_traced(name, value)
    try:
        whole = int(value)
        if isinstance(value, bool | np.bool_) or whole != value:
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"{name} must be {wanted}, not {value!r}") from None
    return whole


def as_count(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least `least` and at most `most`."""
    count = _whole(name, value, "a whole number")
    if count < least:
        raise ModelError(f"{name} is {count}; it must be at least {least}")
    if most is not None and count > most:
        raise ModelError(f"{name} is {count}; it must be at most {most}")
    return count


def as_number(name: str, value: Any) -> float:
    """A number; NaN and infinities are left to the caller."""
    refuse_traced(name, value)
    try:
        if isinstance(value, str | bool | np.bool_):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{name} must be a number, not {value!r}") from None


def _number_that(is_good: Callable[[float], bool], rule: str) -> Callable[[str, Any], float]:
    """A check of a number, given its name and value."""

    def checked(name: str, value: Any) -> float:
        number = as_number(name, value)
        if not is_good(number):
            raise ModelError(f"{name} is {number:g}; {rule}")
        return number

    return checked


as_finite = _number_that(math.isfinite, "it must be a finite number")
as_fraction = _number_that(lambda x: 0 < x < 1, "it must lie strictly between 0 and 1")
as_positive = _number_that(lambda x: 0 < x < math.inf, "it must be positive and finite")
as_amount = _number_that(lambda x: 0 <= x < math.inf, "it must be finite and not negative")
as_probability = _number_that(lambda x: 0 <= x <= 1, "a probability lies between 0 and 1")
