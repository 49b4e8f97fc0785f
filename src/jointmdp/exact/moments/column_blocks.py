"""Plain sweeps over pairs of states by blocks of columns: on one device where memory is short, or sharded over many.

The array D is symmetric, and so a block J of its columns after a sweep is

    (P D Pᵀ)[:, J] = P · Hᵀ[:, J],   H = P D.

**One device** (`OneDevice`) has all columns, sweeps them in the precision asked for and keeps three arrays alive.
**Many** (`ManyDevices`) have an equal share of the columns each: ``H[:, J] = P · D[:, J]`` takes nothing from other
devices, and one all-to-all turns the columns of H into those of Hᵀ, so that a sweep sends every number once. What two
branches of one state need of D, O(S·W·M²) entries, is added up over the devices, all of which but one hold a zero. Sums
are made in the same order whatever the number of devices, so their bits do not depend on it. States are padded to a
multiple of the number of devices; those that are added have no successors, and stay at zero. Every process runs the
same program. Whatever decides how it goes on must be the same number everywhere, to the last bit, or some would wait
for ever for a step that the others do not take.

The certificate does not care how an answer was made: the residual of what is stored is computed in double precision, a
block of columns at a time. Of many states only those pairs are kept that actions of one state lead to, ``[S, A, A]``.
"""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from jointmdp.exact.bellman import pair_sweep, second_moments
from jointmdp.exact.bellman.pair_sweep import Columns, PairProblem, columns_of_whole, sweep_columns
from jointmdp.exact.bellman.sparse_products import row_product
from jointmdp.exact.moments.certificates import Certificate, StateErrors
from jointmdp.exact.moments.default_solver import reached, residual_target, solve
from jointmdp.exact.moments.pair_solver import (
    CHUNK,
    FLOOR_SHARE,
    LEAST_CHUNK,
    PAIR_LIMIT,
    Solve,
    branch_shares,
    plain_sweeps,
    step_errors,
    swept_share,
)
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.exact.moments.stored_moments import FoundMoments, GapErrors, SameStateMoments, StateMoments
from jointmdp.ground import archives, checks
from jointmdp.ground.arrays import Floats, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.limits import ends, is_time_over
from jointmdp.ground.lost_processes import Survivor
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP, digest

BLOCK_BYTES = 2**31  # of the columns that are certified at once on one device
WHOLE_LIMIT = 2**26  # numbers: as many pairs are kept whole by every process, 512 MiB
BLOCK_LIMIT = 2**28  # numbers: of more states, those that actions of one state need
WORDS: dict[str, np.dtype[Any]] = {"double": np.dtype(np.float64), "single": np.dtype(np.float32)}
KIND = "sharded evaluation"  # of files
NAME = re.compile(r"sweep-(\d+)-process-(\d+)-of-(\d+)\.npz")
KEPT = 2
AXIS = "columns"
EVERYWHERE, BY_ROW, BY_COLUMN = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)  # type: ignore[no-untyped-call]

Found = TypeVar("Found")
Numbers = TypeVar("Numbers")
STALLED = 64  # roundings of the largest entry: a residual below that which halves no more is what rounding leaves


@dataclass(frozen=True)
class Sharded:
    """`Solve` with the pairs of states sharded over all devices: those of this process, or of all processes.

    Several processes call ``jax.distributed.initialize`` first and then all evaluate the same. Each device holds an
    equal share of the columns; sweeps are plain. The bits do not depend on the number of devices or processes.
    """

    relative_tolerance: float = 1e-6
    """As in `Solve`."""
    max_sweeps: int = 100_000
    checkpoint: str | os.PathLike[str] | None = None
    """A folder where every process saves its columns now and then, and continues from. The last two are kept."""
    checkpoint_seconds: float = 300.0
    """Seconds between two savings."""
    throw: bool = False
    """Raise `ConvergenceError` instead of warning when the tolerance is missed."""

    def __post_init__(self) -> None:
        checks.as_positive("relative_tolerance", self.relative_tolerance)
        checks.as_count("max_sweeps", self.max_sweeps)
        checks.as_amount("checkpoint_seconds", self.checkpoint_seconds)


def solve_lean(model: JointMDP, policy: Floats, method: Solve) -> FoundMoments[StateMoments]:
    """Second moments of an endless future, on one device with few arrays."""
    checks.as_positive("relative_tolerance", method.relative_tolerance)
    checks.as_count("max_sweeps", method.max_sweeps)
    mesh = Mesh(np.array(jax.local_devices()[:1]), (AXIS,))
    return _solve(model, policy, method, mesh, partial(OneDevice, precision=method.precision), is_whole=False)


def solve_sharded(model: JointMDP, policy: Floats, method: Sharded) -> FoundMoments[StateMoments]:
    """Second moments of an endless future on all devices; every process ends with the same numbers.

    There may be files to continue from, and there are clear words where another process is lost.
    """
    process, processes = jax.process_index(), jax.process_count()
    store = (
        None
        if method.checkpoint is None
        else ShardFiles(method.checkpoint, process, processes, method.checkpoint_seconds)
    )
    with Survivor(process, processes, (lambda: "nothing was saved") if store is None else store.described) as survivor:
        if store is not None:
            store.on_write = survivor.update
        mesh, name = all_devices(), digest(model, policy)
        _check_same(mesh, name)
        if model.sharing == "none":  # there are no pairs
            return solve(model, policy, Solve(method.relative_tolerance, method.max_sweeps))
        _check_size(model, mesh)
        if store is not None:
            store.run = {"digest": name, "devices": mesh.size, "processes": processes}
        is_whole = model.num_states**2 <= WHOLE_LIMIT
        return _solve(model, policy, method, mesh, partial(ManyDevices, mesh, store), is_whole)


# many parameters: a model and how to solve it, and where its columns are
def _solve(
    model: JointMDP,
    policy: Floats,
    method: Solve | Sharded,
    mesh: Mesh,
    place: Callable[[PairProblem, Floats], OneDevice | ManyDevices],
    is_whole: bool,
) -> FoundMoments[StateMoments]:
    branch = from_first(mesh, solve_single_branch(model, policy))
    tables = second_moments.model_tables(model, policy, branch.state.rewards)
    kernel = pair_sweep.pair_kernel(model, policy, may_be_dense=False)
    errors = StateErrors(model, policy, branch)
    target = residual_target([errors], method.relative_tolerance)
    mean = errors.mean + branch.state.offset[:, None]
    v, mean, floor, target = from_first(mesh, (errors.v, mean, errors.floor_of_mean, target))
    problem = PairProblem(kernel, _source(tables, kernel, on_device(v)), tables.discount)
    block = place(problem, branch.variance)
    del problem, kernel  # a device may have its own, and no room for both

    def aim(largest: float) -> float:
        return max(target, FLOOR_SHARE * (floor + errors.relative * largest), block.rounding * largest)

    with Meter("joint moments") as meter:
        done = _swept(block, aim, method.max_sweeps, meter)
        largest, residual = block.certified(from_first(mesh, errors.gap_step), errors.relative, meter)
    shares = branch_shares(largest, errors, model.discount**2, branch.solve_squared, errors.relative)
    certificate = errors.certificate((shares + shares.max())[:, None], residual)
    known = from_first(mesh, {"shares": shares, **vars(certificate)})
    shares = known.pop("shares")
    certificate = Certificate(**known)
    status = reached(certificate, errors, method.relative_tolerance, done >= method.max_sweeps)
    held = block.whole() if is_whole else _same_state(block, model)
    pair_errors = shares[:, None] + shares[None, :] if is_whole else shares[:, None]
    kind = StateMoments if is_whole else SameStateMoments
    gap_errors = GapErrors(from_first(mesh, errors.values), pair_errors)
    moments = kind(model, policy, branch.state.rewards, v, held, branch.variance, mean, gap_errors)
    return FoundMoments(moments, certificate, status, done)


_source = jax.jit(second_moments.gap_source)


def _same_state(block: OneDevice | ManyDevices, model: JointMDP) -> Floats:
    """Σ_w p(w|s) D(S'_a, S'_b) for all actions of all states, ``[S, A, A]``; zero where a = b."""
    S, _, A = model.successors.shape
    found, n = np.zeros((S, A, A)), model.successors.astype(np.int32)
    for a, b in combinations(range(A), 2):
        found[:, a, b] = found[:, b, a] = block.expected(model.probabilities, n[:, :, a], n[:, :, b])
    return found


def _swept(block: OneDevice | ManyDevices, aim: Callable[[float], float], max_sweeps: int, meter: Meter) -> int:
    """Sweeps until the residual is at what is aimed for, or rounding leaves no less; how many there were in all."""
    saver = block if isinstance(block, ManyDevices) and block.store is not None else None
    seconds = math.inf if saver is None or saver.store is None else saver.store.seconds
    done, residual, largest = (0, math.inf, 0.0) if saver is None else saver.resumed()
    first, before, saved_at, saved = math.inf, math.inf, time.monotonic(), done
    while done < max_sweeps and not residual <= aim(largest) and not (done and is_time_over()):
        count = min(LEAST_CHUNK if ends() else CHUNK, max_sweeps - done)
        residual, largest, waited = block.run(count, time.monotonic() - saved_at)
        done += count
        first = residual if math.isinf(first) else first
        target = aim(largest)
        meter.update(swept_share(first, residual, target), f"residual {residual:.1e}, target {target:.1e}")
        # The longest time of all processes is the same number for all of them.
        if saver is not None and waited >= seconds:
            saver.save(done, residual, largest)
            saved_at, saved = time.monotonic(), done
        if residual > before / 2 and residual < STALLED * block.rounding * largest:
            break
        before = residual
    if saver is not None and saved < done:
        saver.save(done, residual, largest)
    return done


# many parameters: a recursion and a block of its candidate, and what its errors are made of
def _maxima(
    problem: PairProblem,
    columns: Columns,
    stored: Array,
    steps: tuple[Array, ...],
    relative: float | Array,
    largest: Array,
    is_real: Array | bool = True,
    met: Array | None = None,
) -> tuple[Array, Array]:
    """Of a block of columns: the largest ρ of each state with states alive and idle, ``[2, S]``, and the residual.

    ρ is that of `pair_solver`: the residual of one more sweep, its rounding, and the errors of the values.
    """
    here, idle = columns.here, steps[2]
    after, apart = sweep_columns(problem, columns, met)
    after = jnp.where(is_real, after, 0.0)
    rho, residual = step_errors(after, stored, apart, problem.added.same, steps, here, relative, largest)
    rho = jnp.where(is_real, rho, 0.0)

    # What is stored may be symmetric only up to rounding: rows count as well as columns.
    def by_state(others: Array) -> Array:
        rows = jnp.max(jnp.where(others[None, here], rho, 0.0), axis=1)
        return rows.at[here].max(jnp.max(jnp.where(others[:, None], rho, 0.0), axis=0))

    return jnp.stack([by_state(~idle), by_state(idle)]), jnp.max(residual)


# -- one device ------------------------------------------------------------------------------------------------------


class OneDevice:
    """All columns on one device."""

    def __init__(self, problem: PairProblem, B: Floats, precision: str) -> None:
        self.problem, word = problem._replace(added=_stored(problem.added)), WORDS[precision]
        self.rounding = float(np.finfo(word).eps)
        fast = jax.tree.map(lambda x: x.astype(word) if x.dtype == np.float64 else x, self.problem)
        D = _first_guess(on_device(B), problem.added.same, dtype=word)
        self.sweeps = plain_sweeps(fast, D, is_symmetric=True, is_donated=True)
        self.D: Array

    def run(self, count: int, waited: float) -> tuple[float, float, float]:
        """`count` sweeps: the size of the last step, the largest entry, and the time that was waited."""
        return self.sweeps.run(count), self.sweeps.largest(), waited

    def certified(self, steps: tuple[Any, ...], relative: float, meter: Meter) -> tuple[Floats, float]:
        """The largest ρ of each state, and the residual; sweeps end here."""
        self.D = D = _symmetric(self.sweeps.take())
        del self.sweeps  # room
        S = len(D)
        width = min(S, max(1, BLOCK_BYTES // (8 * S)))
        found, worst = np.zeros((2, S)), 0.0
        met, largest = _met(self.problem.kernel, D), jnp.max(D).astype(np.float64)
        errors = tuple(on_device(each) for each in steps)
        for start in range(0, S, width):
            begin = min(start, S - width)  # the last block may repeat some columns: one shape for all
            rho, residual = _block_maxima(self.problem, D, met, largest, errors, relative, begin, width=width)
            found, worst = np.maximum(found, np.asarray(rho)), max(worst, float(residual))
            meter.update(start / S, "certificate")
        return found, worst

    def expected(self, probabilities: Floats, s: NDArray[np.int32], t: NDArray[np.int32]) -> Floats:
        """Σ_w p(w) D(s_w, t_w) for each row."""
        return np.asarray(_expected(self.D, *(on_device(each) for each in (probabilities, s, t))))

    def whole(self) -> Floats:
        """All columns on the host."""
        return np.asarray(self.D)


_stored = jax.jit(lambda added: added.stored())
_met = jax.jit(pair_sweep.met)
_expected = jax.jit(lambda D, p, s, t: jnp.sum(p * D[s, t], axis=1))


@partial(jax.jit, static_argnames="dtype")
def _first_guess(B: Array, same: Array, dtype: np.dtype[Any]) -> Array:
    """B(s) + B(t), as if branches that are apart had nothing in common."""
    B, here = B.astype(dtype), jnp.arange(len(B))
    return (B[:, None] + B[None, :]).at[here, here].set(same.astype(dtype))


@partial(jax.jit, donate_argnames="D")
def _symmetric(D: Array) -> Array:
    """Sweeps in one precision keep symmetry up to rounding only, and the certificate counts on it."""
    return jnp.maximum((D + D.T) / 2, 0.0)


@partial(jax.jit, static_argnames="width")
def _block_maxima(
    problem: PairProblem,
    D: Array,
    met: Array,
    largest: Array,
    steps: tuple[Array, ...],
    relative: float,
    begin: int,
    width: int,
) -> tuple[Array, Array]:
    stored = jax.lax.dynamic_slice_in_dim(D, begin, width, 1).astype(np.float64)
    return _maxima(problem, columns_of_whole(D, begin, width), stored, steps, relative, largest, met=met)


# -- many devices ----------------------------------------------------------------------------------------------------


class Padded(NamedTuple):
    """A recursion on every device, with padding, and how many states it has without."""

    problem: PairProblem
    states: Array


class ManyDevices:
    """An equal share of the columns on each device of a mesh, whose processes all run the same program."""

    rounding = 0.0  # sweeps go on to what is aimed for

    def __init__(self, mesh: Mesh, store: ShardFiles | None, problem: PairProblem, B: Floats) -> None:
        self.mesh, self.store, self.size = mesh, store, len(B)
        by_second, fixed = {"weights", "columns", "steps"}, {"chances", "law", "discount"}

        def placed(path: tuple[Any, ...], array: Array) -> Array:
            name = path[-1].name
            return everywhere(mesh, np.asarray(array)) if name in fixed else self._padded(array, int(name in by_second))

        padded = jax.tree_util.tree_map_with_path(placed, problem)
        self.problem = Padded(padded, everywhere(mesh, np.asarray(self.size, dtype=np.int32)))
        self.D = _sharded_guess(self.problem, self._padded(B), mesh=mesh)

    def _padded(self, values: Any, axis: int = 0) -> Array:
        values = np.asarray(values)
        room = [(0, -self.size % self.mesh.size if i == axis else 0) for i in range(values.ndim)]
        return everywhere(self.mesh, np.pad(values, room))

    def run(self, count: int, waited: float) -> tuple[float, float, float]:
        """`count` sweeps: the size of the last step, the largest entry, the longest that any process has waited."""
        times = own_rows(self.mesh, np.array([waited]))
        self.D, known = _sharded_sweeps(self.problem, self.D, jnp.asarray(count), times, mesh=self.mesh)
        residual, largest, longest = np.asarray(known.addressable_data(0)).tolist()
        return residual, largest, longest

    def certified(self, steps: tuple[Any, ...], relative: float, meter: Meter) -> tuple[Floats, float]:
        """The largest ρ of each state, and the residual; nothing is below zero from here on."""
        errors = tuple(self._padded(each) for each in steps)
        found = _sharded_maxima(self.problem, self.D, errors, jnp.asarray(relative), mesh=self.mesh)
        self.D, maxima, residual = found
        return np.asarray(maxima.addressable_data(0))[:, : self.size], float(np.asarray(residual.addressable_data(0)))

    def expected(self, probabilities: Floats, s: NDArray[np.int32], t: NDArray[np.int32]) -> Floats:
        """Σ_w p(w) D(s_w, t_w) for each row."""
        given = (everywhere(self.mesh, each) for each in (probabilities, s, t))
        return np.asarray(_sharded_expected(self.D, *given, mesh=self.mesh).addressable_data(0))

    def whole(self) -> Floats:
        """All columns on the host of every process."""
        return whole(self.mesh, self.D)[: self.size, : self.size]

    def save(self, done: int, residual: float, largest: float) -> None:
        """Write the columns of this process."""
        assert self.store is not None
        columns = {_name(shard.index): np.asarray(shard.data) for shard in self.D.addressable_shards}
        write = partial(self.store.write, done, {"residual": residual, "largest": largest}, columns)
        together(self.mesh, write)

    def resumed(self) -> tuple[int, float, float]:
        """What was saved after the last sweep of which every process has its columns; else the beginning."""
        assert self.store is not None
        mesh, store, like = self.mesh, self.store, self.D
        sweeps, faults = together(mesh, store.saved)
        for fault in faults:
            warnings.warn(fault, UserWarning, stacklevel=2)
        offered = np.full(2, -1.0)
        offered[: len(sweeps)] = sorted(sweeps)[-2:]
        everyone = gathered(mesh, offered)
        common = {float(each) for each in everyone[0] if each >= 0 and np.all(np.any(everyone == each, axis=1))}
        if not common and np.any(everyone >= 0):
            message = "no saved sweep is whole in all processes; the first one is begun anew"
            warnings.warn(message, UserWarning, stacklevel=2)
        last = int(max(common, default=0))

        def read() -> tuple[int, float, float]:
            store.forget_after(last)
            if not common:
                return 0, math.inf, 0.0
            known, arrays = store.read(last)
            names = [_name(shard.index) for shard in like.addressable_shards]
            shape = (like.shape[0], like.shape[1] // like.sharding.num_devices)
            if sorted(arrays) != sorted(names) or any(each.shape != shape for each in arrays.values()):
                raise ModelError(
                    f"the checkpoint of sweep {last} holds other columns than this process has; start the processes in "
                    "the same order, with the same devices each"
                )
            self.D = jax.make_array_from_callback(like.shape, like.sharding, lambda index: arrays[_name(index)])
            return last, known["residual"], known["largest"]

        return together(mesh, read)


def _name(index: tuple[slice, ...] | None) -> str:
    assert index is not None
    return f"columns{index[1].start or 0}"


def _check_same(mesh: Mesh, name: str) -> None:
    parts = [float(int(name[i : i + 12], 16)) for i in range(0, 48, 12)]  # exact in float64
    everyone = gathered(mesh, np.array(parts))
    if odd := [str(i) for i in np.flatnonzero(np.any(everyone != everyone[0], axis=1))]:
        raise ModelError(
            f"process {', '.join(odd)} evaluates another model or policy than process 0; every process must build the "
            "same one, from the same seed where there is one"
        )


def _check_size(model: JointMDP, mesh: Mesh) -> None:
    states, pairs = model.num_states, model.num_states**2
    if pairs / mesh.size > PAIR_LIMIT:
        raise ModelError(
            f"{states:,} states make {pairs:,} pairs, over {mesh.size} devices more than the {PAIR_LIMIT:,} numbers "
            f"that fit on one; use at least {math.ceil(pairs / PAIR_LIMIT)} devices"
        )
    blocks = states * model.num_actions**2
    if pairs > WHOLE_LIMIT and blocks > BLOCK_LIMIT:
        raise ModelError(
            f"{states:,} states × {model.num_actions:,}² actions have {blocks:,} covariances, more than the "
            f"{BLOCK_LIMIT:,} that every process keeps"
        )


# What follows runs on every device with its own columns ``D[:, J]``.


def _total(values: Array) -> Array:
    return jax.lax.psum(values, AXIS)  # type: ignore[no-untyped-call]


def _own(D: Array) -> Columns:
    """The columns at hand, and how they come by those of other devices."""
    first = jax.lax.axis_index(AXIS) * D.shape[1]

    def turned(weights: Array, places: Array) -> Array:
        # The barriers keep XLA from gathering in the transposed array, against the order of memory.
        H = jax.lax.optimization_barrier(row_product(weights, places, D))  # type: ignore[no-untyped-call]
        return jax.lax.optimization_barrier(jax.lax.all_to_all(H, AXIS, 0, 1, tiled=True).T)  # type: ignore[no-untyped-call]

    def entries(s: Array, t: Array) -> Array:
        place = t - first
        is_here = (place >= 0) & (place < D.shape[1])
        return _total(jnp.where(is_here, D[s, jnp.where(is_here, place, 0)], 0.0))

    return Columns(first + jnp.arange(D.shape[1]), turned, entries)


def _is_real(padded: Padded, here: Array) -> Array:
    return (jnp.arange(len(padded.problem.added.same)) < padded.states)[:, None] & (here < padded.states)[None, :]


def _sweep(padded: Padded, D: Array) -> Array:
    columns = _own(D)
    return jnp.where(_is_real(padded, columns.here), sweep_columns(padded.problem, columns)[0], 0.0)


def _on_all(specs: tuple[Any, ...], out: Any, donated: tuple[int, ...] = ()) -> Callable[..., Callable[..., Any]]:
    """A program that each device of a `mesh` runs on its own part of the arrays."""

    def wrap(program: Callable[..., Any]) -> Callable[..., Any]:
        @partial(jax.jit, static_argnames="mesh", donate_argnums=donated)
        def run(*arrays: Any, mesh: Mesh) -> Any:
            return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(*arrays)

        return run

    return wrap


@_on_all((EVERYWHERE, EVERYWHERE), BY_COLUMN)
def _sharded_guess(padded: Padded, B: Array) -> Array:
    here = _own(jnp.zeros((len(B), len(B) // jax.lax.axis_size(AXIS)))).here
    D = (B[:, None] + B[None, here]).at[here, jnp.arange(len(here))].set(padded.problem.added.same[here])
    return jnp.where(_is_real(padded, here), D, 0.0)


@_on_all((EVERYWHERE, BY_COLUMN, EVERYWHERE, BY_ROW), (BY_COLUMN, EVERYWHERE), donated=(1,))
def _sharded_sweeps(padded: Padded, D: Array, count: Array, waited: Array) -> tuple[Array, Array]:
    """`count` sweeps; the size of the last step, the largest entry, and the largest of `waited`, a row per device."""
    D = jax.lax.fori_loop(0, count - 1, lambda _, D: _sweep(padded, D), D)
    after = _sweep(padded, D)
    return after, _largest(jnp.stack([jnp.max(jnp.abs(after - D)), jnp.max(after), waited[0, 0]]))


@_on_all((EVERYWHERE, BY_COLUMN, EVERYWHERE, EVERYWHERE), (BY_COLUMN, EVERYWHERE, EVERYWHERE), donated=(1,))
def _sharded_maxima(padded: Padded, D: Array, errors: tuple[Array, ...], relative: Array) -> tuple[Array, Array, Array]:
    """D with nothing below zero, and `_maxima` of all columns."""
    D = jnp.maximum(D, 0.0)
    columns, top = _own(D), _largest(jnp.max(D))
    rho, residual = _maxima(padded.problem, columns, D, errors, relative, top, _is_real(padded, columns.here))
    return D, _largest(rho), _largest(residual)


@_on_all((BY_COLUMN, EVERYWHERE, EVERYWHERE, EVERYWHERE), EVERYWHERE)
def _sharded_expected(D: Array, probabilities: Array, s: Array, t: Array) -> Array:
    return jnp.sum(probabilities * _own(D).entries(s, t), axis=1)


# -- all devices of all processes in one row, and numbers on which the processes agree -------------------------------


def all_devices() -> Mesh:
    """The devices of JAX, of this process alone or of all that `jax.distributed` has joined."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), (AXIS,))


def _largest(values: Array) -> Array:
    """The largest of all devices; to be called on each of them."""
    return jax.lax.pmax(values, AXIS)  # type: ignore[no-untyped-call]


def everywhere(mesh: Mesh, values: NDArray[Any]) -> Array:
    """Numbers that every process has, on every device."""
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, EVERYWHERE), lambda index: values[index])


def own_rows(mesh: Mesh, values: Floats) -> Array:
    """This process's numbers ``[k]`` as the rows of its devices in an array ``[devices, k]``."""
    shape = (mesh.size, len(values))
    return jax.make_array_from_callback(shape, NamedSharding(mesh, BY_ROW), lambda _: values[None, :])


def gathered(mesh: Mesh, values: Floats) -> Floats:
    """The numbers ``[k]`` of each process, ``[processes, k]``."""
    rows = np.asarray(_copied(own_rows(mesh, values), mesh=mesh).addressable_data(0))
    owners = [device.process_index for device in mesh.devices]
    return rows[[owners.index(process) for process in range(max(owners) + 1)]]


@partial(jax.jit, static_argnames="mesh")
def _copied(values: Array, mesh: Mesh) -> Array:
    return jax.lax.with_sharding_constraint(values, NamedSharding(mesh, EVERYWHERE))  # type: ignore[no-untyped-call]


def whole(mesh: Mesh, values: Array) -> Floats:
    """A sharded array on the host of every process."""
    return np.asarray(_copied(values, mesh=mesh).addressable_data(0))


def from_first(mesh: Mesh, tree: Numbers) -> Numbers:
    """`tree` with the floats and arrays of floats of process 0 in place of everybody's own.

    Libraries of linear algebra round as suits the processor they run on.
    """
    if mesh.is_multi_process:
        leaves, structure = jax.tree.flatten(tree)
        places = [i for i, leaf in enumerate(leaves) if np.asarray(leaf).dtype == np.float64]
        sizes = [np.size(leaves[i]) for i in places]
        flat = np.concatenate([np.ravel(leaves[i]) for i in places])
        found = np.asarray(_first_row(own_rows(mesh, flat), mesh=mesh).addressable_data(0))
        for i, part in zip(places, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
            own = leaves[i]
            leaves[i] = part.reshape(own.shape) if isinstance(own, np.ndarray) else float(part[0])
        tree = jax.tree.unflatten(structure, leaves)
    return tree


@_on_all((BY_ROW,), EVERYWHERE)
def _first_row(rows: Array) -> Array:
    return _total(jnp.where(jax.lax.axis_index(AXIS) == 0, rows[0], 0.0))


def together(mesh: Mesh, action: Callable[[], Found]) -> Found:
    """Do something in every process, after which either all go on or all raise."""
    result, error = None, None
    try:
        result = action()
    except ModelError as found:
        error = found
    failed = gathered(mesh, np.array([float(error is not None)]))[:, 0]
    if error is not None:
        raise error
    if np.any(failed):
        others = ", ".join(str(process) for process in np.flatnonzero(failed))
        raise ModelError(f"process {others} of {len(failed)} could not go on; its own message says why")
    return result  # type: ignore[return-value]


# -- files ----------------------------------------------------------------------------------------------------------


class ShardFiles:
    """The files of one process, named for their sweep, their process and the number of processes.

    Each is sealed, and says inside which run it belongs to. A sweep counts once every process has its file; no process
    can be more than one checkpoint ahead of another, so the last two are enough. The folder may lie on a file system
    that all processes see, or on a disk of each machine.
    """

    def __init__(self, folder: FilePath, process: int, processes: int, seconds: float = math.inf) -> None:
        self.folder, self.process, self.processes, self.seconds = path_name(folder), process, processes, seconds
        self.last: int | None = None  # sweep that this process has read or written
        self.on_write: Callable[[], None] | None = None
        self.run: Mapping[str, Any] = {}  # what says that files belong together

    def described(self) -> str:
        """What is saved, and where."""
        if self.last is None:
            return f"no sweep was saved in {self.folder!r} yet"
        return f"sweep {self.last} is saved in {self.folder!r}"

    def saved(self) -> tuple[list[int], list[str]]:
        """The sweeps whose file is there and whole, and what is wrong with others; refuses those of other runs."""
        make_folder(self.folder)
        found = [(path, NAME.fullmatch(path)) for path in sorted(os.listdir(self.folder))]
        if others := {int(match[3]) for _, match in found if match} - {self.processes}:
            raise ModelError(
                f"the checkpoint {self.folder!r} belongs to a run of {min(others)} processes, and here are "
                f"{self.processes}; start as many, delete it to start anew, or give another folder"
            )
        sweeps, faults = [], []
        for sweep in self._sweeps():
            try:
                page, _ = archives.read(self._path(sweep))
            except ModelError as error:
                faults.append(f"{error}; an earlier sweep is used instead")
                continue
            archives.check_page(self._path(sweep), page, KIND, self.run)
            sweeps.append(sweep)
        return sweeps, faults

    def read(self, sweep: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `write` was given."""
        (known,), arrays = archives.read_checkpoint(self._path(sweep), KIND, self.run)
        self._keep(sweep)
        return known, arrays

    def write(self, sweep: int, known: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the file of a sweep, whole or not at all, and remove all but the last two."""
        archives.write_checkpoint(self._path(sweep), KIND, self.run, [dict(known)], arrays)
        for old in self._sweeps()[:-KEPT]:
            os.unlink(self._path(old))
        self._keep(sweep)

    def forget_after(self, sweep: int) -> None:
        """Remove the files of later sweeps."""
        for later in self._sweeps():
            if later > sweep:
                os.unlink(self._path(later))

    def _keep(self, sweep: int) -> None:
        self.last = sweep
        if self.on_write is not None:
            self.on_write()

    def _sweeps(self) -> list[int]:
        matches = (NAME.fullmatch(path) for path in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match and int(match[2]) == self.process)

    def _path(self, sweep: int) -> str:
        return os.path.join(self.folder, f"sweep-{sweep:09d}-process-{self.process}-of-{self.processes}.npz")
