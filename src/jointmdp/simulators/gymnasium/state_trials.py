"""Trying an environment out before it is believed: where its randomness comes from, and whether copies of it serve."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.global_generators import global_states, kept_globals
from jointmdp.simulators.gymnasium import wrapper_stack
from jointmdp.simulators.gymnasium.foreign_errors import error_text
from jointmdp.simulators.gymnasium.random_streams import SpaceWatch, Streams, discovered
from jointmdp.simulators.gymnasium.state_keepers import (
    Arrival,
    CopyKeeper,
    Keeper,
    Place,
    begun,
    moved,
    moved_under,
)
from jointmdp.simulators.noise import Noise

DrawAction = Callable[[np.random.Generator, dict[str, Any]], Any]
"""A random action as the environment takes it, from a generator and the last ``info`` (which may hold a mask)."""
TRIAL_EPISODES, TRIAL_STEPS = 2, 10
SLOW, SLOW_STEPS = 0.3, 3  # seconds of a trial episode from which on less is tried
MOST_REPEATED = 32  # steps that are taken again rather than copied before each


def explored(env: Env[Any, Any], draw: DrawAction) -> tuple[Streams, list[bytes]]:
    """The streams of an environment after a start and a few random steps, and hashes of what these gave.

    It is searched three times: as it is, after the start, which may hand one generator to several parts, and after the
    steps, since some generators are made when they are first used.
    """
    noise = Noise("trial")
    with kept_globals(0):
        watch = SpaceWatch(env)
        discovered(env).reseed(env, noise)
        first, info = begun(env, noise.seed)
        streams = discovered(env)
        seen = _next_steps(partial(moved_under, streams), Arrival(env, first, 0.0, False, info), draw)
        return streams.joined(discovered(env, watch.used())), [fingerprint(first), *seen]


def fault_of_copies(keeper: CopyKeeper, draw: DrawAction) -> str | None:
    """What is wrong with keeping states as copies, or None.

    A state is gone on from in three ways: copied before every step, copied once, and as it is. If copies hold the whole
    state and share none of it, all three go the same way; then a state that was left may also be reached again by the
    steps that led to it, unless these ask a global generator.
    """
    fault = wrapper_stack.copy_fault(keeper.env)
    if fault is not None:
        return fault
    is_global, count = False, TRIAL_STEPS
    keeper.most_steps = 0  # copied before every step

    def copied_once(kept: Any, action: Any, noise: Noise) -> Arrival:
        if isinstance(kept, Place):
            return moved(keeper.copied_under(keeper.pinned(kept), noise), action)
        return moved_under(keeper.streams, kept, action, noise)

    for episode in range(TRIAL_EPISODES):
        try:
            with kept_globals(0):
                before, began = global_states(), time.monotonic()
                at = keeper.start(Noise("trial", episode))
                rng = np.random.default_rng(episode)
                for t in range(count):
                    found = keeper.step(at.kept, draw(rng, at.info), Noise("trial", episode, t))
                    if found.is_over:
                        break
                    at = found
                    if time.monotonic() - began > SLOW:
                        count = SLOW_STEPS
                        break
                is_global = is_global or global_states() != before
            itself = at._replace(kept=keeper.pinned(at.kept))
            ways = [_next_steps(step, at, draw, count) for step in (keeper.step, copied_once)]
            ways.append(_next_steps(partial(moved_under, keeper.streams), itself, draw, count))
        except Exception as error:  # whatever an environment raises when it is copied, or stepped half-made
            return error_text(error)
        if ways[0] != ways[1] or ways[0] != ways[2]:
            return "a copy goes another way than the original, so it does not hold the whole state"
        if count == SLOW_STEPS:
            break
    keeper.most_steps = 0 if is_global else MOST_REPEATED
    return None


def is_repeatable(keeper: Keeper, draw: DrawAction) -> bool:
    """Whether the same steps from one state go the same way again."""
    at = keeper.start(Noise("trial"))
    one, other = (_next_steps(keeper.step, at, draw) for _ in range(2))
    return one == other


def _next_steps(
    step: Callable[[Any, Any, Noise], Arrival], at: Arrival, draw: DrawAction, count: int = TRIAL_STEPS
) -> list[bytes]:
    """Hashes of what the next steps give; global generators begin alike, since they are not what is tried out."""
    rng, seen = np.random.default_rng(1), []
    with kept_globals(0):
        for t in range(count):
            at = step(at.kept, draw(rng, at.info), Noise("go on", t))
            seen.append(fingerprint((at.observation, at.reward, at.is_over)))
            if at.is_over:
                break
    return seen
