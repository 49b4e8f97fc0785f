"""Trying an environment out before believing that its state can be kept in a certain way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.gymnasium.random_streams import SpaceWatch, Streams, discovered
from jointmdp.simulators.gymnasium.state_keepers import Arrival, CopyKeeper
from jointmdp.simulators.gymnasium.wrapper_stack import copied_value, tied_function
from jointmdp.simulators.noise import Noise

EPISODES, STEPS = 2, 10  # how long a trial is

DrawAction = Callable[[np.random.Generator, dict[str, Any]], Any]
"""A random action as the environment takes it, from a generator and the last ``info`` (which may hold a mask)."""


@contextmanager
def same_globals() -> Iterator[None]:
    """Global generators as they were at the beginning, so that a trial finds out about copies and not about them."""
    before, before_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(before_numpy)  # noqa: NPY002


def explored(env: Env[Any, Any], draw: DrawAction) -> tuple[Streams, list[bytes]]:
    """The streams of an environment after a start and a few random steps, and hashes of what these brought.

    It is searched three times: as it is, after the start, which may hand one generator to several parts, and after the
    steps, since some generators are made when they are first used.
    """
    noise = Noise("trial")
    with same_globals():
        watch = SpaceWatch(env)
        discovered(env).reseed(env, noise)
        observation, info = env.reset(seed=noise.seed)
        streams = discovered(env)
        seen = [fingerprint(copied_value(observation, {})), *_go_on(env, info, streams, draw)]
        return streams.joined(discovered(env, watch.used())), seen


def fault_of_copies(keeper: CopyKeeper, draw: DrawAction) -> str | None:
    """What is wrong with keeping states as copies, or None.

    Two copies of one state, and then the state itself, are stepped one after another. If they hold the whole state and
    share none of it, all three go the same way.
    """
    tied = tied_function(keeper.env)
    if tied is not None:
        return f"the function {tied} holds on to the environment itself, and its copy would act on the original"
    for episode in range(EPISODES):
        try:
            at = keeper.start(Noise("trial", episode))
            rng = np.random.default_rng(episode)
            for t in range(STEPS):
                found = keeper.step(at.kept, draw(rng, at.info), Noise("trial", episode, t))
                if found.is_over:
                    break
                at = found
            ways = [_go_on_by(keeper, at, draw), _go_on_by(keeper, at, draw)]
            with same_globals():
                ways.append(_go_on(at.kept, at.info, keeper.streams, draw))
        except Exception as error:  # whatever an environment raises when it is copied, or stepped half-made
            return f"{type(error).__name__}: {error}".rstrip(": ")
        if ways[0] != ways[1] or ways[0] != ways[2]:
            return "a copy goes another way than the original, so it does not hold the whole state"
    return None


def _go_on_by(keeper: CopyKeeper, at: Arrival, draw: DrawAction) -> list[bytes]:
    """What the next steps from a kept state bring."""
    rng, seen = np.random.default_rng(1), []
    with same_globals():
        for t in range(STEPS):
            at = keeper.step(at.kept, draw(rng, at.info), Noise("go on", t))
            seen.append(fingerprint((at.observation, at.reward, at.is_over)))
            if at.is_over:
                break
    return seen


def _go_on(env: Env[Any, Any], info: dict[str, Any], streams: Streams, draw: DrawAction) -> list[bytes]:
    """The same steps on an environment itself."""
    rng, seen = np.random.default_rng(1), []
    for t in range(STEPS):
        streams.reseed(env, Noise("go on", t))
        observation, reward, terminated, truncated, info = env.step(draw(rng, info))
        is_over = bool(terminated or truncated)
        seen.append(fingerprint((copied_value(observation, {}), float(reward), is_over)))
        if is_over:
            break
    return seen
