"""Checks of one query: repetition, the order of its actions, and how much of the noise each of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jointmdp.auditor import hidden_sources
from jointmdp.auditor.audit_report import Check, skipped
from jointmdp.auditor.observed_outcomes import Sight, difference
from jointmdp.auditor.probe import Probe, Spot
from jointmdp.simulators.simulator import Action

EXAMINED = 16  # places at which a difference is looked into


class _Doubt(NamedTuple):
    """An action whose outcome differed between two queries under the same noise."""

    spot: Spot
    place: int  # of the action among those of the spot
    draw: int
    text: str


LEAK = "order-dependent query"
POSITION = "shock tied to the query position"
COMPANY = "outcome depends on the company"
CAUSES = {
    LEAK: "an earlier action of the query leaks into a later one: restore the state and begin the noise anew "
    "(noise.fresh()) before every action",
    POSITION: "each place in the query has its own noise, or the actions share one generator that runs on: begin the "
    "noise anew (noise.fresh()) for every action",
    COMPANY: "a later action of the query changes what an earlier one brought: do the outcomes share an object?",
}


def check_queries(probe: Probe, spots: Sequence[Spot], draws: int) -> tuple[Check, Check]:
    """Repetition and order: every action twice in a query, and all actions in several orders."""
    repeated: list[_Doubt] = []
    reordered: list[_Doubt] = []
    rounded = ""
    for spot in spots:
        for draw in range(draws):
            repeated += _repeated(probe, spot, draw)
            together, doubts = _reordered(probe, spot, draw)
            reordered += doubts
            for i, sight in enumerate(together):
                place = probe.where(spot, spot.actions[i])
                alone = _asked(probe, spot, [i], draw)[0]
                found = difference(alone, sight, probe.is_blind)
                # Compiled code of another size may round otherwise; that concerns nobody who asks in one size.
                if found is not None and found.is_rounding:
                    rounded = rounded or f"; {place} rounds otherwise alone than in a query of {len(together)}"
                elif found is not None and probe.compare("order", alone, sight, place) is not None:
                    reordered.append(_Doubt(spot, i, draw, f"{place}, alone and in company: {found.text}"))
    count = sum(len(spot.actions) for spot in spots) * draws
    repetition = Check("repetition", "pass", f"{count} actions asked twice in one query brought the same twice")
    if repeated:
        fault = _diagnosed(probe, repeated)
        message = f"one action has two outcomes in one query; {repeated[0].text}"
        repetition = Check("repetition", "fail", message, CAUSES[fault], fault)
    if max(len(spot.actions) for spot in spots) < 2:
        return repetition, skipped("order", "there is only one action")
    message = f"outcomes were the same in every order of the query, in {len(spots)} states{rounded}"
    if not reordered:
        return repetition, Check("order", "pass", message)
    fault = _diagnosed(probe, reordered)
    return repetition, Check("order", "fail", reordered[0].text, CAUSES[fault], fault)


def _repeated(probe: Probe, spot: Spot, draw: int) -> list[_Doubt]:
    """The actions that bring two things when they are asked twice."""
    doubts = []
    for i, action in enumerate(spot.actions):
        one, other, *_ = _asked(probe, spot, _twice(i, len(spot.actions)), draw)
        place = probe.where(spot, action)
        found = probe.compare("repetition", one, other, place)
        if found is not None:
            doubts.append(_Doubt(spot, i, draw, f"{place}: {found.text}"))
    return doubts


def _reordered(probe: Probe, spot: Spot, draw: int) -> tuple[list[Sight], list[_Doubt]]:
    """All actions together, and those that bring something else in another order."""
    first, *others = _orders(len(spot.actions))
    together = _asked(probe, spot, first, draw)
    doubts = []
    for order in others:
        for i, sight in zip(order, _asked(probe, spot, order, draw), strict=True):
            place = probe.where(spot, spot.actions[i])
            found = probe.compare("order", together[i], sight, place)
            if found is not None:
                text = f"{place}, at place {i + 1} and at place {order.index(i) + 1} of a query: {found.text}"
                doubts.append(_Doubt(spot, i, draw, text))
    return together, doubts


def _asked(probe: Probe, spot: Spot, order: Sequence[int], draw: int) -> list[Sight]:
    return probe.ask(spot, [spot.actions[i] for i in order], probe.noise("query", spot.label, draw))


def _twice(i: int, count: int) -> list[int]:
    """An action twice, in a query as large as those of all actions: compiled simulators compile each size."""
    return [i, i, *(j for j in range(count) if j != i)][: max(2, count)]


def _orders(count: int) -> list[list[int]]:
    plain = list(range(count))
    found = [plain, plain[::-1], plain[1:] + plain[:1]]
    return [order for i, order in enumerate(found) if order not in found[:i]]


def _diagnosed(probe: Probe, doubts: Sequence[_Doubt]) -> str:
    """Hold the place in the query and vary what comes before it: a leak. Only the place matters: a shock tied to it."""
    by_place = False
    for doubt in doubts[:EXAMINED]:
        spot, i, draw = doubt.spot, doubt.place, doubt.draw
        others = range(len(spot.actions))
        seconds = [_asked(probe, spot, [j, i], draw)[1] for j in others]
        thirds = [_asked(probe, spot, [j, k, i], draw)[2] for j, k in ((0, len(others) - 1), (len(others) - 1, 0))]
        for sights in (seconds, thirds):
            if any(probe.compare("order", sights[0], sight, "") is not None for sight in sights[1:]):
                return LEAK
        firsts = [_asked(probe, spot, [i, j], draw)[0] for j in others]
        by_place |= any(probe.compare("order", firsts[i], sight, "") is not None for sight in (seconds[i], thirds[0]))
    return POSITION if by_place else COMPANY


def check_noise(probe: Probe, spots: Sequence[Spot], draws: int) -> Check:
    """How many numbers each action takes, and whether a generator in the snapshot is used instead."""
    frozen = _frozen_generator(probe, spots)
    if frozen:
        return Check(
            "noise",
            "fail",
            f"{frozen} moves on in a step, from the same place to the same place whatever the noise",
            "the snapshot carries a generator that is never given new noise, so the luck of a state is always the "
            "same; name it in streams=, or draw from the noise",
            "frozen generator",
        )
    streams: set[str] = set()
    ways: set[str] = set()
    doubts: list[str] = []
    for spot in spots:
        for draw in range(draws):
            taken = []
            for action in spot.actions:
                noise = probe.noise("draws", spot.label, draw)
                probe.ask(spot, [action], noise, is_light=True)
                taken.append(noise.taken)
                streams.update(noise.taken)
                ways |= noise.others
            sources = [set(found) for found in taken if found]
            if len(sources) > 1 and not set.intersection(*sources):
                names = ", ".join(sorted(set().union(*sources)))
                return Check(
                    "noise",
                    "warn",
                    f"the actions draw from streams of their own: {names} ({spot.label})",
                    "luck drawn under another name for every action is not shared: name streams by their source",
                    "luck not shared",
                )
            for name in sorted(set().union(*taken)):
                counts = [found.get(name, 0) for found in taken]
                low, high = counts.index(min(counts)), counts.index(max(counts))
                if counts[low] != counts[high]:
                    label = probe.simulator.action_label
                    text = (
                        f"{label(spot.actions[low])} took {counts[low]} and {label(spot.actions[high])} {counts[high]} "
                        f"numbers from the stream {name} ({spot.label})"
                    )
                    doubts.append(text)
    if doubts:
        return _out_of_step(probe, doubts, streams)
    if ways and not streams:
        words = " and ".join(f"noise.{way}" for way in sorted(ways))
        if ways == {"uniform"}:
            return Check("noise", "pass", "each step takes one uniform number, the same for every action")
        return skipped("noise", f"the noise is taken as {words}: what is drawn from it cannot be counted")
    if not streams:
        return Check("noise", "pass", "no action takes any noise: the steps are deterministic")
    named = ", ".join(sorted(streams))
    return Check("noise", "pass", f"every action took as many numbers as the others (streams: {named})")


def _out_of_step(probe: Probe, doubts: Sequence[str], streams: set[str]) -> Check:
    text = doubts[0]
    fault = "draws out of step"
    if not probe.simulator.reseeds:
        cause = (
            "the noise runs on from step to step, so from here on the branches draw different luck: give each step its "
            "own noise, and each source a stream of its own"
        )
        return Check("noise", "fail", text, cause, fault)
    if len(streams) > 1:
        return Check("noise", "pass", f"{text}; the other streams stay in step")
    cause = (
        "each step begins its noise anew, so later steps stay in step, but within this one all draws after the first "
        'difference shift: draw by name, noise["demand"], or draw all that may be needed before looking at the action'
    )
    return Check("noise", "warn", text, cause, fault)


def _frozen_generator(probe: Probe, spots: Sequence[Spot]) -> str:
    """A generator that a step moves from where it stood to a place that does not depend on the noise."""
    for spot in spots:
        before = hidden_sources.generators(spot.state, "state")
        if not before:
            continue
        ends = [hidden_sources.generators(_successor(probe, spot, spot.actions[0], draw), "state") for draw in range(2)]
        for path in hidden_sources.changed(before, ends[0]):
            if ends[1].get(path) == ends[0][path]:
                return path
    return ""


def _successor(probe: Probe, spot: Spot, action: Action, draw: int) -> object:
    return probe.ask(spot, [action], probe.noise("frozen", spot.label, draw))[0].state
