"""Simulators that are plain functions: of a state, an action and noise, or of a decision and a seed.

The first is the paper's Assumption 1, ``(R, S') = f(state, action, noise)``.
"""

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.noise import AS_IT_WAS, Noise, Redraw, watcher
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator, Snapshot, as_action_names, as_step

Draw = Callable[[np.random.Generator], Any]

MOST_LETTERS = 40  # of what a decision calls itself, to be its name in tables


class FunctionState(NamedTuple):
    """A snapshot: the function's own state, and whether the episode has ended there."""

    state: Any
    is_over: bool = False


class FunctionSimulator(Simulator):
    """A simulator from ``step(state, action, noise) -> (reward, next_state)`` and a sampler of the noise.

    Args:
        step: a function of the three that draws nothing by itself and leaves `state` as it is. It may return
            ``(reward, next_state, is_over)`` where episodes end.
        noise: ``draw(rng) -> noise`` of one step. Several sources are several samplers,
            ``{"demand": draw, "price": draw}``: each has a stream of its own, and `step` gets a dictionary.
            Without it `step` is given the `Noise` itself and draws from ``noise["demand"]`` or ``noise.rng``.
        start: the state to begin in, or a function ``start(rng) -> state``.
        actions: what there is to do, and what `step` is given: a number n means 0, …, n − 1; a list its own entries,
            ``["wait", "go"]`` or ``[0, 4, 8]``; a dictionary its values under their names, ``{"order 4": 4}``. None
            for actions that cannot be listed. Where entries are numbers, these are what numbers mean everywhere (in
            policies, `compare`, gaps); where they are names alone, a number counts them from 0.
        available: ``available(state) -> actions`` where not all can be taken everywhere.
        observe: what a policy sees of a state; by default all of it.
        identity: equal for equal states; by default a hash of what the state holds.
        discount, sharing, reward_bounds: as in `Simulator`.
    """

    def __init__(  # many parameters: a front door, one keyword for each setting
        self,
        step: Callable[..., Any],
        noise: Draw | Mapping[str, Draw] | None = None,
        *,
        start: Any,
        actions: Mapping[str, Any] | Sequence[Any] | int | None,
        available: Callable[[Any], Sequence[Any]] | None = None,
        observe: Callable[[Any], Any] | None = None,
        identity: Callable[[Any], Hashable] | None = None,
        discount: float = 1.0,
        sharing: Sharing = "time",
        reward_bounds: tuple[float, float] | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(step):
            raise ModelError(f"step must be a function (state, action, noise) -> (reward, next_state), not {step!r}")
        if not (noise is None or callable(noise) or isinstance(noise, Mapping)):
            raise ModelError(f"noise must be a function draw(rng), or a dictionary of such functions, not {noise!r}")
        self._step, self._noise, self._start = step, noise, start
        self._available, self._observe, self._identity = available, observe, identity
        self._given: tuple[Any, ...] | None = None
        if actions is None or isinstance(actions, int | np.integer):
            self.action_names = as_action_names(actions)
        else:
            self.action_names = as_action_names(list(actions))
            self._given = tuple(actions.values() if isinstance(actions, Mapping) else actions)
            if any(isinstance(each, Number) for each in self._given):  # otherwise numbers are those of the list
                self.action_values = self._given
        self._describe(name or str(getattr(step, "__name__", "function")), discount, sharing, reward_bounds)

    def start(self, noise: Noise) -> FunctionState:
        """A state to begin in."""
        return FunctionState(self._start(noise.rng) if callable(self._start) else self._start)

    def at(self, state: Any) -> FunctionState:
        """The snapshot of a state; a snapshot is left as it is."""
        return state if isinstance(state, FunctionState) else FunctionState(state)

    def step(self, state: FunctionState, action: Any, noise: Noise) -> Outcome:
        """One call of the function."""
        return self.step_given(state, action, self.draw(noise))

    def step_given(self, state: FunctionState, action: Any, noise: Any) -> Outcome:
        """What `action` gives in `state` under the very noise that the function takes."""
        found = self._step(state.state, self.given_action(action), noise)
        reward, after, is_over = as_step(found, self.name)
        try:
            reward = float(reward)
        except (TypeError, ValueError):
            raise ModelError(
                f"{self.name} returned {found!r}; the reward comes first and is a number: (reward, next_state)"
            ) from None
        return Outcome(reward, FunctionState(after, bool(is_over)))

    def given_action(self, action: Any) -> Any:
        """What the function is given for an action."""
        return action if self._given is None else self._given[action]

    @property
    def sources(self) -> tuple[str, ...] | None:
        """The names of the sources of noise; empty where there is one without a name, None where values are not drawn.

        The function then draws by itself, from the `Noise` that it is given.
        """
        return tuple(self._noise) if isinstance(self._noise, Mapping) else None if self._noise is None else ()

    def draw(self, noise: Noise) -> Any:
        """What the function takes as its noise."""
        if self._noise is None:
            return noise
        if isinstance(self._noise, Mapping):
            return {name: draw(noise[name]) for name, draw in self._noise.items()}
        return self._noise(noise.rng)

    def observe(self, state: FunctionState) -> Any:
        """What a policy sees."""
        return state.state if self._observe is None else self._observe(state.state)

    def is_over(self, state: FunctionState) -> bool:
        """Whether the function said so."""
        return state.is_over

    def identity(self, state: FunctionState) -> Hashable:
        """The user's, or a hash of the state."""
        return super().identity(state) if self._identity is None else (self._identity(state.state), state.is_over)

    def available(self, state: FunctionState) -> Sequence[Any]:
        """The user's, or all actions."""
        if self._available is None:
            return super().available(state)
        return [self.action_index(action) for action in self._available(state.state)]


def is_run_function(source: Any) -> bool:
    """Whether `source` is a function ``run(decision, seed) -> outcome``."""
    return callable(source) and not isinstance(source, type) and not hasattr(source, "step")


def watched(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function as whoever watches wants it called."""
    watching = watcher.get()
    return run if watching is None else watching.function(run)


@dataclass(frozen=True)
class WithNoise:
    """A function ``run(decision, noise)`` as one of a decision and a seed, from which its noise is made."""

    run: Callable[[Any, Noise], Any]
    redraw: Redraw = AS_IT_WAS
    """Which sources of noise draw other numbers than those of the seed."""

    def __call__(self, decision: Any, seed: int) -> Any:
        return watched(self.run)(decision, self.noise(seed))

    def noise(self, seed: int) -> Noise:
        """The noise of a seed."""
        return Noise("run", seed).redrawn(self.redraw)


class RunSimulator(Simulator):
    """Decisions of a function as actions: one step, and the episode is over.

    The function is ``run(decision, seed)``, or ``run(decision, noise)`` with a `Noise` of named streams, which keeps
    the draws of different decisions in step.
    """

    least_decisions = 2
    is_finite = True  # whether other numbers are refused

    def __init__(self, run: Callable[[Any, Any], Any], decisions: Mapping[str, Any] | Sequence[Any]) -> None:
        if not is_run_function(run):
            raise ModelError(f"decisions are tried by a function run(decision, seed) -> outcome, not by {run!r}")
        named = as_named("decisions", decisions, self.least_decisions)
        try:
            takes_noise = list(inspect.signature(run).parameters)[1:2] == ["noise"]
        except (TypeError, ValueError):  # written in C
            takes_noise = False
        self.run, self.decisions = WithNoise(run) if takes_noise else run, tuple(named.values())
        self.values = tuple(decisions)  # as the user calls them: keys of a dictionary, else the decisions themselves
        self.name = str(getattr(run, "__name__", "run"))
        self.action_names, self.action_values = tuple(named), self.values
        self.results: tuple[str, ...] | None = None  # their names; empty where it is one number; None before any run

    def outcomes(self, action: int, seed: int) -> tuple[float, ...]:
        """The same where it may be several results by name, in the order of `results`; the first run names them."""
        found = watched(self.run)(self.decisions[action], seed)
        named = as_results(found)
        names = None if named is None else tuple(named)
        if self.results is None:
            self.results = names or ()
        if set(names or ()) != set(self.results):
            now, before = (", ".join(map(repr, each or ())) or "one number" for each in (names, self.results))
            raise ModelError(
                f"run({self.decisions[action]!r}, seed) returned {now}, and {before} before: every run must return the "
                "same results"
            )
        if named is None:
            return (self._number(found, action),)
        return tuple(self._number(named[name], action, f" for {name!r}") for name in self.results)

    def _number(self, found: Any, action: int, name: str = "") -> float:
        """What the function returned, as a number."""
        with suppress(TypeError, ValueError):
            value = float(found)
            if math.isfinite(value) or not self.is_finite:
                return value
        text = f"run({self.decisions[action]!r}, seed) returned {found!r}{name}; it must return one finite number"
        if named := as_results(found):
            text += f": here, as in run(decision, seed)[{next(iter(named))!r}]; compare takes several by name"
        raise ModelError(text)

    def start(self, noise: Noise) -> Snapshot:
        """Before the decision."""
        return False

    def step(self, state: Snapshot, action: Action, noise: Noise) -> Outcome:
        """One call of the function; where it takes a noise, whoever watches the one given watches that too."""
        if isinstance(self.run, WithNoise):
            own = noise.moved_to(self.run.noise(noise.seed).address)
            found = watched(self.run.run)(self.decisions[action], own)
        else:
            found = watched(self.run)(self.decisions[action], noise.seed)
        return Outcome(self._number(found, action), True)

    def is_over(self, state: Snapshot) -> bool:
        """After the decision."""
        return bool(state)

    def identity(self, state: Snapshot) -> Hashable:
        """There are two states."""
        return bool(state)


def as_results(found: Any) -> dict[str, Any] | None:
    """Results by name: of a dictionary, a named tuple or a dataclass; None for what is meant as one number."""
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items()} or None
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        return dict(found._asdict())
    if is_dataclass(found) and not isinstance(found, type):
        return {each.name: getattr(found, each.name) for each in fields(found)}
    return None


def as_named(what: str, given: Mapping[str, Any] | Sequence[Any], least: int = 2) -> dict[str, Any]:
    """Alternatives by name: those of a dictionary, or the values themselves in words."""
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        named = {}
        for i, value in enumerate(given):
            says_itself = any({"__str__", "__repr__"} & vars(base).keys() for base in type(value).__mro__[:-1])
            text = str(value) if says_itself else ""
            if isinstance(value, int | float | str | np.generic | tuple):
                label = str(value)
            elif hasattr(value, "__name__"):
                label = str(value.__name__)
            else:
                label = text if 0 < len(text) <= MOST_LETTERS and "\n" not in text else f"number {i + 1}"
            named[label] = value
    else:
        raise ModelError(f"{what} must be a sequence, or a dictionary with their names, not {given!r}")
    if not len(given):
        raise ModelError(f"{what} is empty; give the {what} to compare")
    if len(given) < least:
        raise ModelError(f"comparing takes at least two {what}, not {len(given)}")
    if len(named) < len(given):
        raise ModelError(f"two {what} have the same name; give a dictionary with names of their own, {{name: value}}")
    return named
