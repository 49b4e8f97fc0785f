"""Checks of the noise: do the actions take the same of it, in step, and does it reach the outcome at all?"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.decisions.auditor.audit_report import Check, failed, skipped, warned
from jointmdp.simulation.simulators import recorded_draws
from jointmdp.simulation.simulators.generators import changed, hidden_generators
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.probe import START, ObservedOutcome, Probe, ProbeState, difference
from jointmdp.simulation.simulators.recorded_draws import DrawLog, Made, WatchedNoise
from jointmdp.simulation.simulators.simulator import Action

FROZEN, NO_NOISE = "frozen noise", "no action takes any noise"
TRIED = 16  # draws of noise that are tried before one says that it never matters
# Seeds that differ by one of these are one seed to a simulator that cuts seeds down: modulo 2 … 16, powers of ten,
# powers of two, a few primes; 1 for those that divide.
FOLDS = (720_720, 10**6, 2**24, 97 * 101 * 997, 1)
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
    """What each action takes from which generator, and whether another one is used instead."""
    told = str(getattr(probe.simulator, "frozen_noise", "") or "")
    if told:
        return failed("noise", told, FROZEN)
    frozen = _frozen_generators(probe, states)
    if frozen:
        message = f"{' and '.join(frozen)} moves on in a step, from the same place to the same place whatever the noise"
        return failed("noise", message, "frozen generator")
    steps = _recorded(probe, states, draws)
    if is_settled and not probe.pins_globals:
        found = _unshared(probe, steps) or _coinciding(probe, steps) or _fixed(probe, *_fresh(probe, steps))
        if found is not None:
            return found
    ways = set().union(*(step.noise.others for step in steps))
    if "seed" in ways and is_settled:
        found = _folded(probe, states[0])
        if found is not None:
            return found
    streams = set().union(*(step.noise.taken for step in steps))
    doubt = _first_doubt(probe, steps)
    if doubt:
        return _out_of_step(probe, doubt, max(len(step.log.sources) for step in steps))
    probe.in_time()
    if not streams and not ways:
        return Check("noise", "pass", NO_NOISE)
    made = set().union(*(step.log.drawn for step in steps))
    if ways and not streams and not made:
        words = " and ".join(f"noise.{way}" for way in sorted(ways))
        if ways == {"uniform"}:
            return Check("noise", "pass", "each step takes one uniform number, the same for every action")
        return skipped("noise", f"the noise is taken as {words}: what is drawn from it cannot be counted")
    named = ", ".join(sorted(streams)) or f"{min(made)[0]}(seed)"
    return Check("noise", "pass", f"every action drew the same as the others (streams: {named})")


def _recorded(probe: Probe, states: Sequence[ProbeState], draws: int) -> list[_Step]:
    places, steps = recorded_draws.places(), []
    for at, draw in probe.timed(itertools.product(states, range(max(draws, 3)))):
        for place, action in enumerate(at.actions):
            noise = probe.noise("draws", at.label, draw)
            noise.log = DrawLog()
            with recorded_draws.recorded(noise.log, places):
                probe.ask(at, [action], noise, is_light=True)
            steps.append(_Step(at, place, draw, noise, noise.log))
    return steps


def _queries(steps: Sequence[_Step]) -> list[list[_Step]]:
    """The steps with the same state and noise."""
    return [list(group) for _, group in itertools.groupby(steps, lambda step: (step.at.label, step.draw))]


def _seeded(step: _Step) -> set[Made]:
    return {made for made in step.log.drawn if made.seed}


def _unshared(probe: Probe, steps: Sequence[_Step]) -> Check | None:
    """Actions that draw from nothing that they have in common."""
    for group in _queries(steps):
        taken = [set(step.noise.taken) for step in group if step.noise.taken]
        if len(taken) > 1 and not set.intersection(*taken):
            names = ", ".join(sorted(set().union(*taken)))
            message = f"the actions draw from streams of their own: {names} ({group[0].at.label})"
            return failed("noise", message, "noise not shared")
        made = [(step, _seeded(step)) for step in group if _seeded(step) and not step.noise.taken]
        for (one, x), (other, y) in itertools.combinations(made, 2):
            if not x & y:
                labels = [probe.simulator.action_label(step.action) for step in (one, other)]
                texts = [str(min(found)) for found in (x, y)]
                message = f"under the same noise {labels[0]} draws from {texts[0]} and {labels[1]} from {texts[1]}"
                cause = "the seed depends on the action: make the generator from the noise alone, default_rng(seed)"
                return failed("noise", message, "noise not shared", cause)
    return None


def _by_question(steps: Sequence[_Step]) -> list[list[_Step]]:
    """The steps with the same state and action, under different noise."""
    found: dict[tuple[str, int], list[_Step]] = {}
    for step in steps:
        found.setdefault((step.at.label, step.place), []).append(step)
    return list(found.values())


def _coinciding(probe: Probe, steps: Sequence[_Step]) -> Check | None:
    """Seeds that change with the noise, and are the same for two draws of it all the same."""
    seen: dict[Made, set[bytes]] = {}
    for group in _by_question(steps):
        if len({min(_seeded(step)) for step in group if _seeded(step)}) < 2:
            continue
        for step in group:
            for made in _seeded(step):
                seen.setdefault(made, set()).add(step.noise.address)
    fixed = set.intersection(*(_seeded(step) for step in steps)) if steps else set()
    twice = [made for made, noises in seen.items() if len(noises) > 1 and made not in fixed]
    if not twice or len(seen) > 0.9 * len({step.noise.address for step in steps}):
        return None
    draws = len(set().union(*seen.values()))
    message = f"{draws} draws of the noise gave {len(seen)} different seeds, {twice[0]} more than once"
    return failed("noise", message, "seeds that coincide")


def _fresh(probe: Probe, steps: Sequence[_Step]) -> tuple[Sequence[_Step], set[Made]]:
    """Steps, and the generators that are made before they begin, since a replay begins with the reset."""
    if getattr(probe.simulator, "state_kind", "") != "replay":
        return steps, set()
    with recorded_draws.recorded(DrawLog(), recorded_draws.places()) as log:
        probe.begin(0)
    return [step for step in steps if step.at.label == f"{START} of walk 0"], set(log.made)


def _fixed(probe: Probe, steps: Sequence[_Step], before: set[Made]) -> Check | None:
    """A generator that is made in a step from the same seed whatever the noise."""
    for group in _by_question(steps):
        made = [set(_seeded(step)) for step in group]
        common = set.intersection(*made) - before
        if len(group) < 2 or not common:
            continue
        text = str(min(common))
        where = probe.where(group[0].at, group[0].action)
        message = f"{where}: {text} is made and drawn from in the step, whatever the noise"
        cause = (
            f"make it from the noise: np.random.default_rng(noise.seed), or draw from noise.rng; if {text} stands for "
            "a fixed table, make the table once, outside of the step"
        )
        if not is_varying(probe, group[0].at):
            return failed("noise", message, FROZEN, cause)
        return warned("noise", message, "frozen generator", cause)
    return None


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
        return probe.ask(at, at.actions[:1], Noise.at(seed.to_bytes(4, "little") + b"folded seeds"))[0]

    apart = _fold(probe, outcome)
    if apart is None:
        return None
    shown = f"seeds that differ by {apart:,} always give the same outcome ({probe.where(at, at.actions[0])})"
    return failed("noise", shown, "seeds that coincide")


def check_start_seeds(probe: Probe) -> Check | None:
    """The same for starts: few of them may be meant, so that is a warning."""

    def outcome(seed: int) -> ObservedOutcome:
        state = probe.simulator.start(Noise.at(seed.to_bytes(4, "little") + b"folded seeds"))
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


def _first_doubt(probe: Probe, steps: Sequence[_Step]) -> str:
    """The first two actions that draw different numbers from one stream."""
    for group in _queries(steps):
        taken = [step.noise.taken for step in group]
        for name in sorted(set().union(*taken)):
            counts = [found.get(name, 0) for found in taken]
            low, high = counts.index(min(counts)), counts.index(max(counts))
            if counts[low] != counts[high]:
                less, more = (probe.simulator.action_label(group[i].action) for i in (low, high))
                numbers = f"{less} took {counts[low]} and {more} {counts[high]} numbers"
                return f"{numbers} from the stream {name} ({group[0].at.label})"
        for step in group[1:]:
            found = recorded_draws.first_difference(group[0].log, step.log)
            if found:
                labels = [probe.simulator.action_label(each.action) for each in (group[0], step)]
                return f"{labels[0]} and {labels[1]} draw otherwise: {found} ({step.at.label})"
    return ""


def _out_of_step(probe: Probe, text: str, sources: int) -> Check:
    if not probe.simulator.reseeds:
        cause = (
            "the noise runs on from step to step, so from here on the branches draw different noise: give each step "
            "its own noise, and each source a stream of its own"
        )
        return failed("noise", text, "draws out of step", cause)
    if sources > 1:
        return Check("noise", "pass", f"{text}; the other streams stay in step")
    return warned("noise", text, "draws out of step")


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
