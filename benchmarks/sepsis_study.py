"""The study of Oberst and Sontag (ICML 2019), re-made: what a policy learned from logs is worth, by six estimates.

Their protocol, as they describe it: 1,000 episodes of at most 20 steps, one patient in five diabetic; the physicians
follow the best policy of the full model (discount 0.99) and do anything else with probability 0.05. What is seen is
neither glucose nor diabetes: 144 states, and death and discharge. Tables are counts; an action that was never taken in
a state kills. The new policy is the best for these tables (discount 0.99), and returns are not discounted. What it
would have brought in these very episodes is asked under Gumbel-max, noise shared in time.

The simulator is our own writing of their description (`benchmarks.sepsis`), and patients come in with any vitals and
without treatment, so numbers need not be theirs. These are shown in figures alone, also in their public notebook, so
there is nothing to print beside ours but the true value, which the simulator knows. What is hidden confounds: the new
policy looks far better than the old one in every estimate that rests on enough episodes, and is worse.
"""

import sys
import time

import numpy as np

import jointmdp as jm
from benchmarks.hindsight import DRAWS, STEPS, logged_ordinary, posterior_gaps
from benchmarks.sepsis import SIZES, ordinary_sepsis

DIABETIC, EXPLORES, DISCOUNT = 0.2, 0.05, 0.99
DEAD, DISCHARGED = 144, 145


def seen_states() -> np.ndarray:
    """What is seen of each full state while it goes on: heart rate, pressure, oxygen and treatments."""
    parts = np.unravel_index(np.arange(np.prod(SIZES)), SIZES)
    kept = [1, 2, 3, 5, 6, 7]
    return np.ravel_multi_index([parts[i] for i in kept], [SIZES[i] for i in kept])


def start_law(over: np.ndarray) -> np.ndarray:
    """Any vitals without treatment, one in five diabetic."""
    diabetic, *_, a, b, c = np.unravel_index(np.arange(np.prod(SIZES)), SIZES)
    law = np.where(over | (a + b + c > 0), 0.0, np.where(diabetic, DIABETIC, 1 - DIABETIC))
    return law / law.sum()


def as_seen(log: jm.Trajectory, shown: np.ndarray, over: np.ndarray) -> jm.Trajectory:
    """The log without what is hidden."""
    states = [int(shown[s]) for s in log.states]
    if over[log.states[-1]]:
        states[-1] = DISCHARGED if log.rewards[-1] > 0 else DEAD
    return jm.Trajectory(states, log.actions, log.rewards, ended=bool(over[log.states[-1]]))


def main() -> None:
    count = 200 if "--small" in sys.argv else 1000
    kernels, rewards = ordinary_sepsis()
    over = np.array([kernels[0][[s]].indices.tolist() == [s] for s in range(int(np.prod(SIZES)))])
    shown, law = seen_states(), start_law(over)
    begin = time.perf_counter()
    best = jm.optimal_policy(jm.from_mdp(kernels, rewards, DISCOUNT, sharing="none"))
    physicians = np.where(np.asarray(best) > 0, 1 - EXPLORES, EXPLORES / 7)
    full = logged_ordinary(kernels, rewards, physicians, over, count, law)
    logs = [as_seen(each, shown, over) for each in full]
    print(f"{count} episodes of {np.mean([len(each) for each in logs]):.1f} steps, {time.perf_counter() - begin:.1f} s")

    begin = time.perf_counter()
    tables = jm.envs.estimate_tables(logs, states=range(146), actions=range(8), never_taken=(DEAD, -1.0))
    target = jm.optimal_policy(tables.model(DISCOUNT, sharing="none"))
    print(f"{tables}; with the best policy for them {time.perf_counter() - begin:.1f} s")

    def ask(model: jm.JointMDP) -> jm.results.Hindsights:
        return jm.hindsight(model, tables.behaviour, logs, other_policy=target, horizon=STEPS)

    begin = time.perf_counter()
    model = tables.model(1.0, "gumbel-max", "time")
    found = ask(model)
    answered = time.perf_counter() - begin
    study = found.study()
    print(f"{study}\nanswers in {answered:.1f} s, with all estimates {time.perf_counter() - begin:.1f} s")

    # The same by draws given the log, as published, for episodes whose log is as long as the horizon.
    ordinary = model.marginal_mdp()
    rows = [ordinary.kernel[np.arange(146) * 8 + a].tocsr() for a in range(8)]
    paid = [kernel.copy() for kernel in rows]
    for each in paid:
        entry = np.repeat(np.arange(146), np.diff(each.indptr))
        each.data = np.select([entry >= DEAD, each.indices == DEAD, each.indices == DISCHARGED], [0.0, -1.0, 1.0], 0.0)
    some = [i for i, each in enumerate(logs) if len(each) == STEPS][: count // 20]
    rng = np.random.default_rng(1)
    drawn = np.array([posterior_gaps(rows, paid, 1.0, target.actions, logs[i], DRAWS, rng) for i in some])
    z = (drawn.mean(axis=1) - found.mean[some]) / np.sqrt(np.maximum(found.variance[some], 1e-18) / DRAWS)
    score = np.sqrt(np.mean(z[found.variance[some] > 1e-9] ** 2))
    print(f"{DRAWS} draws for each of {len(some)} logs: off by {score:.2f} standard errors (1 expected)")

    # What the policy is truly worth: backward in the full model, by the start law.
    v, does = np.zeros(len(over)), target.actions[shown]
    gains = [np.asarray(k.multiply(r).sum(axis=1)).ravel() for k, r in zip(kernels, rewards, strict=True)]
    for _ in range(STEPS):
        q = np.stack([gain + kernel @ v for gain, kernel in zip(gains, kernels, strict=True)], axis=1)
        v = np.where(over, 0.0, q[np.arange(len(over)), does])
    print(f"true value of the new policy: {law @ v:.4f}")

    begin = time.perf_counter()
    rows = study.outcomes()
    print(f"observed by counterfactual ({time.perf_counter() - begin:.1f} s):")
    for row in rows:
        told = ", ".join(f"{name} {row[name]:.1f}" for name in row if name not in ("observed", "episodes"))
        print(f"  {row['observed']}: {row['episodes']} episodes; {told}")
    print(f"  {len(study.flips())} may have another outcome, {len(study.undecided())} are left open by their logs")
    begin = time.perf_counter()
    print(tables.spread(ask, 1.0, "gumbel-max", "time", draws=3 if count < 1000 else 20))
    print(f"  {time.perf_counter() - begin:.1f} s")
