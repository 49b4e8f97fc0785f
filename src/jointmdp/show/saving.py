"""Samples and comparisons as a page of words and named arrays, and back, for `jointmdp.save` and `load`.

All numbers are in arrays, where infinity is a number like others; names and the rest are in the page.

Models and results on disk: what `save` writes, `load` gives back bit for bit, or refuses with a reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from jointmdp.decisions.comparing.comparison import Alternative, Comparison, PairedGap, Verdict
from jointmdp.ground import archives, checks
from jointmdp.ground.checks import as_sharing
from jointmdp.ground.errors import ModelError, Status
from jointmdp.ground.files import FilePath, path_name
from jointmdp.ground.intervals import Interval
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.montecarlo.samples import GapSample, Replications
from jointmdp.simulation.montecarlo.simulate import ReturnSample

if TYPE_CHECKING:
    from jointmdp.exact.solution.solution import Solution

Arrays = Mapping[str, NDArray[Any]]
Sampled = Comparison | ReturnSample | GapSample

GAP_NUMBERS = ("truncation_bound", "reach", "confidence", "within")
PAIR_NUMBERS = (*GAP_NUMBERS, "decided", "std_unpaired", "std_state", "std_time", "half_width_unpaired")
ALTERNATIVE_NUMBERS = ("mean", "mean_interval", "std", "best", "best_interval")
COMPARISON_NUMBERS = ("confidence", "half_width", "indifference", "seconds")
WORDS = ("title", "num_replications", "looks", "sharing", "is_exact", "seed", "beside", "remark", "minimise")
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
        page["values"] = _plain_values(thing.values)
        held = {name: part for name, part in thing.replications._asdict().items() if part is not None}
        arrays = {**held, "numbers": _packed(thing, ("return_bound", "reach"))}
    else:
        page = {name: getattr(thing, name) for name in WORDS}
        page |= {"kind": "comparison", "names": list(thing.labels), "status": thing.status.name}
        page["values"] = _plain_values(thing.values)
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
    kinds = {"title": str, "remark": str, "status": str, "num_replications": int, "looks": int, "beside": int}
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
    rows = ("steps", "left_out", "is_whole", "followed")
    for name, part in held._asdict().items():
        if part is not None:
            _check_shape(part, (n,) if name in rows else (n, m))
    flags = {name: part.astype(bool) for name in rows[2:] if (part := getattr(held, name)) is not None}
    names, values = tuple(page["names"]), tuple(page.get("values", ()))
    if len(names) != m:
        raise ValueError(f"{len(names)} names for {m} columns")
    numbers = _unpacked(arrays["numbers"], ("return_bound", "reach"))
    return ReturnSample(names, held._replace(**flags), seed=page["seed"], values=values, **numbers)


def _comparison(page: Mapping[str, Any], arrays: Arrays) -> Comparison:
    names, returns = page["names"], arrays["returns"]
    pairs = list(itertools.combinations(names, 2))
    n = page["num_replications"]
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


def _plain_values(values: tuple[Any, ...]) -> list[Any]:
    """Values that a page can hold; none where one of them is something else."""
    return list(values) if all(isinstance(value, int | float | str) for value in values) else []


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


# The arrays of each kind of file, with their axes: S, W and A are the model's, P is S or 1 where no pairs are held,
# U is 1, H is the length of the history, Q counts the four numbers of a certificate, and those that bound a value's
# errors, N the orders from 0 and M those from 2.
MODEL = {"probabilities": "SW", "rewards": "SWA", "successors": "SWA", "available": "SA"}
ANSWER = {
    "policy": "SA",
    "mean": "SA",
    "certificate": "Q",
    "mean_errors": "SA",
    "covariance_shares": "SA",
    "history": "H",
}
MOMENTS = {
    "state": {
        "shifted_rewards": "SWA",
        "state_mean": "S",
        "gap_variance": "PP",
        "branch_variance": "S",
        "gap_errors": "PP",
        "value_errors": "QS",
    },
    "pair": {"second_moment": "SASA"},
}
MOMENTS["same state"] = {**MOMENTS["state"], "gap_variance": "SAA", "gap_errors": "SU"}  # of many states, sharded
HIGHER = {"branch_moments": "NS", "gap_moments": "MPP", "higher_errors": "NSP"}  # where the order is above 2
CERTIFIED = ("residual", "mean_error", "second_moment_error", "covariance_error")

MODEL_KEYS = {*archives.HEAD, "kind", "discount", "sharing", "state_names", "action_names"}
ANSWER_KEYS = {"moments", "order", "status", "method", "steps", "horizon"}


def save(thing: JointMDP | Solution | Comparison | ReturnSample | GapSample, path: FilePath) -> None:
    """Write a model, a solution, a comparison or a sample to `path`.

    A file that is there is replaced in one step, or not at all.
    No suffix is added. The file is a zip of ``.npy`` arrays that ``numpy.load`` opens too.

    Raises:
        ModelError: the file cannot be written, or `thing` is none of these.
    """
    if isinstance(thing, JointMDP):
        archives.write(path, *_model_parts(thing, "model"))
        return
    # MERGED

    if is_kept(thing):
        page, arrays = parts(thing)
        archives.write(path, {**archives.HEAD, **page}, arrays)
        return
    from jointmdp.exact.solution.solution import Solution

    if not isinstance(thing, Solution):
        known = "a JointMDP, a Solution, a Comparison and samples"
        kept = ", which train(..., checkpoint=folder) keeps and gives back when called again"
        name = type(thing).__name__
        raise ModelError(f"only {known} can be saved, not {name}{kept if name == 'TrainedMoments' else ''}")
    page, arrays = _model_parts(thing.model, "solution")
    more, results = _answer_parts(thing)
    archives.write(path, {**page, **more}, {**arrays, **results})


def load(path: FilePath) -> JointMDP | Solution | Comparison | ReturnSample | GapSample:
    """What `save` wrote to `path`.

    Raises:
        ModelError: the file is missing, unreadable, truncated, damaged, not a jointmdp file, of another version, or
            does not hold a model that makes sense.
    """
    page, arrays = archives.read(path)
    source = path_name(path)
    try:
        kind = page.get("kind")
        if kind not in ("model", "solution"):
            # MERGED

            return restored(page, arrays)
        _check_keys(page, MODEL_KEYS | (ANSWER_KEYS if kind == "solution" else set()))
        if kind == "model":
            _check_arrays(arrays, MODEL)
            return _model(page, arrays)
        return _answer(page, arrays)
    except ModelError as error:
        raise ModelError(f"cannot load {source!r}: {error}") from None
    except RecursionError:  # an error message that quotes lists nested to the limit
        raise ModelError(f"cannot load {source!r}: it is damaged: {archives.PAGE} is nested too deeply") from None
    except MemoryError:
        raise ModelError(f"cannot load {source!r}: it does not fit in memory") from None


def _model_parts(model: JointMDP, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    page = {
        **archives.HEAD,
        "kind": kind,
        "discount": model.discount,
        "sharing": model.sharing,
        "state_names": _written(model.state_names),
        "action_names": _written(model.action_names),
    }
    return page, {
        "probabilities": _plain(model.probabilities, "<f8"),
        "rewards": _plain(model.rewards, "<f8"),
        "successors": _plain(model.successors, "<i8"),
        "available": _plain(model.available, "|b1"),
    }


def _model(page: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> JointMDP:
    if not isinstance(page["discount"], float):
        raise ModelError(f"its discount must be a number with a decimal point, not {type(page['discount']).__name__}")
    return JointMDP(
        discount=page["discount"],
        sharing=page["sharing"],
        state_names=_names(page["state_names"]),
        action_names=_names(page["action_names"]),
        **{name: arrays[name] for name in MODEL},
    )


def _written(names: tuple[Any, ...] | None) -> list[Any] | None:
    """Names as JSON: text as it is, a tuple as ``{"tuple": […]}``."""

    def written(name: Any, is_inside: bool) -> Any:
        if isinstance(name, tuple):
            return {"tuple": [written(each, True) for each in name]}
        if isinstance(name, str) or (is_inside and _is_plain(name)):
            return name
        raise ModelError(f"the name {name!r} cannot be saved; names in files are text, or tuples of text and numbers")

    return None if names is None else [written(name, False) for name in names]


def _is_plain(value: Any) -> bool:
    is_number = type(value) in (int, float, bool) and math.isfinite(value)
    return is_number or value is None or isinstance(value, str)


def _names(names: Any) -> list[Any] | None:
    def read(name: Any, is_inside: bool) -> Any:
        if isinstance(name, dict) and name.keys() == {"tuple"} and isinstance(name["tuple"], list):
            return tuple(read(each, True) for each in name["tuple"])
        if isinstance(name, str) or (is_inside and _is_plain(name)):
            return name
        raise ModelError("its names of states and actions must be lists of strings and tuples")

    if names is None:
        return None
    if not isinstance(names, list):
        raise ModelError("its names of states and actions must be lists of strings and tuples")
    found = [read(name, False) for name in names]
    if len(set(found)) != len(found):
        raise ModelError("its names of states or actions hold one name twice")
    return found


def _answer_parts(solution: Solution) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from jointmdp.exact.moments.stored_moments import PairMoments, SameStateMoments, StateMoments

    moments = solution.moments
    if len(solution.asked) < solution.model.num_states:
        raise ModelError(
            "a Solution of some states only cannot be saved; to_csv keeps its numbers, save(model) its model"
        )
    if not isinstance(moments, StateMoments | PairMoments):
        raise ModelError(
            f"a {type(solution).__name__} cannot be saved: files hold exact moments, not moments as "
            f"{type(moments).__name__}. Save its model, and evaluate it "
            "again with the same features; to_csv keeps the numbers"
        )
    on_states = "same state" if isinstance(moments, SameStateMoments) else "state"
    page = {
        "moments": "pair" if isinstance(moments, PairMoments) else on_states,
        "order": solution.order,
        "status": solution.status.name,
        "method": solution.method,
        "steps": int(solution.steps),
        "horizon": None if solution.horizon is None else int(solution.horizon),
    }
    certificate = solution.certificate
    arrays = {
        "policy": solution.policy,
        "mean": moments.mean,
        "certificate": np.array([getattr(certificate, name) for name in CERTIFIED]),
        "mean_errors": certificate.mean_errors,
        "covariance_shares": certificate.covariance_shares,
        "history": solution.history,
        **moments.parts(),
    }
    return page, {name: _plain(array, "<f8") for name, array in arrays.items()}


def _answer(page: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Solution:
    kind, status, horizon = page["moments"], page["status"], page["horizon"]
    if not isinstance(kind, str) or kind not in MOMENTS:
        raise ModelError(f"its moments are held by {kind!r}; known are {', '.join(map(repr, MOMENTS))}")
    if not isinstance(status, str) or status not in Status.__members__ or not isinstance(page["method"], str):
        raise ModelError(f"its status {status!r} or method {page['method']!r} is unknown")
    steps = checks.as_count("steps", page["steps"], least=0)
    horizon = None if horizon is None else checks.as_count("horizon", horizon)
    order = checks.as_count("order", page["order"], least=2)
    if order > 2 and kind != "state":
        raise ModelError(f"its order is {order}; moments held by {kind!r} have order 2")
    axes = {**MODEL, **ANSWER, **MOMENTS[kind], **(HIGHER if order > 2 else {})}
    _check_arrays(arrays, axes)
    model = _model(page, arrays)
    sizes = {"S": model.num_states, "W": model.num_scenarios, "A": model.num_actions, "Q": len(CERTIFIED)}
    sizes |= {"P": 1 if model.sharing == "none" else model.num_states, "H": arrays["history"].size}
    sizes |= {"N": order + 1, "M": order - 1, "U": 1}
    for name, letters in axes.items():
        shape = tuple(sizes[letter] for letter in letters)
        checks.check_shape(name, arrays[name], shape, f"[{', '.join(letters)}]")

    # Only now, with everything checked, wait for JAX.
    from jointmdp.exact.moments.certificates import Certificate
    from jointmdp.exact.moments.stored_moments import PairMoments, SameStateMoments, StateMoments
    from jointmdp.exact.solution.solution import Solution
    from jointmdp.model.policies import as_policy

    policy = as_policy(model, arrays["policy"])
    if kind != "pair":
        form = StateMoments if kind == "state" else SameStateMoments
        moments: StateMoments | PairMoments = form.restored(model, policy, arrays, order, horizon)
    else:
        moments = PairMoments(arrays["mean"], arrays["second_moment"])
    numbers = dict(zip(CERTIFIED, arrays["certificate"].tolist(), strict=True))
    certificate = Certificate(
        **numbers, mean_errors=arrays["mean_errors"], covariance_shares=arrays["covariance_shares"]
    )
    return Solution(
        model, policy, moments, certificate, Status[status], page["method"], steps, horizon, arrays["history"]
    )


def _plain(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The array as it lies in the file: C order, little-endian."""
    return np.ascontiguousarray(array, dtype=dtype)


def _check_keys(page: dict[str, Any], expected: set[str]) -> None:
    if page.keys() != expected:
        odd = ", ".join(sorted(page.keys() ^ expected))
        raise ModelError(f"it is damaged: {archives.PAGE} lacks or should not have {odd}")


def _check_arrays(arrays: Mapping[str, NDArray[Any]], axes: Mapping[str, str]) -> None:
    if list(arrays) != list(axes):
        raise ModelError(f"it is damaged: it holds the arrays {', '.join(arrays)} instead of {', '.join(axes)}")
    for name, letters in axes.items():
        kinds = {"successors": "i", "available": "u"}.get(name, "f")
        if arrays[name].dtype.kind != kinds or arrays[name].ndim != len(letters):
            raise ModelError(f"it is damaged: {name} has {arrays[name].ndim} axes of {arrays[name].dtype}")
