"""What repeating a linear step comes to, about: a guess, for which the caller has a certificate."""

from typing import Protocol

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.law.time_limit import IsOver

ITERATIONS = 400
RELATIVE = 1e-13


class LinearStep(Protocol):
    """A matrix, or what acts like one."""

    def __matmul__(self, x: Floats) -> Floats: ...


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a guess that overflows ends the search
def fixed_point(
    matrix: LinearStep,
    constant: Floats,
    relative: float = RELATIVE,
    start: Floats | None = None,
    is_over: IsOver | None = None,
) -> Floats:
    """x = matrix·x + constant, about, by BiCGSTAB from a `start` or from x = constant, for as long as time allows.

    Not SciPy's: its dot products run in threads, which on a busy machine take a thousand times as long as here.
    """
    # Half steps alternate between two kinds of nodes, and two moves at once are a plain step.
    x = constant.copy() if start is None else start
    constant = constant + matrix @ constant

    def apply(x: Floats) -> Floats:
        return x - matrix @ (matrix @ x)

    r = constant - apply(x)
    shadow, p, v = r.copy(), np.zeros_like(r), np.zeros_like(r)
    rho = alpha = omega = 1.0
    target = relative * float(np.abs(constant).max(initial=0.0))
    best, least = x, float(np.abs(r).max(initial=0.0))
    for _ in range(ITERATIONS):
        if least <= target or (is_over is not None and is_over()):
            break
        rho, before = _dot(shadow, r), rho
        if rho == 0 or omega == 0:
            break
        p = r + rho / before * alpha / omega * (p - omega * v)
        v = apply(p)
        slope = _dot(shadow, v)
        if slope == 0:
            break
        alpha = rho / slope
        s = r - alpha * v
        t = apply(s)
        size = _dot(t, t)
        omega = _dot(t, s) / size if size > 0 else 0.0
        x = x + alpha * p + omega * s
        r = s - omega * t
        left = float(np.abs(r).max())
        if not np.isfinite(left):
            break
        if left < least:
            best, least = x, left
    return best


def _dot(a: Floats, b: Floats) -> float:
    return float(np.einsum("i,i->", a, b))
