"""Does a restored state go on as the live environment does, which is never restored?

A simulator may offer ``live_episode(noise)``: an episode of the environment itself, as a Python generator that is sent
``(action, noise)`` and yields outcomes. It runs in a copy of this process and so leaves no trace in the simulator.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from jointmdp.auditor import forked_runs, hidden_sources
from jointmdp.auditor.audit_report import Check, failed, skipped
from jointmdp.auditor.draw_checks import FROZEN, is_varying
from jointmdp.auditor.observed_outcomes import ObservedOutcome, difference, safe_fingerprint
from jointmdp.auditor.probe import Probe, Spot
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.global_generators import seed_globals
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.object_graph import CLOSED, attributes, walk
from jointmdp.simulators.simulator import Action, Outcome

EPISODES, STEPS = 3, 16
FIRST_SEED, SEEDS = 7_001, 6  # of resets that are compared: with one seed, and with many
DISTINCT = 3  # ways that a live episode must go before one says that it varies: a memory of the last one makes two
PATIENCE = 5.0  # seconds beyond what the restored run took
NO_LIVE = "the simulator has no live environment to compare with"
NOT_IN_FULL = "state not restored in full"


class _Trail(NamedTuple):
    """An episode of restored states."""

    start: Noise
    steps: list[tuple[Action, Noise]]
    outcomes: list[ObservedOutcome]  # the start first


def check_live(probe: Probe, spots: Sequence[Spot], cost: float) -> Check:
    """Episodes by restored states, with other queries in between, against live ones under the same noise."""
    if not hasattr(probe.simulator, "live_episode"):
        return skipped("live", NO_LIVE)
    compared = 0
    for episode in probe.timed(range(EPISODES)):
        trail = _restored(probe, spots, episode)
        seconds = PATIENCE + 20 * cost * len(trail.steps)
        lives, others = (_forked(probe, trail, seconds) for _ in range(2))
        if lives is None or others is None:
            return skipped("live", "the live environment could not be run in a copy of this process")
        for t, (restored, live, again) in enumerate(zip(trail.outcomes, lives, others, strict=False)):
            if difference(live, again, probe.is_blind) is not None:
                return skipped("live", "the live environment itself goes two ways under the same noise")
            found = difference(restored, live._replace(identity=restored.identity), probe.is_blind)
            if found is not None and not found.is_rounding and not found.is_identity:
                return _failed(probe, f"{found.text} (restored and live) after {t} steps")
            compared += 1
    probe.in_time()
    return Check("live", "pass", f"{compared} states were what the live environment came to under the same noise")


def _failed(probe: Probe, text: str) -> Check:
    kind = getattr(probe.simulator, "state_kind", "")
    cause = "get_state and set_state leave out part of the state (or a reset in set_state loses it); add it"
    if kind == "copy":
        cause = (
            "a deep copy is not the whole state: something in it points to the original (a weak reference, a function, "
            'a handle); use state="replay", or get_state and set_state'
        )
    return failed("live", f"a restored state goes another way than the live environment: {text}", NOT_IN_FULL, cause)


def _restored(probe: Probe, spots: Sequence[Spot], episode: int) -> _Trail:
    """An episode of restored states; the noise of a step is a plain one, as the copy of the process needs it."""
    start = Noise("audit", probe.seed, "live", episode)
    state = probe.guarded("the start", lambda: probe.simulator.start(start))
    trail = _Trail(start, [], [probe.look(Outcome(0.0, state), "the start", is_start=True)])
    for t in range(STEPS):
        if trail.outcomes[-1].is_over:
            break
        actions = probe.actions_at(trail.outcomes[-1].state)
        action = actions[(t * (episode + 1) + episode) % len(actions)]
        other = spots[(t + episode) % len(spots)]
        probe.ask(other, other.actions[-1:], probe.noise("live, in between", episode, t))
        noise = Noise("audit", probe.seed, "live", episode, t)
        spot = Spot(trail.outcomes[-1].state, f"step {t} of a live episode", (), b"", b"", None, b"")
        trail.outcomes.append(probe.ask(spot, [action], noise)[0])
        trail.steps.append((action, noise.fresh()))
    return trail


def _forked(probe: Probe, trail: _Trail, seconds: float) -> list[ObservedOutcome] | None:
    simulator: Any = probe.simulator

    def live() -> list[ObservedOutcome]:
        episode = simulator.live_episode(trail.start.fresh())
        outcomes = [next(episode)]
        outcomes += [episode.send((action, noise.fresh())) for action, noise in trail.steps]
        return [_seen(simulator, outcome, i == 0) for i, outcome in enumerate(outcomes)]

    run = forked_runs.begun(simulator, live)
    return None if run is None else run.result(seconds)


def _seen(simulator: Any, outcome: Outcome, is_start: bool) -> ObservedOutcome:
    probe = Probe(simulator, 0)
    return probe.look(outcome, "live", is_light=True, is_start=is_start)._replace(
        observation=safe_fingerprint(simulator.observe(outcome.state)), state=None
    )


def check_frozen(probe: Probe, spots: Sequence[Spot], cost: float) -> Check | None:
    """Where the noise never matters: does the live environment vary? Then its noise is not among the streams."""
    simulator: Any = probe.simulator
    env = getattr(simulator, "env", None)
    if not hasattr(env, "unwrapped") or any(is_varying(probe, spot) for spot in probe.timed(spots)):
        return None
    if probe.ran_out:
        return None
    actions = [simulator._as_action(action) for action in spots[0].actions]
    run = forked_runs.begun(simulator, lambda: _ways(env, actions))
    found = None if run is None else run.result(PATIENCE + 20 * cost * 2 * SEEDS * STEPS)
    if found is None:
        return None
    same, by_seed = found
    advice = "name the generator in streams=, or let it be made from np_random"
    if same >= DISTINCT:
        message = f"no outcome depends on the noise, and {SEEDS} live episodes of one seed go {same} ways"
        return failed("noise", message, FROZEN, f"something random is not under the seed's control; {advice}")
    if by_seed >= DISTINCT:
        message = (
            f"no outcome depends on the noise, and live episodes that begin alike go {by_seed} ways with {SEEDS} seeds"
        )
        cause = f"something random is seeded by the reset alone and goes on from there, in every copy alike; {advice}"
        return failed("noise", message, FROZEN, cause)
    return None


def _ways(env: Any, actions: Sequence[Any]) -> tuple[int, int]:
    """How many ways live episodes go: under one seed, and under several where the starts are the same."""
    for level in _levels(env):
        if hasattr(level, "update_running_mean"):  # a wrapper's memory of earlier episodes is no noise
            level.update_running_mean = False
    same = {_way(env, actions, FIRST_SEED)[1] for _ in range(SEEDS)}
    ways: dict[bytes, set[bytes]] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        start, way = _way(env, actions, seed)
        ways.setdefault(start, set()).add(way)
    return len(same), max(map(len, ways.values()))


def _way(env: Any, actions: Sequence[Any], seed: int) -> tuple[bytes, bytes]:
    """A digest of how an episode begins, and one of how it goes, with the generators as the reset leaves them."""
    seed_globals(0)
    observation, _ = env.reset(seed=seed)
    reached = walk(_levels(env), lambda value: not isinstance(value, CLOSED), 4, 2_000)
    ignored = frozenset(str(path[-1].name) for path, _, value in reached if hidden_sources.is_carrier(value))
    held = [
        (name, _digest(value, ignored))
        for level in _levels(env)
        for name, value in sorted(attributes(level).items())
        if name not in ignored and name not in ("env", "spec") and not (type(value) is int and value == seed)
    ]
    start = safe_fingerprint((observation, held))
    seen = []
    for t in range(STEPS):
        observation, reward, terminated, truncated, _ = env.step(copy.deepcopy(actions[t % len(actions)]))
        seen.append(safe_fingerprint((observation, reward, terminated)))
        if terminated or truncated:
            break
    return start, safe_fingerprint(seen)


def _digest(value: Any, ignored: frozenset[str]) -> bytes:
    try:
        return fingerprint(value, ignored)
    except (ValueError, TypeError, RuntimeError):
        return b"unknown"


def _levels(env: Any) -> list[Any]:
    found = [env]
    while "env" in vars(found[-1]):
        found.append(vars(found[-1])["env"])
    return found
