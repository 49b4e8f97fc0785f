"""Networks from what is observed to the moments of all actions: a torso, and one linear layer for all heads."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jointmdp.bellman.network_backups import MomentHeads
from jointmdp.neural.config import MatrixForm
from jointmdp.neural.libraries import eqx

# Filters, their size and stride: the torso that the field uses for 84×84 frames (Mnih et al., Nature 2015).
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
FAINT = 0.1  # of the usual weights of heads: a network begins nearly constant, and finds constants first
SMALL = 0.3  # the root of what the part of one coordinate alone begins at


class MomentNetwork(eqx.Module):
    """``network(input)`` gives the heads of all actions, in units of the scales of the data."""

    convolutions: list[eqx.nn.Conv2d]
    layers: list[eqx.nn.Linear]
    head: eqx.nn.Linear
    actions: int = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    own_rank: int = eqx.field(static=True)
    form: MatrixForm = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: int,
        hidden: tuple[int, ...],
        ranks: tuple[int, int],
        form: MatrixForm,
        key: Any,
    ) -> None:
        self.actions, (self.rank, self.own_rank), self.form = actions, ranks, form
        keys = iter(jax.random.split(key, len(CONVOLUTIONS) + len(hidden) + 1))
        self.convolutions = []
        if len(shape) == 3:
            depth = shape[-1]
            for filters, size, stride in CONVOLUTIONS:
                self.convolutions.append(eqx.nn.Conv2d(depth, filters, size, stride, key=next(keys)))
                depth = filters
            shape = jax.eval_shape(lambda x: _convolved(self.convolutions, x), jnp.zeros(shape, jnp.float32)).shape
        width = shape[0]
        self.layers = []
        for units in hidden:
            self.layers.append(eqx.nn.Linear(width, units, key=next(keys)))
            width = units
        outputs = actions * (2 + self.rank + self.own_rank)
        head = eqx.nn.Linear(width, outputs, key=next(keys))
        self.head = eqx.tree_at(lambda layer: layer.weight, head, FAINT * head.weight)

    def __call__(self, x: Float[Array, "*shape"]) -> MomentHeads:
        """The heads of all actions, ``[A]`` each."""
        if self.convolutions:
            x = _convolved(self.convolutions, x)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        out = self.head(x).reshape(self.actions, -1)
        v, w = out[:, 2 : 2 + self.rank], out[:, 2 + self.rank :]
        d = (SMALL + out[:, 1]) ** 2
        if self.form == "gram":
            w, d = jnp.zeros_like(w), jnp.zeros_like(d)
        return MomentHeads(out[:, 0], v, w, d)


def _convolved(layers: list[eqx.nn.Conv2d], x: Float[Array, "h w c"]) -> Float[Array, " n"]:
    """Features of a frame.

    As products of patches with the filters: with different filters for every network, XLA's own convolutions become
    grouped ones, which are many times slower, on a CPU most of all. A frame is cut into blocks as large as the stride,
    and a patch is a few blocks.
    """
    for layer in layers:
        (size, _), (stride, _) = layer.kernel_size, layer.stride
        across = size // stride  # blocks of a patch; sizes are multiples of strides
        rows, columns = ((side - size) // stride + 1 for side in x.shape[:2])
        high, wide = rows - 1 + across, columns - 1 + across
        cut = x[: high * stride, : wide * stride].reshape(high, stride, wide, stride, -1)
        blocks = jnp.moveaxis(cut, 2, 1).reshape(high, wide, -1)
        patches = [blocks[i : i + rows, j : j + columns] for i in range(across) for j in range(across)]
        filters = layer.weight.reshape(*layer.weight.shape[:2], across, stride, across, stride)
        filters = filters.transpose(2, 4, 3, 5, 1, 0).reshape(-1, layer.weight.shape[0])
        assert layer.bias is not None
        x = jax.nn.relu(jnp.concatenate(patches, axis=-1) @ filters + layer.bias[:, 0, 0])
    return x.reshape(-1)
