"""The certified solve: time, memory and error on the large gridworld, and what acceleration saves."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import jointmdp as jm


def ring(size: int, discount: float) -> tuple[jm.JointMDP, np.ndarray]:
    """A slowly mixing ring: branches drift apart and meet rarely."""
    here, rng = np.arange(size), np.random.default_rng(0)
    first = np.stack([(here + 1) % size, (here + 2) % size], axis=1)
    second = np.stack([(here - 1) % size, here], axis=1)
    rewards = rng.normal(size=(size, 2, 2))
    model = jm.JointMDP(np.full((size, 2), 0.5), rewards, np.stack([first, second], axis=1), discount)
    return model, jm.envs.uniform_policy(model)


def scattered(size: int, discount: float) -> tuple[jm.JointMDP, np.ndarray]:
    """Random successors: branches mix at once but meet only once in |S| steps."""
    rng = np.random.default_rng(0)
    tables = (rng.dirichlet(np.ones(3), size), rng.normal(size=(size, 3, 3)), rng.integers(0, size, (size, 3, 3)))
    model = jm.JointMDP(*tables, discount)
    return model, jm.envs.uniform_policy(model)


def peak_memory() -> float:
    """Peak resident memory of this process in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would hand on the peak of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def large() -> None:
    """The 50×50 gridworld at γ = 0.99 from a cold start, imports and compilation included."""
    started = time.perf_counter()
    solution = jm.evaluate(*jm.envs.windy_gridworld(50))
    seconds = time.perf_counter() - started
    relative = solution.certificate.covariance_error / float(np.max(solution.variance))
    peak = peak_memory()
    print(
        f"50×50 gridworld, γ=0.99: {seconds:.1f} s (aim: 60), certified covariance error {relative:.1e} of the largest "
        f"variance (aim: 1e-8), peak memory {peak:.2f} GiB (aim: 1), {solution.steps} sweeps"
    )


def main() -> None:
    print("\nThe certified solve")
    # A process of its own, so that peak memory is this solve's alone.
    subprocess.run([sys.executable, "-c", "from benchmarks.solve import large; large()"], check=True)
    print(f"{'model':<34}{'plain':>16}{'accelerated':>18}{'ratio':>8}{'certified / largest variance':>32}")
    cases = {
        "30×30 gridworld γ=0.99": jm.envs.windy_gridworld(30),
        "scattered 300 γ=0.99": scattered(300, 0.99),
        "scattered 300 γ=0.999": scattered(300, 0.999),
        "ring 300 γ=0.99": ring(300, 0.99),
    }
    for name, (model, policy) in cases.items():
        seconds, solutions = {}, {}
        for is_accelerated in (False, True):
            method = jm.Solve(is_accelerated=is_accelerated)
            jm.evaluate(model, policy, method)
            start = time.perf_counter()
            solutions[is_accelerated] = jm.evaluate(model, policy, method)
            seconds[is_accelerated] = time.perf_counter() - start
        error = solutions[True].certificate.covariance_error / np.max(solutions[True].variance)
        print(
            f"{name:<34}{seconds[False]:>7.2f} s {solutions[False].steps:>6}{seconds[True]:>9.2f} s "
            f"{solutions[True].steps:>6}{seconds[False] / seconds[True]:>7.1f}×{error:>32.1e}",
            flush=True,
        )
