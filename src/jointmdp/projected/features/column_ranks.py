"""Which features are combinations of others where the weighting looks: QR with column pivoting, and words for it.

Columns are scaled to length 1 first. A column is dependent when less than `THRESHOLD` of it is left after the columns
picked before it are taken out of it. That is the root of the rounding of float64: products of features, which normal
equations are made of, cannot tell such a column from a combination.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError

THRESHOLD = 2.0**-26  # the root of the spacing of float64, 1.5e-8
NEGLIGIBLE = 1e-6  # of the largest coefficient: columns with less are not named
MOST_PARTNERS = 3
MOST_NAMED = 5


class DependentColumn(NamedTuple):
    """A feature that says nothing which the others do not say."""

    column: int
    name: str
    reason: str

    @property
    def message(self) -> str:
        """The whole sentence."""
        return f"{self.name!r} {self.reason}"


def dependent_columns(weighted: Floats, names: Sequence[str], threshold: float = THRESHOLD) -> list[DependentColumn]:
    """The dependent columns of features ``[N, K]`` whose rows are scaled by the roots of their weights."""
    top = np.abs(weighted).max(axis=0, initial=0.0)  # [K]
    is_zero = top == 0
    found = [
        DependentColumn(k, names[k], "is zero wherever the weighting has weight")
        for k in np.flatnonzero(is_zero).tolist()
    ]
    kept = np.flatnonzero(~is_zero)
    if len(kept) == 0:
        return found
    columns = weighted[:, kept] / top[kept]  # lengths of very large or small features would overflow
    columns /= np.linalg.norm(columns, axis=0)
    triangle, pivots = linalg.qr(columns, mode="r", pivoting=True, overwrite_a=True)
    rank = int(np.count_nonzero(np.abs(np.diagonal(triangle)) > threshold))
    order = kept[pivots]
    parts = linalg.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])  # [rank, K' − rank]
    for column, coefficients in zip(order[rank:].tolist(), np.abs(parts.T), strict=True):
        partners = np.flatnonzero(coefficients > NEGLIGIBLE * coefficients.max())
        ranked = partners[np.argsort(-coefficients[partners], kind="stable")]
        found.append(DependentColumn(column, names[column], _in_words([names[order[k]] for k in ranked])))
    return sorted(found)


def _in_words(partners: list[str]) -> str:
    shown = [repr(name) for name in partners[:MOST_PARTNERS]]
    if len(partners) == 1:
        return f"is a multiple of {shown[0]}"
    if (more := len(partners) - len(shown)) > 0:
        return f"is a combination of {', '.join(shown)} and {more} more"
    return f"is a combination of {', '.join(shown[:-1])} and {shown[-1]}"


def check_rank(weighted: Floats, names: Sequence[str], what: str) -> None:
    """Raise where features ``[N, K]``, rows scaled by the roots of their weights, are dependent; `what` begins it."""
    found = dependent_columns(weighted, names)
    if not found:
        return
    N, K = weighted.shape
    listed = "; ".join(each.message for each in found[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    cause = f" ({N} coordinates with weight cannot tell {K} features apart)" if N < K else ""
    raise ModelError(
        f"{what}: {len(found)} of {K} features depend on the others{cause}: {listed}{more}. Leave them out, take fewer "
        "features (a lower order, fewer tiles, larger groups), or give weight to coordinates that tell them apart"
    )
