"""Does a restored state go on as the live environment does, which is never restored?

A simulator may offer ``live_episode(start, steps)``: the outcomes of a start under the noise `start`, and of `steps`,
actions with their noise, in the environment itself. It runs in a copy of this process and so leaves no trace in the
simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jointmdp.auditor import forked_runs
from jointmdp.auditor.audit_report import Check, failed, skipped
from jointmdp.auditor.observed_outcomes import ObservedOutcome, difference, safe_fingerprint
from jointmdp.auditor.probe import Probe, Spot
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome

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

    run = forked_runs.begun(simulator, live)
    return None if run is None else run.result(seconds)


def _seen(simulator: Any, outcome: Outcome, is_start: bool) -> ObservedOutcome:
    probe = Probe(simulator, 0)
    return probe.look(outcome, "live", is_light=True, is_start=is_start)._replace(
        observation=safe_fingerprint(simulator.observe(outcome.state)), state=None
    )
