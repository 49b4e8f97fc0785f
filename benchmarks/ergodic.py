"""Solves of a model that never ends as the discount goes to 1: time, certified error, and arrays alive at the peak.

The windy gridworld, in which a step taken from the goal leads back to the start cell at the bottom left whatever the
action and the gust, and a policy that explores with probability 0.1.
"""

import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jointmdp as jm
from jointmdp.arrays import float64, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairProblem, Source
from jointmdp.checks import Sharing
from jointmdp.moments import meeting_solver, pair_solver, transition_kernels
from jointmdp.moments.single_branch import solve_single_branch

DISCOUNTS = (0.99, 0.999, 0.9999)
PLAIN = 0.999  # the discount at which plain sweeps are timed, too


def ergodic_gridworld(size: int, discount: float, sharing: Sharing = "state") -> tuple[jm.JointMDP, np.ndarray]:
    """The gridworld that starts again after the goal."""
    model, policy = jm.windy_gridworld(size, discount)
    successors = model.successors.copy()
    successors[-1] = 0
    again = jm.JointMDP(model.probabilities, model.rewards, successors, discount, sharing)
    return again, 0.9 * policy + 0.1 / model.num_actions


def timed(size: int, discount: float, sharing: Sharing, is_accelerated: bool) -> tuple[float, jm.Solution]:
    """Seconds of one solve, compilation left out."""
    model, policy = ergodic_gridworld(size, discount, sharing)
    # Plain sweeps are compiled by the first few.
    first = jm.Solve() if is_accelerated else jm.Solve(is_accelerated=False, max_sweeps=pair_solver.CHUNK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.ConvergenceWarning)
        jm.evaluate(model, policy, first)
    seconds = []
    for _ in range(2 if is_accelerated else 1):  # the faster one: others use the machine, too
        start = time.perf_counter()
        solution = jm.evaluate(model, policy, jm.Solve(is_accelerated=is_accelerated))
        seconds.append(time.perf_counter() - start)
    return min(seconds), solution


def row(name: str, seconds: float, solution: jm.Solution) -> None:
    error = solution.certificate.covariance_error / float(np.max(solution.variance))
    print(f"{name:<34}{seconds:>9.2f} s{solution.steps:>9}{error:>16.1e}", flush=True)


def alive(size: int) -> None:
    """Arrays over pairs that a compiled step keeps alive, beside those of the problem itself."""
    with float64():
        model, policy = ergodic_gridworld(size, 0.99)
        branch = solve_single_branch(model, policy)
        tables = transition_kernels.tables(model, policy, branch.state.rewards)
        kernel = transition_kernels.pair_kernel(model, policy)
        v = second_moments.state_mean(tables, on_device(branch.mean))
        problem = PairProblem(kernel, second_moments.gap_source(tables, kernel, v), tables.discount)
        solver = meeting_solver.build(problem)
        assert solver is not None
        linear = problem._replace(added=Source(problem.added.same, None))  # what is added stays out of compiled steps
        C = jnp.eye(model.num_states)
        state = jax.eval_shape(pair_solver._start, problem, C)
        powers = (C,)
        F = solver.response
        steps: dict[str, tuple[Any, tuple[Any, ...], int]] = {
            "plain sweeps": (pair_solver.sweeps, (problem, C, 1), 0),
            "BiCGStab": (pair_solver._advance, (linear, state, 0.0, 1), 0),
            "meetings: terms of F": (meeting_solver._add_terms, (linear, powers, F, jnp.ones(())), 0),
            "meetings: one pass, with F": (meeting_solver._spread, (linear, solver.of_pairs, C, C), 1),
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
    sharings: tuple[Sharing, ...] = ("state", "time")
    for sharing in sharings:
        seconds = {}
        for discount in DISCOUNTS:
            seconds[discount], solution = timed(size, discount, sharing, is_accelerated=True)
            row(f"{sharing}, γ={discount}", seconds[discount], solution)
        plain, solution = timed(size, PLAIN, sharing, is_accelerated=False)
        row(f"{sharing}, γ={PLAIN}, plain sweeps", plain, solution)
        growth, gain = seconds[DISCOUNTS[-1]] / seconds[DISCOUNTS[0]], plain / seconds[PLAIN]
        print(
            f"{sharing}: time grows {growth:.1f}× from γ={DISCOUNTS[0]} to {DISCOUNTS[-1]} (aim: below 2), plain "
            f"sweeps take {gain:.1f}× as long at {PLAIN} (aim: 10)",
            flush=True,
        )
    alive(size)
