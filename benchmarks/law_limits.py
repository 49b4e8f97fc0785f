"""Limits of laws: peak resident memory over `memory_limit`, and seconds taken beside `seconds`, by kinds of models.

Each is measured in a process of its own, beyond what that had when the law was asked for. The tolerance is out of
reach, so that the limit alone ends the search.
"""

import pathlib
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jointmdp as jm
from benchmarks.laws import die, layered, lead_time_shop, patternless

MIB = 2**20
SECONDS = (1, 5)
UNREACHABLE = 1e-9


def _layers(width: int) -> tuple[jm.JointMDP, list[int]]:
    model = layered(width)
    return model, [0] * model.num_states


KINDS: dict[str, tuple[Callable[[], tuple[jm.JointMDP, Any]], tuple[int, int, int] | None, tuple[int, ...]]] = {
    "lead-time shop": (lead_time_shop, (30, 3, 1), (16, 256)),
    "lead-time shop, all signs": (lead_time_shop, None, (32, 256)),
    "die from coins": (lambda: die("state"), (0, 0, 1), (16,)),
    "windy 5×5, γ = 0.9999": (lambda: jm.envs.windy_gridworld(5, discount=0.9999), (0, 0, 1), (16,)),
    "windy 10×10, all signs": (lambda: jm.envs.windy_gridworld(10), None, (64,)),
    "6,668 pairs in layers": (lambda: _layers(50), (0, 0, 1), (128, 512)),
    "96,251 pairs in layers": (lambda: _layers(280), (0, 0, 1), (4096,)),
    **{
        f"{S} states, {sharing}": (lambda S=S, sharing=sharing: patternless(0, S, sharing), (0, 0, 1), limits)
        for S, limits in ((8, (32, 128, 512)), (60, (256, 1024)), (120, (1024,)))
        for sharing in ("state", "time", "none")
    },
}
"""For each: model and policy, the gap or all signs, and limits of memory in MiB."""


def main() -> None:
    """All kinds, memory first."""
    print("\nLimits of laws")
    shares, factors = [], []
    for kind, (_, _, limits) in KINDS.items():
        for limit in limits:
            peak, _, status = measured(kind, limit * MIB, None)
            shares.append(peak / (limit * MIB))
            print(f"{kind}: memory_limit {limit:,} MiB, peak {shares[-1]:.2f} of it: {status}", flush=True)
        for given in SECONDS:
            _, taken, status = measured(kind, 2048 * MIB, given)
            factors.append(taken / given)
            print(f"{kind}: seconds={given}, {taken:.1f} s taken: {status}", flush=True)
    print(f"largest peak {max(shares):.2f} of the limit (aim at most 1.1); longest {max(factors):.1f} times the time")


def measured(kind: str, limit: int, seconds: float | None) -> tuple[int, float, str]:
    """Bytes at the peak, seconds and status, from a process of its own."""
    run = [sys.executable, "-m", "benchmarks.law_limits", kind, str(limit), "" if seconds is None else str(seconds)]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    return int(found[0]), float(found[1]), " ".join(found[2:])


def _resident(name: str) -> int:
    return int(re.search(name + r":\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


def _measure(kind: str, limit: int, seconds: float | None) -> None:
    make, query, _ = KINDS[kind]
    solution = jm.evaluate(*make())
    asks = solution.signs if query is None else solution.gap(*query).superiority
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, begin = _resident("VmRSS"), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        try:
            found = asks(tolerance=UNREACHABLE, limits=jm.Limits(seconds=seconds, memory=limit))
            status = f"{found.status.name}, {found.width:.1e} wide"
        except jm.ModelError as error:
            status = str(error)
    print(_resident("VmHWM") - before, time.perf_counter() - begin, status)


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if sys.argv[3] else None)
