"""Symmetric matrices as vectors, and linear maps between them as matrices.

``svec`` lists the entries on and above the diagonal, those above it times √2, so that inner products stay what they
are: ``⟨svec Θ, svec Ψ⟩ = tr(ΘΨ)``. K features make n = K(K+1)/2 numbers.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from jointmdp.arrays import Floats, Ints

ROOT = float(np.sqrt(2.0))


class Upper(NamedTuple):
    """Where the entries of a vector stand in the matrix, and what they are multiplied by."""

    rows: Ints
    columns: Ints
    scale: Floats


@lru_cache(maxsize=16)
def upper(size: int) -> Upper:
    """The entries of a symmetric matrix of this size."""
    rows, columns = np.triu_indices(size)
    return Upper(rows, columns, np.where(rows == columns, 1.0, ROOT))


def svec(matrix: Float[ndarray, "*N K K"]) -> Float[ndarray, "*N n"]:
    """The vector of a matrix, or of many; of one that is not symmetric, that of its symmetric part."""
    rows, columns, scale = upper(matrix.shape[-1])
    return (matrix[..., rows, columns] + matrix[..., columns, rows]) * (scale / 2)


def smat(vector: Float[ndarray, "*N n"]) -> Float[ndarray, "*N K K"]:
    """The matrix of a vector, or those of many."""
    size = int(np.sqrt(2 * vector.shape[-1]))
    rows, columns, scale = upper(size)
    matrix = np.zeros((*vector.shape[:-1], size, size))
    matrix[..., rows, columns] = matrix[..., columns, rows] = vector / scale
    return matrix


def products(left: Float[ndarray, "N K"], right: Float[ndarray, "N K"]) -> Float[ndarray, "N n"]:
    """``svec`` of each ``l rᵀ``, made symmetric: ``lᵀΘr = ⟨svec(l rᵀ), svec Θ⟩``."""
    rows, columns, scale = upper(left.shape[1])
    return (left[:, rows] * right[:, columns] + left[:, columns] * right[:, rows]) * (scale / 2)


def as_map(entries: Float[ndarray, "Q Q"], numbers: Ints) -> Float[ndarray, "n n"]:
    """The map ``Θ ↦ Σ T(i,j,k,l) Θ(k,l)``, where ``T(i,j,k,l) = entries[numbers[i,k], numbers[j,l]]`` is symmetric."""
    i, j, scale = upper(len(numbers))
    straight = entries[numbers[i[:, None], i[None, :]], numbers[j[:, None], j[None, :]]]
    crossed = entries[numbers[i[:, None], j[None, :]], numbers[j[:, None], i[None, :]]]
    return (straight + crossed) * (scale[:, None] * scale[None, :] / 2)


def congruence(matrix: Float[ndarray, "K K"]) -> Float[ndarray, "n n"]:
    """The map ``Θ ↦ A Θ Aᵀ``."""
    i, j, scale = upper(len(matrix))
    straight = matrix[i[:, None], i[None, :]] * matrix[j[:, None], j[None, :]]
    crossed = matrix[i[:, None], j[None, :]] * matrix[j[:, None], i[None, :]]
    # An entry off the diagonal stands for two, one on it for one.
    return (straight + crossed) * (scale[:, None] / (2 * scale[None, :])) * np.where(i == j, 1.0, 2.0)
