"""The probe in other processes: walks of a simulator in a copy of this process, and in new interpreters.

A copy of this whole process leaves no trace here: what is tried out is the simulator itself, with all that it points
to, and not a copy that somebody's code made. Only threads do not come along, so nothing that computes with JAX is run
this way. A new interpreter has other hashes of texts, other addresses, and nothing that ran before.
"""

from __future__ import annotations

import dis
import gc
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, get_context, util
from multiprocessing.synchronize import SemLock
from types import CodeType, FrameType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.simulation.simulators.fingerprints import CLOSED, LIBRARIES, walk
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome
from jointmdp.simulation.watching.caches_and_globals import memories, refilled, without
from jointmdp.simulation.watching.probe import ObservedOutcome, Probe, clear_difference

HANDLES = (socket.socket, subprocess.Popen, io.FileIO)  # what both processes would go on using
WALKS, STEPS = 2, 6
GROUP = 64  # memories that are tried at once
SEEDS, MORE_SECONDS = 48, 0.25  # of functions of a decision and a seed; one seed where they are slow
SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jointmdp.simulation.watching.other_processes import main; main()"
)
HASHING = {"hash", "id", "set", "frozenset", "getpid", "urandom", "uuid4", "gethostname"}
SETS = {"BUILD_SET", "SET_ADD", "SET_UPDATE"}
KNOWN = (*LIBRARIES, "jointmdp", "gymnasium", "unittest", "mock")  # whose code is the same in every process
STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen"})


class ForkedRun:
    """A call in a copy of this process as it is now; it begins when it is waited for.

    Both at once would write and read the same files: a model that hands its engine an input file finds the other's.
    """

    def __init__(self, call: Callable[[], Any], may_write: bool = True) -> None:
        """A copy that was changed may not write: what it does must not come into a file of the user's."""
        self._answers, there = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads do not come along, and nothing here needs them
            self._pid = os.fork()
        if self._pid == 0:
            try:
                gc.disable()
                self._answers.close()  # so that it ends with the process that asks
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                there.recv()
                _keep_to_itself(_between_processes)
                if not may_write:
                    _write_nothing()
                there.send(call())
            finally:
                os._exit(0)
        there.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Nobody asks any more."""
        if getattr(self, "_pid", 0):
            self.result(0.0)

    def result(self, seconds: float) -> Any:
        """What the call returned; None where it failed or took longer."""
        try:
            if seconds > 0:
                self._answers.send(None)
            return self._answers.recv() if self._answers.poll(seconds) else None
        except (EOFError, OSError):
            return None
        finally:
            self._answers.close()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


CHANGING = ("os.", "shutil.", "sqlite3.connect", "subprocess.", "socket.connect", "tempfile.")  # events of a program
HARMLESS = (
    "os.listdir",
    "os.scandir",
    "os.walk",
    "os.fwalk",
    "os.getxattr",
    "os.listxattr",
    "os.putenv",
    "os.unsetenv",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _write_nothing() -> None:
    """In a copy that ends soon: no file is opened to be written, before it is emptied; none that is open grows."""
    import resource  # where there are copies of processes there is this, and not on Windows

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        is_opened = event == "open" and isinstance(given[2], int) and given[2] & WRITING and given[0] != os.devnull
        if is_opened or (event.startswith(CHANGING) and event not in HARMLESS):
            raise PermissionError(f"{event}: a changed copy of the process leaves everything as it is")

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    sys.addaudithook(refuse)


_between_processes: list[Any] = []  # locks that a copy of this process would share with it


def _locks_between_processes() -> list[Any]:
    """Those of `multiprocessing`, and of what is made like it: all of them ask to be told of copies."""
    told = getattr(util, "_afterfork_registry", {})
    return [each for each in list(told.values()) if "_semlock" in getattr(each, "__dict__", ())]


def _keep_to_itself(locks: list[Any]) -> None:
    """In a copy, which may be ended while it holds a lock: it has locks of its own, held as they were.

    A progress bar of tqdm holds such a lock now and then, and the process that was copied would wait for it for ever.
    """
    context = get_context("fork")
    for each in locks:
        with suppress(Exception):  # a lock that is made in another way stays as it is
            old = each._semlock
            is_mutex = old.maxvalue == 1  # what another thread holds is free here, where that thread is not
            SemLock.__init__(each, old.kind, 1 if is_mutex else old._get_value(), old.maxvalue, ctx=context)
            for _ in range(old._count() if is_mutex and old._is_mine() else 0):
                each.acquire()


def forked(simulator: Any, call: Callable[[], Any]) -> ForkedRun | None:
    """The call under way in a copy of this process; None where such a copy is no independent one."""
    if not hasattr(os, "fork") or hasattr(simulator, "query_batch"):
        return None
    reached = walk([simulator], lambda value: not isinstance(value, CLOSED), 8, 5_000)
    if any(isinstance(value, HANDLES) for _, _, value in reached):
        return None
    _between_processes[:] = _locks_between_processes()
    try:
        return ForkedRun(call)
    except (OSError, RuntimeError):  # no memory left, or a library that refuses to be copied now
        return None


class Needed(NamedTuple):
    """What came out of emptying every memory of a model."""

    where: str  # the one without which calls give something else, or nothing
    not_tried: tuple[str, ...]  # for lack of time
    writes: bool = False  # files, so that nothing could be tried


def needed(  # many parameters: calls in two ways, how their results differ, and what is tried for how long
    simulator: Any,
    call: Callable[[], Any],
    otherwise: Callable[[], Any],
    differ: Callable[[Any, Any], Any],
    seconds: float,
    ran: Collection[CodeType] = (),
) -> Needed:
    """Whether a place holds what earlier calls have left there, and `call` gives something else without it.

    They are tried in copies of this process, so that nothing is left of one when others are tried: many at once, and
    where a call fails or differs without them, half of them, down to each alone. What calls with other noise, in
    another order (`otherwise`), fill again to the same effect are settings with a default: no call has left them there.
    """
    all_of_them, begun = [*memories(simulator, ran)], time.monotonic()
    left = [all_of_them[i : i + GROUP] for i in range(0, len(all_of_them), GROUP)]
    first = forked(simulator, call) if left else None
    if first is None:
        return Needed("", ())
    as_it_is = first.result(seconds)
    if as_it_is is not None and ForkedRun(call, may_write=False).result(seconds) is None:
        return Needed("", (), writes=True)
    patience = 1.0 + 20 * (time.monotonic() - begun)  # a model may wait for what is not there any more
    while left and as_it_is is not None and (more := begun + seconds - time.monotonic()) > 0:
        group = left.pop(0)
        run = ForkedRun(lambda: (without(group, as_it_is, call, differ),), may_write=False)  # noqa: B023
        (found,) = run.result(min(patience, more)) or (None,)
        if found is False:
            continue
        if len(group) > 1:
            left[:0] = [group[: len(group) // 2], group[len(group) // 2 :]]
        elif found:
            runs = (
                ForkedRun(lambda: refilled(group[0], fill, call), may_write=False)  # noqa: B023
                for fill in (call, otherwise)
            )
            one, other = (run.result(min(patience, max(begun + seconds - time.monotonic(), 1.0))) for run in runs)
            if one is None or other is None or differ(one[0], other[0]):
                return Needed(group[0].where, ())
        else:
            left[:0] = [[memory] for memory in group[0].instead]
    return Needed("", tuple(dict.fromkeys(memory.where for group in left for memory in group)))


checks_made = itertools.count()  # by this process: each looks at noise that nothing kept from those before has met
Rows = dict[tuple[int, int, int], ObservedOutcome]  # by walk, step, and whether it was taken or only asked for


def walked(  # many parameters: a walk, its place, and how long it is
    simulator: Any,
    seed: int,
    check: int,
    actions: Sequence[Action],
    is_backwards: bool = False,
    seeds: int = SEEDS,
) -> Rows:
    """Short walks from the start, and beside each step another action; everything in the other order if told so."""
    probe, found = Probe(simulator, seed), {}
    turn = -1 if is_backwards else 1

    def ask(number: int, t: int, i: int, state: Any, action: Action, noise: Noise) -> Any:
        outcome = Outcome(*simulator.query(state, [action], noise)[0])
        found[number, t, i] = probe.look(outcome, "elsewhere")._replace(state=None, identity=b"")
        return outcome.state

    if isinstance(simulator, RunSimulator):  # every decision with a few seeds: what one leaves behind may seldom show
        begun = time.monotonic()
        for number in range(seeds):
            if number and time.monotonic() - begun > MORE_SECONDS:
                break
            noise = Noise("audit", seed, "process", check, number)
            for i in range(len(actions))[::turn]:
                ask(number, 0, i, simulator.start(noise), actions[i], noise)
        return found
    begun = time.monotonic()
    for number in (*range(WALKS)[::turn], *range(WALKS, seeds)):
        if number >= WALKS and time.monotonic() - begun > MORE_SECONDS:
            break
        state = simulator.start(Noise("audit", seed, "process", check, number))
        for t in range(STEPS):
            if simulator.is_over(state):
                break
            legal = list(actions if simulator.action_names is None else simulator.available(state))
            noise = Noise("audit", seed, "process", check, number, t)
            asked = [(i, legal[(t + number + i) % len(legal)]) for i in range(min(2, len(legal)))]
            state = {i: ask(number, t, i, state, action, noise.fresh()) for i, action in asked[::turn]}[0]
    return found


def first_difference(own: Rows, others: Rows | None) -> str:
    """Where two processes part, in words; empty where they do not."""
    for place, one in own.items():
        found = clear_difference(one, (others or {}).get(place, one))
        if found is not None:
            return f"walk {place[0]}, step {place[1]}: {found.text}"
    return ""


def parcel(simulator: Any, seed: int, check: int, actions: Sequence[Action]) -> bytes | str:
    """What a new process needs for the walks, or why it cannot be sent."""
    try:
        return b"" if hasattr(simulator, "query_batch") else cloudpickle.dumps((simulator, seed, check, list(actions)))
    except Exception as error:  # whatever an object raises that cannot be sent
        return f" ({type(error).__name__})"


def walked_elsewhere(parcel: bytes, hashes: str, seconds: float) -> Rows | str:
    """The walks in a new interpreter that hashes texts otherwise, or why not."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(sys.path)]
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    try:
        done = subprocess.run(command, input=parcel, capture_output=True, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "out of time"
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return f"the simulator could not be run in a new process ({words[-1] if words else 'no reason given'})"
    return cloudpickle.loads(done.stdout)


def main() -> None:
    """The new process: read the simulator, walk, write what was seen."""
    given = cloudpickle.loads(sys.stdin.buffer.read())
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    out.write(cloudpickle.dumps(walked(*given)))
    out.flush()
    os._exit(0)


@contextmanager
def watched_calls(codes: set[CodeType]) -> Iterator[None]:
    """Notes the code of all that is called, unless somebody else is watching."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in codes:
            module = str(frame.f_globals.get("__name__", "")).split(".")[0]
            file = frame.f_code.co_filename
            is_standard = file.startswith(STANDARD) and "site-packages" not in file
            if module not in KNOWN and not is_standard:
                codes.add(frame.f_code)

    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def may_differ(simulator: Any, codes: set[CodeType]) -> bool:
    """Whether what runs hashes, counts addresses, or walks over sets: the rest is the same in every process."""
    if any(HASHING & set(c.co_names) or SETS & {i.opname for i in dis.get_instructions(c)} for c in codes):
        return True
    reached = walk([simulator], lambda value: not isinstance(value, CLOSED), 6, 5_000)
    return any(
        isinstance(value, set | frozenset)
        and any(isinstance(part, str | bytes) for part in value)
        and str(type(owner).__module__).split(".")[0] not in KNOWN
        for _, owner, value in reached
    )
