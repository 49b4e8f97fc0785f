"""What an agent sees and remembers: Stable-Baselines3's wrappers of vectors of environments, recurrent networks, time.

What an agent of Stable-Baselines3 sees is not what its environment shows where such wrappers stand between them:
`VecNormalize` scales observations, `VecFrameStack` adds the last ones. What a recurrent agent does depends on what
`predict` returned beside its last action, and a policy that depends on time remembers the time. Nothing of
Stable-Baselines3 is imported: wrappers are known by what they have.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError

# Of Stable-Baselines3: they show what they are shown, or `predict` does the same by itself (transposed pictures).
PLAIN_WRAPPERS = ("VecMonitor", "VecCheckNan", "VecTransposeImage", "VecVideoRecorder")
REMEMBERS = (
    "the agent remembers earlier observations, or its choice depends on time, and nothing here keeps that; compare, "
    "simulate and simulators.review_agent do, each branch its own"
)

Kept = Any  # what a stage remembers of earlier observations; None at the start of an episode
Stage = Callable[[Any, Kept], tuple[Any, Kept]]


class Memory(NamedTuple):
    """What an agent remembers; all is None at the start of an episode, and later where it remembers nothing."""

    frames: tuple[Kept, ...]
    """One for each stage."""
    hidden: Any = None
    """What `predict` returned beside the last action."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return self.hidden is None and all(kept is None for kept in self.frames)


def own_copy(observation: Any) -> Any:
    """What a policy is shown: a policy that works in place on its arrays would change the state that they are."""
    if isinstance(observation, np.ndarray):
        return observation.copy()
    if isinstance(observation, dict):
        found = copy.copy(observation)
        found.update({key: own_copy(value) for key, value in observation.items()})
        return found
    return type(observation)(map(own_copy, observation)) if type(observation) in (list, tuple) else observation


def row_of(policy: Floats, observation: Any) -> Any:
    """What a policy ``[S, A]`` or ``[S]`` says of an observation that is the number of a state."""
    if np.ndim(observation) != 0 or np.asarray(observation).dtype.kind not in "iu":
        raise ModelError(
            f"the policy is an array, but observations are no state numbers (here {observation!r}); give a function of "
            "the observation"
        )
    if not 0 <= observation < len(policy):
        raise ModelError(f"the policy has {len(policy)} rows, but the observation is {observation}")
    return policy[int(observation)]


@dataclass(frozen=True)
class TimedAgent:
    """A policy that depends on time, a function of (time, observation) or an array ``[T, S, A]``: it remembers time."""

    policy: Any

    def predict(self, observation: Any, state: int | None = None) -> tuple[Callable[[], Any], int]:
        """What to call for its choice, which nobody does where an episode is cut off, and the time of the next one."""
        time = 0 if state is None else state
        return partial(self._said, time, observation), time + 1

    def _said(self, time: int, observation: Any) -> Any:
        if callable(self.policy):
            return self.policy(time, observation)
        if time >= len(self.policy):
            raise ModelError(f"the policy has rows for {len(self.policy)} steps; simulate over such a horizon")
        return row_of(self.policy[time], observation)


@dataclass(frozen=True)
class View:
    """An agent with ``predict``, behind the wrappers that it was trained behind."""

    agent: Any
    stages: tuple[Stage, ...]
    settings: Mapping[str, Any]
    has_state: bool
    """Whether `predict` takes what it returned before."""

    @classmethod
    def of(cls, agent: Any) -> View:
        """The wrappers are those of its ``env``; an agent from a file has one where it was given one."""
        settings = {"deterministic": True} if _takes(agent, "deterministic") else {}
        return cls(agent, tuple(_stages(agent)), settings, _takes(agent, "state"))

    def __getstate__(self) -> dict[str, Any]:
        """For workers: without the agent's own environment, which is not asked any more and often cannot be sent."""
        agent = copy.copy(self.agent)
        if hasattr(agent, "env"):
            agent.env = None
        return {**vars(self), "agent": agent}

    @property
    def fresh(self) -> Memory:
        """At the start of an episode."""
        return Memory((None,) * len(self.stages))

    @property
    def gives_law(self) -> bool:
        """Whether what it answers is to be called, and may be probabilities."""
        return isinstance(self.agent, TimedAgent)

    @property
    def may_remember(self) -> bool:
        """Whether to look if it does."""
        return bool(self.stages) or self.has_state

    def act(self, observation: Any, memory: Memory) -> tuple[Any, Memory]:
        """The agent's action, and what it remembers afterwards."""
        frames, observation = [], own_copy(observation)
        for stage, kept in zip(self.stages, memory.frames, strict=True):
            observation, after = stage(observation, kept)
            frames.append(after)
        more = {} if memory.hidden is None else {"state": memory.hidden}
        found = self.agent.predict(observation, **self.settings, **more)
        if not isinstance(found, tuple):
            return found, Memory(tuple(frames))
        return found[0], Memory(tuple(frames), found[1] if self.has_state and len(found) > 1 else None)

    def predict(self, observation: Any) -> Any:
        """The action of an agent that remembers nothing."""
        action, memory = self.act(observation, self.fresh)
        if not memory.is_empty:
            raise ModelError(REMEMBERS)
        return action


def _takes(agent: Any, name: str) -> bool:
    try:
        return name in inspect.signature(agent.predict).parameters
    except (TypeError, ValueError):
        return False


def _stages(agent: Any) -> Iterator[Stage]:
    """What the wrappers of its environment do to an observation, from the innermost out."""
    levels, level = [], getattr(agent, "env", None)
    # A wrapper answers for what it wraps: only its own attributes count.
    while "venv" in getattr(level, "__dict__", ()):
        levels.append(level)
        level = vars(level)["venv"]
    for each in reversed(levels):
        frames = vars(each).get("stacked_obs")
        if callable(getattr(type(each), "normalize_obs", None)):
            yield partial(_normalised, each)
        elif frames is not None:
            parts = getattr(frames, "sub_stacked_observations", None) or {None: frames}
            found = {key: Layout(part.n_stack, 0 if part.channels_first else -1) for key, part in parts.items()}
            yield partial(_stacked, found.get(None, found))
        elif type(each).__name__ not in PLAIN_WRAPPERS:
            raise ModelError(
                f"the agent was trained behind {type(each).__name__}, and what that does to observations is not known "
                "here; give a function f(observation) that does it and then asks the agent"
            )


def _normalised(wrapper: Any, observation: Any, kept: Kept) -> tuple[Any, Kept]:
    return wrapper.normalize_obs(observation), None


class Layout(NamedTuple):
    """How many frames, and along which axis of an observation."""

    frames: int
    axis: int


def _stacked(layout: Layout | dict[str, Layout], observation: Any, kept: Kept) -> tuple[Any, Kept]:
    """The last frames, the newest last; before the first one there is nothing, as zeros."""
    if isinstance(layout, dict):
        before = kept or {}
        found = {key: _stacked(each, observation[key], before.get(key))[0] for key, each in layout.items()}
        return {**observation, **found}, found
    newest = np.asarray(observation)
    size = newest.shape[layout.axis]
    older = np.concatenate([np.zeros_like(newest)] * layout.frames, layout.axis) if kept is None else kept
    frames = np.concatenate([np.delete(older, np.s_[:size], layout.axis), newest], layout.axis)
    return frames, frames
