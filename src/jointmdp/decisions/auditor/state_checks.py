"""Checks of states and numbers: what a query leaves behind, who is the same, what is over, what is paid how often.

The last is the one random check: two samples of each number, from queries and from plain steps, have one law.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor.audit_report import Check, failed, skipped, warned
from jointmdp.ground.arrays import Floats
from jointmdp.simulation.simulators.fingerprints import safe_fingerprint
from jointmdp.simulation.simulators.simulator import Outcome, Snapshot
from jointmdp.simulation.watching.hidden_state import content, faithful_copy
from jointmdp.simulation.watching.probe import (
    ROUNDING,
    START,
    ObservedOutcome,
    Probe,
    ProbeState,
    clear_difference,
    is_bare,
    numbers,
)

TRAIL = 3  # states at which snapshots are watched
MEETINGS = 12  # pairs of states with one identity that are compared


_Kept = tuple[ProbeState, Snapshot | None]
"""A snapshot that was handed out, and a copy of it of which nobody knows."""


def check_untouched(probe: Probe, start: ProbeState) -> Check:
    """Query along a short trail, and look at every snapshot handed out so far after each query."""
    at, kept = start, list[_Kept]([(start, faithful_copy(start.state))])
    changed: list[str] = []

    def keep(state: Snapshot, label: str, is_over: bool) -> ProbeState:
        found = probe.reached(state, label, () if is_over else probe.actions_at(state)).with_content()
        kept.append((found, faithful_copy(state)))
        return found

    for t in probe.timed(range(TRAIL)):
        first = probe.ask(at, at.actions[:1], probe.noise("untouched", t))[0]
        if (found := _changed(probe, at, kept, changed)) is not None:
            return found
        label = f"step {t + 1} of a trail"
        # The successor is kept while the state before it is asked again: a live object given as a snapshot moves now.
        keep(first.state, label, first.is_over)
        others = probe.ask(at, at.actions, probe.noise("untouched other", t))
        if (found := _changed(probe, at, kept, changed)) is not None:
            return found
        going = [outcome for outcome in (first, *others) if not outcome.is_over]
        if not going:
            break
        at = keep(going[-1].state, label, False)
    if changed:
        message = f"the snapshot of {changed[0]} holds something else after a query, though it goes on as before"
        cause = "harmless if it is a cache; if it is part of the state, copy it before stepping"
        return warned("untouched", message, "snapshot changes", cause)
    return Check("untouched", "pass", f"{len(kept)} snapshots were the same after every query")


def _changed(probe: Probe, asked: ProbeState, kept: list[_Kept], changed: list[str]) -> Check | None:
    """The first snapshot that no longer is what it was, and whose fault that is; caches are noted in `changed`."""
    for at, private in kept:
        if content(at.state) == at.content:
            continue
        if not _is_another(probe, at, private):
            changed.append(at.label)
            continue
        if at.state is asked.state and _changes_its_argument(probe, asked):
            labels = ", ".join(map(probe.simulator.action_label, asked.actions))
            message = f"the snapshot of {at.label} is another after it was asked for {labels}"
            return failed("untouched", message, "mutating query")
        message = f"the snapshot of {at.label} changed while {asked.label} was asked"
        return failed("untouched", message, "shared snapshot")
    return None


def _is_another(probe: Probe, at: ProbeState, private: Snapshot | None) -> bool:
    """Whether a snapshot with other content looks or goes on otherwise than before."""
    identity, observation = probe.identity_of(at.state), probe.simulator.observe(at.state)
    if identity == at.identity and safe_fingerprint(observation) == at.seen:
        return False
    if private is None:
        return not is_bare(at.state, observation) and safe_fingerprint(observation) != at.seen
    if probe.simulator.is_over(at.state) != probe.simulator.is_over(private):
        return True
    now, before = (numbers(probe.simulator.observe(state))[0] for state in (at.state, private))
    if not np.array_equal(now, before, equal_nan=True):
        return True
    for draw, action in itertools.product(range(4), at.actions):
        # Copies, since what is asked may change.
        pair = [at._replace(state=faithful_copy(state) or state) for state in (at.state, private)]
        answers = [probe.ask(each, [action], probe.noise("another", draw))[0] for each in pair]
        if clear_difference(answers[0], answers[1]) is not None:
            return True
    return False


def _changes_its_argument(probe: Probe, at: ProbeState) -> bool:
    """Whether a query changes a private copy of its snapshot too; where none can be made, its argument is to blame."""
    private = faithful_copy(at.state)
    if private is None:
        return True
    before = content(private)
    for i in range(4):  # one may lead back by chance
        probe.ask(at._replace(state=private), at.actions, probe.noise("untouched copy", i))
        if content(private) != before:
            return True
    return False


def check_observation(probe: Probe, states: Sequence[ProbeState]) -> Check:
    """Look at a state when it is reached, go elsewhere, and look again."""
    for i, at in probe.timed(enumerate(states)):
        other = states[(i + 1) % len(states)]
        probe.ask(other, other.actions[-1:], probe.noise("observation", i))
        probe.simulator.observe(other.state)
        if is_bare(at.state, at.observation):
            continue
        if safe_fingerprint(at.observation) != at.seen:
            message = f"the observation handed out for {at.label} was written over when {other.label} was asked"
            return failed("observation", message, "shared observation buffer")
        if safe_fingerprint(probe.simulator.observe(at.state)) != at.seen:
            message = f"{at.label} is observed otherwise after {other.label} was asked than when it was reached"
            return failed("observation", message, "stale observation")
    probe.in_time()
    return Check("observation", "pass", f"{len(states)} states look as they did, whatever was asked in between")


def check_kept(states: Sequence[ProbeState], untouched: Check, asked: int) -> Check:
    """After the whole audit: are the states still what they were?"""
    if untouched.status != "pass":
        return untouched
    moved = [at.label for at in states if content(at.state) != at.content]
    if not moved:
        return Check("untouched", "pass", f"{len(states)} snapshots are the same after {asked:,} queries")
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


def check_over(probe: Probe, states: Sequence[ProbeState]) -> Check:
    """Ask in states that are over."""
    if not probe.over:
        return skipped("over", "no episode ended during the audit")
    actions = states[0].actions
    for i, (state, label) in enumerate(probe.over):
        at = ProbeState(state, f"the end after {label}", actions, probe.identity_of(state))
        for action, found in zip(actions, probe.ask(at, actions, probe.noise("over", i)), strict=True):
            message = ""
            if found.reward != 0:
                message = f"it still pays {found.reward:.6g}"
            elif not found.is_over or found.identity != at.identity:
                message = "it leads to another state" if found.is_over else "the episode goes on"
            if message:
                return failed("over", f"{probe.where(at, action)}: {message}", "over state does not absorb")
    return Check("over", "pass", f"{len(probe.over)} states that are over paid nothing and stayed")


def check_identity(probe: Probe, states: Sequence[ProbeState], pool: Sequence[ProbeState]) -> Check:
    """Copies must have the identity of their original, and states with one identity must behave alike."""
    if not probe.names_states:
        return skipped("identity", "to name a state takes too long to do it everywhere")
    if probe.nameless:
        message = f"a state has no identity ({probe.nameless}), so that branches never meet"
        return warned("identity", message, "state without identity")
    if probe.changing_identity:
        return _changing(probe, probe.changing_identity)
    for at in states:
        again = probe.identity_of(at.state)
        copied = faithful_copy(at.state)  # what cannot be copied is compared with itself alone
        twin = again if copied is None else probe.identity_of(copied)
        if again != twin or (again != at.identity and not probe.is_blind):
            return _changing(probe, at.label)
    groups: dict[Hashable, list[ProbeState]] = defaultdict(list)
    for at in pool:
        groups[at.identity].append(at)
    met = [group for group in groups.values() if len(group) > 1]
    if all(at.label.startswith(START) for group in met for at in group):
        message = f"no two of {len(pool)} states beyond the start were the same: normal where states are continuous"
        return Check("identity", "pass", message)
    for group in probe.timed(sorted(met, key=len, reverse=True)[:MEETINGS]):
        # The last one has had the most time to become different from the first.
        one, other = group[0], group[-1]
        fault = "identity ignores part of the state"
        if not probe.is_blind and one.seen != other.seen:
            return failed("identity", f"{one.label} and {other.label} have one identity and look different", fault)
        for draw in range(2):
            answers = [probe.ask(at, one.actions, probe.noise("identity", draw)) for at in (one, other)]
            for action, x, y in zip(one.actions, *answers, strict=True):
                found = probe.compare("identity", x, y, probe.where(one, action))
                if found is not None:
                    label = probe.simulator.action_label(action)
                    message = f"{one.label} and {other.label} have one identity; {label}: {found.text}"
                    return failed("identity", message, fault)
    probe.in_time()
    return Check(
        "identity", "pass", f"{len(groups)} of {len(pool)} states were different; those that met behaved alike"
    )


def _changing(probe: Probe, where: str) -> Check:
    message = f"{where}: a state has one identity now and another later, or in a copy"
    # Branches that share their noise by state would share none; those that share it by time do.
    found = failed if probe.simulator.sharing == "state" else warned
    return found("identity", message, "identity of the object")


def same_law_level(x: Floats, y: Floats) -> float:
    """How unlikely two equally large samples of one law are to be this far apart, an upper bound.

    Twice the exact one-sided level of Kolmogorov and Smirnov's test, ``P(n·D⁺ ≥ k) = C(2n, n+k) / C(2n, n)``. It holds
    for laws with atoms too, where it is conservative.
    """
    n = len(x)
    pooled = np.sort(np.concatenate([x, y]))
    apart = np.searchsorted(np.sort(x), pooled, side="right") - np.searchsorted(np.sort(y), pooled, side="right")
    k = int(np.abs(apart).max())
    return min(1.0, 2 * math.exp(sum(math.log((n - i) / (n + i + 1)) for i in range(k)))) if k <= n else 0.0


def without_rounding(x: Floats, y: Floats, precision: float) -> tuple[Floats, Floats]:
    """Two samples in which values that differ by rounding alone are equal; symmetric in the samples."""
    pooled = np.nan_to_num(np.concatenate([x, y]), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = np.argsort(pooled, kind="stable")
    ranked = pooled[order]
    scale = max(1.0, float(np.abs(ranked[np.isfinite(ranked)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        steps = np.diff(ranked) > ROUNDING * precision * scale
    groups = np.empty(len(ranked))
    groups[order] = np.concatenate([[0], np.cumsum(steps)])
    return groups[: len(x)], groups[len(x) :]


COORDINATES = 8  # of an observation that are tested


class _Pair(NamedTuple):
    """Samples of one number: from queries, and from plain steps."""

    at: ProbeState
    where: object
    part: str  # "reward", "termination" or "observation k"
    query: Floats  # [n]
    plain: Floats  # [n]
    precision: float

    @property
    def level(self) -> float:
        """How unlikely they are to be of one law."""
        return same_law_level(*without_rounding(self.query, self.plain, self.precision))


def check_law(probe: Probe, states: Sequence[ProbeState], num_samples: int, false_alarm: float) -> tuple[Check, int]:
    """The check, and how many tests share its false-alarm rate.

    What is one and the same number in both samples needs no test. Which numbers vary is read off the two samples thrown
    together, so given those it is still chance alone that says which value came from where, and the levels hold.
    """
    pairs: list[_Pair] = []
    compared = 0
    for s, at in probe.timed(enumerate(states)):
        rows = [probe.ask(at, at.actions, probe.noise("law", s, i), is_light=True) for i in range(num_samples)]
        for k, action in enumerate(at.actions):
            plain = [_plain(probe, at, k, (s, i)) for i in range(num_samples)]
            query, where = [row[k] for row in rows], probe.where(at, action)
            precision = max(seen.precision for seen in query + plain)
            for part, (x, y) in _parts(query, plain, probe.is_blind).items():
                compared += x.shape[1]
                pooled = np.sort(np.nan_to_num(np.concatenate([x, y]), nan=-np.inf), axis=0)
                counts = (pooled[1:] != pooled[:-1]).sum(axis=0)
                for i in np.argsort(-counts, kind="stable")[:COORDINATES]:  # those with the most different values
                    if counts[i]:
                        name = f"{part} {i}" if part == "observation" else part
                        pairs.append(_Pair(at, where, name, x[:, i], y[:, i], precision))
    level = false_alarm / max(1, len(pairs))
    bad = [pair for pair in pairs if pair.level <= level]
    way = "plain_step" if hasattr(probe.simulator, "plain_step") else "step under fresh noise"
    if not bad:
        if not compared:
            probe.in_time()
        message = f"{compared} numbers compared with {way}: {len(pairs)} that vary tested, the constant ones equal"
        message += " (in some of the states only: out of time)" * probe.ran_out
        return Check("law", "pass", message), len(pairs)
    pair = min(bad, key=lambda pair: (pair.part != "reward", pair.level))
    message = (
        f"{pair.where}: the {pair.part} is {_span(pair.query)} in {num_samples} queries and {_span(pair.plain)} in as "
        f"many plain steps (level {pair.level:.1g})"
    )
    fault, cause = _diagnosed(pair, pairs)
    return failed("law", message, fault, cause), len(pairs)


def _plain(probe: Probe, at: ProbeState, k: int, address: tuple[int, int]) -> ObservedOutcome:
    simulator: Any = probe.simulator
    where = probe.where(at, at.actions[k])
    state, step = probe.handed(at), getattr(simulator, "plain_step", simulator.step)
    source: Any = probe.noise("plain", k, *address)
    if hasattr(simulator, "plain_step"):
        source = np.random.default_rng([probe.seed, 2, k, *address])
    outcome = probe.guarded(where, lambda: step(state, at.actions[k], source))
    return probe.look(Outcome(*outcome), where, is_light=True)


def _parts(
    query: list[ObservedOutcome], plain: list[ObservedOutcome], is_blind: bool
) -> dict[str, tuple[Floats, Floats]]:
    """What is compared, each as two samples ``[n, k]``."""

    def both(values: Any) -> tuple[Floats, Floats]:
        x, y = (np.array([values(outcome) for outcome in side], dtype=np.float64) for side in (query, plain))
        return x.reshape(len(x), -1), y.reshape(len(y), -1)

    parts = {"reward": both(lambda outcome: outcome.reward), "termination": both(lambda outcome: outcome.is_over)}
    if is_blind:
        return parts
    lengths = both(lambda outcome: len(outcome.numbers))
    if len(np.unique(lengths)) > 1:  # observations of changing length: that is all they have in common
        return parts | {"length of the observation": lengths}
    return parts | {"observation": both(lambda outcome: outcome.numbers)}


def _span(sample: Floats) -> str:
    low, high = float(sample.min()), float(sample.max())
    if low == high:
        return f"{low:.6g}"
    middle = f", {sample.mean():.4g} on average," if np.isfinite(sample).all() else ""
    return f"{low:.4g} to {high:.4g}{middle}"


def _diagnosed(pair: _Pair, pairs: Sequence[_Pair]) -> tuple[str, str]:
    """The fault, and its cause where that is more than the fault says."""
    if pair.part == "reward":
        rewards = [other for other in pairs if other.part == "reward"]
        low, high = min(p.query.min() for p in rewards), max(p.query.max() for p in rewards)
        clipped = [p._replace(plain=np.clip(p.plain, low, high)) for p in rewards]
        if any(p.level <= 1e-3 / len(clipped) for p in clipped):
            return "law of the reward", ""
        return "clipped reward", (
            f"plain rewards clipped to [{low:.6g}, {high:.6g}] look like those of the query: one of the two goes "
            "through a wrapper that the other does not"
        )
    if pair.part == "termination":
        return "law of the termination", ""
    held = [other.query for other in pairs if other.at is pair.at and other.part == pair.part]
    if len(np.unique(held)) > 1:
        return "law of the observation", ""
    return "stale observation", (
        "the observation after a query is the same whatever was done and whatever the noise: is it that of before the "
        "step?"
    )
