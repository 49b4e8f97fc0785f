"""The default method with its pairs of states sharded over devices and processes: plain sweeps and checkpoints.

Checkpoints of a run whose arrays are sharded over processes: each process has files of its own in one folder.

A file is named for its sweep, its process and the number of processes, and says inside which run it belongs to. It
is sealed, so that damage is noticed. A sweep counts once every process has its file; no process can be more than one
checkpoint ahead of another, so the last two are enough. The folder may lie on a file system that all processes see, or
on a disk of each machine.
"""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from jointmdp.exact.bellman import second_moments
from jointmdp.exact.moments import device_mesh, sharded_pairs, transition_kernels
from jointmdp.exact.moments.certificates import Certificate, StateErrors
from jointmdp.exact.moments.default_solver import FoundMoments, reached, residual_target, solve
from jointmdp.exact.moments.device_mesh import everywhere, from_first, together
from jointmdp.exact.moments.gap_variances import branch_shares
from jointmdp.exact.moments.pair_solver import CHUNK, FLOOR_SHARE, PAIR_LIMIT, Solve, swept_share
from jointmdp.exact.moments.sharded_pairs import ShardedProblem, StepErrors
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.exact.moments.stored_moments import GapErrors, SameStateMoments, StateMoments
from jointmdp.ground import archives, checks
from jointmdp.ground.arrays import Bools, Floats, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.lost_processes import Survivor
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP

WHOLE_LIMIT = 2**26  # numbers: as many pairs are kept whole by every process, 512 MiB
BLOCK_LIMIT = 2**28  # numbers: of more states, those that actions of one state need


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


class ShardStore(Protocol):
    """Where a process keeps its own columns."""

    def saved(self, run: Mapping[str, Any]) -> tuple[list[int], list[str]]:
        """The sweeps whose columns are there and whole, and what is wrong with others; refuses those of other runs."""

    def read(self, sweep: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `write` was given."""

    def write(self, sweep: int, known: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep the columns after a sweep, and forget all but the last two."""

    def forget_after(self, sweep: int) -> None:
        """Remove what belongs to later sweeps."""


class Progress(NamedTuple):
    """Where the sweeps stand."""

    D: Array
    sweeps: int = 0
    residual: float = math.inf
    largest: float = 0.0


def solve_sharded(model: JointMDP, policy: Floats, method: Sharded, store: ShardStore | None) -> FoundMoments:
    """Second moments of an endless future; every process ends with the same numbers."""
    tolerance, mesh = method.relative_tolerance, device_mesh.all_devices()
    digest = transition_kernels.digest(model, policy)
    _check_same(mesh, digest)
    if model.sharing == "none":  # there are no pairs
        return solve(model, policy, Solve(tolerance, method.max_sweeps))
    states = model.num_states
    _check_size(model, mesh)
    branch = from_first(mesh, solve_single_branch(model, policy))
    tables = transition_kernels.tables(model, policy, branch.state.rewards)
    kernel = transition_kernels.pair_kernel(model, policy, may_be_dense=False)
    v = np.asarray(second_moments.state_mean(tables, on_device(branch.mean)))
    mean = np.asarray(second_moments.mean(tables, on_device(v))) + branch.state.offset[:, None]
    errors = StateErrors(model, policy, branch)
    v, mean, floor, target = from_first(mesh, (v, mean, errors.floor_of_mean, residual_target(errors, tolerance)))
    problem = sharded_pairs.sharded_problem(mesh, tables, kernel, on_device(v))

    def aim(largest: float) -> float:
        return max(target, FLOOR_SHARE * (floor + errors.relative * largest))

    run = {"digest": digest, "devices": mesh.size, "processes": jax.process_count()}
    B = everywhere(mesh, _padded(mesh, branch.variance))
    begun = Progress(sharded_pairs.first_guess(problem, B, mesh=mesh))
    if store is not None:
        begun = _resumed(mesh, begun, store, run)
    with Meter("joint moments") as meter:
        done = _swept(mesh, problem, begun, aim, method, store, meter)
    steps = StepErrors(*(everywhere(mesh, _padded(mesh, each)) for each in from_first(mesh, errors.gap_step)))
    D, maxima, residual = sharded_pairs.step_maxima(problem, done.D, steps, errors.relative, mesh=mesh)
    largest = np.asarray(maxima.addressable_data(0))[:, :states]
    shares = branch_shares(largest, errors, model.discount**2, branch.solve_squared, errors.relative)
    certificate = errors.certificate((shares + shares.max())[:, None], _number(residual))
    known = from_first(mesh, {"shares": shares, **vars(certificate)})
    shares = known.pop("shares")
    certificate = Certificate(**known)
    status = reached(certificate, errors, tolerance, done.sweeps >= method.max_sweeps)
    is_whole = states**2 <= WHOLE_LIMIT
    held = device_mesh.whole(mesh, D)[:states, :states] if is_whole else _same_state(mesh, D, model)
    pair_errors = shares[:, None] + shares[None, :] if is_whole else shares[:, None]
    kind = StateMoments if is_whole else SameStateMoments
    gap_errors = GapErrors(from_first(mesh, errors.values), pair_errors)
    moments = kind(model, tables, on_device(v), on_device(held), on_device(branch.variance), mean, gap_errors)
    return FoundMoments(moments, certificate, status, done.sweeps)


def _same_state(mesh: Mesh, D: Array, model: JointMDP) -> Floats:
    return sharded_pairs.later_variances(mesh, D, model.probabilities, model.successors)


def _padded(mesh: Mesh, values: Floats | Bools) -> NDArray[Any]:
    return np.pad(values, (0, -len(values) % mesh.size))


def _number(value: Array) -> float:
    return float(np.asarray(value.addressable_data(0)))


def _check_same(mesh: Mesh, digest: str) -> None:
    parts = [float(int(digest[i : i + 12], 16)) for i in range(0, 48, 12)]  # exact in float64
    everyone = device_mesh.gathered(mesh, np.array(parts))
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


# many parameters: a problem and where it stands, how long to go on, and who is told
def _swept(
    mesh: Mesh,
    problem: ShardedProblem,
    begun: Progress,
    aim: Callable[[float], float],
    method: Sharded,
    store: ShardStore | None,
    meter: Meter,
) -> Progress:
    """Sweeps until the residual is at what is aimed for."""
    D, done, residual, largest = begun
    first, saved_at, saved = math.inf, time.monotonic(), done
    while done < method.max_sweeps and not residual <= aim(largest):
        count = min(CHUNK, method.max_sweeps - done)
        waited = device_mesh.own_rows(mesh, np.array([time.monotonic() - saved_at]))
        swept = sharded_pairs.sharded_sweeps(problem, D, count, waited, mesh=mesh)
        D, done = swept.D, done + count
        residual, largest, longest = (_number(each) for each in swept[1:])
        first = residual if math.isinf(first) else first
        target = aim(largest)
        meter.update(swept_share(first, residual, target), f"residual {residual:.1e}, target {target:.1e}")
        # The longest time of all processes is the same number for all of them.
        if store is not None and longest >= method.checkpoint_seconds:
            _save(mesh, Progress(D, done, residual, largest), store)
            saved_at, saved = time.monotonic(), done
    found = Progress(D, done, residual, largest)
    if store is not None and saved < done:
        _save(mesh, found, store)
    return found


def _save(mesh: Mesh, found: Progress, store: ShardStore) -> None:
    known = {"residual": found.residual, "largest": found.largest}
    columns = {_name(shard.index): np.asarray(shard.data) for shard in found.D.addressable_shards}
    together(mesh, lambda: store.write(found.sweeps, known, columns))


def _name(index: tuple[slice, ...] | None) -> str:
    assert index is not None
    return f"columns{index[1].start or 0}"


def _resumed(mesh: Mesh, begun: Progress, store: ShardStore, run: Mapping[str, Any]) -> Progress:
    """What was saved after the last sweep of which every process has its columns; else the beginning."""
    sweeps, faults = together(mesh, lambda: store.saved(run))
    for fault in faults:
        warnings.warn(fault, UserWarning, stacklevel=2)
    offered = np.full(2, -1.0)
    offered[: len(sweeps)] = sorted(sweeps)[-2:]
    everyone = device_mesh.gathered(mesh, offered)
    common = {float(each) for each in everyone[0] if each >= 0 and np.all(np.any(everyone == each, axis=1))}
    if not common and np.any(everyone >= 0):
        message = "no saved sweep is whole in all processes; the first one is begun anew"
        warnings.warn(message, UserWarning, stacklevel=2)
    last = int(max(common, default=0))

    def read() -> Progress:
        store.forget_after(last)
        return _read(store, last, begun.D) if common else begun

    return together(mesh, read)


def _read(store: ShardStore, sweep: int, like: Array) -> Progress:
    known, arrays = store.read(sweep)
    names = [_name(shard.index) for shard in like.addressable_shards]
    shape = (like.shape[0], like.shape[1] // like.sharding.num_devices)
    if sorted(arrays) != sorted(names) or any(each.shape != shape for each in arrays.values()):
        raise ModelError(
            f"the checkpoint of sweep {sweep} holds other columns than this process has; start the processes in the "
            "same order, with the same devices each"
        )
    assert isinstance(like.sharding, NamedSharding)
    D = jax.make_array_from_callback(like.shape, like.sharding, lambda index: arrays[_name(index)])
    return Progress(D, sweep, known["residual"], known["largest"])


KIND = "sharded evaluation"
NAME = re.compile(r"sweep-(\d+)-process-(\d+)-of-(\d+)\.npz")
KEPT = 2


class ShardFiles:
    """The files of one process."""

    def __init__(self, folder: FilePath, process: int, processes: int) -> None:
        self.folder, self.process, self.processes = path_name(folder), process, processes
        self.last: int | None = None  # sweep that this process has read or written
        self.on_write: Callable[[], None] | None = None
        self._run: Mapping[str, Any] = {}

    def described(self) -> str:
        """What is saved, and where."""
        if self.last is None:
            return f"no sweep was saved in {self.folder!r} yet"
        return f"sweep {self.last} is saved in {self.folder!r}"

    def saved(self, run: Mapping[str, Any]) -> tuple[list[int], list[str]]:
        """The sweeps whose file is there and whole, and what is wrong with others; refuses those of other runs."""
        make_folder(self.folder)
        self._run = run
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
            archives.check_page(self._path(sweep), page, KIND, run)
            sweeps.append(sweep)
        return sweeps, faults

    def read(self, sweep: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `write` was given."""
        (known,), arrays = archives.read_checkpoint(self._path(sweep), KIND, self._run)
        self._keep(sweep)
        return known, arrays

    def write(self, sweep: int, known: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the file of a sweep, whole or not at all, and remove all but the last two."""
        archives.write_checkpoint(self._path(sweep), KIND, self._run, [dict(known)], arrays)
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


def solve_checkpointed(model: JointMDP, policy: Floats, method: Sharded) -> FoundMoments:
    """`solve_sharded` with files to continue from, and clear words where another process is lost."""
    process, processes = jax.process_index(), jax.process_count()
    store = None if method.checkpoint is None else ShardFiles(method.checkpoint, process, processes)
    with Survivor(process, processes, (lambda: "nothing was saved") if store is None else store.described) as survivor:
        if store is not None:
            store.on_write = survivor.update
        return solve_sharded(model, policy, method, store)
