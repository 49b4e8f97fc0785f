"""The hand that asks: queries of a simulator with everything seen written down, and known faults kept out of the way.

A fault found early would show in every later check. So the probe works around it from then on: it hands in copies
where queries change their snapshots, asks one action at a time where the actions of a query meddle with each other,
seeds global generators where they are used, and leaves out observations that are stale. What is left to see belongs to
the check at hand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.auditor import hidden_sources
from jointmdp.auditor.observed_outcomes import MOST_NUMBERS, Difference, Sight, difference, numbers, safe_fingerprint
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

START = "the start"  # what the labels of starting states begin with


class Unanswered(Exception):
    """A query that was not answered as the protocol wants; the audit ends here."""


class WatchedNoise(Noise):
    """A noise that knows its copies, so that what all of them gave away can be counted."""

    __slots__ = ("family", "others")

    def __init__(self, *parts: int | str | bytes) -> None:
        super().__init__(*parts)
        self.family: list[WatchedNoise] = [self]
        self.others: set[str] = set()

    def fresh(self) -> WatchedNoise:
        """The same draw, from its beginning, counted with the others."""
        found = WatchedNoise.__new__(WatchedNoise)
        found.address, found._streams, found.family, found.others = self.address, {}, self.family, self.others
        self.family.append(found)
        return found

    @property
    def uniform(self) -> float:
        """As of any noise; that it was asked for is remembered."""
        self.others.add("uniform")
        return super().uniform

    @property
    def seed(self) -> int:
        """As of any noise; that it was asked for is remembered."""
        self.others.add("seed")
        return super().seed

    @property
    def key(self) -> Any:
        """As of any noise; that it was asked for is remembered."""
        self.others.add("key")
        return super().key

    @property
    def taken(self) -> dict[str, int]:
        """64-bit words taken from each stream, over all copies."""
        found: dict[str, int] = {}
        for member in self.family:
            for name, words in member.draws.items():
                found[name] = found.get(name, 0) + words
        return {name: words for name, words in found.items() if words}


class Spot(NamedTuple):
    """A state to ask questions in, as it was when it was reached."""

    state: Snapshot
    label: str
    actions: tuple[Action, ...]
    identity: Hashable
    content: bytes  # everything it holds, generators included; empty where nobody will look again
    observation: Any  # as handed out, so that a buffer written over later shows
    seen: bytes  # its fingerprint then


class Origin(NamedTuple):
    """A state and actions taken there, put into words only when somebody reads them."""

    simulator: Simulator
    label: str
    actions: Sequence[Action]

    def __str__(self) -> str:
        return ", ".join([self.label, *map(self.simulator.action_label, self.actions)])


class Probe:
    """Asks a simulator, and keeps a ledger of what came back."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        self.simulator = simulator
        self.seed = seed
        self.hands_in_copies = False
        self.keeps_copies = False
        self.pins_globals = False
        self.is_blind = False
        self.asks_singly = False
        self.fickle = ""  # the first state that has two identities
        self.asked = 0
        self.lowest: tuple[float, object] = (np.inf, "")
        self.highest: tuple[float, object] = (-np.inf, "")
        self.senseless = ""  # the first reward that is not finite or observation that holds NaN
        self.infinite = ""  # the first observation that holds an infinity
        self.roundings: dict[str, str] = {}  # check -> what agreed up to rounding only
        self.over: list[tuple[Snapshot, str]] = []

    def twin(self) -> Probe:
        """A probe of a copy of the simulator as it is now."""
        found = copy.copy(self)
        found.simulator = copy.deepcopy(self.simulator)
        return found

    def noise(self, *parts: int | str) -> WatchedNoise:
        """One draw of luck of this audit."""
        return WatchedNoise("audit", self.seed, *parts)

    def begin(self, draw: int) -> Snapshot:
        """A starting state."""
        self._pin()
        return self.guarded("the start", lambda: self.simulator.start(self.noise("start", draw)))

    def ask(self, spot: Spot, actions: Sequence[Action], noise: Noise, *, is_light: bool = False) -> list[Sight]:
        """A query, and what is to be seen of its outcomes; a light look leaves out the identity."""
        if self.asks_singly and len(actions) > 1:
            return [self.ask(spot, [action], noise.fresh(), is_light=is_light)[0] for action in actions]
        asked = list(actions)
        state = self.handed(spot)
        place = Origin(self.simulator, spot.label, asked)
        outcomes = self.guarded(place, lambda: self.simulator.query(state, asked, noise))
        if len(outcomes) != len(asked):
            raise Unanswered(f"{place}: {len(asked)} actions were asked and {len(outcomes)} answered")
        found = [self.look(o, self.where(spot, a), is_light) for o, a in zip(outcomes, asked, strict=True)]
        self.asked += 1
        return found

    def handed(self, spot: Spot) -> Snapshot:
        """The snapshot to hand in, now that the global generators stand where they should."""
        self._pin()
        if not self.hands_in_copies:
            return spot.state
        return self.guarded(f"{spot.label}, to be copied", lambda: copy.deepcopy(spot.state))

    def _pin(self) -> None:
        if self.pins_globals:
            hidden_sources.seed_globals(self.seed)

    def guarded(self, where: object, call: Callable[[], Any]) -> Any:
        """What a call of the simulator gives; what it raises ends the audit with a sentence."""
        try:
            return call()
        except Exception as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Unanswered(f"{where}: it raised {told}") from error

    def where(self, spot: Spot, action: Action) -> Origin:
        """A state and an action, for people."""
        return Origin(self.simulator, spot.label, [action])

    def look(self, outcome: Outcome, where: object, is_light: bool = False, is_start: bool = False) -> Sight:
        """What is to be seen of an outcome; at the start no reward is."""
        reward, state, observation, is_over, identity = self.guarded(where, lambda: self._read(outcome, is_light))
        values, precision = numbers(observation)
        self._note(None if is_start else reward, values, where)
        if is_over and not is_light and len(self.over) < 4:
            self.over.append((state, str(where)))
        seen = b"" if is_light else safe_fingerprint(observation)
        return Sight(reward, is_over, seen, values[: MOST_NUMBERS + 1], precision, identity, state)

    def _read(self, outcome: Outcome, is_light: bool) -> tuple[float, Snapshot, Any, bool, Hashable]:
        reward, state = outcome
        if self.keeps_copies:
            state = copy.deepcopy(state)
        observation = self.simulator.observe(state)
        identity: Hashable = b"" if is_light else self.simulator.identity(state)
        hash(identity)
        return float(reward), state, observation, bool(self.simulator.is_over(state)), identity

    def _note(self, reward: float | None, values: Floats, where: object) -> None:
        if reward is not None:
            if reward < self.lowest[0]:
                self.lowest = reward, where
            if reward > self.highest[0]:
                self.highest = reward, where
            if not np.isfinite(reward):
                self.senseless = self.senseless or f"{where}: the reward is {reward}"
        if np.isnan(values).any():
            self.senseless = self.senseless or f"{where}: the observation holds NaN"
        elif not np.isfinite(values).all():
            self.infinite = self.infinite or f"{where}: the observation holds an infinity"

    def spot(self, state: Snapshot, label: str, actions: Sequence[Action]) -> Spot:
        """A state as it is now, without its content."""
        see, name = self.simulator.observe, self.simulator.identity
        observation, identity = self.guarded(label, lambda: (see(state), name(state)))
        return Spot(state, label, tuple(actions), identity, b"", observation, safe_fingerprint(observation))

    def compare(self, check: str, one: Sight, other: Sight, where: object) -> Difference | None:
        """The difference between two sights; one that is rounding alone is noted and not returned."""
        found = difference(one, other, self.is_blind)
        if found is not None and found.is_rounding:
            self.roundings.setdefault(check, f"{where}: {found.text}")
            return None
        if found is not None and found.is_identity and content(one.state) == content(other.state):
            self.fickle = self.fickle or str(where)
            return None
        return found


def firm(spot: Spot) -> Spot:
    """The spot with what its snapshot holds now."""
    return spot._replace(content=content(spot.state))


def content(state: Snapshot) -> bytes:
    """A digest of all that a snapshot holds, the places of its generators included."""
    held = sorted(hidden_sources.generators(state, "state").items())
    return safe_fingerprint((safe_fingerprint(state), held))
