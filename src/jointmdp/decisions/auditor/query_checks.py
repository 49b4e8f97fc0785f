"""Checks of one query: repetition, and the order of its actions."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jointmdp.decisions.auditor.audit_report import Check, failed, skipped
from jointmdp.decisions.auditor.observed_outcomes import ObservedOutcome, difference
from jointmdp.decisions.auditor.probe import Probe, Spot

EXAMINED = 16  # places at which a difference is looked into


class _Doubt(NamedTuple):
    """An action whose outcome differed between two queries under the same noise."""

    spot: Spot
    place: int  # of the action among those of the spot
    draw: int
    text: str


def check_queries(probe: Probe, spots: Sequence[Spot], draws: int) -> tuple[Check, Check]:
    """Repetition and order: every action twice in a query, and all actions in several orders and alone."""
    repeated: list[_Doubt] = []
    reordered: list[_Doubt] = []
    rounded = ""
    for spot, draw in probe.timed(itertools.product(spots, range(draws))):
        first, *orders = _orders(len(spot.actions))
        for i in first:
            one, other, *_ = _asked(probe, spot, _twice(i, len(first)), draw)
            repeated += _doubts(probe, "repetition", _Doubt(spot, i, draw, ""), one, other)
        together = _asked(probe, spot, first, draw)
        for order in orders:
            for k, (i, other) in enumerate(zip(order, _asked(probe, spot, order, draw), strict=True)):
                doubt = _Doubt(spot, i, draw, f", at place {i + 1} and at place {k + 1} of a query")
                reordered += _doubts(probe, "order", doubt, together[i], other)
        for i in first:
            alone = _asked(probe, spot, [i], draw)[0]
            found = difference(alone, together[i], probe.is_blind)
            # Compiled code of another size may round otherwise; that concerns nobody who asks in one size.
            if found is not None and found.is_rounding:
                place = probe.where(spot, spot.actions[i])
                rounded = rounded or f"; {place} rounds otherwise alone than in a query of {len(together)}"
            else:
                doubt = _Doubt(spot, i, draw, ", alone and in company")
                reordered += _doubts(probe, "order", doubt, alone, together[i])
    count = sum(len(spot.actions) for spot in spots) * draws
    if not repeated and not reordered:
        probe.in_time()
    repetition = Check("repetition", "pass", f"{count} actions asked twice in one query gave the same twice")
    if repeated:
        message = f"one action has two outcomes in one query; {repeated[0].text}"
        repetition = failed("repetition", message, _diagnosed(probe, repeated))
    if max(len(spot.actions) for spot in spots) < 2:
        return repetition, skipped("order", "there is only one action")
    if reordered:
        return repetition, failed("order", reordered[0].text, _diagnosed(probe, reordered))
    message = f"outcomes were the same in every order of the query, in {len(spots)} states{rounded}"
    return repetition, Check("order", "pass", message)


def _doubts(probe: Probe, check: str, doubt: _Doubt, one: ObservedOutcome, other: ObservedOutcome) -> Iterator[_Doubt]:
    """The doubt in words, where two outcomes differ."""
    place = probe.where(doubt.spot, doubt.spot.actions[doubt.place])
    found = probe.compare(check, one, other, place)
    if found is not None:
        yield doubt._replace(text=f"{place}{doubt.text}: {found.text}")


def _asked(probe: Probe, spot: Spot, order: Sequence[int], draw: int) -> list[ObservedOutcome]:
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
        for outcomes in (seconds, thirds):
            if any(probe.compare("order", outcomes[0], other, "") is not None for other in outcomes[1:]):
                return "order-dependent query"
        firsts = [_asked(probe, spot, [i, j], draw)[0] for j in others]
        by_place |= any(probe.compare("order", firsts[i], other, "") is not None for other in (seconds[i], thirds[0]))
    return "shock tied to the query position" if by_place else "outcome depends on the company"
