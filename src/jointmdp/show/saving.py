"""Models and results on disk: what `save` writes, `load` gives back bit for bit, or refuses with a reason.

A file is a page of JSON and named arrays (`ground.archives`). Samples and comparisons are written field by field, as
their types say: whatever a class holds is kept, and read back with the type that it must have.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import archives, checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, path_name
from jointmdp.ground.intervals import Interval
from jointmdp.model.action_laws import ActionLaws, laws_from_entries
from jointmdp.model.couplings import GumbelMax
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import as_available

if TYPE_CHECKING:
    from jointmdp.decisions.comparing.comparison import Comparison
    from jointmdp.decisions.comparing.comparisons import Comparisons
    from jointmdp.exact.solution.solution import Solution
    from jointmdp.simulation.montecarlo.samples import GapSample, Replications
    from jointmdp.simulation.montecarlo.simulate import ReturnSample

Arrays = Mapping[str, NDArray[Any]]
SAMPLED = ("comparison", "comparisons", "return sample", "gap sample")
NOT_KEPT = {"origin"}  # what a sample was made from: a simulator is no part of a file
PLAIN = (int, float, str)

# The arrays of each kind of file, with their axes: S, W and A are the model's, P is S or 1 where no pairs are held,
# U is 1, H is the length of the history, Q counts the four numbers of a certificate, and those that bound a value's
# errors, N the orders from 0 and M those from 2.
MODEL = {"probabilities": "SW", "rewards": "SWA", "successors": "SWA", "available": "SA"}
GUMBEL = {"starts": "L", "law_probabilities": "E", "law_rewards": "E", "law_successors": "E"}  # laws of actions
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

NAMES = ("state_names", "action_names")
MODEL_KEYS = {*archives.HEAD, "kind", "discount", "sharing", *NAMES}
NOISE = "gumbel_noise"  # how tables are drawn, where a file holds laws
ANSWER_KEYS = {"moments", "order", "status", "method", "steps", "horizon", "minimise"}


def save(thing: JointMDP | Solution | Comparison | Comparisons | ReturnSample | GapSample, path: FilePath) -> None:
    """Write a model, a solution, a comparison or a sample to `path`.

    A file that is there is replaced in one step, or not at all.
    No suffix is added. The file is a zip of ``.npy`` arrays that ``numpy.load`` opens too.

    Raises:
        ModelError: the file cannot be written, or `thing` is none of these.
    """
    if isinstance(thing, JointMDP):
        archives.write(path, *_model_parts(thing, "model"))
        return
    for kind, (form, _) in _sampled_kinds().items():
        if type(thing) is form:
            arrays: dict[str, NDArray[Any]] = {}
            archives.write(path, {**archives.HEAD, "kind": kind, **_packed(thing, arrays)}, arrays)
            return
    from jointmdp.exact.solution.solution import Solution

    if not isinstance(thing, Solution):
        known = "a JointMDP, a Solution, a Comparison and samples"
        kept = ", which Neural(checkpoint=folder) keeps, and learn gives back when called again"
        name = type(thing).__name__
        raise ModelError(f"only {known} can be saved, not {name}{kept if name == 'TrainedMoments' else ''}")
    page, parts = _model_parts(thing.model, "solution")
    more, results = _answer_parts(thing)
    archives.write(path, {**page, **more}, {**parts, **results})


def load(path: FilePath) -> JointMDP | Solution | Comparison | Comparisons | ReturnSample | GapSample:
    """What `save` wrote to `path`.

    Raises:
        ModelError: the file is missing, unreadable, truncated, damaged, not a jointmdp file, of another version, or
            does not hold a model that makes sense.
    """
    page, arrays = archives.read(path)
    source = path_name(path)
    try:
        kind = page.get("kind")
        if isinstance(kind, str) and kind in SAMPLED:
            return _sampled(kind, page, arrays)
        if kind not in ("model", "solution"):
            raise ModelError(f"its kind is {kind!r}; known are 'model', 'solution', {', '.join(map(repr, SAMPLED))}")
        noise = {NOISE} & page.keys()
        _check_keys(page, MODEL_KEYS | noise | (ANSWER_KEYS if kind == "solution" else set()))
        if kind == "model":
            _check_arrays(arrays, _model_axes(page, arrays))
            return _model(page, arrays)
        return _answer(page, arrays)
    except ModelError as error:
        raise ModelError(f"cannot load {source!r}: {error}") from None
    except RecursionError:  # an error message that quotes lists nested to the limit
        raise ModelError(f"cannot load {source!r}: it is damaged: {archives.PAGE} is nested too deeply") from None
    except MemoryError:
        raise ModelError(f"cannot load {source!r}: it does not fit in memory") from None


def _model_parts(model: JointMDP, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    page = {**archives.HEAD, "kind": kind, "discount": model.discount, "sharing": model.sharing}
    for key in NAMES:
        names = getattr(model, key)
        page[key] = None if names is None else [*map(_written, names)]
    dtypes = {"successors": "<i8", "available": "|b1"}
    tables: Any = MODEL
    if isinstance(model, GumbelModel):
        drawn = {"draws": model.coupling.draws, "seed": model.coupling.seed, "max_entries": model.max_entries}
        page[NOISE] = {**drawn, "has_common_grid": model.has_common_grid}
        tables = MODEL if model.is_drawn or kind == "solution" else ["available"]
    arrays = {name: _plain(getattr(model, name), dtypes.get(name, "<f8")) for name in tables}
    if isinstance(model, GumbelModel):
        parts: Any = zip(GUMBEL, model.laws, ("<i8", "<f8", "<f8", "<i8"), strict=False)
        arrays |= {name: _plain(part, kind) for name, part, kind in parts}
    return page, arrays


def _model_axes(page: dict[str, Any], arrays: Arrays) -> dict[str, str]:
    """The arrays that the model of a file has; of laws there may be no tables."""
    if NOISE not in page:
        return MODEL
    return (MODEL if "probabilities" in arrays else {"available": "SA"}) | GUMBEL


def _model(page: dict[str, Any], arrays: Arrays) -> JointMDP:
    if not isinstance(page["discount"], float):
        raise ModelError(f"its discount must be a number with a decimal point, not {type(page['discount']).__name__}")
    if not all(isinstance(page[key], list | None) for key in NAMES):
        raise ModelError("its names of states and actions must be lists of strings and tuples")
    names = {key: page[key] and [*map(_name, page[key])] for key in NAMES}
    if NOISE in page:
        return _gumbel_model(page, arrays, names)
    tables: dict[str, Any] = {name: arrays[name] for name in MODEL}
    return JointMDP(discount=page["discount"], sharing=page["sharing"], **names, **tables)


def _gumbel_model(page: dict[str, Any], arrays: Arrays, names: dict[str, Any]) -> GumbelModel:
    """From the laws of its actions, with the tables where these were drawn."""
    noise = page[NOISE]
    if not isinstance(noise, dict) or noise.keys() != {"draws", "seed", "has_common_grid", "max_entries"}:
        raise ModelError(f"it is damaged: its {NOISE} is {noise!r}")
    starts, chances, gains, targets = (arrays[name] for name in GUMBEL)
    exists = as_available(arrays["available"], *arrays["available"].shape)
    sizes = np.diff(starts)
    is_whole = len(starts) == exists.size + 1 and starts[0] == 0 and bool(np.all(sizes >= 0))
    if not is_whole or not starts[-1] == len(chances) == len(gains) == len(targets):
        raise ModelError("it is damaged: the laws of its actions do not fit together")
    owners = np.repeat(np.arange(exists.size), sizes)
    if np.any((targets < 0) | (targets >= len(exists))):
        raise ModelError(f"it is damaged: its laws lead to states that are none of the {len(exists)}")
    laws_from_entries(owners, chances, gains, targets, exists, lambda s, a: checks.place((s, a), "state", "action"))
    laws = ActionLaws(starts, chances, gains, targets, exists.shape[1])
    coupling = GumbelMax(draws=noise["draws"], seed=noise["seed"])
    grid, entries = bool(noise["has_common_grid"]), checks.as_count("max_entries", noise["max_entries"])
    how: dict[str, Any] = {**names, "available": exists, "has_common_grid": grid, "max_entries": entries}
    model = GumbelModel(laws, coupling, page["discount"], page["sharing"], **how)
    if "probabilities" in arrays:
        tables: dict[str, Any] = {name: arrays[name] for name in MODEL}
        model.keep(JointMDP(discount=page["discount"], sharing=page["sharing"], **names, **tables))
    return model


def _written(name: Any, is_inside: bool = False) -> Any:
    """A name as JSON: text as it is, a tuple as ``{"tuple": […]}``."""
    if isinstance(name, tuple):
        return {"tuple": [_written(each, True) for each in name]}
    if isinstance(name, str) or (is_inside and _is_plain(name)):
        return name
    raise ModelError(f"the name {name!r} cannot be saved; names in files are text, or tuples of text and numbers")


def _is_plain(value: Any) -> bool:
    is_number = type(value) in (int, float, bool) and math.isfinite(value)
    return is_number or value is None or isinstance(value, str)


def _name(given: Any, is_inside: bool = False) -> Any:
    """What `_written` wrote."""
    if isinstance(given, dict) and given.keys() == {"tuple"} and isinstance(given["tuple"], list):
        return tuple(_name(each, True) for each in given["tuple"])
    if isinstance(given, str) or (is_inside and _is_plain(given)):
        return given
    raise ModelError("its names of states and actions must be lists of strings and tuples")


def _answer_parts(solution: Solution) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from jointmdp.exact.moments.pair_recursion import ActionGaps
    from jointmdp.exact.moments.stored_moments import PairMoments, SameStateMoments, StateMoments

    moments = solution.moments
    if len(solution.asked) < solution.model.num_states:
        raise ModelError(
            "a Solution of some states only cannot be saved; to_csv keeps its numbers, save(model) its model"
        )
    if isinstance(moments, ActionGaps):
        raise ModelError(
            "a Solution under Gumbel noise cannot be saved: save(model) keeps the laws of its actions, and evaluate "
            "answers again; to_csv keeps the numbers"
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
        "minimise": solution.minimise,
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


def _answer(page: dict[str, Any], arrays: Arrays) -> Solution:
    kind, status, horizon = page["moments"], page["status"], page["horizon"]
    if not isinstance(kind, str) or kind not in MOMENTS:
        raise ModelError(f"its moments are held by {kind!r}; known are {', '.join(map(repr, MOMENTS))}")
    if not isinstance(page["minimise"], bool):
        raise ModelError(f"its minimise is {page['minimise']!r}; it must be true or false")
    steps = checks.as_count("steps", page["steps"], least=0)
    horizon = None if horizon is None else checks.as_count("horizon", horizon)
    order = checks.as_count("order", page["order"], least=2)
    if order > 2 and kind != "state":
        raise ModelError(f"its order is {order}; moments held by {kind!r} have order 2")
    of_model = _model_axes(page, arrays)
    axes = {**of_model, **ANSWER, **MOMENTS[kind], **(HIGHER if order > 2 else {})}
    if horizon is not None and "policy" in arrays and arrays["policy"].ndim == 3:  # it depends on time
        axes["policy"] = "TSA"
    _check_arrays(arrays, axes)
    if "probabilities" not in of_model:
        raise ModelError("it is damaged: it holds a solution and no tables")
    model = _model(page, arrays)
    sizes = {"S": model.num_states, "W": model.num_scenarios, "A": model.num_actions, "Q": len(CERTIFIED)}
    sizes |= {"P": 1 if model.sharing == "none" else model.num_states, "H": arrays["history"].size}
    sizes |= {"N": order + 1, "M": order - 1, "U": 1, "T": horizon or 0}
    for name, letters in axes.items():
        if name in GUMBEL:
            continue
        shape = tuple(sizes[letter] for letter in letters)
        checks.check_shape(name, arrays[name], shape, f"[{', '.join(letters)}]")

    # Only now, with all arrays checked, wait for JAX.
    from jointmdp.exact.moments.certificates import Certificate, Status
    from jointmdp.exact.moments.stored_moments import PairMoments, SameStateMoments, StateMoments
    from jointmdp.exact.solution.solution import Solution
    from jointmdp.model.policies import as_policy, timed_policy

    if not isinstance(status, str) or status not in Status.__members__ or not isinstance(page["method"], str):
        raise ModelError(f"its status {status!r} or method {page['method']!r} is unknown")
    is_timed = arrays["policy"].ndim == 3
    policy = timed_policy(model, arrays["policy"], horizon) if is_timed else as_policy(model, arrays["policy"])
    if kind != "pair":
        form = StateMoments if kind == "state" else SameStateMoments
        moments: StateMoments | PairMoments = form.restored(model, policy, arrays, order, horizon)
    else:
        moments = PairMoments(arrays["mean"], arrays["second_moment"])
    numbers = dict(zip(CERTIFIED, arrays["certificate"].tolist(), strict=True))
    certificate = Certificate(
        **numbers, mean_errors=arrays["mean_errors"], covariance_shares=arrays["covariance_shares"]
    )
    known = Status[status], page["method"], steps, horizon, arrays["history"], page["minimise"]
    return Solution(model, policy, moments, certificate, *known)


def _plain(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The array as it lies in the file: C order, little-endian."""
    return np.ascontiguousarray(array, dtype=dtype)


def _check_keys(page: dict[str, Any], expected: set[str]) -> None:
    if page.keys() != expected:
        odd = ", ".join(sorted(page.keys() ^ expected))
        raise ModelError(f"it is damaged: {archives.PAGE} lacks or should not have {odd}")


def _check_arrays(arrays: Arrays, axes: Mapping[str, str]) -> None:
    if list(arrays) != list(axes):
        raise ModelError(f"it is damaged: it holds the arrays {', '.join(arrays)} instead of {', '.join(axes)}")
    for name, letters in axes.items():
        kinds = {"successors": "i", "available": "u", "starts": "i", "law_successors": "i"}.get(name, "f")
        if arrays[name].dtype.kind != kinds or arrays[name].ndim != len(letters):
            raise ModelError(f"it is damaged: {name} has {arrays[name].ndim} axes of {arrays[name].dtype}")


# -- samples and comparisons -----------------------------------------------------------------------------------------


def _fields(form: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass or named tuple that are kept, with their types."""
    names = form._fields if issubclass(form, tuple) else [each.name for each in dataclasses.fields(form)]
    hints = get_type_hints(form)
    return ((name, hints[name]) for name in names if name not in NOT_KEPT)


def _packed(thing: Any, arrays: dict[str, NDArray[Any]], place: str = "") -> Any:
    """As JSON, arrays apart; what is infinite is a word."""
    if isinstance(thing, np.ndarray):
        arrays[place] = _plain(thing, {"f": "<f8", "b": "|b1"}.get(thing.dtype.kind, "<i8"))
        return {"array": place}
    if isinstance(thing, enum.Enum):
        return thing.name
    if dataclasses.is_dataclass(thing) or (hasattr(thing, "_fields") and not isinstance(thing, Interval)):
        inside = f"{place}." if place else ""
        return {name: _packed(getattr(thing, name), arrays, inside + name) for name, _ in _fields(type(thing))}
    if isinstance(thing, Interval):
        thing = (*thing, *(() if thing._estimate is None else (thing._estimate,)))
    if isinstance(thing, tuple):
        is_known = all(isinstance(each, PLAIN) or hasattr(each, "__dataclass_fields__") for each in thing)
        return [_packed(each, arrays, f"{place}.{i}") for i, each in enumerate(thing if is_known else ())]
    return str(float(thing)) if isinstance(thing, float) and not math.isfinite(thing) else thing


def _unpacked(hint: Any, given: Any, arrays: Arrays, place: str = "") -> Any:
    """What `_packed` wrote, as a value of the type `hint`."""
    form, parts = get_origin(hint) or hint, get_args(hint)
    if form in (Union, types.UnionType):
        (hint,) = (part for part in parts if part is not types.NoneType)
        return None if given is None else _unpacked(hint, given, arrays, place)
    if form in (np.ndarray, NDArray) and given == {"array": place}:
        (kind,) = get_args(parts[-1]) or parts  # since NumPy 2.5 the alias has a name of its own, and the kind alone
        if (arrays[place].dtype.kind == "f") == (kind is np.float64):
            return arrays[place].astype(kind, copy=False)
    elif form is tuple and isinstance(given, list):
        return tuple(_unpacked(parts[0], each, arrays, f"{place}.{i}") for i, each in enumerate(given))
    elif form is Interval and isinstance(given, list) and len(given) in (2, 3):
        return Interval(*(_unpacked(float, each, arrays) for each in given))
    elif form is float and (type(given) in (int, float) or given in ("inf", "-inf", "nan")):
        return float(given)
    elif form is Literal and given in parts:
        return given
    elif isinstance(form, enum.EnumMeta) and isinstance(given, str):
        return form[given]
    elif form is Any and isinstance(given, PLAIN):
        return given
    elif isinstance(form, type) and isinstance(given, dict):
        inside, fields = f"{place}." if place else "", dict(_fields(form))
        if given.keys() == fields.keys():
            found = {name: _unpacked(hints, given[name], arrays, inside + name) for name, hints in fields.items()}
            return form(**found)
    elif form in (int, str, bool) and type(given) is form:
        return given
    raise ModelError(f"it is damaged: {place} is not what it should be")


def _sampled(kind: str, page: Mapping[str, Any], arrays: Arrays) -> Comparison | Comparisons | ReturnSample | GapSample:
    """A sample or a comparison whose parts fit together."""
    given = {name: value for name, value in page.items() if name not in (*archives.HEAD, "kind")}
    form, shapes = _sampled_kinds()[kind]
    try:
        found: Comparison | Comparisons | ReturnSample | GapSample = _unpacked(form, given, arrays)
        for array, shape in shapes(found):
            if array is not None and array.shape != shape:
                raise ValueError(f"shape {array.shape} instead of {shape}")
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"it is damaged: its parts do not make a {kind} ({error})") from None
    return found


Shapes = Iterator[tuple[NDArray[Any] | None, tuple[int, ...]]]


def _gap_shapes(gap: GapSample, count: int | None = None) -> Shapes:
    size = len(gap.gaps) if count is None else count
    return ((array, (size,)) for array in (gap.gaps, gap.slack))


def _return_shapes(sample: ReturnSample) -> Shapes:
    return _run_shapes(sample.replications, len(sample.replications.returns), len(sample.actions))


def _run_shapes(run: Replications, n: int, m: int) -> Shapes:
    one = {"steps", "left_out", "is_whole", "followed"}  # for each replication, not for each branch
    return ((part, (n,) if name in one else (n, m)) for name, part in run._asdict().items())


def _comparison_shapes(found: Comparison) -> Shapes:
    if [(gap.action, gap.other) for gap in found.gaps] != list(itertools.combinations(found.labels, 2)):
        raise ValueError("its gaps are not those of its alternatives")
    run, n = found.replications, found.num_replications
    yield from _run_shapes(run, n, len(found.labels))
    ends = np.arange(n) if run.is_whole is None else np.flatnonzero(run.is_whole)[: len(found.whole)]
    if not np.array_equal(found.whole, ends):
        raise ValueError("its whole replications are others")
    made = [each.num_replications for each in found.alternatives]
    for gap, pair in zip(found.gaps, itertools.combinations(made, 2), strict=True):
        yield from _gap_shapes(gap, min(pair))


def _comparisons_shapes(found: Comparisons) -> Shapes:
    for _, part in zip(found.names, found.parts, strict=True):
        yield from _comparison_shapes(part)


def _sampled_kinds() -> dict[str, tuple[type, Callable[[Any], Shapes]]]:
    """The classes, and which shapes their arrays must have; models are saved and loaded without waiting for them."""
    from jointmdp.decisions.comparing.comparison import Comparison
    from jointmdp.decisions.comparing.comparisons import Comparisons
    from jointmdp.simulation.montecarlo.samples import GapSample
    from jointmdp.simulation.montecarlo.simulate import ReturnSample

    kinds = (
        (Comparison, _comparison_shapes),
        (Comparisons, _comparisons_shapes),
        (ReturnSample, _return_shapes),
        (GapSample, _gap_shapes),
    )
    return dict(zip(SAMPLED, kinds, strict=True))
