"""What a user would pick instead, in one run: solvers for the mean, the iteration on pairs of actions, Monte Carlo.

QuantEcon and pymdptoolbox are no dependencies of ours: ``pip install quantecon pymdptoolbox``, or the lines are left
out.
"""

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

import jointmdp as jm

SIDES = (20, 50, 100)  # of the gridworlds for the mean
REPEATS = 9


def fastest(**runs: Callable[[], object]) -> dict[str, float]:
    """Seconds of each, the fastest of several in turn after one call that warms it up."""
    found = dict.fromkeys(runs, np.inf)
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def mean_solvers(model: jm.JointMDP, policy: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    """Each gives v. Transition matrices are made before, by all of them: ours are kept by the model."""
    size, actions = model.num_states, model.num_actions
    chosen = np.argmax(policy, axis=1)
    states = np.arange(size)
    ordinary = model.marginal_mdp()

    def ours() -> np.ndarray:
        return jm.evaluate(model, policy, order=1).mean[states, chosen]

    def all_of_ours() -> np.ndarray:
        return jm.evaluate(model.with_sharing("none"), policy).mean[states, chosen]

    def plain() -> np.ndarray:
        rows = states * actions + chosen
        matrix = sp.eye_array(size, format="csc") - model.discount * ordinary.kernel[rows].tocsc()
        return scipy.sparse.linalg.spsolve(matrix, ordinary.rewards[states, chosen])

    found = {"jointmdp": ours, "jointmdp, variances too": all_of_ours, "SciPy, spsolve": plain}
    try:
        from quantecon.markov import DiscreteDP

        which = np.repeat(states, actions), np.tile(np.arange(actions), size)

        def quantecon() -> np.ndarray:
            problem = DiscreteDP(ordinary.rewards.ravel(), sp.csr_matrix(ordinary.kernel), model.discount, *which)
            return problem.evaluate_policy(chosen)

        made = DiscreteDP(ordinary.rewards.ravel(), sp.csr_matrix(ordinary.kernel), model.discount, *which)
        found |= {"QuantEcon": quantecon, "QuantEcon, made before": lambda: made.evaluate_policy(chosen)}
    except ImportError:
        print("QuantEcon is not installed")
    try:
        import mdptoolbox.mdp

        P = [sp.csr_matrix(ordinary.kernel[states * actions + a]) for a in range(actions)]
        iteration = mdptoolbox.mdp.PolicyIteration(P, ordinary.rewards, model.discount, policy0=chosen)

        def toolbox() -> np.ndarray:
            iteration._evalPolicyMatrix()  # its public way also improves the policy
            return np.asarray(iteration.V)

        if size <= 400:  # it solves a dense system
            found["pymdptoolbox, made before"] = toolbox
    except ImportError:
        print("pymdptoolbox is not installed")
    return found


def means() -> None:
    """The mean alone."""
    print(
        "The mean of a policy of a gridworld (γ = 0.99); ratio to ours, which gives all actions and a certified error"
    )
    for side in SIDES:
        model, policy = jm.envs.windy_gridworld(side)
        runs = mean_solvers(model, policy)
        values = {name: run() for name, run in runs.items()}
        for name, value in values.items():
            assert np.allclose(value, values["SciPy, spsolve"], rtol=1e-8, atol=1e-8), name
        seconds = fastest(**runs)
        own = seconds["jointmdp"]
        for name, taken in seconds.items():
            print(f"  {side}×{side}: {name:<26}{1e3 * taken:>9.2f} ms{taken / own:>8.2f}")


def pairs() -> None:
    """Gap variances: pairs of states, pairs of states and actions, and simulation."""
    model, policy = jm.envs.windy_gridworld(8)
    policy = 0.9 * policy + 0.1 / model.num_actions
    gap = ("(0,0)", "R", "U")
    found: dict[str, jm.results.Solution] = {}

    def solve(name: str, method: jm.Solve | jm.Iterate) -> float:
        jm.evaluate(model, policy, method)
        start = time.perf_counter()
        found[name] = jm.evaluate(model, policy, method)
        return time.perf_counter() - start

    ours = solve("ours", jm.Solve())
    reached = found["ours"].gap(*gap)
    iterated = solve("X²", jm.Iterate(tolerance=1e-6))
    print(f"\nThe variance of a gap on an 8×8 gridworld with exploration, γ = 0.99: {reached.variance:.6f}")
    print(f"  jointmdp: {ours:.2f} s, certified to {reached.variance_error:.1e}")
    iteration = found["X²"].gap(*gap)
    print(
        f"  the iteration on pairs of states and actions, to a certified 1e-6 of second moments: {iterated:.1f} s, "
        f"{iterated / ours:.0f} times as long; the variances differ by {abs(iteration.variance - reached.variance):.0e}"
    )
    count = 20_000
    state, *pair = gap
    jm.simulate(model, policy, state, pair, num_samples=count, gaps_only=True)
    start = time.perf_counter()
    sample = jm.simulate(model, policy, state, pair, num_samples=count, seed=1, gaps_only=True).gap(*pair)
    taken = time.perf_counter() - start
    centred = (sample.gaps - sample.gaps.mean()) ** 2
    off = float(centred.std() / np.sqrt(count))
    print(
        f"  Monte Carlo, {count:,} pairs: {taken:.2f} s, {sample.variance:.4f} ± {off:.1e}; to ± 1e-6 it would take "
        f"{taken * (off / 1e-6) ** 2 / ours:,.0f} times as long as ours"
    )


def main() -> None:
    means()
    pairs()
