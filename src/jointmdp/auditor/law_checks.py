"""Does an action give in a query what it gives in a plain step? Two samples each, and one test per number seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.auditor.audit_report import Check, failed
from jointmdp.auditor.observed_outcomes import ObservedOutcome, same_law_level, without_rounding
from jointmdp.auditor.probe import Probe, Spot
from jointmdp.simulators.simulator import Outcome

COORDINATES = 8  # of an observation that are tested


class _Pair(NamedTuple):
    """Samples of one number: from queries, and from plain steps."""

    spot: Spot
    where: object
    part: str  # "reward", "termination" or "observation k"
    query: Floats  # [n]
    plain: Floats  # [n]
    precision: float

    @property
    def level(self) -> float:
        """How unlikely they are to be of one law."""
        return same_law_level(*without_rounding(self.query, self.plain, self.precision))


def check_law(probe: Probe, spots: Sequence[Spot], num_samples: int, false_alarm: float) -> tuple[Check, int]:
    """The check, and how many tests share its false-alarm rate.

    What is one and the same number in both samples needs no test. Which numbers vary is read off the two samples thrown
    together, so given those it is still chance alone that says which value came from where, and the levels hold.
    """
    pairs: list[_Pair] = []
    compared = 0
    for s, spot in probe.timed(enumerate(spots)):
        rows = [probe.ask(spot, spot.actions, probe.noise("law", s, i), is_light=True) for i in range(num_samples)]
        for k, action in enumerate(spot.actions):
            plain = [_plain(probe, spot, k, (s, i)) for i in range(num_samples)]
            query = [row[k] for row in rows]
            parts = _parts(query, plain, probe.is_blind)
            compared += sum(x.shape[1] for x, _ in parts.values())
            pairs += _varying(spot, probe.where(spot, action), parts, max(s.precision for s in query + plain))
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


def _plain(probe: Probe, spot: Spot, k: int, address: tuple[int, int]) -> ObservedOutcome:
    simulator: Any = probe.simulator
    where = probe.where(spot, spot.actions[k])
    state, step = probe.handed(spot), getattr(simulator, "plain_step", simulator.step)
    source: Any = probe.noise("plain", k, *address)
    if hasattr(simulator, "plain_step"):
        source = np.random.default_rng([probe.seed, 2, k, *address])
    outcome = probe.guarded(where, lambda: step(state, spot.actions[k], source))
    return probe.look(Outcome(*outcome), where, is_light=True)


def _parts(
    query: list[ObservedOutcome], plain: list[ObservedOutcome], is_blind: bool
) -> dict[str, tuple[Floats, Floats]]:
    """What is compared, each as two samples ``[n, k]``."""

    def both(values: Any) -> tuple[Floats, Floats]:
        x, y = (np.array([values(outcome) for outcome in side], dtype=np.float64) for side in (query, plain))
        return x.reshape(len(x), -1), y.reshape(len(y), -1)

    parts = {"reward": both(lambda outcome: outcome.reward), "termination": both(lambda outcome: outcome.is_over)}
    if not is_blind:
        lengths = both(lambda outcome: len(outcome.numbers))
        if len(np.unique(lengths)) > 1:  # observations of changing length: that is all they have in common
            parts["length of the observation"] = lengths
        else:
            parts["observation"] = both(lambda outcome: outcome.numbers)
    return parts


def _varying(spot: Spot, where: object, parts: dict[str, tuple[Floats, Floats]], precision: float) -> list[_Pair]:
    """The numbers that are not constant over both samples; of an observation those with the most different values."""
    found = []
    for part, (x, y) in parts.items():
        pooled = np.sort(np.nan_to_num(np.concatenate([x, y]), nan=-np.inf), axis=0)
        counts = (pooled[1:] != pooled[:-1]).sum(axis=0)
        for k in np.argsort(-counts, kind="stable")[:COORDINATES]:
            if counts[k]:
                name = f"{part} {k}" if part == "observation" else part
                found.append(_Pair(spot, where, name, x[:, k], y[:, k], precision))
    return found


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
    held = [other.query for other in pairs if other.spot is pair.spot and other.part == pair.part]
    if len(np.unique(held)) > 1:
        return "law of the observation", ""
    return "stale observation", (
        "the observation after a query is the same whatever was done and whatever the noise: is it that of before the "
        "step?"
    )
