"""The libraries of networks, which the extra `neural` installs.

Networks from what is observed to the moments of all actions: a torso, and one linear layer for all heads.

Each action may have weights of its own in that layer. Where there are many actions, few queries tell of each, and most
of what they tell is the same for all: then the layer gives one answer for all actions and a few ways to differ from it,
which every action mixes.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jointmdp.exact.bellman.network_backups import MomentHeads
from jointmdp.learning.neural.settings import MatrixForm

try:
    import equinox as eqx
    import optax
except ImportError as error:
    raise ImportError(
        f"networks need {error.name or 'equinox and optax'}, which is not installed: pip install 'jointmdp[neural]'"
    ) from error

__all__ = ["eqx", "optax"]


# Filters, their size and stride: the torso that the field uses for 84×84 frames (Mnih et al., Nature 2015).
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
FAINT = 0.1  # of the usual weights of heads: a network begins nearly constant, and finds constants first
SMALL = 0.3  # the root of what the part of one coordinate alone begins at


class Layer(eqx.Module):
    """Weights ``[outputs, …]`` and biases of a linear map.

    They are drawn by NumPy, evenly up to the root of one over the inputs of an output, as the field does: compiling
    JAX's generators for every shape takes longer than a short run.
    """

    weight: Array
    bias: Array

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator, factor: float = 1.0) -> None:
        reach = 1 / math.sqrt(math.prod(shape[1:]))
        self.weight = jnp.asarray(factor * rng.uniform(-reach, reach, shape), jnp.float32)
        self.bias = jnp.asarray(rng.uniform(-reach, reach, shape[0]), jnp.float32)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The map."""
        return self.weight @ x + self.bias


class MomentNetwork(eqx.Module):
    """``network(input)`` gives the heads of all actions, in units of the scales of the data."""

    convolutions: list[Layer]
    layers: list[Layer]
    head: Layer
    mixing: tuple[Array, Array] | None  # of ways [A, ways], and constants [A, outputs]
    rank: int = eqx.field(static=True)
    own_rank: int = eqx.field(static=True)
    form: MatrixForm = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: int,
        hidden: tuple[int, ...],
        ranks: tuple[int, int],
        ways: int | None,
        form: MatrixForm,
        rng: np.random.Generator,
    ) -> None:
        (self.rank, self.own_rank), self.form = ranks, form
        self.convolutions = []
        if len(shape) == 3:
            *sides, depth = shape
            for filters, size, stride in CONVOLUTIONS:
                self.convolutions.append(Layer((filters, depth, size, size), rng))
                sides, depth = [(side - size) // stride + 1 for side in sides], filters
            shape = (math.prod(sides) * depth,)
        width = shape[0]
        self.layers = []
        for units in hidden:
            self.layers.append(Layer((units, width), rng))
            width = units
        outputs = 2 + self.rank + self.own_rank
        self.head = Layer((outputs * (actions if ways is None else 1 + ways), width), rng, FAINT)
        self.mixing = None
        if ways is not None:
            shares = jnp.asarray(rng.standard_normal((actions, ways)), jnp.float32)
            self.mixing = shares, jnp.zeros((actions, outputs), jnp.float32)

    def __call__(self, x: Float[Array, "*shape"]) -> MomentHeads:
        """The heads of all actions, ``[A]`` each."""
        if self.convolutions:
            x = convolved(self.convolutions, x)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        out = self.head(x).reshape(-1, 2 + self.rank + self.own_rank)
        if self.mixing is not None:
            shares, constants = self.mixing
            out = out[0] + shares @ out[1:] + constants
        v, w = out[:, 2 : 2 + self.rank], out[:, 2 + self.rank :]
        d = (SMALL + out[:, 1]) ** 2
        if self.form == "gram":
            w, d = jnp.zeros_like(w), jnp.zeros_like(d)
        return MomentHeads(out[:, 0], v, w, d)


def convolved(layers: list[Layer], x: Float[Array, "h w c"]) -> Float[Array, " n"]:
    """Features of a frame.

    As products of patches with the filters: with different filters for every network, XLA's own convolutions become
    grouped ones, which are many times slower, on a CPU most of all. A frame is cut into blocks as large as the stride,
    and a patch is a few blocks.
    """
    for layer, (_, size, stride) in zip(layers, CONVOLUTIONS, strict=True):
        across = size // stride  # blocks of a patch; sizes are multiples of strides
        rows, columns = ((side - size) // stride + 1 for side in x.shape[:2])
        high, wide = rows - 1 + across, columns - 1 + across
        cut = x[: high * stride, : wide * stride].reshape(high, stride, wide, stride, -1)
        blocks = jnp.moveaxis(cut, 2, 1).reshape(high, wide, -1)
        patches = [blocks[i : i + rows, j : j + columns] for i in range(across) for j in range(across)]
        filters = layer.weight.reshape(*layer.weight.shape[:2], across, stride, across, stride)
        filters = filters.transpose(2, 4, 3, 5, 1, 0).reshape(-1, layer.weight.shape[0])
        x = jax.nn.relu(jnp.concatenate(patches, axis=-1) @ filters + layer.bias)
    return x.reshape(-1)
