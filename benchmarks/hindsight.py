"""Hindsight of many logs, exactly and by sampling, and what was best in them, on a sepsis-like model, in one run.

Sampling is what Oberst and Sontag (ICML 2019) do: draw the noise of each step from its law given what was seen, and run
the other policy on it. Here it draws from the same tables, all samples of a trajectory at once, and with numbers in
place of Python objects. First under Gumbel-max, whose closed form needs no draws, then with a noise for each vital.
"""

import resource
import sys
import time

import numpy as np
import scipy.sparse as sp

import jointmdp as jm
from benchmarks.sepsis import ordinary_sepsis, sepsis
from jointmdp.model.tables import terminal_states

STEPS = 20
SAMPLES = 1000
DRAWS = 1000  # of Gumbel noise


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


def logged_ordinary(  # many parameters: the model, the policy, and how often
    kernels: list[sp.csr_array],
    rewards: list[sp.csr_array],
    policy: np.ndarray,
    over: np.ndarray,
    count: int,
    start: np.ndarray | None = None,
    seed: int = 0,
) -> list[jm.Trajectory]:
    """Trajectories of a policy in an ordinary MDP, up to an end or to `STEPS`; `start` is the law of first states."""
    rng, found = np.random.default_rng(seed), []
    law = ~over / np.sum(~over) if start is None else start
    for _ in range(count):
        states, actions, paid = [int(rng.choice(len(over), p=law))], [], []
        while len(actions) < STEPS and not over[states[-1]]:
            s, a = states[-1], int(rng.choice(len(kernels), p=policy[states[-1]]))
            part = slice(kernels[a].indptr[s], kernels[a].indptr[s + 1])
            ends = np.cumsum(kernels[a].data[part])
            i = part.start + int(np.searchsorted(ends, rng.random() * ends[-1]))
            actions.append(a)
            paid.append(float(rewards[a].data[i]))
            states.append(int(kernels[a].indices[i]))
        found.append(jm.Trajectory(states, actions, paid))
    return found


def posterior_gaps(  # many parameters: the model, the policy, the log, and how it is sampled
    kernels: list[sp.csr_array],
    rewards: list[sp.csr_array],
    discount: float,
    other: np.ndarray,
    seen: jm.Trajectory,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Gaps on Gumbel noise drawn given what was seen, as Oberst and Sontag draw it: the largest first."""
    size = kernels[0].shape[0]
    y, gaps = np.full(count, seen.states[0]), np.zeros(count)
    for t, (s, a) in enumerate(zip(seen.states, seen.actions, strict=False)):
        noise = rng.gumbel(size=(count, size))
        part = slice(kernels[a].indptr[s], kernels[a].indptr[s + 1])
        places, logs = kernels[a].indices[part], np.log(kernels[a].data[part])
        top = rng.gumbel(size=count)
        # Others are below the largest: Gumbel variables truncated there.
        cut = -np.log(np.exp(-top)[:, None] + np.exp(-(noise[:, places] + logs)))
        cut[:, places == seen.states[t + 1]] = top[:, None]
        noise[:, places] = cut - logs
        before = y.copy()
        for state in np.unique(before).tolist():
            some, b = np.flatnonzero(before == state), other[state]
            row = slice(kernels[b].indptr[state], kernels[b].indptr[state + 1])
            to = kernels[b].indices[row]
            best = np.argmax(noise[some][:, to] + np.log(kernels[b].data[row]), axis=1)
            gaps[some] += discount**t * (rewards[b].data[row][best] - seen.rewards[t])
            y[some] = to[best]
    return gaps


def under_all_couplings(  # many parameters: the model, what was done, and what Gumbel-max says
    kernels: list[sp.csr_array],
    rewards: list[sp.csr_array],
    policy: np.ndarray,
    other: np.ndarray,
    log: list[jm.Trajectory],
    known: np.ndarray,
) -> None:
    """Between which ends the same means lie whatever the coupling, and the best plans in the worst case."""
    how = {"other_policy": other, "horizon": STEPS, "sharing": "time"}
    for assume in (None, "stable"):
        start = time.perf_counter()
        ends = np.array(jm.bounds.hindsight_bounds(kernels, rewards, 0.99, policy, log, **how, assume=assume))
        took = time.perf_counter() - start
        assert np.all((ends[:, 0] - 1e-9 <= known) & (known <= ends[:, 1] + 1e-9))  # Gumbel-max is stable
        sure = np.mean((ends[:, 0] > 0) | (ends[:, 1] < 0))
        print(
            f"{assume or 'all'} couplings: {took:.1f} s for {len(log)} trajectories; bounds are "
            f"{np.mean(ends[:, 1] - ends[:, 0]):.2f} apart on average, and {sure:.0%} know which was better"
        )
    for changes in (1, None):
        start = time.perf_counter()
        found = jm.bounds.best_worst_case(kernels, rewards, 0.99, log, changes, sharing="time")
        took, least = time.perf_counter() - start, np.array([each.gap.lower for each in found])
        limit = "any changes" if changes is None else f"{changes} change"
        print(
            f"the best worst case with {limit}: {took:.1f} s; {np.mean(least > 1e-9):.0%} would surely have given "
            f"more, {np.mean(np.maximum(least, 0)):.3f} on average"
        )


def gumbel(count: int) -> None:
    """The ordinary MDP under Gumbel-max with noise shared in time: in closed form, and by draws given the log."""
    start = time.perf_counter()
    kernels, rewards = ordinary_sepsis()
    made = time.perf_counter() - start
    start = time.perf_counter()
    model = jm.from_mdp(kernels, rewards, 0.99, "gumbel-max", "time")
    best = np.argmax(jm.evaluate(model, "uniform", order=1).mean, axis=1)
    policy = 0.5 * np.eye(8)[best] + 0.5 / 8
    taken = time.perf_counter() - start
    over = np.array([kernels[0][[s]].indices.tolist() == [s] for s in range(model.num_states)])
    log = logged_ordinary(kernels, rewards, policy, over, count)
    print(
        f"{model}: tables of the MDP in {made:.1f} s, the model and a better policy in {taken:.1f} s; {count} "
        f"trajectories of {np.mean([len(each) for each in log]):.1f} steps on average"
    )
    start = time.perf_counter()
    found = jm.hindsight(model, policy, log, other_policy=best, horizon=STEPS)
    exact = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    error = max(each.gap.mean_error for each in found)
    print(f"exactly: {exact:.1f} s, {peak:.1f} GB at most; largest certified error of a mean {error:.1e}; {found}")
    few = max(10, count // 10)
    under_all_couplings(kernels, rewards, policy, best, log[:few], found.mean[:few])
    # Where the log is shorter than the horizon and over, only the steps of the log are drawn: ask about those.
    some = [i for i, each in enumerate(log) if len(each) == STEPS][: max(4, count // 50)]
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    draws = np.array([posterior_gaps(kernels, rewards, 0.99, best, log[i], DRAWS, rng) for i in some])
    sampling = (time.perf_counter() - start) / len(some)
    spread = np.sqrt(found.variance[some])
    z = (draws.mean(axis=1) - found.mean[some])[spread > 1e-9] / (spread[spread > 1e-9] / np.sqrt(DRAWS))
    known = np.sqrt(np.mean(found.variance[some] / DRAWS))
    whole = sampling * len(log) * (known / 0.001) ** 2
    print(
        f"posterior sampling of {len(some)} of them, {DRAWS} draws each: {sampling:.2f} s a trajectory, off by "
        f"{np.sqrt(np.mean(z**2)):.2f} standard errors (1 expected), ± {known:.4f}; the whole log to ± 0.001 takes "
        f"{whole:,.0f} s, {whole / exact:,.0f} times as long"
    )


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
    gumbel(count)
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
