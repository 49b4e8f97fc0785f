"""Sums and products of arrays that are never above (or never below) the exact result, and exact where that is.

The rounding error of a sum is a number itself and can be computed (Knuth's TwoSum); so can that of a product (Dekker's
TwoProduct). A result is moved to its neighbour only where the error has the wrong sign, so exact results stay exact.
"""

import numpy as np

from jointmdp.arrays import Floats

SPLITTER = 2.0**27 + 1
SAFE = 2.0**-960, 2.0**990  # products whose parts neither underflow nor overflow when split


def sum_down(a: Floats, b: Floats) -> Floats:
    """The largest number that is not above ``a + b``."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
    return np.where(~(error >= 0), np.nextafter(total, -np.inf), total)


def product_down(a: Floats, b: Floats) -> Floats:
    """A number that is not above ``a · b``, and equal to it where that is a number; for ``0 ≤ b ≤ 1``."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = a * b
        high_a, high_b = _high(a), _high(b)
        low_a, low_b = a - high_a, b - high_b
        error = low_a * low_b - (((found - high_a * high_b) - low_a * high_b) - high_a * low_b)
    is_safe = (np.abs(found) > SAFE[0]) & (np.abs(a) < SAFE[1]) & (b > 0)
    is_exact = (b == 1) | (a == 0) | (is_safe & (error >= 0))
    # What is not negative stays so, and larger numbers have no smaller products.
    return np.where(
        is_exact, found, np.where(a > 0, np.maximum(np.nextafter(found, -np.inf), 0.0), np.nextafter(found, -np.inf))
    )


def _high(x: Floats) -> Floats:
    """The upper half of the digits."""
    moved = SPLITTER * x
    return moved - (moved - x)
