"""Simulators that are plain functions: the paper's Assumption 1, ``(R, S') = f(state, action, noise)``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Outcome, Simulator, default_action_names

Draw = Callable[[np.random.Generator], Any]


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
            for actions that cannot be listed.
        available: ``available(state) -> actions`` where not all can be taken everywhere.
        observe: what a policy sees of a state; by default all of it.
        identity: equal for equal states; by default a hash of what the state holds.
        discount, sharing, reward_bounds: as in `Simulator`.
    """

    def __init__(
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
        self.name = name or str(getattr(step, "__name__", "function"))
        self._values: tuple[Any, ...] | None = None
        if isinstance(actions, int | np.integer):
            self.action_names = default_action_names(checks.as_count("actions", actions))
        elif actions is not None:
            named = actions if isinstance(actions, Mapping) else {str(action): action for action in actions}
            labels = list(actions) if len(named) < len(actions) else list(named)  # as_names says which is there twice
            self.action_names = checks.as_names("action", labels, len(actions))
            self._values = tuple(named.values())
        self.discount = checks.as_discount(discount)
        self.sharing = checks.as_sharing(sharing)
        self.reward_bounds = None if reward_bounds is None else Interval(*map(float, reward_bounds))

    def start(self, noise: Noise) -> FunctionState:
        """A state to begin in."""
        return FunctionState(self._start(noise.rng) if callable(self._start) else self._start)

    def at(self, state: Any) -> FunctionState:
        """The snapshot of a state; a snapshot is left as it is."""
        return state if isinstance(state, FunctionState) else FunctionState(state)

    def step(self, state: FunctionState, action: Any, noise: Noise) -> Outcome:
        """One call of the function."""
        given = action if self._values is None else self._values[action]
        found = self._step(state.state, given, self._draw(noise))
        if not isinstance(found, tuple) or len(found) not in (2, 3):
            raise ModelError(
                f"{self.name} must return (reward, next_state) or (reward, next_state, is_over), not {found!r}"
            )
        try:
            reward = float(found[0])
        except (TypeError, ValueError):
            raise ModelError(
                f"{self.name} returned {found!r}; the reward comes first and is a number: (reward, next_state)"
            ) from None
        return Outcome(reward, FunctionState(found[1], bool(found[2]) if len(found) == 3 else False))

    def _draw(self, noise: Noise) -> Any:
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
        return (
            super().available(state)
            if self._available is None
            else [self.action_index(action) for action in self._available(state.state)]
        )
