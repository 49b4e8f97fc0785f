"""Checks of what a query leaves behind: snapshots that change, observations that go stale."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from jointmdp.auditor.audit_report import Check
from jointmdp.auditor.observed_outcomes import safe_fingerprint
from jointmdp.auditor.probe import Probe, Spot, content, firm
from jointmdp.simulators.simulator import Action, Snapshot

TRAIL = 3  # states at which snapshots are watched


def check_untouched(probe: Probe, start: Spot, actions_at: Callable[[Snapshot], Sequence[Action]]) -> Check:
    """Query along a short trail, and look at every snapshot handed out so far after each query."""
    spot, kept = start, [start]
    has_cache = ""
    for t in range(TRAIL):
        first = probe.ask(spot, spot.actions[:1], probe.noise("untouched", t))[0]
        found = _changed(probe, spot, kept)
        if found is not None:
            return found
        label = f"step {t + 1} of a trail"
        following = firm(probe.spot(first.state, label, () if first.is_over else actions_at(first.state)))
        # The successor is held while its origin is asked again: a live object handed out as a snapshot moves now.
        kept.append(following)
        sights = probe.ask(spot, spot.actions, probe.noise("untouched other", t))
        found = _changed(probe, spot, kept)
        if found is not None:
            return found
        again = probe.ask(spot, spot.actions[:1], probe.noise("untouched", t))[0]
        moved = [s for s in kept if content(s.state) != s.content]
        if moved and not has_cache and probe.compare("untouched", first, again, spot.label) is None:
            has_cache = moved[0].label
        going = [sight for sight in (first, *sights) if not sight.is_over]
        if not going:
            break
        state = going[-1].state
        spot = firm(probe.spot(state, label, actions_at(state)))
        kept.append(spot)
    if has_cache:
        return Check(
            "untouched",
            "warn",
            f"the snapshot of {has_cache} holds something else after a query, though its identity and observation stay",
            "harmless if it is a cache; if it is part of the state, copy it before stepping",
            "snapshot changes",
        )
    return Check("untouched", "pass", f"{len(kept)} snapshots were the same after every query")


def _changed(probe: Probe, asked: Spot, kept: list[Spot]) -> Check | None:
    """The first snapshot that no longer is what it was, and whose fault that is."""
    for spot in kept:
        identity, seen = probe.simulator.identity(spot.state), safe_fingerprint(probe.simulator.observe(spot.state))
        if content(spot.state) == spot.content or (identity == spot.identity and seen == spot.seen):
            continue
        if spot.state is asked.state and _changes_its_argument(probe, asked):
            return Check(
                "untouched",
                "fail",
                f"the snapshot of {spot.label} is another after it was asked for {_labels(probe, asked)}",
                "step or query works on the snapshot itself; copy it first, or make states that cannot change",
                "mutating query",
            )
        return Check(
            "untouched",
            "fail",
            f"the snapshot of {spot.label} changed while {asked.label} was asked",
            "the simulator hands out an object that it goes on using (its live state, a buffer); return a copy",
            "shared snapshot",
        )
    return None


def _changes_its_argument(probe: Probe, spot: Spot) -> bool:
    """Whether a query changes a private copy of its snapshot too; where none can be made, its argument is to blame."""
    try:
        private = copy.deepcopy(spot.state)
    except Exception:
        return True
    before = content(private)
    for i in range(4):  # one may lead back by chance
        probe.ask(spot._replace(state=private), spot.actions, probe.noise("untouched copy", i))
        if content(private) != before:
            return True
    return False


def _labels(probe: Probe, spot: Spot) -> str:
    return ", ".join(map(probe.simulator.action_label, spot.actions))


def check_observation(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Look at a state when it is reached, go elsewhere, and look again."""
    for i, spot in enumerate(spots):
        other = spots[(i + 1) % len(spots)]
        probe.ask(other, other.actions[-1:], probe.noise("observation", i))
        probe.simulator.observe(other.state)
        if safe_fingerprint(spot.observation) != spot.seen:
            return Check(
                "observation",
                "fail",
                f"the observation handed out for {spot.label} was written over when {other.label} was asked",
                "observe returns a buffer that is used again; return a copy",
                "shared observation buffer",
            )
        if safe_fingerprint(probe.simulator.observe(spot.state)) != spot.seen:
            return Check(
                "observation",
                "fail",
                f"{spot.label} is observed otherwise after {other.label} was asked than when it was reached",
                "the observation comes from the live simulator, not from the snapshot; keep it in the snapshot, or "
                "compute it from there",
                "stale observation",
            )
    return Check("observation", "pass", f"{len(spots)} states look as they did, whatever was asked in between")


def check_kept(spots: Sequence[Spot], untouched: Check, asked: int) -> Check:
    """After the whole audit: are the states still what they were?"""
    if untouched.status != "pass":
        return untouched
    moved = [spot.label for spot in spots if content(spot.state) != spot.content]
    if not moved:
        return Check("untouched", "pass", f"{len(spots)} snapshots are the same after {asked:,} queries")
    return Check(
        "untouched",
        "warn",
        f"the snapshot of {moved[0]} holds something else after {asked:,} queries",
        "some query works on a snapshot, or hands out an object that it goes on using; copy it",
        "snapshot changes",
    )
