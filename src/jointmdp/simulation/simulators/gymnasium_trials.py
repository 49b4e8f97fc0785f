"""Trying a Gymnasium environment out before it is used: where its randomness is, and how its state can be kept.

All trials take the same few random steps in two ways and compare: from a copy and from the original, from a restored
state twice, and in two live episodes that begin alike. In the last, a generator shows that cannot be found, in compiled
code or behind an iterator: copies and replays repeat one future, but two live episodes with all that can be seen of
them equal go different ways under the same noise.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.generators import global_states, kept_globals, seed_globals
from jointmdp.simulation.simulators.gymnasium_noise import SpaceWatch, Streams, discovered
from jointmdp.simulation.simulators.gymnasium_states import Arrival, CopyKeeper, Keeper, Place, moved, moved_under
from jointmdp.simulation.simulators.gymnasium_wrappers import SETUP, copy_fault, error_text, levels
from jointmdp.simulation.simulators.noise import Noise

DrawAction = Callable[[np.random.Generator, dict[str, Any]], Any]
"""A random action as the environment takes it, from a generator and the last ``info`` (which may hold a mask)."""
Trace = list[bytes]  # a hash of what was seen at each step
TRIAL_EPISODES, TRIAL_STEPS = 2, 10
SLOW, SLOW_STEPS = 0.3, 3  # seconds of a trial episode from which on less is tried
MOST_REPEATED = 32  # steps that are taken again rather than copied before each
LIVE_EPISODES, LIVE_STEPS, EARLIER_STEPS = 3, 40, 5
LIVE_SECONDS, LEAST_LIVE_STEPS = 0.3, 3  # for the steps of live episodes; a slow environment is tried out for fewer
SEED = 7_654_320  # of live episodes, and one more: a number that nobody holds by chance
SLOW_LIVE = 2.0  # seconds of live episodes from which on one comparison has to do


def _steps(
    step: Callable[[Any, Any, Noise], Arrival],
    at: Arrival,
    draw: DrawAction,
    *noise: str | int,
    seed: int = 1,
    most: int = TRIAL_STEPS,
) -> Iterator[Arrival]:
    """Steps with random actions of a seed under the noise of an address, until the episode ends."""
    rng = np.random.default_rng(seed)
    for t in range(most):
        at = step(at.kept, draw(rng, at.info), Noise(*noise, t))
        yield at
        if at.is_over:
            return


def _seen(value: Any) -> bytes:
    try:
        return fingerprint(value)
    except ValueError:  # one for all that have none
        return b""


def _traced(arrivals: Iterable[Arrival]) -> Trace:
    """What steps give; global generators begin alike, since they are not what is tried out."""
    with kept_globals(0):
        return [_seen((found.observation, found.reward, found.is_over)) for found in arrivals]


def parted(one: Trace, other: Trace) -> int | None:
    """The step, from 1, at which two ways part; None where they are the same as far as both go."""
    return next((t for t, (x, y) in enumerate(zip(one, other, strict=False), 1) if x != y), None)


def explored(env: Env[Any, Any], draw: DrawAction) -> tuple[Streams, Trace]:
    """The streams of an environment after a start and a few random steps, and what these gave.

    It is searched three times: as it is, after the start, which may hand one generator to several parts, and after the
    steps, since some generators are made when they are first used.
    """
    noise = Noise("trial")
    with kept_globals(0):
        watch = SpaceWatch(env)
        discovered(env).reseed(env, noise)
        at = Arrival.begun(env, noise.seed)
        streams = discovered(env)
        trace = _traced(_steps(partial(moved_under, streams), at, draw, "go on"))
        return streams.joined(discovered(env, watch.used())), [_seen(at.observation), *trace]


def fault_of_copies(keeper: CopyKeeper, draw: DrawAction) -> str | None:
    """What is wrong with keeping states as copies, or None.

    A state is gone on from in three ways: copied before every step, copied once, and as it is. If copies hold the whole
    state and share none of it, all three go the same way; then a state that was left may also be reached again by the
    steps that led to it, unless these ask a global generator.
    """
    fault = copy_fault(keeper.env)
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
                for found in _steps(keeper.step, at, draw, "trial", episode, seed=episode):
                    at = at if found.is_over else found
                    if time.monotonic() - began > SLOW:
                        count = SLOW_STEPS
                        break
                is_global = is_global or global_states() != before
            itself = at._replace(kept=keeper.pinned(at.kept))
            ways = ((keeper.step, at), (copied_once, at), (partial(moved_under, keeper.streams), itself))
            first, *others = (_traced(_steps(step, state, draw, "go on", most=count)) for step, state in ways)
        except Exception as error:  # whatever an environment raises when it is copied, or stepped half-made
            return error_text(error)
        if any(parted(first, other) for other in others):
            return "a copy goes another way than the original, so it does not hold the whole state"
        if count == SLOW_STEPS:
            break
    keeper.most_steps = 0 if is_global else MOST_REPEATED
    return None


def is_stock(env: Env[Any, Any]) -> bool:
    """Whether an environment is Gymnasium's own, whose generators are known, with Gymnasium's own wrappers at most."""
    inner, *outer = (type(level).__module__ for level in levels(env))
    return inner.startswith("gymnasium.envs.") and all(module.startswith("gymnasium.wrappers") for module in outer)


def frozen_noise(name: str, keeper: Keeper, make: Callable[[], Env[Any, Any]], draw: DrawAction) -> str:
    """What was seen of randomness that the noise does not reach, in a sentence; empty where nothing was.

    The environments that `make` gives differ in nothing but the seed of a reset, or in an earlier episode: if two live
    episodes part that began alike, something else is random. What is random from a restored state too is not frozen.
    """
    if is_stock(keeper.env):
        return ""
    began = time.monotonic()
    one = _live(make(), keeper.streams, draw, seed=1, earlier_steps=0)
    others = ((2, EARLIER_STEPS),) if time.monotonic() - began > SLOW_LIVE else ((2, 0), (1, EARLIER_STEPS))
    episodes = ((one, _live(make(), keeper.streams, draw, *other)) for other in others)
    pairs = (pair for both in episodes for pair in zip(*both, strict=False))
    step = next((t for (start, x), (other, y) in pairs if start == other and (t := parted(x, y))), None)
    if step is None:
        return ""
    at = keeper.start(Noise("trial"))
    if parted(*(_traced(_steps(keeper.step, at, draw, "go on")) for _ in range(2))):
        return ""
    seen = (
        f"{name} is random in a way that the noise does not reach: two live episodes that began alike parted at step "
        f"{step} under the same noise, but from a restored state the same future comes every time"
    )
    opaque = opaque_parts(keeper.env)
    if type(keeper.env.unwrapped).__module__.startswith("ale_py"):
        advice = "make it with repeat_action_probability=0 and wrap it in gymnasium.wrappers.StickyAction"
    elif opaque:
        return (
            f"{seen}. Likely an engine with dice of its own, {opaque[0]}, which only a reset seeds, so that each seed "
            "has one future; compare from the start, where each replication has a seed of its own"
        )
    else:
        advice = "draw from self.np_random, or name the generator in streams="
    return (
        f"{seen}. A generator of its own is not among the streams (in compiled code, an iterator, or left out of "
        f"streams=); {advice}"
    )


def _live(
    env: Env[Any, Any], streams: Streams, draw: DrawAction, seed: int, earlier_steps: int
) -> list[tuple[bytes, Trace]]:
    """Live episodes under the same noise, after an earlier episode: how each began, and its steps.

    The resets of the first of them are given the seed too: there are engines that only that reaches.
    """
    found: list[tuple[bytes, Trace]] = []
    step = partial(moved_under, streams)
    with kept_globals(0):
        streams.reseed(env, Noise("earlier"))
        list(_steps(step, Arrival.begun(env, SEED + seed), draw, "live", -1, seed=0, most=earlier_steps))
        left, end = LIVE_STEPS, time.monotonic() + LIVE_SECONDS

        def in_time(arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
            for t, each in enumerate(arrivals, 1):
                yield each
                seed_globals(t)
                if t >= LEAST_LIVE_STEPS and time.monotonic() > end:
                    return

        for number in (LIVE_EPISODES, *range(LIVE_EPISODES)):
            if 0 < number < LIVE_EPISODES and time.monotonic() > end:
                break
            is_first = number == LIVE_EPISODES
            streams.reseed(env, Noise("live", number))
            with kept_globals(number):
                at = Arrival.begun(env, SEED + seed if is_first else None)
            begin = fingerprint((fingerprint(at.observation), _visible(env, streams, SEED + seed)))
            most = LIVE_STEPS if is_first else left
            steps = _traced(in_time(_steps(step, at, draw, "live", number, seed=number + 1, most=most)))
            left -= 0 if is_first else len(steps)
            found.append((begin, steps))
    return found


def _visible(env: Env[Any, Any], streams: Streams, seed: int) -> list[Any]:
    """Hashes of what an environment remembers in the open; where that differs, another way is no wonder."""
    found = []
    for _, name, value in _parts(env):
        is_seed = "seed" in name.lower() or (isinstance(value, int) and value == seed)
        if name in streams.attributes or isinstance(value, Iterator) or is_seed:
            continue
        # A goal may be drawn in the reset and held by a function.
        held = [part for link, part in fingerprints.held(value) if link.kind in ("closure", "default")]
        try:
            found.append((name, fingerprint([value, *held], streams.attributes | SETUP)))
        except Exception:  # what does not show itself is what is looked for
            continue
    return found


def opaque_parts(env: Env[Any, Any]) -> Sequence[str]:
    """The attributes of an environment that do not show what they hold: engines in other languages."""
    found = []
    for level, name, value in _parts(env):
        try:
            fingerprint(value, SETUP)
        except Exception:  # whatever it raises when it is looked into
            found.append(f"{type(level).__name__}.{name} ({type(value).__name__})")
    return found


def _parts(env: Env[Any, Any]) -> Iterator[tuple[Env[Any, Any], str, Any]]:
    """The attributes of all levels beside those that say how they were made."""
    for level in levels(env):
        yield from ((level, name, value) for name, value in vars(level).items() if name not in SETUP)
