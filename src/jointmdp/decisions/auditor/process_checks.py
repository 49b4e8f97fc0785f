"""Runs in a copy of this whole process, which leave no trace here.

What is tried out is the simulator itself, with all that it points to, and not a copy that somebody's code made. Only
threads do not come along, so nothing that computes with JAX is run this way.

Does a restored state go on as the live environment does, which is never restored?

A simulator may offer ``live_episode(start, steps)``: the outcomes of a start under the noise `start`, and of `steps`,
actions with their noise, in the environment itself. It runs in a copy of this process and so leaves no trace in the
simulator.

Does another process give the same answers: one that begins anew, and one with other hashes of texts?
"""

from __future__ import annotations

import dis
import functools
import gc
import io
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.decisions.auditor.audit_report import Check, failed, skipped
from jointmdp.decisions.auditor.observed_outcomes import ObservedOutcome, difference, safe_fingerprint
from jointmdp.decisions.auditor.probe import Probe, Spot
from jointmdp.simulation.simulators.fingerprints import CLOSED, LIBRARIES, walk
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome

_HANDLES = (socket.socket, subprocess.Popen, io.FileIO)  # what both processes would go on using


class ForkedRun:
    """A call under way in a copy of this process."""

    def __init__(self, call: Callable[[], Any]) -> None:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads do not come along, and nothing here needs them
            self._pid = os.fork()
        if self._pid == 0:
            _answer(call, reading, writing)
        os.close(writing)
        self._reading = reading

    def __del__(self) -> None:
        if getattr(self, "_pid", 0):
            self.result(0.0)

    def result(self, seconds: float) -> Any:
        """What the call returned; None where it failed or took longer."""
        deadline = time.monotonic() + seconds
        parts: list[bytes] = []
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                os.kill(self._pid, signal.SIGKILL)
                parts.clear()
                break
            part = os.read(self._reading, 1 << 16)
            if not part:
                break
            parts.append(part)
        os.close(self._reading)
        os.waitpid(self._pid, 0)
        self._pid = 0
        return pickle.loads(b"".join(parts)) if parts else None


def _answer(call: Callable[[], Any], reading: int, writing: int) -> None:
    """The life of the copy: it never returns."""
    try:
        gc.disable()
        os.close(reading)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        data = pickle.dumps(call())
        with os.fdopen(writing, "wb") as file:
            file.write(data)
    finally:
        os._exit(0)


def begun(simulator: Any, call: Callable[[], Any]) -> ForkedRun | None:
    """The call under way in a copy of this process; None where such a copy is no independent one."""
    if not hasattr(os, "fork") or hasattr(simulator, "query_batch"):
        return None
    reached = walk([simulator], lambda value: not isinstance(value, CLOSED), 8, 5_000)
    if any(isinstance(value, _HANDLES) for _, _, value in reached):
        return None
    return ForkedRun(call)


EPISODES, STEPS = 3, 16
PATIENCE = 5.0  # seconds beyond what the restored run took
NO_LIVE = "the simulator has no live environment to compare with"
NOT_IN_FULL = "state not restored in full"


class _Trail(NamedTuple):
    """An episode of restored states."""

    start: Noise
    steps: list[tuple[Action, Noise]]
    outcomes: list[ObservedOutcome]  # the start first


def check_live(probe: Probe, spots: Sequence[Spot], cost: float) -> Check:
    """Episodes by restored states, with other queries in between, against live ones under the same noise."""
    if not hasattr(probe.simulator, "live_episode"):
        return skipped("live", NO_LIVE)
    compared = 0
    for episode in probe.timed(range(EPISODES)):
        trail = _restored(probe, spots, episode)
        seconds = PATIENCE + 20 * cost * len(trail.steps)
        lives, others = (_forked(probe, trail, seconds) for _ in range(2))
        if lives is None or others is None:
            return skipped("live", "the live environment could not be run in a copy of this process")
        for t, (restored, live, again) in enumerate(zip(trail.outcomes, lives, others, strict=False)):
            if difference(live, again, probe.is_blind) is not None:
                return skipped("live", "the live environment itself goes two ways under the same noise")
            found = difference(restored, live._replace(identity=restored.identity), probe.is_blind)
            if found is not None and not found.is_rounding and not found.is_identity:
                return _failed(probe, f"{found.text} (restored and live) after {t} steps")
            compared += 1
    probe.in_time()
    return Check("live", "pass", f"{compared} states were what the live environment came to under the same noise")


def _failed(probe: Probe, text: str) -> Check:
    kind = getattr(probe.simulator, "state_kind", "")
    cause = (
        "get_state and set_state leave out part of the state (a reset in set_state loses it, or the first episode "
        "filled it once and for all); add it"
    )
    if kind == "copy":
        cause = (
            "a deep copy is not the whole state: something in it points to the original (a weak reference, a function, "
            'a handle); use state="replay", or get_state and set_state'
        )
    return failed("live", f"a restored state goes another way than the live environment: {text}", NOT_IN_FULL, cause)


def _restored(probe: Probe, spots: Sequence[Spot], episode: int) -> _Trail:
    """An episode of restored states; the noise of a step is a plain one, as the copy of the process needs it."""
    start = Noise("audit", probe.seed, "live", episode)
    state = probe.guarded("the start", lambda: probe.simulator.start(start))
    trail = _Trail(start, [], [probe.look(Outcome(0.0, state), "the start", is_start=True)])
    for t in range(STEPS):
        if trail.outcomes[-1].is_over:
            break
        actions = probe.actions_at(trail.outcomes[-1].state)
        action = actions[(t * (episode + 1) + episode) % len(actions)]
        other = spots[(t + episode) % len(spots)]
        probe.ask(other, other.actions[-1:], probe.noise("live, in between", episode, t))
        noise = Noise("audit", probe.seed, "live", episode, t)
        spot = Spot(trail.outcomes[-1].state, f"step {t} of a live episode", (), b"", b"", None, b"")
        # Another action first: a state that is left by one step alone need not be restored at all.
        trail.outcomes.append(probe.ask(spot, [actions[t % len(actions)], action], noise)[1])
        trail.steps.append((action, noise.fresh()))
    return trail


def _forked(probe: Probe, trail: _Trail, seconds: float) -> list[ObservedOutcome] | None:
    simulator: Any = probe.simulator

    def live() -> list[ObservedOutcome]:
        steps = [(action, noise.fresh()) for action, noise in trail.steps]
        outcomes = simulator.live_episode(trail.start.fresh(), steps)
        return [_seen(simulator, outcome, i == 0) for i, outcome in enumerate(outcomes)]

    run = begun(simulator, live)
    return None if run is None else run.result(seconds)


def _seen(simulator: Any, outcome: Outcome, is_start: bool) -> ObservedOutcome:
    probe = Probe(simulator, 0)
    return probe.look(outcome, "live", is_light=True, is_start=is_start)._replace(
        observation=safe_fingerprint(simulator.observe(outcome.state)), state=None
    )


WALKS, STEPS_ELSEWHERE = 2, 6
SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jointmdp.decisions.auditor.process_checks import main; main()"
)
PATIENCE_ELSEWHERE = 30.0
PROCESS = "process-dependent"
HASHING = {"hash", "id", "set", "frozenset", "getpid", "urandom", "uuid4", "gethostname"}
_OWN = (*LIBRARIES, "jointmdp", "gymnasium", "unittest", "mock")
Row = tuple[int, int, ObservedOutcome]


def walked(simulator: Any, seed: int, actions: Sequence[Action], order: Sequence[int]) -> list[Row]:
    """Short walks from the start, in this order: number, step and outcome of each."""
    probe, found = Probe(simulator, seed), []
    for walk_number in order:
        state = simulator.start(Noise("audit", seed, "process", walk_number))
        for t in range(STEPS_ELSEWHERE):
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
        self._fork = begun(simulator, lambda: walked(simulator, seed, actions, range(WALKS)[::-1]))
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
        fork_rows = None if self._fork is None else self._fork.result(min(PATIENCE_ELSEWHERE, seconds))
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
        run = begun(self._simulator, call)
        return None if run is None else run.result(min(PATIENCE_ELSEWHERE, seconds))

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
