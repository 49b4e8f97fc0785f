"""Samples and comparisons as a page of words and named arrays, and back, for `jointmdp.save` and `load`.

All numbers are in arrays, where infinity is a number like others; names and the rest are in the page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from jointmdp.checks import as_sharing
from jointmdp.comparing.comparison import Comparison
from jointmdp.comparing.paired_gaps import Alternative, PairedGap, Verdict
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.montecarlo.samples import GapSample, Replications, ReturnSample

Arrays = Mapping[str, NDArray[Any]]
Sampled = Comparison | ReturnSample | GapSample

GAP_NUMBERS = ("truncation_bound", "reach", "confidence", "within")
PAIR_NUMBERS = (*GAP_NUMBERS, "decided", "std_unpaired", "std_state", "std_time", "half_width_unpaired")
ALTERNATIVE_NUMBERS = ("mean", "mean_interval", "std", "best", "best_interval")
COMPARISON_NUMBERS = ("confidence", "half_width", "indifference", "seconds")
WORDS = ("title", "replications", "looks", "sharing", "is_exact", "seed", "beside", "remark", "minimise")
INTERVALS = {"within", "decided", "mean_interval", "best_interval"}


def is_kept(thing: object) -> TypeGuard[Sampled]:
    """Whether `thing` can be saved; a gap of a comparison is saved with it."""
    return isinstance(thing, Comparison | ReturnSample) or type(thing) is GapSample


def parts(thing: Sampled) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The page and the arrays."""
    if isinstance(thing, GapSample):
        page = {"kind": "gap sample", "names": [thing.action, thing.other], "steps": thing.steps, "seed": thing.seed}
        arrays = {"gaps": thing.gaps, "slack": thing.slack, "numbers": _packed(thing, GAP_NUMBERS)}
    elif isinstance(thing, ReturnSample):
        page = {"kind": "return sample", "names": list(thing.actions), "seed": thing.seed}
        held = {name: part for name, part in thing.replications._asdict().items() if part is not None}
        arrays = {**held, "numbers": _packed(thing, ("return_bound", "reach"))}
    else:
        page = {name: getattr(thing, name) for name in WORDS}
        values = list(thing.values) if all(isinstance(value, int | float | str) for value in thing.values) else []
        page |= {"kind": "comparison", "names": list(thing.labels), "values": values, "status": thing.status.name}
        page["steps"] = [gap.steps for gap in thing.gaps]
        arrays = {
            "returns": thing.returns,
            "whole": thing.whole,
            "gaps": np.stack([gap.gaps for gap in thing.gaps]),
            "slack": np.stack([gap.slack for gap in thing.gaps]),
            "pairs": np.stack([_packed(gap, PAIR_NUMBERS) for gap in thing.gaps]),
            "alternatives": np.stack([_packed(each, ALTERNATIVE_NUMBERS) for each in thing.alternatives]),
            "numbers": _packed(thing, COMPARISON_NUMBERS),
        }
    return page, {
        name: np.ascontiguousarray(array, dtype="<f8" if array.dtype.kind == "f" else "<i8")
        for name, array in arrays.items()
    }


def restored(page: Mapping[str, Any], arrays: Arrays) -> Sampled:
    """What a page and arrays hold."""
    readers: dict[Any, Callable[[Mapping[str, Any], Arrays], Sampled]] = {
        "gap sample": _gap_sample,
        "return sample": _return_sample,
        "comparison": _comparison,
    }
    kind = page.get("kind")
    if not isinstance(kind, str) or kind not in readers:
        raise ModelError(f"its kind is {kind!r}; known are 'model', 'solution' and {', '.join(map(repr, readers))}")
    _check_types(page)
    try:
        return readers[kind](page, arrays)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, StopIteration) as error:
        raise ModelError(f"it is damaged: its parts do not make a {kind} ({error})") from None


def _check_types(page: Mapping[str, Any]) -> None:
    """Words are words and counts are counts, whoever wrote them."""
    lists = {"names": str, "values": int | float | str}
    kinds = {"title": str, "remark": str, "status": str, "replications": int, "looks": int, "beside": int}
    for name, kind in {**kinds, "is_exact": bool, "minimise": bool, "seed": int | None}.items():
        if name in page and not isinstance(page[name], kind):
            raise ModelError(f"it is damaged: its {name} is a {type(page[name]).__name__}")
    for name, kind in lists.items():
        held = page.get(name, [])
        if not isinstance(held, list) or not all(isinstance(each, kind) for each in held):
            raise ModelError(f"it is damaged: its {name} must be a list of plain values")
    steps = page.get("steps", 0)
    if not all(isinstance(each, int) for each in (steps if isinstance(steps, list) else [steps])):
        raise ModelError("it is damaged: its steps must be whole numbers")


def _gap_sample(page: Mapping[str, Any], arrays: Arrays) -> GapSample:
    action, other = page["names"]
    numbers = _unpacked(arrays["numbers"], GAP_NUMBERS)
    gaps, slack = arrays["gaps"], arrays["slack"]
    _check_shape(slack, gaps.shape)
    return GapSample(action, other, gaps, slack, steps=page["steps"], seed=page["seed"], **numbers)


def _return_sample(page: Mapping[str, Any], arrays: Arrays) -> ReturnSample:
    held = Replications(*(arrays.get(name) for name in Replications._fields))  # type: ignore[arg-type]
    n, m = held.returns.shape
    for name, part in held._asdict().items():
        if part is not None:
            _check_shape(part, (n,) if name in ("steps", "meetings", "left_out") else (n, m))
    names = tuple(page["names"])
    if len(names) != m:
        raise ValueError(f"{len(names)} names for {m} columns")
    return ReturnSample(names, held, seed=page["seed"], **_unpacked(arrays["numbers"], ("return_bound", "reach")))


def _comparison(page: Mapping[str, Any], arrays: Arrays) -> Comparison:
    names, returns = page["names"], arrays["returns"]
    pairs = list(itertools.combinations(names, 2))
    n = page["replications"]
    for name, rows in (
        ("gaps", len(pairs)),
        ("slack", len(pairs)),
        ("pairs", len(pairs)),
        ("alternatives", len(names)),
    ):
        _check_shape(arrays[name], (rows, n) if name in ("gaps", "slack") else (rows, arrays[name].shape[1]))
    _check_shape(returns, (len(arrays["whole"]), len(names)))
    as_sharing(page["sharing"])
    gaps = tuple(
        PairedGap(
            action=action,
            other=other,
            gaps=arrays["gaps"][k],
            slack=arrays["slack"][k],
            steps=page["steps"][k],
            seed=page["seed"],
            **_unpacked(arrays["pairs"][k], PAIR_NUMBERS),
        )
        for k, (action, other) in enumerate(pairs)
    )
    each = zip(names, arrays["alternatives"], strict=True)
    return Comparison(
        alternatives=tuple(Alternative(label, **_unpacked(row, ALTERNATIVE_NUMBERS)) for label, row in each),
        gaps=gaps,
        status=Verdict[page["status"]],
        values=tuple(page["values"]),
        returns=returns,
        whole=arrays["whole"],
        **{name: page[name] for name in WORDS},
        **_unpacked(arrays["numbers"], COMPARISON_NUMBERS),
    )


def _packed(thing: Any, names: tuple[str, ...]) -> NDArray[Any]:
    """Numbers in a row, intervals as two; not a number where there is none."""
    row: list[float] = []
    for name in names:
        value = getattr(thing, name)
        missing = (np.nan,) * (2 if name in INTERVALS else 1)
        row += missing if value is None else value if name in INTERVALS else (value,)
    return np.array(row, dtype=np.float64)


def _unpacked(row: NDArray[Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The same by name."""
    left = iter(np.asarray(row, dtype=np.float64).tolist())
    found: dict[str, Any] = {}
    for name in names:
        ends = [next(left) for _ in range(2 if name in INTERVALS else 1)]
        is_missing = any(np.isnan(end) for end in ends)
        found[name] = None if is_missing else Interval(*ends) if name in INTERVALS else ends[0]
    if next(left, None) is not None:
        raise ValueError("too many numbers")
    return found


def _check_shape(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"shape {array.shape} instead of {shape}")
