"""Does a restored state go on as the live environment does, and does another process give the same answers?

A simulator may offer ``live_episode(start, steps)``: the outcomes of a start under the noise `start`, and of `steps`,
actions with their noise, in the environment itself, which is never restored. It runs in a copy of this process and so
leaves no trace in the simulator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

from jointmdp.decisions.auditor.audit_report import OUT_OF_TIME, Check, failed, skipped, warned
from jointmdp.decisions.auditor.determinism_checks import remembering
from jointmdp.simulation.simulators.fingerprints import safe_fingerprint
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome
from jointmdp.simulation.watching.other_processes import (
    Needed,
    Rows,
    checks_made,
    compiled_clock,
    first_apart,
    first_difference,
    forked,
    may_differ,
    needed,
    parcel,
    walked,
    watched_calls,
)
from jointmdp.simulation.watching.probe import (
    START,
    ObservedOutcome,
    Probe,
    ProbeState,
    clear_difference,
    difference,
)

EPISODES, STEPS = 3, 16
FEW = 2  # seeds for each memory of a function of a decision and a seed
PATIENCE = 5.0  # seconds beyond what the restored run took
PATIENCE_ELSEWHERE = 30.0
KEPT_CAUSE = (
    "a cache must know all that its entries depend on, the seed and the decision too; or empty it when a run begins"
)
PROCESS = "process-dependent"
LIVE_CAUSES = {
    "copy": "a deep copy is not the whole state: something in it points to the original (a weak reference, a function, "
    'a handle); use state="replay", or get_state and set_state',
    "": "get_state and set_state leave out part of the state (a reset in set_state loses it, or the first episode "
    "filled it once and for all); add it",
}


class _Episode(NamedTuple):
    """An episode of restored states."""

    start: Noise
    steps: list[tuple[Action, Noise]]
    outcomes: list[ObservedOutcome]  # the start first


def check_live(probe: Probe, states: Sequence[ProbeState], cost: float) -> Check:
    """Episodes by restored states, with other queries in between, against live ones under the same noise."""
    if not hasattr(probe.simulator, "live_episode"):
        return skipped("live", "the simulator has no live environment to compare with")
    compared = 0
    for number in probe.timed(range(EPISODES)):
        episode = _restored(probe, states, number)
        seconds = min(PATIENCE + 20 * cost * len(episode.steps), max(0.0, probe.watchdog.left))
        lives, others = (_live(probe.simulator, episode, seconds) for _ in range(2))
        if lives is None or others is None:
            return skipped("live", "the live environment could not be run in a copy of this process")
        for t, (restored, live, again) in enumerate(zip(episode.outcomes, lives, others, strict=False)):
            if difference(live, again, probe.is_blind) is not None:
                return skipped("live", "the live environment itself goes two ways under the same noise")
            found = clear_difference(restored, live._replace(identity=restored.identity), probe.is_blind)
            if found is not None:
                way = "a restored state goes another way than the live environment"
                cause = LIVE_CAUSES["copy" if getattr(probe.simulator, "state_kind", "") == "copy" else ""]
                message = f"{way}: {found.text} (restored and live) after {t} steps"
                return failed("live", message, "state not restored in full", cause)
            compared += 1
    probe.in_time()
    return Check("live", "pass", f"{compared} states were what the live environment came to under the same noise")


def _restored(probe: Probe, states: Sequence[ProbeState], number: int) -> _Episode:
    """An episode of restored states; the noise of a step is a plain one, as the copy of the process needs it."""
    start = Noise("audit", probe.seed, "live", number)
    state = probe.guarded(START, lambda: probe.simulator.start(start))
    episode = _Episode(start, [], [probe.look(Outcome(0.0, state), START, is_start=True)])
    for t in range(STEPS):
        if episode.outcomes[-1].is_over:
            break
        at = ProbeState(episode.outcomes[-1].state, f"step {t} of a live episode")
        actions = probe.actions_at(at.state)
        action = actions[(t * (number + 1) + number) % len(actions)]
        other = states[(t + number) % len(states)]
        probe.ask(other, other.actions[-1:], probe.noise("live, in between", number, t))
        noise = Noise("audit", probe.seed, "live", number, t)
        # Another action first: a state that is left by one step alone need not be restored at all.
        episode.outcomes.append(probe.ask(at, [actions[t % len(actions)], action], noise)[1])
        episode.steps.append((action, noise.fresh()))
    return episode


def _live(simulator: Any, episode: _Episode, seconds: float) -> list[ObservedOutcome] | None:
    def live() -> list[ObservedOutcome]:
        steps = [(action, noise.fresh()) for action, noise in episode.steps]
        found, probe = list[ObservedOutcome](), Probe(simulator, 0)
        for outcome in simulator.live_episode(episode.start.fresh(), steps):
            seen = probe.look(outcome, "live", is_light=True, is_start=not found)
            shown = safe_fingerprint(simulator.observe(outcome.state))
            found.append(seen._replace(observation=shown, state=None))
        return found

    run = forked(simulator, live)
    return None if run is None else run.result(seconds)


class OtherProcesses:
    """Runs of the same walks elsewhere, in copies that were made before anything was asked here."""

    def __init__(self, simulator: Any, seed: int, actions: Sequence[Action]) -> None:
        self._given = simulator, seed, next(checks_made), actions
        self._fork = forked(simulator, lambda: walked(*self._given, is_backwards=True))
        self._parcel = b"" if hasattr(simulator, "query_batch") else parcel(partial(walked, *self._given))

    def close(self) -> None:
        """Nobody asks any more."""
        if self._fork is not None:
            self._fork.close()

    def check(self, probe: Probe, states: Sequence[ProbeState]) -> Check:
        """Compare with the walks of this process."""
        codes: set[CodeType] = set()
        begun = time.monotonic()
        with watched_calls(codes):
            own = probe.guarded("a walk that other processes take too", lambda: walked(*self._given))

        def patience() -> float:
            return min(PATIENCE_ELSEWHERE, max(1.0, probe.watchdog.left))

        # Where it hangs (it waits for a pool of threads, which no copy has) it would take all the time there is.
        waiting = min(patience(), PATIENCE + PATIENCE * (time.monotonic() - begun))
        away = None if self._fork is None else self._fork.result(waiting)
        text = first_difference(own, away)
        if text:
            again = forked(self._given[0], lambda: walked(*self._given))
            if again is not None and first_difference(own, again.result(patience())):
                return failed("processes", f"a copy of this process gives another outcome; {text}", PROCESS)
            message = f"what was asked first shows in later answers: in another order, {text}"
            return failed("history", message, "hidden state", remembering(probe, "hidden state", states))
        memory = Needed("", ())
        if away is not None:
            few = lambda: walked(*self._given, seeds=FEW)  # noqa: E731
            model, seed, check, actions = self._given
            others = lambda: walked(model, seed + 1, check, actions, is_backwards=True, seeds=FEW)  # noqa: E731
            memory = needed(model, few, others, first_difference, max(patience(), probe.watchdog.left / 2), codes)
        if memory.where:
            message = f"{memory.where} holds what earlier calls have left there, and without it the same noise gives"
            return failed("history", f"{message} another result", "hidden state", KEPT_CAUSE)
        if memory.not_tried:
            names = ", ".join(memory.not_tried[:3]) + ", …" * (len(memory.not_tried) > 3)
            return skipped("processes", f"{OUT_OF_TIME} for whether what earlier calls have left in {names} matters")
        if clock := compiled_clock(codes):
            message = f"{clock} reads the time where it cannot be moved (compiled code, a data base)"
            return warned("processes", message, "wall clock", "give the model the time that it is to have")
        if may_differ(self._given[0], codes):
            return self._in_new_processes(own, codes, patience())
        if away is None:
            return skipped("processes", "it cannot be run in a copy of this process")
        kept = "; what it may have kept before was not tried, for it writes files" if memory.writes else ""
        return Check("processes", "pass", f"a copy of this process gave the same answers in another order{kept}")

    def _in_new_processes(self, own: Rows, codes: set[CodeType], seconds: float) -> Check:
        sent = self._parcel
        if isinstance(sent, str) or not sent:
            return skipped("processes", f"the simulator cannot be sent to another process{sent or ''}")
        found = first_apart(own, sent, codes, first_difference, seconds)
        if isinstance(found, str):
            return skipped("processes", found)
        if found.text:
            message = f"a new process gives another outcome under the same noise; {found.text}"
            return failed("processes", message, PROCESS, found.cause)
        return Check("processes", "pass", "new processes with other hashes of texts gave the same answers")
