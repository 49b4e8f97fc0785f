"""Numbers for vectors of whole numbers, in the order in which they appear; whole arrays of them at a time."""

import math

import numpy as np

from jointmdp.arrays import Ints

MOST_CODES = 2**62  # codes are int64


class VectorNumbers:
    """Gives every vector of `width` whole numbers the number 0, 1, 2, … of its first appearance.

    A vector is found by its mixed-radix code, one digit for each component within the bounds seen so far. Where codes
    would not fit into 64 bits, each half of the components has numbers of its own, and the pair of them is coded.
    """

    def __init__(self, width: int) -> None:
        self._rows: Ints = np.zeros((0, width), dtype=np.int64)
        self._count = 0
        self._halves: tuple[VectorNumbers, VectorNumbers] | None = None
        self._low: Ints = np.zeros(width, dtype=np.int64)
        self._sizes: list[int] = []  # digits of the code; none before the first vector
        self._codes: Ints = np.zeros(0, dtype=np.int64)  # sorted
        self._places: Ints = np.zeros(0, dtype=np.int64)  # the number of each code

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Ints:
        """The vectors by number, ``[n, d]``."""
        return self._rows[: self._count]

    def numbers(self, rows: Ints) -> Ints:
        """The number of each row of ``[k, d]``; new rows are numbered on."""
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        codes, first, inverse = np.unique(self._coded(rows), return_index=True, return_inverse=True)
        at = np.searchsorted(self._codes, codes)
        is_new = np.append(self._codes, -1)[at] != codes
        found = np.empty(len(codes), dtype=np.int64)
        found[~is_new] = self._places[at[~is_new]]
        fresh = first[is_new]
        found[is_new] = self._count + fresh.argsort().argsort()
        self._append(rows[np.sort(fresh)])
        self._codes = np.insert(self._codes, at[is_new], codes[is_new])
        self._places = np.insert(self._places, at[is_new], found[is_new])
        return found[inverse.ravel()]

    def _append(self, rows: Ints) -> None:
        needed = self._count + len(rows)
        if needed > len(self._rows):  # doubled, so that many small fronts do not copy everything each time
            room = np.zeros((max(needed - self._count, self._count, 64), self._rows.shape[1]), dtype=np.int64)
            self._rows = np.concatenate([self.rows, room])
        self._rows[self._count : needed] = rows
        self._count = needed

    def _coded(self, rows: Ints) -> Ints:
        """Codes of rows; where they lie outside of the digits, known vectors are coded anew with more of them."""
        digits = self._digits(rows) - self._low
        if not self._sizes or (digits < 0).any() or (digits >= self._sizes).any():
            self._recode(rows)
            digits = self._digits(rows) - self._low
        code = np.zeros(len(rows), dtype=np.int64)
        for i, size in enumerate(self._sizes):
            code = code * size + digits[:, i]
        return code

    def _digits(self, rows: Ints) -> Ints:
        if self._halves is None:
            return rows
        middle = rows.shape[1] // 2
        parts = (rows[:, :middle], rows[:, middle:])
        return np.stack([half.numbers(part) for half, part in zip(self._halves, parts, strict=True)], axis=1)

    def _recode(self, rows: Ints) -> None:
        known = np.concatenate([self._digits(self.rows), self._digits(rows)])
        low, high = known.min(axis=0), known.max(axis=0)
        # Room on both sides, as wide as what is there, so that a growing range is coded anew only a few times.
        slack = high - low + 1
        self._low, self._sizes = low - slack, (3 * slack).tolist()
        if math.prod(self._sizes) > MOST_CODES:
            self._low, self._sizes = low, slack.tolist()
        if math.prod(self._sizes) > MOST_CODES:
            width = rows.shape[1]
            self._halves = VectorNumbers(width // 2), VectorNumbers(width - width // 2)
            self._recode(rows)
            return
        codes = self._coded(self.rows)
        self._places = codes.argsort()
        self._codes = codes[self._places]
