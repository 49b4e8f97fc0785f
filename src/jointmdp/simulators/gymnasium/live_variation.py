"""Whether an environment varies in a way that the noise does not reach.

A generator in compiled code, or behind an iterator, cannot be found. Copies and replays then repeat one future, and
every replication from one state is the same. It shows in the live environment: two episodes that begin alike, with all
that can be seen of them equal, go different ways under the same noise.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.global_generators import kept_globals, seed_globals
from jointmdp.simulators.gymnasium.random_streams import Streams
from jointmdp.simulators.gymnasium.state_keepers import Keeper, moved_under
from jointmdp.simulators.gymnasium.state_trials import DrawAction, is_repeatable
from jointmdp.simulators.gymnasium.wrapper_stack import SETUP, levels
from jointmdp.simulators.noise import Noise

EPISODES, STEPS, WARM_STEPS = 3, 40, 5
SECONDS = 0.3  # for the steps of one trace; a slow environment is tried out for fewer
SLOW = 2.0  # seconds of a trace from which on one comparison has to do
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
    is_slow = time.monotonic() - began > SLOW
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
