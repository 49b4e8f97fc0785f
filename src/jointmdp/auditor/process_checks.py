"""Does another process give the same answers: one that begins anew, and one with other hashes of texts?"""

from __future__ import annotations

import dis
import functools
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.auditor import forked_runs
from jointmdp.auditor.audit_report import Check, failed, skipped
from jointmdp.auditor.observed_outcomes import ObservedOutcome, difference
from jointmdp.auditor.probe import Probe
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.object_graph import CLOSED, LIBRARIES, walk
from jointmdp.simulators.simulator import Action, Outcome

WALKS, STEPS = 2, 6
SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from jointmdp.auditor.process_checks import main; main()"
)
PATIENCE = 30.0
PROCESS = "process-dependent"
HASHING = {"hash", "id", "set", "frozenset", "getpid", "urandom", "uuid4", "gethostname"}
_OWN = (*LIBRARIES, "jointmdp", "gymnasium", "unittest", "mock")
Row = tuple[int, int, ObservedOutcome]


def walked(simulator: Any, seed: int, actions: Sequence[Action], order: Sequence[int]) -> list[Row]:
    """Short walks from the start, in this order: number, step and outcome of each."""
    probe, found = Probe(simulator, seed), []
    for walk_number in order:
        state = simulator.start(Noise("audit", seed, "process", walk_number))
        for t in range(STEPS):
            if simulator.is_over(state):
                break
            legal = list(actions if simulator.action_names is None else simulator.available(state))
            action = legal[(t + walk_number) % len(legal)]
            outcome = simulator.query(state, [action], Noise("audit", seed, "process", walk_number, t))[0]
            seen = probe.look(Outcome(*outcome), "elsewhere")
            found.append((walk_number, t, seen._replace(state=None, identity=b"")))
            state = outcome.state
    return found


class OtherProcesses:
    """Runs of the same walks elsewhere, begun before anything was asked here."""

    def __init__(self, simulator: Any, seed: int, actions: Sequence[Action]) -> None:
        self._simulator, self._seed, self._actions = simulator, seed, actions
        self._fork = forked_runs.begun(simulator, lambda: walked(simulator, seed, actions, range(WALKS)[::-1]))
        self._parcel, self._reason = b"", "the simulator cannot be sent to another process"
        try:
            if not hasattr(simulator, "query_batch"):
                self._parcel = cloudpickle.dumps((simulator, seed, list(actions)))
        except Exception as error:  # whatever an object raises that cannot be sent
            self._reason += f" ({type(error).__name__})"

    def close(self) -> None:
        """Nobody asks any more."""
        if self._fork is not None:
            self._fork.result(0.0)

    def check(self, seconds: float) -> Check:
        """Compare with the walks of this process."""
        fork_rows = None if self._fork is None else self._fork.result(min(PATIENCE, seconds))
        codes: set[CodeType] = set()
        with _watched_calls(codes):
            own = walked(self._simulator, self._seed, self._actions, range(WALKS))
        text = _first_difference(own, fork_rows)
        if text and _first_difference(own, self._forked(range(WALKS), seconds)):
            return failed("processes", f"a copy of this process gives another outcome; {text}", PROCESS)
        if text:
            message = f"what was asked first shows in later answers: in another order, {text}"
            return failed("history", message, "hidden state")
        if not self._may_differ(codes):
            if fork_rows is None:
                return skipped("processes", "it cannot be run in a copy of this process")
            return Check("processes", "pass", "a copy of this process gave the same answers in another order")
        return self._fresh(own, seconds)

    def _forked(self, order: Sequence[int], seconds: float) -> list[Row] | None:
        call = functools.partial(walked, self._simulator, self._seed, self._actions, order)
        run = forked_runs.begun(self._simulator, call)
        return None if run is None else run.result(min(PATIENCE, seconds))

    def _fresh(self, own: list[Row], seconds: float) -> Check:
        if not self._parcel:
            return skipped("processes", self._reason)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda hashes: self._elsewhere(hashes, seconds), ("1", "2"))
        if isinstance(first, str) or isinstance(second, str):
            return skipped("processes", first if isinstance(first, str) else str(second))
        text = _first_difference(own, first) or _first_difference(first, second)
        if not text:
            return Check("processes", "pass", "new processes with other hashes of texts gave the same answers")
        return failed(
            "processes", f"a new process gives another outcome under the same noise; {text}", "process-dependent"
        )

    def _elsewhere(self, hashes: str, seconds: float) -> list[Row] | str:
        """The walks in a new interpreter, or why not."""
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        command = [sys.executable, "-c", SCRIPT, json.dumps(sys.path)]
        try:
            done = subprocess.run(
                command, input=self._parcel, capture_output=True, env=environment, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return "out of time"
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            return f"the simulator could not be run in a new process ({words[-1] if words else 'no reason given'})"
        return cloudpickle.loads(done.stdout)

    def _may_differ(self, codes: set[CodeType]) -> bool:
        """Whether what runs hashes, counts addresses, or walks over sets: the rest is the same in every process."""
        if any(HASHING & set(code.co_names) or _builds_set(code) for code in codes):
            return True
        reached = walk([self._simulator], lambda value: not isinstance(value, CLOSED), 6, 5_000)
        return any(_is_text_set(value) and _module(owner) not in _OWN for _, owner, value in reached)


@contextmanager
def _watched_calls(codes: set[CodeType]) -> Iterator[None]:
    """Notes the code of all that is called, unless somebody else is watching."""
    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(lambda frame, event, _: _noted(codes, frame, event))
    try:
        yield
    finally:
        sys.setprofile(None)


def _noted(codes: set[CodeType], frame: FrameType, event: str) -> None:
    if event != "call" or frame.f_code in codes:
        return
    module = str(frame.f_globals.get("__name__", "")).split(".")[0]
    if module not in _OWN and not frame.f_code.co_filename.startswith(_STDLIB):
        codes.add(frame.f_code)


_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen"})


def _builds_set(code: CodeType) -> bool:
    return any(step.opname in ("BUILD_SET", "SET_ADD", "SET_UPDATE") for step in dis.get_instructions(code))


def _module(owner: Any) -> str:
    return str(type(owner).__module__).split(".")[0]


def _is_text_set(value: Any) -> bool:
    return isinstance(value, set | frozenset) and any(isinstance(part, str | bytes) for part in value)


def _first_difference(own: Sequence[Row], others: Sequence[Row] | None) -> str:
    found: Iterator[str] = iter(())
    if others is not None:
        elsewhere = {(w, t): outcome for w, t, outcome in others}
        pairs = [(w, t, one, elsewhere[w, t]) for w, t, one in own if (w, t) in elsewhere]
        apart = ((w, t, difference(one, other)) for w, t, one, other in pairs)
        found = (f"walk {w}, step {t}: {d.text}" for w, t, d in apart if d and not (d.is_rounding or d.is_identity))
    return next(found, "")


def main() -> None:
    """The new process: read the simulator, walk, write what was seen."""
    simulator, seed, actions = cloudpickle.loads(sys.stdin.buffer.read())
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    out.write(cloudpickle.dumps(walked(simulator, seed, actions, range(WALKS))))
    out.flush()
    os._exit(0)
