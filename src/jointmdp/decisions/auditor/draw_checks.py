"""Checks of the noise: do the actions take the same of it, in step, and does it reach the outcome at all?"""

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor.audit_report import CAUSES, DECISION, NOT_FOLLOWED, Check, failed, skipped, warned
from jointmdp.simulation.montecarlo.pairing import PAIRS_NOTHING, Pairing
from jointmdp.simulation.simulators.function_simulator import RunSimulator, WithNoise
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action
from jointmdp.simulation.watching.hidden_state import changed, hidden_generators, opened_files
from jointmdp.simulation.watching.probe import ObservedOutcome, Probe, ProbeState, WatchedNoise, difference
from jointmdp.simulation.watching.recorded_draws import (
    NOISE,
    UNSEEN,
    DrawLog,
    recorded,
    twins_installed,
)
from jointmdp.simulation.watching.stream_checks import (
    EARLY,
    FIXED,
    FOLDS,
    OUT_OF_STEP,
    UNSHARED,
    RecordedRun,
    StreamFault,
    drawn_in_steps,
    files_handed_on,
    fold_of,
    judged,
    unseeded,
    unseen_keys,
)

OUTSIDE = "let each step draw from np_random, which is given new noise, or name the generator in streams="
FROZEN, NO_NOISE = "frozen noise", "no action was seen to take any noise"
TRIED = 16  # draws of noise that are tried before one says that it never matters
LEAST_RUNS, MOST_RUNS = 2, 64  # seeds with which every decision is run: a fault in one run of ten shows in 99.9 % of 64
MORE_SECONDS, MORE_SHARE = 1.0, 0.1  # for more than the fewest, at most, and of the time of the check
PAIRED = (24, 100, 400)  # replications after which the pairing is looked at
THOROUGH = (0, 1)  # draws of noise in which moves of generators that are no draws are looked for
MOST_WALKS = 5  # that the states of an audit come from
SPECIAL = (0,)  # seeds that a function may take for none
MOST_TOLD = 4  # streams named in a sentence


class _Step(NamedTuple):
    """One action under one draw of the noise: what was drawn for it, also what cannot be counted, and what it gave."""

    run: RecordedRun
    ways: set[str]
    result: float


def check_noise(probe: Probe, states: Sequence[ProbeState], draws: int, is_settled: bool) -> Check:
    """What each action takes from which stream, judged stream by stream."""
    if told := str(getattr(probe.simulator, "frozen_noise", "") or ""):
        return failed("noise", told, FROZEN)
    for at in probe.timed(states):  # generators that go from where they stood to a place whatever the noise
        before = hidden_generators(at.state, "state")
        for k in range(len(at.actions)) if before else ():
            ends = []
            for draw in range(2):  # looked at one after the other: a function's variables are there only once
                noise = probe.noise("frozen", at.label, draw)
                after = probe.ask(at, at.actions[k : k + 1], noise)[0].state
                ends.append(hidden_generators(after, "state"))
            if moved := [path for path in changed(before, ends[0]) if ends[1].get(path) == ends[0][path]]:
                message = f"{' and '.join(moved)} moves on in a step, from the same place to the same place"
                return failed("noise", f"{message} whatever the noise", "frozen generator")
    steps = _recorded(probe, states, max(draws, 3), max(draws, 3))
    known: set[Any] = set()  # generators that are made before a step begins, since a replay begins with the reset
    if getattr(probe.simulator, "state_kind", "") == "replay":
        with recorded() as log:
            for walk in range(MOST_WALKS):
                probe.begin(walk)
        # Streams of a noise have one name in all replications, and a start may draw from those of its steps.
        known = {(stream.kind, str(stream.seed)) for stream in log.streams if stream.kind != NOISE}
    return _judged_steps(probe, states[0], steps, is_settled, known)


def _judged_steps(
    probe: Probe, at: ProbeState, steps: Sequence[_Step], is_settled: bool, known: Collection[Any] = ()
) -> Check:
    found = judged([step.run for step in steps], known)
    outside = [] if probe.pins_globals else list(unseeded([step.run for step in steps]))
    if not is_settled or probe.pins_globals:  # what else a stream does wrong is a consequence
        found = [fault for fault in found if fault.fault in (OUT_OF_STEP, EARLY) and fault.status == "fail"]
    if not is_settled:
        outside = [fault._replace(status="fail") for fault in outside]
    found = [*outside, *found]
    ways, drawn = set().union(*(step.ways for step in steps)), [each for step in steps for each in step.run.log.drawn]
    has_seeds = any(stream.seed is not None and stream.kind != NOISE for stream in drawn)
    is_ours = isinstance(getattr(probe.simulator, "run", None), WithNoise)  # which makes its noise from the whole seed
    may_fold = "seed" in ways and is_settled and not has_seeds and not is_ours
    if not found and may_fold and (folded := check_folds(probe, at)) is not None:
        return folded
    if found:
        return _judgement(probe, at, found)
    probe.in_time()
    # Nothing is wrong: which streams were seen?
    counted = [stream for stream in drawn if (stream.kind, str(stream.seed)) not in known]
    streams = sorted({stream.title for stream in counted})
    if not streams and not ways:
        if draw := drawn_in_steps([step.run.log for step in steps], known):
            message = (
                f"no action was seen to take any noise, but {draw} draws in a step from what only a reset has made"
            )
            return warned("noise", message, "noise outside the snapshot", OUTSIDE)
        return Check("noise", "pass", NO_NOISE)
    if not streams and ways == {"uniform"}:
        return Check("noise", "pass", "each step takes one uniform number, the same for every action")
    if not streams:
        words = " and ".join(f"noise.{way}" for way in sorted(ways))
        if ways == {"key"}:
            return skipped("noise", f"the noise is taken as {words}: what is drawn from it is not counted")
        taken = "" if ways == {"seed"} else f" as {words}"
        return skipped("noise", f"the noise is taken{taken}, and no generator of a known kind was seen: {NOT_FOLLOWED}")
    if all(stream.kind in UNSEEN for stream in counted) and (kinds := unseen_keys([step.run.log for step in steps])):
        words = f"the noise is taken as a key of {kinds}, which only compiled code uses: {NOT_FOLLOWED}"
        return skipped("noise", words)
    more = f" and {len(streams) - MOST_TOLD} more" if len(streams) > MOST_TOLD else ""
    text = f"all draws are in step (streams: {', '.join(streams[:MOST_TOLD])}{more})"
    if eaten := sorted({stream.title for stream in counted if stream.is_eaten}):
        text += f"; compiled code draws from {' and '.join(eaten)}, and leaves it in one place whatever the action"
    if unseen := sorted({stream.kind for stream in counted if stream.kind in UNSEEN and stream.seed is not None}):
        text += f"; what is drawn from {' and '.join(unseen)} is not counted, its seeds are the same"
    if any(step.run.log.keys for step in steps):
        text += "; keys of JAX are used for the same purposes, as far as Python sees them"
    return Check("noise", "pass", text)


def recorded_runs(probe: Probe, at: ProbeState) -> list[_Step]:
    """Every decision with the same seeds, and the first with seeds that are one to a function that cuts them down."""
    steps = _recorded(probe, [at], LEAST_RUNS, MOST_RUNS)
    probe.in_time()
    first = Noise("folded", probe.seed).seed % 2**31
    for i, apart in enumerate((0, *FOLDS)):
        if time.monotonic() > probe.deadline:
            break
        steps.append(_asked(probe, at, at.actions[0], -1 - i, WatchedNoise.of_seed(first + apart)))
    return steps


def check_runs(probe: Probe, at: ProbeState, steps: Sequence[_Step], is_settled: bool) -> Check:
    """The same for a function of a decision and a seed."""
    for seed in SPECIAL if is_settled and not isinstance(getattr(probe.simulator, "run", None), WithNoise) else ():
        one, other = (probe.ask(at, at.actions[:1], Noise.of_seed(seed)) for _ in range(2))
        if (found := difference(one[0], other[0], probe.is_blind)) is not None:
            cause = "`seed or None` and `if seed:` take 0 for no seed: write `if seed is None`"
            return failed("noise", f"seed {seed} gives another result each time: {found.text}", UNSHARED, cause)
    check, results = _judged_steps(probe, at, steps, is_settled), dict[str, set[float]]()
    for step in steps:
        results.setdefault(step.run.decision, set()).add(step.result)
    is_constant = all(len(values) == 1 for values in results.values())
    if not check.fault and is_settled and is_constant and not is_varying(probe, at):
        return warned("noise", f"no outcome changed over {TRIED} seeds", "seed ignored")
    return check


def check_files(probe: Probe, steps: Sequence[_Step]) -> Check | None:
    """Whether a run reads what another decision left in a file."""
    for found in files_handed_on([step.run for step in steps]):
        return warned("history", found.text, found.fault, found.cause)
    return None


def _judgement(probe: Probe, at: ProbeState, found: Sequence[StreamFault]) -> Check:
    """One check from all faults of the gravest kind."""
    if probe.simulator.reseeds and not isinstance(probe.simulator, RunSimulator):
        # Every step starts from noise of its own, so later steps stay in step.
        cause = CAUSES[OUT_OF_STEP]
        found = [f._replace(status="warn", cause=cause) if f.fault == OUT_OF_STEP else f for f in found]
    if all(fault.fault == FIXED for fault in found) and not is_varying(probe, at):
        found = [fault._replace(status="fail", fault=FROZEN) for fault in found]
    status = min(fault.status for fault in found)  # fail comes before warn
    gravest = [(fault.fault, fault.text, fault.cause) for fault in found if fault.status == status]
    names, texts, causes = (list(dict.fromkeys(column)) for column in zip(*gravest, strict=True))
    return Check("noise", status, "; ".join(texts[:MOST_TOLD]), "; ".join(causes[:MOST_TOLD]), ", ".join(names))


def _recorded(probe: Probe, states: Sequence[ProbeState], least: int, most: int) -> list[_Step]:
    """Every action in every state under one draw of the noise, then under others; `least` of them, more if quick."""
    steps: list[_Step] = []
    begun = time.monotonic()
    enough = begun + min(MORE_SECONDS, MORE_SHARE * (probe.deadline - begun))
    with twins_installed():
        for draw in range(most):
            for at, action in [(state, action) for state in states for action in state.actions]:
                if time.monotonic() > (probe.deadline if draw < least else enough):
                    probe.ran_out |= draw < least
                    return steps
                steps.append(_asked(probe, at, action, draw, probe.noise("draws", at.label, draw)))
    return steps


def _asked(probe: Probe, at: ProbeState, action: Action, draw: int, noise: WatchedNoise) -> _Step:
    with recorded(DrawLog(is_thorough=draw in THOROUGH)) as log, opened_files() as files:
        result = probe.ask(at, [action], noise, is_light=True)[0].reward
    where = (f"draw {draw}", log, at.label)
    if at.label == DECISION:
        where = (f"seed {Noise.at(noise.address).seed}", log, "")
    return _Step(RecordedRun(probe.simulator.action_label(action), *where, files), noise.others, result)


def is_varying(probe: Probe, at: ProbeState) -> bool:
    """Whether some outcome in a state depends on the noise."""
    first = probe.ask(at, at.actions, probe.noise("varying", at.label))
    for i in probe.timed(range(1, TRIED)):
        row = probe.ask(at, at.actions, probe.noise("varying", at.label, i))
        if any(difference(x, y, probe.is_blind) is not None for x, y in zip(first, row, strict=True)):
            return True
    return probe.ran_out  # nobody knows


def check_folds(probe: Probe, at: ProbeState | None = None) -> Check | None:
    """Distinct seeds with the same outcome: seeds that are cut down before they are used.

    Without a state the same for starts: few of them may be meant, so that is a warning.
    """

    def outcomes(seed: int) -> list[ObservedOutcome]:
        if at is None:
            return [probe.begun(probe.simulator.start(Noise.of_seed(seed)))]
        return probe.ask(at, at.actions, Noise.of_seed(seed))

    def found() -> int | None:
        return fold_of(outcomes, _is_same, probe.timed)

    apart = found() if at is not None else probe.guarded("the start", found)
    if apart is None:
        return None
    shown, fault = f"seeds that differ by {apart:,} always give the same", "seeds that coincide"
    if at is None:
        return warned("noise", f"{shown} start", fault)
    return failed("noise", f"{shown} outcome ({at.label})", fault)


def _is_same(one: Sequence[ObservedOutcome], other: Sequence[ObservedOutcome]) -> bool:
    found = [difference(x, y) for x, y in zip(one, other, strict=True)]
    return all(each is None or each.is_identity for each in found)


def check_pairing(probe: Probe, at: ProbeState, is_settled: bool) -> Check:
    """Whether the results of two decisions vary together under the same noise, and so their gap less."""
    if not is_settled or probe.pins_globals:
        return skipped("pairing", "the same question has different answers already")
    if len(at.actions) < 2:
        return skipped("pairing", "there is only one decision")
    rows: list[list[float]] = []
    for size in PAIRED:
        for i in probe.timed(range(len(rows), size)):
            asked = (probe.ask(at, [action], probe.noise("pairing", i), is_light=True) for action in at.actions)
            rows.append([outcome.reward for (outcome,) in asked])
        found = Pairing(np.array(rows), [probe.simulator.action_label(action) for action in at.actions])
        if probe.ran_out or found.is_clear:
            break
    if len(rows) < PAIRED[0]:
        probe.in_time()
    if found.doubt:
        return warned("pairing", found.doubt, PAIRS_NOTHING)
    return Check("pairing", "pass", found.text)
