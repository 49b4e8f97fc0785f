"""Queries of a simulator, with everything written down that they show.

A fault found early would show in every later check. So the probe works around it from then on: it hands in copies
where queries change their snapshots, asks one action at a time where the actions of a query disturb each other, seeds
global generators where they are used, and leaves out observations that are stale.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.auditor import hidden_sources
from jointmdp.auditor.observed_outcomes import (
    MOST_NUMBERS,
    Difference,
    ObservedOutcome,
    difference,
    numbers,
    safe_fingerprint,
)
from jointmdp.simulators.global_generators import seed_globals
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

START = "the start"  # what the labels of starting states begin with


class Unanswered(Exception):
    """A query that was not answered as the protocol demands; the audit ends here."""


class WatchedNoise(Noise):
    """A noise that knows its copies, so that all their draws are counted, and which of its other forms were used."""

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
        self.others.add("uniform")
        return super().uniform

    @property
    def seed(self) -> int:
        self.others.add("seed")
        return super().seed

    @property
    def key(self) -> Any:
        self.others.add("key")
        return super().key

    @property
    def taken(self) -> dict[str, int]:
        """64-bit words taken from each stream, over all copies."""
        return dict(sum((Counter(member.draws) for member in self.family), Counter()))


class Spot(NamedTuple):
    """A state to ask questions in, as it was when it was reached."""

    state: Snapshot
    label: str
    actions: tuple[Action, ...]
    identity: Hashable
    content: bytes  # everything it holds, generators included; empty where nobody will look again
    observation: Any  # as handed out, so that a buffer written over later shows
    seen: bytes  # its fingerprint then


class QuestionPlace(NamedTuple):
    """A state and actions taken there, put into words only when they are read."""

    simulator: Simulator
    label: str
    actions: Sequence[Action]

    def __str__(self) -> str:
        return ", ".join([self.label, *map(self.simulator.action_label, self.actions)])


@dataclass(eq=False)
class Probe:
    """Asks a simulator, and keeps a record of what came back."""

    simulator: Simulator
    seed: int
    hands_in_copies: bool = False
    keeps_copies: bool = False
    pins_globals: bool = False
    is_blind: bool = False
    asks_singly: bool = False
    changing_identity: str = ""  # the first state that has two identities
    asked: int = 0
    lowest: tuple[float, object] = (np.inf, "")
    highest: tuple[float, object] = (-np.inf, "")
    not_finite: str = ""  # the first reward that is not finite or observation that holds NaN
    infinite: str = ""  # the first observation that holds an infinity
    roundings: dict[str, str] = field(default_factory=dict)  # check -> what agreed up to rounding only
    over: list[tuple[Snapshot, str]] = field(default_factory=list)

    def twin(self) -> Probe:
        """A probe of a copy of the simulator as it is now."""
        found = copy.copy(self)
        found.simulator = copy.deepcopy(self.simulator)
        return found

    def noise(self, *parts: int | str) -> WatchedNoise:
        """One draw of noise of this audit."""
        return WatchedNoise("audit", self.seed, *parts)

    def begin(self, draw: int) -> Snapshot:
        """A starting state."""
        self._pin()
        return self.guarded("the start", lambda: self.simulator.start(self.noise("start", draw)))

    def ask(
        self, spot: Spot, actions: Sequence[Action], noise: Noise, *, is_light: bool = False
    ) -> list[ObservedOutcome]:
        """A query, and what is to be seen of its outcomes; a light look leaves out the identity."""
        if self.asks_singly and len(actions) > 1:
            return [self.ask(spot, [action], noise.fresh(), is_light=is_light)[0] for action in actions]
        asked = list(actions)
        state = self.handed(spot)
        place = QuestionPlace(self.simulator, spot.label, asked)
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
            seed_globals(self.seed)

    def guarded(self, where: object, call: Callable[[], Any]) -> Any:
        """What a call of the simulator gives; what it raises ends the audit with a sentence."""
        try:
            return call()
        except Exception as error:
            words = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Unanswered(f"{where}: it raised {words}") from error

    def where(self, spot: Spot, action: Action) -> QuestionPlace:
        """A state and an action, for people."""
        return QuestionPlace(self.simulator, spot.label, [action])

    def look(self, outcome: Outcome, where: object, is_light: bool = False, is_start: bool = False) -> ObservedOutcome:
        """What is to be seen of an outcome; at the start no reward is."""
        reward, state, observation, is_over, identity = self.guarded(where, lambda: self._read(outcome, is_light))
        values, precision = numbers(observation)
        self._note(None if is_start else reward, values, where)
        if is_over and not is_light and len(self.over) < 4:
            self.over.append((state, str(where)))
        seen = b"" if is_light else safe_fingerprint(observation)
        return ObservedOutcome(reward, is_over, seen, values[: MOST_NUMBERS + 1], precision, identity, state)

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
                self.not_finite = self.not_finite or f"{where}: the reward is {reward}"
        if np.isnan(values).any():
            self.not_finite = self.not_finite or f"{where}: the observation holds NaN"
        elif not np.isfinite(values).all():
            self.infinite = self.infinite or f"{where}: the observation holds an infinity"

    def spot(self, state: Snapshot, label: str, actions: Sequence[Action]) -> Spot:
        """A state as it is now, without its content."""
        see, name = self.simulator.observe, self.simulator.identity
        observation, identity = self.guarded(label, lambda: (see(state), name(state)))
        return Spot(state, label, tuple(actions), identity, b"", observation, safe_fingerprint(observation))

    def compare(self, check: str, one: ObservedOutcome, other: ObservedOutcome, where: object) -> Difference | None:
        """The difference between two outcomes; one that is rounding alone is noted and not returned."""
        found = difference(one, other, self.is_blind)
        if found is not None and found.is_rounding:
            self.roundings.setdefault(check, f"{where}: {found.text}")
            return None
        if found is not None and found.is_identity and content(one.state) == content(other.state):
            self.changing_identity = self.changing_identity or str(where)
            return None
        return found


def with_content(spot: Spot) -> Spot:
    """The spot with what its snapshot holds now."""
    return spot._replace(content=content(spot.state))


def content(state: Snapshot) -> bytes:
    """A digest of all that a snapshot holds, the places of its generators included."""
    held = sorted(hidden_sources.generators(state, "state").items())
    return safe_fingerprint((safe_fingerprint(state), held))
