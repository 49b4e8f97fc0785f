"""Trying an environment out before it is believed: where its randomness comes from, and whether copies of it serve.

Whether an environment varies in a way that the noise does not reach.

A generator in compiled code, or behind an iterator, cannot be found. Copies and replays then repeat one future, and
every replication from one state is the same. It shows in the live environment: two episodes that begin alike, with all
that can be seen of them equal, go different ways under the same noise.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.simulation.simulators import gymnasium_wrappers
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.global_generators import global_states, kept_globals, seed_globals
from jointmdp.simulation.simulators.gymnasium_noise import SpaceWatch, Streams, discovered
from jointmdp.simulation.simulators.gymnasium_states import (
    Arrival,
    CopyKeeper,
    Keeper,
    Place,
    begun,
    moved,
    moved_under,
)
from jointmdp.simulation.simulators.gymnasium_wrappers import SETUP, error_text, levels
from jointmdp.simulation.simulators.noise import Noise

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
    fault = gymnasium_wrappers.copy_fault(keeper.env)
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


EPISODES, STEPS, WARM_STEPS = 3, 40, 5
SECONDS = 0.3  # for the steps of one trace; a slow environment is tried out for fewer
SLOW_LIVE = 2.0  # seconds of a trace from which on one comparison has to do
LEAST_STEPS = 3
STOCK = "gymnasium.envs."  # whose generators are known

Trace = list[list[bytes]]  # for each episode how it began, then its steps


def frozen_noise(name: str, keeper: Keeper, make: Callable[[], Env[Any, Any]], draw: DrawAction) -> str:
    """What was seen of randomness that the noise does not reach, in a sentence; empty where nothing was."""
    if is_stock(keeper.env):
        return ""
    step = unexplained_step(make, keeper.streams, draw)
    if step is None or not is_repeatable(keeper, draw):
        return ""
    is_atari = type(keeper.env.unwrapped).__module__.startswith("ale_py")
    sticky = "make it with repeat_action_probability=0 and wrap it in gymnasium.wrappers.StickyAction"
    advice = sticky if is_atari else "draw from self.np_random, or name the generator in streams="
    return (
        f"{name} is random in a way that the noise does not reach: two live episodes that began alike parted at step "
        f"{step} under the same noise, but from a restored state the same future comes every time. A generator of "
        f"its own is not among the streams (in compiled code, an iterator, or left out of streams=); {advice}"
    )


def unexplained_step(make: Callable[[], Env[Any, Any]], streams: Streams, draw: DrawAction) -> int | None:
    """The first step at which two live episodes part that began alike, under the same noise; None if none is seen.

    The environments that `make` gives differ in nothing but the seed of an earlier reset, or in an earlier episode.
    """
    began = time.monotonic()
    one = _trace(make(), streams, draw, seed=1, warm_steps=0)
    is_slow = time.monotonic() - began > SLOW_LIVE
    for seed, warm_steps in ((2, WARM_STEPS),) if is_slow else ((2, 0), (1, WARM_STEPS)):
        other = _trace(make(), streams, draw, seed, warm_steps)
        for (begin, *rows), (other_begin, *other_rows) in zip(one, other, strict=False):
            if begin == other_begin:
                pairs = enumerate(zip(rows, other_rows, strict=False), 1)
                parted = next((t for t, (row, other_row) in pairs if row != other_row), None)
                if parted is not None:
                    return parted
    return None


def is_stock(env: Env[Any, Any]) -> bool:
    """Whether an environment is Gymnasium's own, with Gymnasium's own wrappers at most."""
    inner, *outer = levels(env)
    return type(inner).__module__.startswith(STOCK) and all(
        type(level).__module__.startswith("gymnasium.wrappers") for level in outer
    )


def _trace(env: Env[Any, Any], streams: Streams, draw: DrawAction, seed: int, warm_steps: int) -> Trace:
    """Live episodes under the same noise, after an earlier episode."""
    found: Trace = []
    left, end = STEPS, time.monotonic() + SECONDS
    with kept_globals(0):
        streams.reseed(env, Noise("earlier"))
        _, info = env.reset(seed=seed)
        list(_steps(env, streams, draw, info, -1, warm_steps))
        for episode in range(EPISODES):
            if episode and time.monotonic() > end:
                break
            noise = Noise("live", episode)
            streams.reseed(env, noise)
            seed_globals(episode)
            observation, info = env.reset()
            found.append([fingerprint((fingerprint(observation), _visible(env, streams)))])
            for row in _steps(env, streams, draw, info, episode, left):
                found[-1].append(row)
                left -= 1
                if time.monotonic() > end and len(found[-1]) > LEAST_STEPS:
                    return found
    return found


def _steps(
    env: Env[Any, Any], streams: Streams, draw: DrawAction, info: dict[str, Any], episode: int, most: int
) -> Iterator[bytes]:
    rng = np.random.default_rng(episode + 1)
    for t in range(most):
        seed_globals(t)
        found = moved_under(streams, env, draw(rng, info), Noise("live", episode, t))
        info = found.info
        yield fingerprint((found.observation, found.reward, found.is_over))
        if found.is_over:
            return


def _visible(env: Env[Any, Any], streams: Streams) -> list[Any]:
    """Hashes of what an environment remembers in the open: where that differs, another way is no wonder."""
    found = []
    for level in levels(env):
        for name, value in vars(level).items():
            if name in SETUP or name in streams.attributes or isinstance(value, Iterator):
                continue
            try:
                found.append((name, fingerprint(value, streams.attributes | SETUP)))
            except Exception:  # what does not show itself is what is looked for
                continue
    return found
