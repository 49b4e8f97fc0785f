"""The probe in other processes: walks of a simulator in a copy of this process, and in new interpreters.

A copy of this whole process leaves no trace here: what is tried out is the simulator itself, with all that it points
to, and not a copy that somebody's code made. Only threads do not come along, so nothing that computes with JAX is run
this way. A new interpreter has other hashes of texts, other addresses, and nothing that ran before.
"""

from __future__ import annotations

import ast
import dis
import gc
import importlib
import io
import itertools
import json
import linecache
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing import Pipe, get_context, util
from multiprocessing.synchronize import SemLock
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.ground.watchdog import LIBRARY_FOLDERS
from jointmdp.simulation.simulators.fingerprints import CLOSED, LIBRARIES, is_generator, safe_fingerprint, walk
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.simulators.generators import standing
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
HASHING = {"hash", "id", "set", "frozenset", "getpid", "urandom", "uuid1", "uuid4", "gethostname"}
HASHING |= {"sched_getaffinity", "cpu_count", "process_cpu_count", "localtime", "mktime", "token_hex"}
DATES = {"datetime", "date", "Timestamp", "pd", "pandas"}  # whose now() and today() are of the place
# What else may make something at the start of a program that is otherwise in the next; a seed makes it the same.
DRAWING = {"default_rng", "RandomState", "Random", "SystemRandom", "random", "rand", "randn", "randint", "choice"}
DRAWING |= {"shuffle", "sample", "normal", "uniform", "time", "time_ns", "perf_counter", "utcnow", "stat", "mkdtemp"}
DRAWING |= {"permutation", "randrange", "gauss", "choices", "integers", "getenv", "environ", "gettempdir"}
QUERIES = {"execute", "executemany", "executescript", "sql", "read_sql", "read_sql_query"}
CLOCK_IN_SQL = re.compile(r"\bcurrent_(timestamp|date|time)\b|'now'|\bnow\(\)", re.IGNORECASE)
OF_A_PROCESS = (
    "hash() of a text, id(), the order of a set, the number of the process, how many cores there are and the hour of "
    "the day are otherwise in another process; use zlib.crc32, a table, or sorted()"
)
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

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    sys.addaudithook(_refuse_writing)


def _refuse_writing(event: str, given: tuple[Any, ...]) -> None:
    is_opened = event == "open" and isinstance(given[2], int) and given[2] & WRITING and given[0] != os.devnull
    if is_opened or (event.startswith(CHANGING) and event not in HARMLESS):
        raise PermissionError(f"{event}: a changed copy of the process leaves everything as it is")


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


def parcel(call: Callable[[], Any]) -> bytes | str:
    """What a new process needs for a call, or why it cannot be sent."""
    try:
        return cloudpickle.dumps(call)
    except Exception as error:  # whatever an object raises that cannot be sent
        return f" ({type(error).__name__})"


class Elsewhere(NamedTuple):
    """What came of a call in a new process."""

    found: Any
    values: Mapping[str, bytes]  # what the program makes when it starts, by name and place
    made_anew: Any  # the call with all that made anew; None where it came along or is not there


def called_elsewhere(parcel: bytes, starts: Sequence[ProgramStart], other: int, seconds: float) -> Elsewhere | str:
    """The call in a new interpreter with other hashes, at another hour or on one core, or why not."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(sys.path)]
    given = cloudpickle.dumps((parcel, [tuple(start) for start in starts], other))
    environment = {**os.environ, "PYTHONHASHSEED": str(1 + other), **({"TZ": "OTHER-7:45"} if other else {})}
    try:
        done = subprocess.run(command, input=given, capture_output=True, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "out of time"
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return f"the simulator could not be run in a new process ({words[-1] if words else 'no reason given'})"
    return Elsewhere(*cloudpickle.loads(done.stdout))


class Apart(NamedTuple):
    """How two processes part."""

    text: str
    cause: str = ""


def first_apart(
    own: Any, parcel: bytes, codes: Collection[CodeType], differ: Callable[[Any, Any], str], seconds: float
) -> Apart | str:
    """Where this process and two new ones part, empty where they do not; or why that is not known."""
    starts = program_starts(codes)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda which: called_elsewhere(parcel, starts, which, seconds), (0, 1))
    if isinstance(one, str) or isinstance(other, str):
        return one if isinstance(one, str) else str(other)
    text = differ(own, one.found) or differ(one.found, other.found)
    if not text and one.made_anew is not None and other.made_anew is not None:
        text = differ(one.made_anew, other.made_anew)
    names = [name for name, value in one.values.items() if other.values.get(name) != value] if text else []
    if names:
        made = (
            f"{' and '.join(names[:3])} {'is' if len(names) == 1 else 'are'} made otherwise whenever the program starts"
        )
        return Apart(text, f"{made}: give what draws there a seed, and take a table or zlib.crc32 in place of hash()")
    read = {name: code for code in codes for name in sorted(_of_a_process(code))} if text else {}
    where = [
        f"{name} in {code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})" for name, code in read.items()
    ]
    return Apart(text, f"look at {' and '.join(where[:3])}: {OF_A_PROCESS}" if where else OF_A_PROCESS)


# -- policies --------------------------------------------------------------------------------------------------------

LEARNS = (
    "the policy goes on learning, or keeps statistics of what it sees: freeze it (VecNormalize with training=False, no "
    "update in predict)"
)
MORE_CHOICES, CHOICE_SECONDS = 4_000, 0.5  # of a policy, after which it must choose as before
Asked = Sequence[tuple[Any, Noise]]  # states and the noise of a choice in each


def choices(agent: Any, asked: Asked) -> list[bytes]:
    """What an agent chooses."""
    return [safe_fingerprint(agent(state, noise.fresh())) for state, noise in asked]


def choices_learned(agent: Any, asked: Asked) -> int:
    """After how many calls an agent chooses otherwise; 0 where it does not."""
    first, begun, calls = choices(agent, asked), time.monotonic(), 0
    while asked and calls < MORE_CHOICES and time.monotonic() - begun < CHOICE_SECONDS:
        calls += len(asked)
        if choices(agent, asked) != first:
            return calls
    return 0


def others_choose(agent: Any, asked: Asked, codes: set[CodeType], seconds: float) -> Apart | str:
    """Whether new processes make the same choices; a text says why that is not known."""
    if not may_differ(agent, codes):
        return Apart("")
    if "torch" in sys.modules:  # its networks may round otherwise in another process
        return "networks of PyTorch are not sent there"
    sent = parcel(partial(choices, agent, asked))
    if isinstance(sent, str):
        return f"it cannot be sent{sent}"
    differ = lambda one, other: "another action is chosen" if one != other else ""  # noqa: E731
    return first_apart(choices(agent, asked), sent, codes, differ, seconds)


# -- the new process -------------------------------------------------------------------------------------------------


def main() -> None:
    """The new process: read the call, make it, write what was seen."""
    sent, starts, other = cloudpickle.loads(sys.stdin.buffer.read())
    if not other and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    begun = dict[str, dict[str, Any]]()
    for module, file, source, _ in starts:
        with suppress(Exception):  # a program that cannot be begun here tells nothing
            begun[file] = vars(importlib.import_module(module)) if source is None else _begun(module, file, source)
            vars(sys.modules["__main__"]).update({} if source is None else begun[file])  # what came by its name
    call = cloudpickle.loads(sent)
    found, again, values = call(), None, dict[str, bytes]()
    for _, file, _, names in starts:
        made = begun.get(file, {})
        values |= {told: _digest(made[name]) for name, told in names.items() if name in made}
        with suppress(Exception):
            if made and _made_anew(call, file, made):
                again = cloudpickle.loads(cloudpickle.dumps(call))()
    out.write(cloudpickle.dumps((found, values, again)))
    out.flush()
    os._exit(0)


def _digest(value: Any) -> bytes:
    return standing(value) if is_generator(value) else safe_fingerprint(value)


def _begun(module: str, file: str, source: str) -> dict[str, Any]:
    """What a program makes when it starts; nothing is written."""
    made: dict[str, Any] = {"__name__": module, "__file__": file}
    is_over = list[bool]()

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if not is_over:
            _refuse_writing(event, given)

    sys.addaudithook(refuse)
    try:
        exec(compile(source, file, "exec"), made)  # the user's own file, which this process was started from
    finally:
        is_over.append(True)
    return {name: value for name, value in made.items() if not name.startswith("__")}


def _made_anew(call: Any, file: str, made: dict[str, Any]) -> bool:
    """Let functions that came along read what was made here; whether there are any."""
    begun = {name: value for name, value in made.items() if not isinstance(value, FunctionType | ModuleType)}
    reached = [value for _, _, value in walk([call], lambda value: not isinstance(value, CLOSED), 8, 5_000)]
    functions = [value for value in reached if isinstance(value, FunctionType) and value.__globals__ is not made]
    functions = [function for function in functions if function.__code__.co_filename == file]
    for function in functions:
        function.__globals__.update({name: begun[name] for name in begun if not name.startswith("__")})
        if isinstance(twin := made.get(function.__qualname__), FunctionType):
            function.__defaults__, function.__kwdefaults__ = twin.__defaults__, twin.__kwdefaults__
    return bool(functions)


class ProgramStart(NamedTuple):
    """What a program makes when it starts and what runs later reads, as far as it may differ from start to start."""

    module: str
    file: str
    source: str | None  # None where importing the module does it
    names: dict[str, str]  # of variables, with their places


def program_starts(codes: Collection[CodeType]) -> list[ProgramStart]:
    """One for each file whose code runs, where something that may differ is made."""
    found = []
    for file in sorted({code.co_filename for code in codes}):
        if file.startswith(LIBRARY_FOLDERS):
            continue
        with suppress(SyntaxError, ValueError):
            here = [code for code in codes if code.co_filename == file]
            wanted = {i.argval for code in here for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
            wanted |= {code.co_name for code in here if code.co_argcount}
            start = _start_of(file, wanted)
            if start is not None:
                found.append(start)
    return found


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What is evaluated when a statement runs: not the bodies of functions."""
    yield node
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body":
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _evaluated(part)


class _Statements(NamedTuple):
    """The statements of a file, by their places."""

    parts: list[ast.stmt]
    defined: set[str]  # functions and classes
    stored: list[set[str]]  # names that each gives
    used: list[set[str]]  # all that is evaluated for it, also in functions that it calls
    read: list[set[str]]  # names of the file that it depends on, for functions and classes those of their bodies


@lru_cache(maxsize=64)
def _statements(file: str, source: str) -> _Statements:
    parts = [part for part in ast.parse(source, file).body if not _is_main(part)]
    defined = {part.name: part for part in parts if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    found = _Statements(parts, set(defined), [], [], [])
    for part in parts:
        nodes = [*_evaluated(part)]
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            found.stored.append({part.name})
            found.read.append(_free(part))
        else:
            found.stored.append({n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
            found.read.append({n.id for n in nodes if isinstance(n, ast.Name)})
        for called in {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}:
            nodes += ast.walk(defined[called]) if called in defined else ()
        used = {n.id for n in nodes if isinstance(n, ast.Name)} | {
            n.attr for n in nodes if isinstance(n, ast.Attribute)
        }
        found.used.append(used | {"set" for n in nodes if isinstance(n, ast.Set | ast.SetComp)})
    return found


def _free(definition: ast.AST) -> set[str]:
    """Names that a function or a class reads and does not give."""
    names = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    given = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - given - {n.arg for n in ast.walk(definition) if isinstance(n, ast.arg)}


def _is_main(part: ast.stmt) -> bool:
    return isinstance(part, ast.If) and "__name__" in ast.dump(part.test)


def _start_of(file: str, wanted: set[str]) -> ProgramStart | None:
    parts, defined, stored, used, read = _statements(file, "".join(linecache.getlines(file)))
    kept: set[int] = set()
    while True:  # what is wanted, and what that is made of
        data = wanted - defined
        more = {
            i
            for i, part in enumerate(parts)
            if i not in kept and (stored[i] & wanted or (isinstance(part, ast.Expr) and used[i] & data))
        }
        if not more:
            break
        kept |= more
        wanted = wanted.union(*(read[i] for i in more))
    told = {
        name: f"{name} ({Path(file).name}:{parts[i].lineno})"
        for i in sorted(kept)
        for name in sorted(stored[i] - defined)
    }
    suspicious = set().union(*(used[i] for i in kept if not isinstance(parts[i], ast.Import | ast.ImportFrom)))
    named = [(name, module) for name, module in [*sys.modules.items()] if name not in ("__main__", "__mp_main__")]
    module = {getattr(module, "__file__", None): name for name, module in named}.get(file, "__main__")
    if not suspicious & (HASHING | DRAWING):
        return None
    if module != "__main__":
        return ProgramStart(module, file, None, told)
    imports = [
        i
        for i, part in enumerate(parts)
        if isinstance(part, ast.Import | ast.ImportFrom)
        and {"*", "annotations", *wanted} & {(each.asname or each.name).partition(".")[0] for each in part.names}
    ]
    source = ast.unparse(ast.Module([parts[i] for i in sorted({*imports, *kept})], type_ignores=[]))
    return ProgramStart(module, file, source, told)


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


def _of_a_process(code: CodeType) -> set[str]:
    """Names in a function of what is otherwise in another process."""
    names = set(code.co_names)
    return names & HASHING | (names & {"now", "today"} if names & DATES else set())


def compiled_clock(codes: Collection[CodeType]) -> str:
    """A function that reads the time in compiled code or a data base, where nobody can move it; empty without one."""
    for code in codes:
        texts, names = [const for const in code.co_consts if isinstance(const, str)], set(code.co_names)
        is_asked = "datetime64" in names and {"now", "today"} & set(texts)
        if is_asked or (names & QUERIES and any(CLOCK_IN_SQL.search(text) for text in texts)):
            return f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return ""


def may_differ(simulator: Any, codes: set[CodeType]) -> bool:
    """Whether what runs hashes, counts addresses, walks over sets, or reads what a program draws when it starts.

    The rest is the same in every process.
    """
    if any(_of_a_process(code) or SETS & {i.opname for i in dis.get_instructions(code)} for code in codes):
        return True
    if program_starts(codes):
        return True
    reached = walk([simulator], lambda value: not isinstance(value, CLOSED), 6, 5_000)
    return any(
        isinstance(value, set | frozenset)
        and any(isinstance(part, str | bytes) for part in value)
        and str(type(owner).__module__).split(".")[0] not in KNOWN
        for _, owner, value in reached
    )
