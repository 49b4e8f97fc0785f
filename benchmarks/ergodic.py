"""Solves of a model that never ends as the discount goes to 1: time, certified error, and arrays alive at the peak.

The windy gridworld, in which a step taken from the goal leads back to the start cell at the bottom left whatever the
action and the gust, and a policy that explores with probability 0.1.
"""

import math
import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jointmdp as jm
from jointmdp.exact.bellman import pair_sweep, second_moments
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.exact.moments import diagonal_solver, pair_solver
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.checks import Sharing

DISCOUNTS = (0.99, 0.999, 0.9999)
PLAIN = 0.999  # the discount at which plain sweeps are timed, too


def ergodic_gridworld(size: int, discount: float, sharing: Sharing = "state") -> tuple[jm.JointMDP, np.ndarray]:
    """The gridworld that starts again after the goal."""
    model, policy = jm.envs.windy_gridworld(size, discount)
    successors = model.successors.copy()
    successors[-1] = 0
    again = jm.JointMDP(model.probabilities, model.rewards, successors, discount, sharing)
    return again, 0.9 * policy + 0.1 / model.num_actions


def compare(size: int, sharing: Sharing, repeats: int) -> None:
    """All discounts in turn, compilation left out, and plain sweeps at one of them."""
    solutions: dict[str, jm.results.Solution] = {}

    def solve(name: str, discount: float, method: jm.Solve) -> None:
        solutions[name] = jm.evaluate(*ergodic_gridworld(size, discount, sharing), method)

    names = {discount: f"{sharing}, γ={discount}" for discount in DISCOUNTS}
    seconds: dict[str, float] = {}
    for _ in range(repeats + 1):  # all in turn, and of each the fastest: other work on the machine only adds time
        for discount, name in names.items():
            start = time.perf_counter()
            solve(name, discount, jm.Solve())
            seconds[name] = min(seconds.get(name, math.inf), time.perf_counter() - start)
    with warnings.catch_warnings():  # plain sweeps are compiled by the first few
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        solve("", PLAIN, jm.Solve(is_accelerated=False, max_sweeps=pair_solver.CHUNK))
    plain = f"{names[PLAIN]}, plain sweeps"
    start = time.perf_counter()
    solve(plain, PLAIN, jm.Solve(is_accelerated=False))
    seconds[plain] = time.perf_counter() - start
    for name, taken in seconds.items():
        error = solutions[name].certificate.covariance_error / float(np.max(solutions[name].variance))
        print(f"{name:<34}{taken:>9.2f} s{solutions[name].steps:>9}{error:>16.1e}")
    growth = seconds[names[DISCOUNTS[-1]]] / seconds[names[DISCOUNTS[0]]]
    print(
        f"{sharing}: time grows {growth:.1f}× from γ={DISCOUNTS[0]} to {DISCOUNTS[-1]} (aim: below 2), plain sweeps "
        f"take {seconds[plain] / seconds[names[PLAIN]]:.1f}× as long at {PLAIN} (aim: 10)",
        flush=True,
    )


def alive(size: int) -> None:
    """Arrays over pairs that a compiled step keeps alive, beside those of the problem itself."""
    with float64():
        model, policy = ergodic_gridworld(size, 0.99)
        branch = solve_single_branch(model, policy)
        tables = second_moments.model_tables(model, policy, branch.state.rewards)
        kernel = pair_sweep.pair_kernel(model, policy)
        v = second_moments.state_mean(tables, on_device(branch.mean))
        problem = PairProblem(kernel, second_moments.gap_source(tables, kernel, v).stored(), tables.discount)
        solver = diagonal_solver.build(problem)
        assert solver is not None
        linear = problem._replace(added=Source(problem.added.same, None))  # what is added stays out of compiled steps
        C = jnp.eye(model.num_states)
        state = jax.eval_shape(pair_solver._start, problem, C)
        powers = (C,)
        F = solver.response
        steps: dict[str, tuple[Any, tuple[Any, ...], int]] = {
            "plain sweeps": (pair_solver.sweeps, (problem, C, 1), 0),
            "BiCGStab": (pair_solver._advance, (linear, state, 0.0, 1), 0),
            "meetings: terms of F": (diagonal_solver._add_terms, (linear, powers, F, jnp.ones(())), 0),
            "meetings: one pass, with F": (diagonal_solver._spread, (linear, solver.of_pairs, C, C), 1),
        }
        for name, (step, arguments, besides) in steps.items():
            given = sum(each.nbytes for each in jax.tree.leaves(arguments[0]))
            found = step.lower(*arguments).compile().memory_analysis()
            total = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
            count = (total + found.temp_size_in_bytes - given) / C.nbytes + besides
            print(f"{name:<34}{count:>8.1f} arrays of |S|² numbers")


def main() -> None:
    size = 12 if "--small" in sys.argv else 30
    print(f"\nA {size}×{size} gridworld without an end, as the discount goes to 1")
    print(f"{'':<34}{'time':>11}{'sweeps':>9}{'certified/max':>16}")
    compare(size, "state", repeats=3)
    compare(size, "time", repeats=1)
    alive(size)
