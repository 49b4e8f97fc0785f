"""The probe of a simulator: ask, ask again, compare bit for bit.

What an outcome shows is kept as values (`ObservedOutcome`), and `difference` tells two of them apart. A `Probe` asks
queries and keeps a record of what came back. A fault found early would show in every later check, so the probe works
around it from then on: it hands in copies where queries change their snapshots, asks one action at a time where the
actions of a query disturb each other, seeds global generators where they are used, and leaves out observations that
are stale. A `Record` holds the answers of one whole run and says which global generators moved in it, and by whom.

An environment is probed when it is wrapped, a comparison before it is made, and everything when it is audited.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats
from jointmdp.ground.watchdog import OutOfTime, Watchdog
from jointmdp.simulation.simulators.fingerprints import fingerprint, safe_fingerprint
from jointmdp.simulation.simulators.generators import global_states, seed_globals
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator, Snapshot
from jointmdp.simulation.watching.hidden_state import content
from jointmdp.simulation.watching.recorded_draws import unrecorded

ROUNDING = 2.0**6  # in units of the last place: two ways through the same arithmetic, compiled differently
MOST_NUMBERS = 4096  # observations with more, pictures say, are compared by their fingerprint alone
SLOW_IDENTITY = 0.25  # seconds
FOLLOWED = 4  # steps for which two states of different identity are followed
MOST_FOLLOWED = 6  # pairs of such states in one check; later ones are taken to be like those
START = "the start"  # what the labels of starting states begin with


class ObservedOutcome(NamedTuple):
    """All that can be seen of an outcome, independent of what becomes of the simulator's buffers later."""

    reward: float
    is_over: bool
    observation: bytes  # fingerprint
    numbers: Floats  # of the observation, [K]
    precision: float  # unit in the last place of those numbers
    identity: Hashable
    state: Snapshot
    is_bare: bool = False
    """Whether what is observed is the whole state as an object, caches and all: then it tells no more than identity."""


class Difference(NamedTuple):
    """How two observations of what should be the same outcome differ."""

    text: str
    is_rounding: bool
    is_identity: bool
    """Whether the identity alone tells them apart."""


def difference(one: ObservedOutcome, other: ObservedOutcome, is_blind: bool = False) -> Difference | None:
    """The difference between two outcomes, None where there is none; a blind look leaves out the observation."""
    parts = []
    is_close = True
    if not (one.reward == other.reward or (math.isnan(one.reward) and math.isnan(other.reward))):
        parts.append(f"reward {one.reward:.6g} and {other.reward:.6g}")
        is_close &= _is_close(one, other, np.array([one.reward]), np.array([other.reward]))
    if one.is_over != other.is_over:
        parts.append("over and not over")
        is_close = False
    is_bare = one.is_bare and other.is_bare and np.array_equal(one.numbers, other.numbers, equal_nan=True)
    if not (is_blind or is_bare) and one.observation != other.observation:
        parts.append(f"observation {shown(one.numbers)} and {shown(other.numbers)}")
        is_close &= _is_close(one, other, one.numbers, other.numbers)
    if parts:
        return Difference("; ".join(parts), is_close, False)
    if one.identity != other.identity or (not is_blind and one.observation != other.observation):
        held, others = numbers(one.state)[0], numbers(other.state)[0]
        return Difference("states of different identity", _is_close(one, other, held, others), True)
    return None


def clear_difference(one: ObservedOutcome, other: ObservedOutcome, is_blind: bool = False) -> Difference | None:
    """The same where more than rounding or identity differs."""
    found = difference(one, other, is_blind)
    return None if found is None or found.is_rounding or found.is_identity else found


def _is_close(one: ObservedOutcome, other: ObservedOutcome, x: Floats, y: Floats) -> bool:
    """Whether two rows of numbers are the same up to rounding; what is no number, or too much, is not close."""
    if x.shape != y.shape or not 0 < x.size <= MOST_NUMBERS or np.array_equal(x, y):
        return False
    tolerance = ROUNDING * max(one.precision, other.precision)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))


def numbers(value: Any) -> tuple[Floats, float]:
    """Every number in a nested value in a fixed order, and the coarsest unit in the last place among their types."""
    arrays = list(_arrays(value, 0))
    precisions = [float(np.finfo(array.dtype).eps) for array in arrays if array.dtype.kind == "f"]
    found = [array.astype(np.float64).reshape(-1) for array in arrays]
    return np.concatenate([np.zeros(0), *found]), max([float(np.finfo(np.float64).eps), *precisions])


def _arrays(value: Any, depth: int) -> Iterator[NDArray[Any]]:
    if isinstance(value, dict | list | tuple):
        parts = [value[key] for key in sorted(value, key=repr)] if isinstance(value, dict) else value
        for part in parts if depth <= 20 else ():
            yield from _arrays(part, depth + 1)
        return
    try:
        array = np.asarray(float(value) if isinstance(value, int) else value)
    except (TypeError, ValueError, OverflowError):
        return
    if array.dtype.kind in "fiub":
        yield array


def shown(values: Floats) -> str:
    """A few numbers of an observation."""
    if not values.size:
        return "(no numbers)"
    return np.array2string(values[:6], precision=4, separator=" ") + ("…" if values.size > 6 else "")


class Unanswered(Exception):
    """A query that was not answered as the protocol demands; the audit ends here."""


class ProbeState(NamedTuple):
    """A state to ask questions in, as it was when it was reached."""

    state: Snapshot
    label: str
    actions: tuple[Action, ...] = ()
    identity: Hashable = b""
    content: bytes = b""  # everything it holds, generators included; empty where nobody will look again
    observation: Any = None  # as handed out, so that a buffer written over later shows
    seen: bytes = b""  # its fingerprint then

    def with_content(self) -> ProbeState:
        """The state with what its snapshot holds now."""
        return self._replace(content=content(self.state))


class Question(NamedTuple):
    """One action in one state under one draw of the noise."""

    at: ProbeState
    action: Action
    draw: int = 0


class Place(NamedTuple):
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
    nameless: str = ""  # why a state has no identity
    actions_at: Callable[[Snapshot], Sequence[Action]] = lambda state: ()  # a few actions of a state
    slow_names: int = 0  # identities that took too long
    deadline: float = np.inf  # of the check under way
    ran_out: bool = False  # whether it was reached
    watchdog: Watchdog = field(default_factory=Watchdog)  # ends calls that do not return
    identities: dict[str, str] = field(default_factory=dict)  # check -> what differed in identity alone
    followed: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    lowest: tuple[float, object] = (np.inf, "")
    highest: tuple[float, object] = (-np.inf, "")
    not_finite: str = ""  # the first reward that is not finite or observation that holds NaN
    infinite: str = ""  # the first observation that holds an infinity
    roundings: dict[str, str] = field(default_factory=dict)  # check -> what agreed up to rounding only
    over: list[tuple[Snapshot, str]] = field(default_factory=list)

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
        if self.pins_globals:
            seed_globals(self.seed)
        return self.guarded(START, lambda: self.simulator.start(self.noise("start", draw)))

    def begun(self, state: Snapshot) -> ObservedOutcome:
        """A starting state as if it were an outcome."""
        return self.look(Outcome(np.nan, state), START, is_start=True)

    def answer(self, question: Question) -> ObservedOutcome:
        """The answer to a question."""
        noise = self.noise("question", question.at.label, question.draw)
        return self.ask(question.at, [question.action], noise)[0]

    def ask(
        self, at: ProbeState, actions: Sequence[Action], noise: Noise, *, is_light: bool = False
    ) -> list[ObservedOutcome]:
        """A query, and what is to be seen of its outcomes; a light look leaves out the identity."""
        if self.asks_singly and len(actions) > 1:
            return [self.ask(at, [action], noise.fresh(), is_light=is_light)[0] for action in actions]
        asked = list(actions)
        state = self.handed(at)
        place = Place(self.simulator, at.label, asked)
        outcomes = self.guarded(place, lambda: self.simulator.query(state, asked, noise))
        if len(outcomes) != len(asked):
            raise Unanswered(f"{place}: {len(asked)} actions were asked and {len(outcomes)} answered")
        found = [self.look(o, self.where(at, a), is_light) for o, a in zip(outcomes, asked, strict=True)]
        self.asked += 1
        return found

    def handed(self, at: ProbeState) -> Snapshot:
        """The snapshot to hand in, now that the global generators stand where they should."""
        if self.pins_globals:
            seed_globals(self.seed)
        if not self.hands_in_copies:
            return at.state
        return self.guarded(f"{at.label}, to be copied", lambda: copy.deepcopy(at.state))

    def guarded(self, where: object, call: Callable[[], Any]) -> Any:
        """What a call of the simulator gives; what it raises ends the audit with a sentence."""
        before = self.watchdog.begin(where)
        try:
            return call()
        except Exception as error:
            words = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Unanswered(f"{where}: it raised {words}") from error
        finally:
            self.watchdog.finish(before)

    def where(self, at: ProbeState, action: Action) -> Place:
        """A state and an action, for people."""
        return Place(self.simulator, at.label, [action])

    def look(self, outcome: Outcome, where: object, is_light: bool = False, is_start: bool = False) -> ObservedOutcome:
        """What is to be seen of an outcome; at the start no reward is."""

        def read() -> tuple[float, Snapshot, Any, bool, Hashable]:
            reward, state = outcome
            if self.keeps_copies:
                state = copy.deepcopy(state)
            observation = unrecorded(self.simulator.observe, state)  # what is seen is made of the state alone
            identity: Hashable = b"" if is_light else self.identity_of(state)
            return float(reward), state, observation, bool(self.simulator.is_over(state)), identity

        reward, state, observation, is_over, identity = self.guarded(where, read)
        values, precision = numbers(observation)
        if not is_start:
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
        if is_over and not is_light and len(self.over) < 4:
            self.over.append((state, str(where)))
        seen = b"" if is_light else safe_fingerprint(observation)
        bare = is_bare(state, observation)
        return ObservedOutcome(reward, is_over, seen, values[: MOST_NUMBERS + 1], precision, identity, state, bare)

    def identity_of(self, state: Snapshot) -> Hashable:
        """The identity of a state, unless that takes too long to ask for it all the time."""
        if not self.names_states:
            return b""
        begun = time.monotonic()
        try:
            found = self.simulator.identity(state)
            hash(found)
        except (TypeError, ValueError) as error:  # it cannot be hashed: what is seen has to stand for it
            self.nameless = self.nameless or str(error)
            found = safe_fingerprint(self.simulator.observe(state))
        self.slow_names += time.monotonic() - begun > SLOW_IDENTITY
        return found

    @property
    def names_states(self) -> bool:
        """Whether identities are asked for."""
        return self.slow_names < 2  # the first one may compile something

    def reached(self, state: Snapshot, label: str, actions: Sequence[Action]) -> ProbeState:
        """A state as it is now, without its content."""
        see, name = self.simulator.observe, self.identity_of
        observation, identity = self.guarded(label, lambda: (see(state), name(state)))
        return ProbeState(state, label, tuple(actions), identity, b"", observation, safe_fingerprint(observation))

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
                states = [ProbeState(each.state, "a state") for each in pair]
                pair = [self.ask(at, [action], self.noise("followed", check, turn, t))[0] for at in states]
                found = clear_difference(pair[0], pair[1], self.is_blind)
                if found is not None:
                    return found._replace(text=f"{found.text}, {t + 1} steps later")
                is_numbered = self.simulator.action_names is not None
                if pair[0].is_over or (is_numbered and action not in self.simulator.available(pair[0].state)):
                    break
        return None


def is_bare(state: Snapshot, observation: Any) -> bool:
    """Whether what is observed is the whole state as an object: then it tells no more than identity."""
    is_whole = observation is state or observation is getattr(state, "state", None)
    return is_whole and hasattr(observation, "__dict__") and not hasattr(observation, "__array__")


class WatchedNoise(Noise):
    """A noise that knows which of its forms were used, by its copies too."""

    __slots__ = ("others",)

    def __init__(self, *parts: int | str | bytes) -> None:
        super().__init__(*parts)
        self.others: set[str] = set()

    def fresh(self) -> WatchedNoise:
        return self.moved_to(self.address)

    def moved_to(self, address: bytes) -> WatchedNoise:
        found = WatchedNoise.__new__(WatchedNoise)
        found._address, found._streams, found.others = address, {}, self.others
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


class Event(NamedTuple):
    """An answer during a run: whose, when, for which branch, and what it was."""

    what: str
    step: int
    branch: int
    answer: Any


WHO = {"start": "the start", "policy": "the policy", "outcome": "a step", "observation": "what a step shows"}
CLOSE = 1e-9  # relative: two runs on several threads may add in another order


class Record:
    """What is noted of one run, and which global generators moved during it, by whom.

    Whenever one has moved, all are put elsewhere: else whoever seeds it would share its draws with the next, who does
    not. With another `seed` they are put to other places; without one nobody looks at them, which takes less time.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self.events: list[Event] = []
        self.moved: dict[str, str] = {}
        self._globals = dict[str, bytes]()
        self._put_elsewhere()
        self._after: dict[tuple[Any, ...], int] = {}  # where a global generator stood after an event, hashed
        self._movers: set[tuple[Any, ...]] = set()  # events that moved it

    def __call__(self, what: str, step: int, branch: int, answer: Any) -> None:
        """Take note of an event."""
        if what != "outcome":  # a hash of what a policy sees or chooses; one for all where there is none
            try:
                answer = fingerprint(answer)
            except ValueError:
                answer = b""
        self.events.append(Event(what, step, branch, answer))
        if self._seed is None:
            return
        now = global_states()
        for name, state in now.items():
            self._after[name, what, step, branch] = hash(state)
            if self._globals.get(name, state) != state:
                self.moved.setdefault(name, what)
                self._movers.add((name, what, step, branch))
        if self._globals != now:
            self._seed += 1
            self._put_elsewhere()

    def _put_elsewhere(self) -> None:
        if self._seed is not None:
            seed_globals(self._seed)
            self._globals = global_states()

    def unseeded(self, other: Record) -> set[str]:
        """Global generators that the same event left in different places; one that it seeds ends in the same place."""
        return {key[0] for key in self._movers | other._movers if self._after.get(key) != other._after.get(key)}

    def difference(self, other: Record) -> Event | None:
        """The first event that was another one in the other record; an observation where no return can have changed."""
        theirs = {event[:3]: event for event in other.events}

        def is_same(one: Event) -> bool:
            if one.what != "outcome":
                return bool(one.answer == theirs.get(one[:3], one).answer)
            (reward, is_over), (again, is_over_again) = one.answer, theirs.get(one[:3], one).answer
            return is_over == is_over_again and are_close(reward, again)

        found = [event for event in self.events if not is_same(event)]
        if not found:
            return None
        first = min(found, key=lambda event: (event.step, list(WHO).index(event.what), event.branch))
        is_decisive = any(event.what in ("policy", "outcome") for event in found)
        if not is_decisive:
            return first._replace(what="observation")
        return first._replace(what="outcome") if first.what == "observation" else first


def are_close(one: Any, other: Any) -> bool:
    """Whether numbers are the same but for the order in which they were added up."""
    return bool(np.allclose(one, other, rtol=CLOSE, atol=0.0))
