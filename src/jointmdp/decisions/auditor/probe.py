"""Queries of a simulator, with everything written down that they show.

A fault found early would show in every later check. So the probe works around it from then on: it hands in copies
where queries change their snapshots, asks one action at a time where the actions of a query disturb each other, seeds
global generators where they are used, and leaves out observations that are stale.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jointmdp.decisions.auditor import find_generators
from jointmdp.decisions.auditor.observed_outcomes import (
    MOST_NUMBERS,
    Difference,
    ObservedOutcome,
    difference,
    numbers,
    safe_fingerprint,
)
from jointmdp.decisions.auditor.recorded_draws import STREAM, DrawLog, recording
from jointmdp.ground.arrays import Floats
from jointmdp.simulation.simulators.fingerprints import CLOSED, LIBRARIES, walk
from jointmdp.simulation.simulators.global_generators import seed_globals
from jointmdp.simulation.simulators.noise import Noise, StreamName, stream_text
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator, Snapshot

SLOW_IDENTITY = 0.25  # seconds
FOLLOWED = 4  # steps for which two states of different identity are followed
MOST_FOLLOWED = 6  # pairs of such states in one check; later ones are taken to be like those
START = "the start"  # what the labels of starting states begin with


class Unanswered(Exception):
    """A query that was not answered as the protocol demands; the audit ends here."""


class OutOfTime(Exception):
    """The time for a check was over before it had seen enough."""


class WatchedNoise(Noise):
    """A noise that knows its copies, so that all their draws are written down, and which of its forms were used."""

    __slots__ = ("family", "log", "others")

    def __init__(self, *parts: int | str | bytes) -> None:
        super().__init__(*parts)
        self.family: list[WatchedNoise] = [self]
        self.others: set[str] = set()
        self.log: DrawLog | None = None

    def __getitem__(self, name: StreamName) -> np.random.Generator:
        words = stream_text(name)
        if words not in self._streams and self.log is not None:
            self._streams[words] = recording(super().__getitem__(name), f"{STREAM}{words}", self.log)
        return super().__getitem__(name)

    def fresh(self) -> WatchedNoise:
        """The same draw, from its beginning, counted with the others."""
        return self.moved_to(self.address)

    def moved_to(self, address: bytes) -> WatchedNoise:
        """Another draw, counted with this one."""
        found = WatchedNoise.__new__(WatchedNoise)
        found._address, found._streams, found.family, found.others = address, {}, self.family, self.others
        found.log = self.log
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
    actions_at: Callable[[Snapshot], Sequence[Action]] = lambda state: ()  # a few actions of a state
    slow_names: int = 0  # identities that took too long
    deadline: float = np.inf  # of the check under way
    ran_out: bool = False  # whether it was reached
    identities: dict[str, str] = field(default_factory=dict)  # check -> what differed in identity alone
    followed: Counter[str] = field(default_factory=Counter)
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

    def timed(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items until the time of the check is over."""
        for item in items:
            if time.monotonic() > self.deadline:
                self.ran_out = True
                return
            yield item

    def in_time(self) -> None:
        """Nothing was found; that says something only if there was time for all of it."""
        if self.ran_out:
            raise OutOfTime

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
        bare = is_bare(state, observation)
        return ObservedOutcome(reward, is_over, seen, values[: MOST_NUMBERS + 1], precision, identity, state, bare)

    def _read(self, outcome: Outcome, is_light: bool) -> tuple[float, Snapshot, Any, bool, Hashable]:
        reward, state = outcome
        if self.keeps_copies:
            state = copy.deepcopy(state)
        observation = self.simulator.observe(state)
        identity: Hashable = b"" if is_light else self.identity_of(state)
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

    def identity_of(self, state: Snapshot) -> Hashable:
        """The identity of a state, unless that takes too long to ask for it all the time."""
        if not self.names_states:
            return b""
        begun = time.monotonic()
        found = self.simulator.identity(state)
        self.slow_names += time.monotonic() - begun > SLOW_IDENTITY
        return found

    @property
    def names_states(self) -> bool:
        """Whether identities are asked for."""
        return self.slow_names < 2  # the first one may compile something

    def spot(self, state: Snapshot, label: str, actions: Sequence[Action]) -> Spot:
        """A state as it is now, without its content."""
        see, name = self.simulator.observe, self.identity_of
        observation, identity = self.guarded(label, lambda: (see(state), name(state)))
        return Spot(state, label, tuple(actions), identity, b"", observation, safe_fingerprint(observation))

    def compare(self, check: str, one: ObservedOutcome, other: ObservedOutcome, where: object) -> Difference | None:
        """The difference between two outcomes; one of rounding or of identity alone is noted and not returned.

        States of different identity are followed under the same noise: only if they go different ways it matters.
        """
        found = difference(one, other, self.is_blind)
        if found is not None and found.is_rounding:
            self.roundings.setdefault(check, f"{where}: {found.text}")
            return None
        if found is not None and found.is_identity:
            if self.changing_identity or not self.names_states:  # it tells nothing any more
                return None
            if content(one.state) == content(other.state):
                self.changing_identity = self.changing_identity or str(where)
                return None
            later = self._followed(check, one, other)
            if later is None:
                self.identities.setdefault(check, str(where))
            return later
        return found

    def _followed(self, check: str, one: ObservedOutcome, other: ObservedOutcome) -> Difference | None:
        """How two states that look alike differ a few steps later, if they do."""
        self.followed[check] += 1
        if self.followed[check] > MOST_FOLLOWED:
            return None
        actions = self.actions_at(one.state) if not one.is_over else ()
        for turn, action in enumerate(actions):
            pair = [one, other]
            for t in range(FOLLOWED):
                noise = ("followed", check, turn, t)
                spots = [Spot(each.state, "a state", (), b"", b"", None, b"") for each in pair]
                pair = [self.ask(spot, [action], self.noise(*noise))[0] for spot in spots]
                found = difference(pair[0], pair[1], self.is_blind)
                if found is not None and not found.is_identity and not found.is_rounding:
                    return found._replace(text=f"{found.text}, {t + 1} steps later")
                is_numbered = self.simulator.action_names is not None
                if pair[0].is_over or (is_numbered and action not in self.simulator.available(pair[0].state)):
                    break
        return None


def is_bare(state: Snapshot, observation: Any) -> bool:
    """Whether what is observed is the whole state as an object: then it tells no more than identity."""
    is_whole = observation is state or observation is getattr(state, "state", None)
    return is_whole and hasattr(observation, "__dict__") and not hasattr(observation, "__array__")


def faithful_copy(value: Any) -> Any:
    """A copy that holds the same, or None.

    Some classes copy their settings instead of their state (`EzPickle`), and some close what the original still needs
    when a copy is thrown away: those are not copied at all.
    """
    if any(_closes_something(part) for _, _, part in walk([value], _is_searched, 6, 2_000)):
        return None
    before = content(value)
    try:
        found = copy.deepcopy(value)
    except Exception:  # much cannot be copied
        return None
    return found if content(found) == before else None


def _is_searched(value: Any) -> bool:
    return not isinstance(value, (*CLOSED, type))


def _closes_something(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__del__") and str(kind.__module__).split(".")[0] not in LIBRARIES


def with_content(spot: Spot) -> Spot:
    """The spot with what its snapshot holds now."""
    return spot._replace(content=content(spot.state))


def content(state: Snapshot) -> bytes:
    """A digest of all that a snapshot holds, the places of its generators included."""
    found = find_generators.generators(state, "state", False).items()
    held = sorted((path, standing) for path, standing in found if " closes over " not in path)  # not its own
    return safe_fingerprint((safe_fingerprint(state), held))
