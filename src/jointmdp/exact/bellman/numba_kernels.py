"""The inner loops of `numba_sweeps`, compiled by Numba: products of sparse rows with one panel of columns.

An array over pairs lies in panels, ``[T, N, WIDTH]``: panel t holds the columns ``t·WIDTH, …`` of all rows, so
``D(s, t·WIDTH + j)`` stands at ``[t, s, j]``. A product reads a panel from its beginning to its end, and each tile that
it makes, ``WIDTH × WIDTH`` numbers, is one piece of memory in the panels of the result, also where it is transposed.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

WIDTH = 128  # of a panel (`benchmarks/sweep.py`); the compiler knows it
# Of the rows of a tile: were they a power of two apart, the numbers of a column would compete for places in the cache.
APART = WIDTH + 4

# Without the interpreter's lock, so that panels run in threads; a product and a sum may be one instruction.
compiled = njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")

Panel = NDArray[Any]  # [N, WIDTH]
Panels = NDArray[Any]  # [T, N, WIDTH]
Tile = NDArray[Any]  # [WIDTH, APART]
# Weights and columns, [N, K], and how many of a row are used, [N].
SparseRows = tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int32]]


@compiled
def _multiply(rows: SparseRows, first: int, panel: Panel, Z: Tile) -> None:
    """Z = P[first : first + WIDTH] @ panel. Rows have 0, 1, 2 or a multiple of four entries."""
    weights, columns, lengths = rows
    for i in range(WIDTH):
        s = first + i
        z, a, c, n = Z[i], weights[s], columns[s], lengths[s]
        # Several terms at once, so that their sum is not written and read again for each.
        if n >= 8:
            a0, a1, a2, a3, a4, a5, a6, a7 = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
            p0, p1, p2, p3 = panel[c[0]], panel[c[1]], panel[c[2]], panel[c[3]]
            p4, p5, p6, p7 = panel[c[4]], panel[c[5]], panel[c[6]], panel[c[7]]
            for j in range(WIDTH):
                four = a0 * p0[j] + a1 * p1[j] + a2 * p2[j] + a3 * p3[j]
                z[j] = four + a4 * p4[j] + a5 * p5[j] + a6 * p6[j] + a7 * p7[j]
        elif n == 4:
            a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
            p0, p1, p2, p3 = panel[c[0]], panel[c[1]], panel[c[2]], panel[c[3]]
            for j in range(WIDTH):
                z[j] = a0 * p0[j] + a1 * p1[j] + a2 * p2[j] + a3 * p3[j]
        elif n == 2:
            a0, a1, p0, p1 = a[0], a[1], panel[c[0]], panel[c[1]]
            for j in range(WIDTH):
                z[j] = a0 * p0[j] + a1 * p1[j]
        elif n == 1:
            a0, p0 = a[0], panel[c[0]]
            for j in range(WIDTH):
                z[j] = a0 * p0[j]
        else:
            z[:] = 0
        for k in range(8, n, 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            p0, p1, p2, p3 = panel[c[k]], panel[c[k + 1]], panel[c[k + 2]], panel[c[k + 3]]
            for j in range(WIDTH):
                z[j] += a0 * p0[j] + a1 * p1[j] + a2 * p2[j] + a3 * p3[j]


@compiled
def _write(Z: Tile, panel: Panel, first: int) -> None:
    for i in range(WIDTH):
        z, to = Z[i], panel[first + i]
        for j in range(WIDTH):
            to[j] = z[j]


@compiled
def _write_transposed(Z: Tile, panel: Panel, first: int) -> None:
    for j in range(WIDTH):
        to = panel[first + j]
        for i in range(WIDTH):
            to[i] = Z[i, j]


@njit(nogil=True, cache=True, fastmath=True)  # as if all were numbers: else it goes one number at a time
def _distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    found = 0.0
    for j in range(WIDTH):
        found = max(found, abs(x[j] - y[j]))
    return found


@compiled
def half_product(D: Panels, rows: SparseRows, half: Panels, t: int) -> None:
    """Of half = (P D)ᵀ what comes from panel t of D."""
    Z = np.empty((WIDTH, APART), D.dtype)
    for b in range(len(D)):
        _multiply(rows, b * WIDTH, D[t], Z)
        _write_transposed(Z, half[b], t * WIDTH)


@compiled
def whole_product(  # many parameters: a product and what is added to it in the same pass over memory
    half: Panels,
    rows: SparseRows,
    sides: NDArray[Any],
    base: Panels,
    diagonal: NDArray[Any],
    after: Panels,
    size: int,
    t: int,
    is_measured: bool,
) -> float:
    """after = P halfᵀ + sides(s) + sides(t) + base and its own diagonal; how far that is from before, where asked.

    The result is symmetric: of panel t the tiles on and below the diagonal are made, and written twice. `base` may be
    `after` itself, or have no panels; a `diagonal` without entries leaves that of the product.
    """
    Z = np.empty((WIDTH, APART), half.dtype)
    there = sides[t * WIDTH : (t + 1) * WIDTH]
    columns = min(WIDTH, size - t * WIDTH)  # beyond them there is no state
    largest = 0.0
    for b in range(t, len(half)):
        first = b * WIDTH
        _multiply(rows, first, half[t], Z)
        for i in range(WIDTH):
            z, side = Z[i], sides[first + i]
            if len(base) > 0:
                more = base[t, first + i]
                for j in range(WIDTH):
                    z[j] += (side + there[j]) + more[j]
            else:
                for j in range(WIDTH):
                    z[j] += side + there[j]
            z[columns if first + i < size else 0 :] = 0
        if b == t:
            for i in range(WIDTH):
                if len(diagonal) > 0:
                    Z[i, i] = diagonal[first + i]
                for j in range(i):  # the same to the last digit
                    Z[j, i] = Z[i, j]
        if is_measured:
            for i in range(WIDTH):
                largest = max(largest, _distance(Z[i], after[t, first + i]))
        _write(Z, after[t], first)
        if b > t:
            _write_transposed(Z, after[b], t * WIDTH)
    return largest


@compiled
def met(
    D: Panels, probabilities: NDArray[Any], support: NDArray[np.int32], choice: NDArray[Any], found: NDArray[Any]
) -> None:
    """`pair_sweep.met` of a symmetric D."""
    S, W, M = support.shape
    for s in range(S):
        total = 0.0
        for w in range(W):
            inner = 0.0
            for a in range(M):
                for b in range(a):
                    x, y = support[s, w, a], support[s, w, b]
                    inner += choice[s, a] * choice[s, b] * D[y // WIDTH, x, y % WIDTH]
            total += probabilities[s, w] * inner
        found[s] = 2 * total


@compiled
def add_responses(  # many parameters: powers and what is made of them, a kernel, and the factors of its terms
    power: Panels,
    after: Panels,
    response: Panels,
    rows: SparseRows,
    probabilities: NDArray[Any],
    support: NDArray[np.int32],
    choice: NDArray[Any],
    factor: float,
    count: int,
    share: float,
    t: int,
) -> None:
    """Terms ``share · factorᵏ (Pᵏ∘Pᵏ − factor · met)`` of panel t for an even number of powers, from `power` on."""
    S, W, M = support.shape
    Z = np.empty((WIDTH, APART), power.dtype)
    mean, same = np.empty(WIDTH), np.empty(WIDTH)
    X, Y, R = power[t], after[t], response[t]
    for _ in range(count):
        for s in range(S):
            x, r = X[s], R[s]
            for j in range(WIDTH):
                r[j] += share * x[j] * x[j]
            for w in range(W if M > 1 else 0):
                weight = share * factor * probabilities[s, w]
                if weight == 0:
                    continue
                mean[:], same[:] = 0, 0
                for a in range(M):
                    c, y = choice[s, a], X[support[s, w, a]]
                    for j in range(WIDTH):
                        part = c * y[j]
                        mean[j] += part
                        same[j] += part * part
                for j in range(WIDTH):
                    r[j] -= weight * (mean[j] * mean[j] - same[j])
        for b in range(len(power)):
            _multiply(rows, b * WIDTH, X, Z)
            _write(Z, Y, b * WIDTH)
        X, Y = Y, X
        share *= factor


@compiled
def rotated(rows: tuple[Any, Any, Any, Any], factor: Any, x: Any, out: Any, total: Any) -> None:
    """out = P @ x for several columns, ``[N, 2, C]`` (real and imaginary parts), each weight times its `factor`.

    Rows without entries are left as they are; `total`, ``[2, C]``, is room for one row.
    """
    starts, columns, weights, which = rows
    for i in range(len(starts) - 1):
        if starts[i] < starts[i + 1]:
            total[:] = 0.0
            for k in range(starts[i], starts[i + 1]):
                w, f, y = weights[k], factor[which[k]], x[columns[k]]
                for c in range(total.shape[1]):
                    total[0, c] += w * (f[0, c] * y[0, c] - f[1, c] * y[1, c])
                    total[1, c] += w * (f[0, c] * y[1, c] + f[1, c] * y[0, c])
            out[i] = total
