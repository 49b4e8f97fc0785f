"""Independent oracle for moments of any order of two returns, in exact rational arithmetic, from the definitions.

``E[Z(x)ⁱ Z(y)ʲ]`` for coordinates ``x = (s, a)`` and ``y = (t, b)``. One step from the pair has the outcomes that
``oracle._ExactModel.step`` lists, and ``Z(x) = r + γ Z(x')`` is raised to powers by the binomial theorem. A pair whose
next coordinates are equal has merged, and its moment is then that of one coordinate. Nothing is centred and nothing
lives on states, so no step is shared with the library.
"""

from itertools import product
from math import comb
from typing import Any

from flint import fmpq, fmpq_mat
from oracle import Coordinate, _ExactModel


class PairOracle:
    """Exact moments of every pair of coordinates up to `order`."""

    def __init__(self, case: Any, order: int) -> None:
        self.order = order
        self.model = _ExactModel(*case)
        self.sharing = self.model.sharing
        xs = self.model.coordinates
        self.single: dict[tuple[Coordinate, int], fmpq] = {(x, 0): fmpq(1) for x in xs}
        self.pair: dict[tuple[Coordinate, Coordinate, int, int], fmpq] = {}
        self.apart = [(x, y) for x, y in product(xs, xs) if x != y] if self.sharing != "none" else []
        self.outcomes = {(x, y): list(self.model.step(x, y)) for x, y in self.apart + [(x, x) for x in xs]}
        for degree in range(1, order + 1):
            self._solve_single(degree)
            self._solve_pairs(degree)

    def moment(self, x: Coordinate, y: Coordinate, i: int, j: int) -> fmpq:
        """``E[Z(x)ⁱ Z(y)ʲ]``."""
        if x == y:
            return self.single[x, i + j]
        if self.sharing == "none" or i == 0 or j == 0:
            return self.single[x, i] * self.single[y, j]
        return self.pair[x, y, i, j]

    def central(self, x: Coordinate, y: Coordinate, i: int, j: int) -> fmpq:
        """``E[(Z(x)−μ(x))ⁱ (Z(y)−μ(y))ʲ]``."""
        mx, my = self.single[x, 1], self.single[y, 1]
        terms = product(range(i + 1), range(j + 1))
        return sum(
            (comb(i, k) * comb(j, m) * (-mx) ** (i - k) * (-my) ** (j - m) * self.moment(x, y, k, m) for k, m in terms),
            fmpq(0),
        )

    def gap(self, x: Coordinate, y: Coordinate, k: int) -> fmpq:
        """``E[(Z(x)−Z(y))ᵏ]``."""
        return sum((comb(k, j) * (-1) ** j * self.moment(x, y, k - j, j) for j in range(k + 1)), fmpq(0))

    def central_gap(self, x: Coordinate, y: Coordinate, k: int) -> fmpq:
        """``E[(G−E G)ᵏ]``, ``G = Z(x)−Z(y)``."""
        mean = self.gap(x, y, 1)
        return sum((comb(k, j) * (-mean) ** (k - j) * self.gap(x, y, j) for j in range(k + 1)), fmpq(0))

    def _solve_single(self, degree: int) -> None:
        xs, g = self.model.coordinates, self.model.discount
        place = {x: i for i, x in enumerate(xs)}
        matrix, right = fmpq_mat(len(xs), len(xs)), fmpq_mat(len(xs), 1)
        for x, row in place.items():
            matrix[row, row] = 1
            for chance, r, _, after, _ in self.outcomes[x, x]:
                for k in range(degree):
                    right[row, 0] += chance * comb(degree, k) * r ** (degree - k) * g**k * self.single[after, k]
                matrix[row, place[after]] -= chance * g**degree
        for x, value in zip(xs, matrix.solve(right).entries(), strict=True):
            self.single[x, degree] = value

    def _solve_pairs(self, degree: int) -> None:
        if degree < 2 or not self.apart:
            return
        g, place = self.model.discount, {pair: i for i, pair in enumerate(self.apart)}
        size, powers = len(place), range(1, degree)
        matrix, right = fmpq_mat(size, size), fmpq_mat(size, len(powers))
        for (x, y), row in place.items():
            matrix[row, row] = 1
            for chance, rx, ry, next_x, next_y in self.outcomes[x, y]:
                for i in powers:
                    j = degree - i
                    for k, m in product(range(i + 1), range(j + 1)):
                        if k + m == degree and next_x != next_y:
                            continue  # the unknown itself, in the matrix
                        factor = chance * comb(i, k) * comb(j, m) * rx ** (i - k) * ry ** (j - m) * g ** (k + m)
                        right[row, i - 1] += factor * self.moment(next_x, next_y, k, m)
                if next_x != next_y:
                    matrix[row, place[next_x, next_y]] -= chance * g**degree
        found = matrix.solve(right)
        for (x, y), row in place.items():
            for i in powers:
                self.pair[x, y, i, degree - i] = found[row, i - 1]
