"""Checks of states by themselves: who is the same, what is over, and which numbers make no sense."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Hashable, Sequence

from jointmdp.auditor.audit_report import Check, skipped
from jointmdp.auditor.probe import START, Probe, Spot

MEETINGS = 12  # pairs of states with one identity that are compared


def check_rewards(probe: Probe) -> Check:
    """Were all rewards of the audit where they are claimed to be?"""
    bounds = probe.simulator.reward_bounds
    (low, where_low), (high, where_high) = probe.lowest, probe.highest
    if bounds is None:
        return skipped("rewards", f"no bounds are claimed; rewards from {low:.6g} to {high:.6g} were seen")
    for value, where in ((low, where_low), (high, where_high)):
        if not bounds.lower <= value <= bounds.upper:
            return Check(
                "rewards",
                "fail",
                f"{where}: the reward is {value:.6g}, outside of [{bounds.lower:.6g}, {bounds.upper:.6g}]",
                "reward_bounds is too narrow (a bonus or a penalty at the end?); bounds on returns rest on it",
                "reward outside its bounds",
            )
    return Check("rewards", "pass", f"from {low:.6g} to {high:.6g}, claimed [{bounds.lower:.6g}, {bounds.upper:.6g}]")


def check_finite(probe: Probe) -> Check:
    """Were all numbers of the audit finite?"""
    cause = "a division by zero, an overflow, or a value that was never set"
    if probe.senseless:
        return Check("finite", "fail", probe.senseless, cause, "number that is not finite")
    if probe.infinite:
        return Check("finite", "warn", probe.infinite, cause, "number that is not finite")
    return Check("finite", "pass", f"all rewards and observations of {probe.asked:,} queries")


def check_over(probe: Probe, spots: Sequence[Spot]) -> Check:
    """Ask in states that are over."""
    if not probe.over:
        return skipped("over", "no episode ended during the audit")
    actions = spots[0].actions
    for i, (state, label) in enumerate(probe.over):
        spot = Spot(state, f"the end after {label}", actions, probe.simulator.identity(state), b"", None, b"")
        for action, sight in zip(actions, probe.ask(spot, actions, probe.noise("over", i)), strict=True):
            where = probe.where(spot, action)
            fault = "over state does not absorb"
            cause = (
                "query must give a state that is over back as it is, with reward 0; did it step on, or reset itself?"
            )
            if sight.reward != 0:
                return Check("over", "fail", f"{where}: it still pays {sight.reward:.6g}", cause, fault)
            if not sight.is_over or sight.identity != spot.identity:
                told = "it leads to another state" if sight.is_over else "the episode goes on"
                return Check("over", "fail", f"{where}: {told}", cause, fault)
    return Check("over", "pass", f"{len(probe.over)} states that are over paid nothing and stayed")


def check_identity(probe: Probe, spots: Sequence[Spot], pool: Sequence[Spot]) -> Check:
    """Copies must have the identity of their original, and states with one identity must behave alike."""
    if probe.fickle:
        return _fickle(probe.fickle)
    for spot in spots:
        again = probe.simulator.identity(spot.state)
        try:
            twin = probe.simulator.identity(copy.deepcopy(spot.state))
        except Exception:  # what cannot be copied is compared with itself alone
            twin = again
        if again != twin or (again != spot.identity and not probe.is_blind):
            return _fickle(spot.label)
    groups: dict[Hashable, list[Spot]] = defaultdict(list)
    for spot in pool:
        groups[spot.identity].append(spot)
    met = [group for group in groups.values() if len(group) > 1]
    if all(spot.label.startswith(START) for group in met for spot in group):
        message = f"no two of {len(pool)} states beyond the start were the same: normal where states are continuous"
        return Check("identity", "pass", message)
    compared = 0
    for group in sorted(met, key=len, reverse=True)[:MEETINGS]:
        # The latest comer has had the most time to become different from the first.
        one, other = group[0], group[-1]
        if not probe.is_blind and one.seen != other.seen:
            return _unlike(f"{one.label} and {other.label} have one identity and look different")
        for draw in range(2):
            noises = [probe.noise("identity", draw) for _ in range(2)]
            sights = [probe.ask(s, one.actions, noise) for s, noise in zip((one, other), noises, strict=True)]
            for action, x, y in zip(one.actions, *sights, strict=True):
                compared += 1
                found = probe.compare("identity", x, y, probe.where(one, action))
                if found is not None:
                    label = probe.simulator.action_label(action)
                    return _unlike(f"{one.label} and {other.label} have one identity; {label}: {found.text}")
    return Check(
        "identity", "pass", f"{len(groups)} of {len(pool)} states were different; those that met behaved alike"
    )


def _fickle(where: str) -> Check:
    return Check(
        "identity",
        "fail",
        f"{where}: a state has one identity now and another later, or in a copy",
        "identity depends on which object holds the state (id(), an address, a counter); use what it holds",
        "identity of the object",
    )


def _unlike(message: str) -> Check:
    return Check(
        "identity",
        "fail",
        message,
        "identity leaves out part of the state (a clock, a counter, a previous action, a generator that is not given "
        "new noise); branches would share a table that is not theirs",
        "identity ignores part of the state",
    )
