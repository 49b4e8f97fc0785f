"""Hindsight of many logs, exactly and by sampling, and what was best in them, on a sepsis-like model, in one run.

Sampling is what Oberst and Sontag (ICML 2019) do: draw the noise of each step from its law given what was seen, and run
the other policy on it. Here it draws from the same tables, all samples of a trajectory at once, and with numbers in
place of Python objects.
"""

import sys
import time

import numpy as np

import jointmdp as jm
from benchmarks.sepsis import sepsis
from jointmdp.model.episodes import terminal_states

STEPS = 20
SAMPLES = 1000


def logged(model: jm.JointMDP, policy: np.ndarray, count: int, seed: int) -> list[jm.Trajectory]:
    """Trajectories of a policy, up to an end or to `STEPS`."""
    rng = np.random.default_rng(seed)
    over, found = terminal_states(model), []
    starts = np.flatnonzero(~over)
    for _ in range(count):
        states, actions, rewards = [int(rng.choice(starts))], [], []
        while len(actions) < STEPS and not over[states[-1]]:
            s = states[-1]
            a, w = rng.choice(model.num_actions, p=policy[s]), rng.choice(model.num_scenarios, p=model.probabilities[s])
            actions.append(int(a))
            rewards.append(float(model.rewards[s, w, a]))
            states.append(int(model.successors[s, w, a]))
        found.append(jm.Trajectory(states, actions, rewards))
    return found


def sampled(model: jm.JointMDP, other: np.ndarray, seen: jm.Trajectory, rng: np.random.Generator) -> np.ndarray:
    """Gaps of `SAMPLES` other branches, each on noise that explains what was seen; `other` is one action a state."""
    y, gaps = np.full(SAMPLES, seen.states[0]), np.zeros(SAMPLES)
    p = model.probabilities[0]
    for t in range(STEPS):
        if t < len(seen.actions):
            s, a = seen.states[t], seen.actions[t]
            fits = (model.successors[s, :, a] == seen.states[t + 1]) & (model.rewards[s, :, a] == seen.rewards[t])
            paid = seen.rewards[t]
        else:
            fits, paid = np.full(len(p), True), 0.0
        places = np.flatnonzero(fits)
        ends = np.cumsum(p[places])
        w = places[np.searchsorted(ends, rng.random(SAMPLES) * ends[-1])]
        b = other[y]
        gaps += model.discount**t * (model.rewards[y, w, b] - paid)
        y = model.successors[y, w, b]
    return gaps


def best_changes(model: jm.JointMDP, log: list[jm.Trajectory], changes: int | None) -> jm.results.BestInHindsights:
    start = time.perf_counter()
    found = jm.best_in_hindsight(model, log, changes)
    took = time.perf_counter() - start
    loss = max(each.loss_bound for each in found)
    print(
        f"the best changes of {len(log)} trajectories: {took:.1f} s; none is worse than the best by {loss:.1e}; {found}"
    )
    return found


def main() -> None:
    count = 100 if "--small" in sys.argv else 1000
    start = time.perf_counter()
    model = sepsis()
    made = time.perf_counter() - start
    best = np.argmax(jm.evaluate(model.with_sharing("none"), "uniform").mean, axis=1)  # better than at random
    policy = 0.5 * np.eye(model.num_actions)[best] + 0.5 / model.num_actions
    log = logged(model, policy, count, seed=0)
    steps = [len(each) for each in log]
    print(f"{model}, made in {made:.1f} s; {count} trajectories of {np.mean(steps):.1f} steps on average")
    start = time.perf_counter()
    found = jm.hindsight(model, policy, log, other_policy=best, horizon=STEPS)
    exact = time.perf_counter() - start
    error = max(each.gap.mean_error for each in found)
    print(f"exactly: {exact:.1f} s; largest certified error of a mean {error:.1e}; {found}")
    one = [best_changes(model, log[: count // 10], changes) for changes in (1, 2, None)]
    assert np.all(np.diff([each.mean for each in one], axis=0) >= -1e-12)  # more changes never give less
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    draws = np.array([sampled(model, best, each, rng) for each in log])
    sampling = time.perf_counter() - start
    off = draws.mean(axis=1) - found.mean
    spread = np.sqrt(found.variance)
    some = spread > 1e-9
    z = off[some] / (spread[some] / np.sqrt(SAMPLES))
    score = np.sqrt(np.mean(z**2))
    print(f"sampling, {SAMPLES} draws each: {sampling:.1f} s; off by {score:.2f} standard errors (1 expected)")
    least = np.abs(off[~some]).max(initial=0.0)
    print(f"where nothing is open ({np.mean(~some):.0%} of the trajectories) both agree to {least:.1e}")
    typical = np.sqrt(np.mean(found.variance / SAMPLES))
    print(
        f"one exact answer takes {exact / sampling:.2f} times as long as {SAMPLES} draws, which know a gap to ± "
        f"{typical:.3f}; to ± 0.001 sampling would take {sampling * (typical / 0.001) ** 2 / exact:,.0f} times as long"
    )
