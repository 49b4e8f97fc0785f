"""Checks of the noise: do the actions take the same of it, in step, and does it reach the outcome at all?"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor.audit_report import CAUSES, Check, failed, skipped, warned
from jointmdp.simulation.simulators.function_simulator import RunSimulator, WithNoise
from jointmdp.simulation.simulators.generators import changed, hidden_generators
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.probe import ObservedOutcome, Probe, ProbeState, difference
from jointmdp.simulation.simulators.recorded_draws import (
    NOISE,
    DrawLog,
    Stream,
    WatchedNoise,
    recorded,
    twins_installed,
)
from jointmdp.simulation.simulators.simulator import Action
from jointmdp.simulation.simulators.stream_checks import (
    EARLY,
    FIXED,
    OUT_OF_STEP,
    RecordedRun,
    StreamFault,
    judged,
)

FROZEN, NO_NOISE = "frozen noise", "no action takes any noise"
TRIED = 16  # draws of noise that are tried before one says that it never matters
# Seeds that differ by one of these are one seed to a simulator that cuts seeds down: modulo 2 … 16, powers of ten,
# powers of two, a few primes; 1 for those that divide.
FOLDS = (720_720, 10**6, 2**24, 97 * 101 * 997, 1)
MOST_TOLD = 4  # streams named in a sentence
FOLD_SEEDS = 24  # two outcomes that agree every other time agree 24 times in a row with probability 6e-8


class _Step(NamedTuple):
    """One action under one draw of the noise, and what was drawn for it."""

    at: ProbeState
    place: int  # of the action among those of the state
    draw: int
    noise: WatchedNoise
    log: DrawLog

    @property
    def action(self) -> Action:
        """The action that was taken."""
        return self.at.actions[self.place]


def check_noise(probe: Probe, states: Sequence[ProbeState], draws: int, is_settled: bool) -> Check:
    """What each action takes from which stream, judged stream by stream."""
    told = str(getattr(probe.simulator, "frozen_noise", "") or "")
    if told:
        return failed("noise", told, FROZEN)
    frozen = _frozen_generators(probe, states)
    if frozen:
        message = f"{' and '.join(frozen)} moves on in a step, from the same place to the same place whatever the noise"
        return failed("noise", message, "frozen generator")
    with twins_installed():
        steps = _recorded(probe, states, draws)
        known = _made_before(probe)
        ways = set().union(*(step.noise.others for step in steps))
        is_run = isinstance(probe.simulator, RunSimulator)
        has_seeds = any(stream.seed is not None and stream.kind != NOISE for step in steps for stream in step.log.drawn)
        if is_run and has_seeds:
            steps += _at_folded_seeds(probe, states[0])
    found = judged([_as_run(probe, step) for step in steps], known)
    if not is_settled or probe.pins_globals:  # what else a stream does wrong is a consequence
        found = [fault for fault in found if fault.fault in (OUT_OF_STEP, EARLY)]
    if not found and "seed" in ways and is_settled and not has_seeds and not isinstance(_run_of(probe), WithNoise):
        folded = _folded(probe, states[0])
        if folded is not None:
            return folded
    if found:
        return _judgement(probe, states[0], found)
    probe.in_time()
    return _in_step(steps, ways)


def _run_of(probe: Probe) -> Any:
    return getattr(probe.simulator, "run", None)


def _judgement(probe: Probe, at: ProbeState, found: Sequence[StreamFault]) -> Check:
    """One check from all faults of the gravest kind."""
    if probe.simulator.reseeds and not isinstance(probe.simulator, RunSimulator):
        # Every step starts from noise of its own, so later steps stay in step.
        found = [
            fault._replace(status="warn", cause=CAUSES[OUT_OF_STEP]) if fault.fault == OUT_OF_STEP else fault
            for fault in found
        ]
    if all(fault.fault == FIXED for fault in found) and not is_varying(probe, at):
        found = [fault._replace(status="fail", fault=FROZEN) for fault in found]
    status = min(fault.status for fault in found)  # fail comes before warn
    gravest = [fault for fault in found if fault.status == status]
    columns = zip(*((fault.fault, fault.text, fault.cause) for fault in gravest), strict=True)
    names, texts, causes = (list(dict.fromkeys(column)) for column in columns)
    return Check("noise", status, "; ".join(texts[:MOST_TOLD]), "; ".join(causes[:MOST_TOLD]), ", ".join(names))


def _in_step(steps: Sequence[_Step], ways: set[str]) -> Check:
    """What is said where nothing is wrong."""
    streams = sorted({_called(stream) for step in steps for stream in step.log.drawn})
    if not streams and not ways:
        return Check("noise", "pass", NO_NOISE)
    if not streams:
        words = " and ".join(f"noise.{way}" for way in sorted(ways))
        if ways == {"uniform"}:
            return Check("noise", "pass", "each step takes one uniform number, the same for every action")
        return skipped("noise", f"the noise is taken as {words}: what is drawn from it cannot be counted")
    more = f" and {len(streams) - MOST_TOLD} more" if len(streams) > MOST_TOLD else ""
    return Check("noise", "pass", f"all draws are in step (streams: {', '.join(streams[:MOST_TOLD])}{more})")


def _called(stream: Stream) -> str:
    return stream.group if stream.kind == NOISE else f"{stream.kind} at {stream.group}"


def _as_run(probe: Probe, step: _Step) -> RecordedRun:
    label = probe.simulator.action_label(step.action)
    if isinstance(probe.simulator, RunSimulator):
        return RecordedRun(label, f"seed {Noise.at(step.noise.address).seed}", step.log)
    return RecordedRun(label, f"draw {step.draw}", step.log, step.at.label)


def _recorded(probe: Probe, states: Sequence[ProbeState], draws: int) -> list[_Step]:
    """Every action in every state under one draw of the noise, then under others."""
    steps = []
    for draw, at in probe.timed(itertools.product(range(max(draws, 3)), states)):
        for place, action in enumerate(at.actions):
            noise = probe.noise("draws", at.label, draw)
            steps.append(_Step(at, place, draw, noise, _log_of(probe, at, action, noise)))
    return steps


def _log_of(probe: Probe, at: ProbeState, action: Action, noise: Noise) -> DrawLog:
    with recorded() as log:
        probe.ask(at, [action], noise, is_light=True)
    return log


def _at_folded_seeds(probe: Probe, at: ProbeState) -> list[_Step]:
    """The first decision with seeds that are one to a function that cuts them down."""
    first = Noise("folded", probe.seed).seed % 2**31
    steps = []
    for i, apart in probe.timed(enumerate((0, *FOLDS))):
        noise = WatchedNoise.of_seed(first + apart)
        steps.append(_Step(at, 0, -1 - i, noise, _log_of(probe, at, at.actions[0], noise)))
    return steps


def _made_before(probe: Probe) -> set[Any]:
    """The generators that are made before a step begins, since a replay begins with the reset."""
    if getattr(probe.simulator, "state_kind", "") != "replay":
        return set()
    with recorded() as log:
        probe.begin(0)
    return {(stream.kind, str(stream.seed)) for stream in log.streams}


def is_varying(probe: Probe, at: ProbeState) -> bool:
    """Whether some outcome in a state depends on the noise."""
    first = probe.ask(at, at.actions, probe.noise("varying", at.label))
    for i in probe.timed(range(1, TRIED)):
        row = probe.ask(at, at.actions, probe.noise("varying", at.label, i))
        if any(difference(x, y, probe.is_blind) is not None for x, y in zip(first, row, strict=True)):
            return True
    return probe.ran_out  # nobody knows


def _folded(probe: Probe, at: ProbeState) -> Check | None:
    """Distinct seeds with the same outcome: seeds that are cut down before they are used."""

    def outcome(seed: int) -> ObservedOutcome:
        return probe.ask(at, at.actions[:1], Noise.of_seed(seed))[0]

    apart = _fold(probe, outcome)
    if apart is None:
        return None
    shown = f"seeds that differ by {apart:,} always give the same outcome ({probe.where(at, at.actions[0])})"
    return failed("noise", shown, "seeds that coincide")


def check_start_seeds(probe: Probe) -> Check | None:
    """The same for starts: few of them may be meant, so that is a warning."""

    def outcome(seed: int) -> ObservedOutcome:
        state = probe.simulator.start(Noise.of_seed(seed))
        return probe.begun(state)

    apart = probe.guarded("the start", lambda: _fold(probe, outcome))
    if apart is None:
        return None
    return warned("noise", f"seeds that differ by {apart:,} always give the same start", "seeds that coincide")


def _fold(probe: Probe, outcome: Callable[[int], ObservedOutcome]) -> int | None:
    """A difference of seeds that changes nothing, where seeds matter."""
    seeds = [int(seed) for seed in np.random.default_rng(0).integers(2**31, size=FOLD_SEEDS)]
    first = [outcome(seed) for seed in probe.timed(seeds[:6])]
    equal = [_is_same(x, y) for x, y in itertools.combinations(first, 2)]
    if sum(equal) > len(equal) / 2:  # too few different outcomes to tell
        return None
    for apart in FOLDS:
        pairs = ((outcome(seed), outcome(seed + apart)) for seed in probe.timed(seeds))
        if all(_is_same(x, y) for x, y in pairs) and not probe.ran_out:
            return apart
    return None


def _is_same(one: ObservedOutcome, other: ObservedOutcome) -> bool:
    found = difference(one, other)
    return found is None or found.is_identity


def _frozen_generators(probe: Probe, states: Sequence[ProbeState]) -> list[str]:
    """Generators that a step moves from where they stood to a place that does not depend on the noise."""
    for at in probe.timed(states):
        before = hidden_generators(at.state, "state")
        if not before:
            continue
        for k in range(len(at.actions)):
            ends = []
            for draw in range(2):  # looked at one after the other: a function's variables are there only once
                noise = probe.noise("frozen", at.label, draw)
                after = probe.ask(at, at.actions[k : k + 1], noise)[0].state
                ends.append(hidden_generators(after, "state"))
            moved = [path for path in changed(before, ends[0]) if ends[1].get(path) == ends[0][path]]
            if moved:
                return moved
    return []
