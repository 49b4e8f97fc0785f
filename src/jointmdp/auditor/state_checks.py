"""Checks of states: what a query leaves behind, who is the same, what is over, and which numbers make no sense."""

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from jointmdp.auditor.audit_report import Check, failed, skipped, warned
from jointmdp.auditor.observed_outcomes import safe_fingerprint
from jointmdp.auditor.probe import START, Probe, Spot, content, with_content
from jointmdp.simulators.simulator import Action, Snapshot

TRAIL = 3  # states at which snapshots are watched
MEETINGS = 12  # pairs of states with one identity that are compared


def check_untouched(probe: Probe, start: Spot, actions_at: Callable[[Snapshot], Sequence[Action]]) -> Check:
    """Query along a short trail, and look at every snapshot handed out so far after each query."""
    spot, kept = start, [start]
    changed = ""
    for t in range(TRAIL):
        first = probe.ask(spot, spot.actions[:1], probe.noise("untouched", t))[0]
        found = _changed(probe, spot, kept)
        if found is not None:
            return found
        label = f"step {t + 1} of a trail"
        following = with_content(probe.spot(first.state, label, () if first.is_over else actions_at(first.state)))
        # The successor is kept while the state before it is asked again: a live object given as a snapshot moves now.
        kept.append(following)
        others = probe.ask(spot, spot.actions, probe.noise("untouched other", t))
        found = _changed(probe, spot, kept)
        if found is not None:
            return found
        again = probe.ask(spot, spot.actions[:1], probe.noise("untouched", t))[0]
        moved = [s for s in kept if content(s.state) != s.content]
        if moved and not changed and probe.compare("untouched", first, again, spot.label) is None:
            changed = moved[0].label
        going = [outcome for outcome in (first, *others) if not outcome.is_over]
        if not going:
            break
        state = going[-1].state
        spot = with_content(probe.spot(state, label, actions_at(state)))
        kept.append(spot)
    if changed:
        message = (
            f"the snapshot of {changed} holds something else after a query, though its identity and observation stay"
        )
        cause = "harmless if it is a cache; if it is part of the state, copy it before stepping"
        return warned("untouched", message, "snapshot changes", cause)
    return Check("untouched", "pass", f"{len(kept)} snapshots were the same after every query")


def _changed(probe: Probe, asked: Spot, kept: list[Spot]) -> Check | None:
    """The first snapshot that no longer is what it was, and whose fault that is."""
    for spot in kept:
        identity, seen = probe.simulator.identity(spot.state), safe_fingerprint(probe.simulator.observe(spot.state))
        if content(spot.state) == spot.content or (identity == spot.identity and seen == spot.seen):
            continue
        if spot.state is asked.state and _changes_its_argument(probe, asked):
            labels = ", ".join(map(probe.simulator.action_label, asked.actions))
            message = f"the snapshot of {spot.label} is another after it was asked for {labels}"
            return failed("untouched", message, "mutating query")
        message = f"the snapshot of {spot.label} changed while {asked.label} was asked"
        return failed("untouched", message, "shared snapshot")
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


def check_observation(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Look at a state when it is reached, go elsewhere, and look again."""
    for i, spot in enumerate(spots):
        other = spots[(i + 1) % len(spots)]
        probe.ask(other, other.actions[-1:], probe.noise("observation", i))
        probe.simulator.observe(other.state)
        if safe_fingerprint(spot.observation) != spot.seen:
            message = f"the observation handed out for {spot.label} was written over when {other.label} was asked"
            return failed("observation", message, "shared observation buffer")
        if safe_fingerprint(probe.simulator.observe(spot.state)) != spot.seen:
            message = f"{spot.label} is observed otherwise after {other.label} was asked than when it was reached"
            return failed("observation", message, "stale observation")
    return Check("observation", "pass", f"{len(spots)} states look as they did, whatever was asked in between")


def check_kept(spots: Sequence[Spot], untouched: Check, asked: int) -> Check:
    """After the whole audit: are the states still what they were?"""
    if untouched.status != "pass":
        return untouched
    moved = [spot.label for spot in spots if content(spot.state) != spot.content]
    if not moved:
        return Check("untouched", "pass", f"{len(spots)} snapshots are the same after {asked:,} queries")
    message = f"the snapshot of {moved[0]} holds something else after {asked:,} queries"
    return warned("untouched", message, "snapshot changes")


def check_rewards(probe: Probe) -> Check:
    """Were all rewards of the audit where they are claimed to be?"""
    bounds = probe.simulator.reward_bounds
    (low, _), (high, _) = probe.lowest, probe.highest
    if bounds is None:
        return skipped("rewards", f"no bounds are claimed; rewards from {low:.6g} to {high:.6g} were seen")
    for value, where in (probe.lowest, probe.highest):
        if not bounds.lower <= value <= bounds.upper:
            message = f"{where}: the reward is {value:.6g}, outside of [{bounds.lower:.6g}, {bounds.upper:.6g}]"
            return failed("rewards", message, "reward outside its bounds")
    return Check("rewards", "pass", f"from {low:.6g} to {high:.6g}, claimed [{bounds.lower:.6g}, {bounds.upper:.6g}]")


def check_finite(probe: Probe) -> Check:
    """Were all numbers of the audit finite?"""
    if probe.not_finite:
        return failed("finite", probe.not_finite, "number that is not finite")
    if probe.infinite:
        return warned("finite", probe.infinite, "number that is not finite")
    return Check("finite", "pass", f"all rewards and observations of {probe.asked:,} queries")


def check_over(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Ask in states that are over."""
    if not probe.over:
        return skipped("over", "no episode ended during the audit")
    actions = spots[0].actions
    for i, (state, label) in enumerate(probe.over):
        spot = Spot(state, f"the end after {label}", actions, probe.simulator.identity(state), b"", None, b"")
        for action, found in zip(actions, probe.ask(spot, actions, probe.noise("over", i)), strict=True):
            message = ""
            if found.reward != 0:
                message = f"it still pays {found.reward:.6g}"
            elif not found.is_over or found.identity != spot.identity:
                message = "it leads to another state" if found.is_over else "the episode goes on"
            if message:
                return failed("over", f"{probe.where(spot, action)}: {message}", "over state does not absorb")
    return Check("over", "pass", f"{len(probe.over)} states that are over paid nothing and stayed")


def check_identity(probe: Probe, spots: Sequence[Spot], pool: Sequence[Spot]) -> Check:
    """Copies must have the identity of their original, and states with one identity must behave alike."""
    if probe.changing_identity:
        return _changing(probe.changing_identity)
    for spot in spots:
        again = probe.simulator.identity(spot.state)
        try:
            twin = probe.simulator.identity(copy.deepcopy(spot.state))
        except Exception:  # what cannot be copied is compared with itself alone
            twin = again
        if again != twin or (again != spot.identity and not probe.is_blind):
            return _changing(spot.label)
    groups: dict[Hashable, list[Spot]] = defaultdict(list)
    for spot in pool:
        groups[spot.identity].append(spot)
    met = [group for group in groups.values() if len(group) > 1]
    if all(spot.label.startswith(START) for group in met for spot in group):
        message = f"no two of {len(pool)} states beyond the start were the same: normal where states are continuous"
        return Check("identity", "pass", message)
    for group in sorted(met, key=len, reverse=True)[:MEETINGS]:
        # The last one has had the most time to become different from the first.
        one, other = group[0], group[-1]
        fault = "identity ignores part of the state"
        if not probe.is_blind and one.seen != other.seen:
            return failed("identity", f"{one.label} and {other.label} have one identity and look different", fault)
        for draw in range(2):
            answers = [probe.ask(spot, one.actions, probe.noise("identity", draw)) for spot in (one, other)]
            for action, x, y in zip(one.actions, *answers, strict=True):
                found = probe.compare("identity", x, y, probe.where(one, action))
                if found is not None:
                    label = probe.simulator.action_label(action)
                    message = f"{one.label} and {other.label} have one identity; {label}: {found.text}"
                    return failed("identity", message, fault)
    return Check(
        "identity", "pass", f"{len(groups)} of {len(pool)} states were different; those that met behaved alike"
    )


def _changing(where: str) -> Check:
    message = f"{where}: a state has one identity now and another later, or in a copy"
    return failed("identity", message, "identity of the object")
