"""Networks from what is observed to the moments of all actions, and the compiled loop that trains several at once.

A network is a torso, and one linear layer for all heads. Each action may have weights of its own in that layer. Where
there are many actions, few queries tell of each, and most of what they tell is the same for all: then the layer gives
one answer for all actions and a few ways to differ from it, which every action mixes.

Losses are those of five blocks: means, covariances of one coordinate with itself, in the same state and across states,
and variances of gaps. Each is the mean square of a difference from a target that the *target network* helps to form,
divided by a running average of itself. So every block is worth the same, however much noise its targets have: what
means tell of a state is small beside the noise of a return, and large beside that of a step. The average is not taken
to be less than a small part of the squared unit: of variances of returns for means, of their squares for covariances.

Every step draws its lists from the seed and its own number, so that a run that continues from a checkpoint is, bit for
bit on one machine, the run that was never stopped.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jointmdp.exact.bellman.network_backups import MomentHeads, backup, draw_errors, gap_variances
from jointmdp.ground.arrays import on_device, random_key
from jointmdp.learning.neural.queries import LISTED, OVER, Encoding, Lists, RecordedQueries
from jointmdp.learning.neural.settings import BLOCKS, MatrixForm, NeuralSettings

try:
    import equinox as eqx
    import optax
except ImportError as error:
    raise ImportError(
        f"networks need {error.name or 'equinox and optax'}, which is not installed: pip install 'jointmdp[neural]'"
    ) from error

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


PORTION = 100  # steps of a compiled loop
SCALE_RATE = 0.01  # of the running averages of units
LEAST = 1e-6  # a unit is never less, in units of the data
EXACT = 1e-4  # of a squared unit: less noise than this in the targets of a block is as good as none
MOST_NORM = 10.0  # of a gradient

UPPER = np.triu(np.ones((LISTED, LISTED), dtype=bool), 1)
SECOND_STATE = 2  # place of a list; the first two have one state


class Scales(NamedTuple):
    """Running averages: of the variances of returns and of gaps, and of the squared errors of each block."""

    variance: Float[Array, "*R"]
    gap: Float[Array, "*R"]
    errors: Float[Array, "*R 5"]


class TrainState(NamedTuple):
    """Networks between two steps, each leaf but `step` with an axis of networks in front."""

    step: Array
    online: Any
    target: Any
    average: Any
    optimiser: Any
    scales: Scales


class Metrics(NamedTuple):
    """What a portion showed of each of the `BLOCKS`, in units of the data (`Units.deviation`): means over its steps."""

    squared: Float[Array, "R 5"]
    """Squared TD errors: the variance of their targets is a floor."""
    signed: Float[Array, "R 5"]
    double: Float[Array, "R 5"]
    """Products of the errors of two independent draws: squared Bellman residuals without bias."""
    loss: Float[Array, "R 5"]


class Trainer:
    """``state = trainer.init()``, then ``state, metrics = trainer.advance(state)`` until all steps are taken."""

    def __init__(self, queries: RecordedQueries, method: NeuralSettings, steps: int) -> None:
        self.queries, self.method, self.steps, self.encoding = queries, method, steps, Encoding.of(queries)
        self.optimiser = optimiser_of(method, steps)
        self._shape = self.network(np.random.default_rng(0))
        lists = queries.lists
        unit = self.encoding.units.deviation
        scaled = lists._replace(
            rewards=((lists.rewards - self.encoding.units.reward) / unit).astype(np.float32),
            reward_covariances=(lists.reward_covariances / unit**2).astype(np.float32),
        )
        self._data: Any = on_device(self.encoding.stored(queries.observations)), jax.tree.map(on_device, scaled)
        self._portion = jax.jit(self._steps)

    def network(self, rng: np.random.Generator) -> MomentNetwork:
        """A network with random weights."""
        c, actions = self.method, len(self.queries.action_names)
        ranks = (c.rank, c.own_rank)
        return MomentNetwork(self.encoding.shape, actions, c.hidden, ranks, c.action_rank, c.form, rng)

    def init(self) -> TrainState:
        """Before the first step."""
        drawn = [self.network(np.random.default_rng([self.method.seed, i])) for i in range(self.method.networks)]
        online: Any = jax.tree.map(lambda *each: jnp.stack(each), *(eqx.filter(one, eqx.is_array) for one in drawn))
        optimiser = jax.vmap(self.optimiser.init)(online)
        units = jnp.ones(self.method.networks, jnp.float32)
        scales = Scales(units, units, jnp.ones((self.method.networks, len(BLOCKS)), jnp.float32))
        return TrainState(jnp.zeros((), jnp.int32), online, online, online, optimiser, scales)

    def advance(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """The next `PORTION` steps, or those that are left."""
        return self._portion(self._data, state)

    def heads(self, weights: Any, stored: Array) -> MomentHeads:
        """What a network says of all actions at observations ``[…]``, in units of the data, ``[…, A]``."""
        network = eqx.combine(weights, eqx.filter(self._shape, eqx.is_array, inverse=True))
        inputs, units = self.encoding.inputs(stored), self.encoding.units
        flat = inputs.reshape(-1, *self.encoding.shape)
        found = jax.vmap(network)(flat)
        front = inputs.shape[: inputs.ndim - len(self.encoding.shape)]
        mean, v, w, d = (part.reshape(*front, *part.shape[1:]) for part in found)
        return MomentHeads((units.offset + units.mean * mean) / units.deviation, v, w, d)

    def _steps(self, data: Any, state: TrainState) -> tuple[TrainState, Metrics]:
        count = jnp.minimum(PORTION, self.steps - state.step)
        R = self.method.networks
        keys = jax.random.split(jax.random.fold_in(random_key(self.method.seed), 1), R)

        def body(i: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, sums = carry
            each = jax.vmap(partial(self._step, data, state.step))
            *parts, metrics = each(keys, *state[1:])
            return TrainState(state.step + 1, *parts), jax.tree.map(jnp.add, sums, metrics)

        none = jnp.zeros((R, len(BLOCKS)), jnp.float32)
        state, sums = jax.lax.fori_loop(0, count, body, (state, Metrics(none, none, none, none)))
        return state, jax.tree.map(lambda total: total / count, sums)

    def _batch(self, data: Any, step: Array, key: Array) -> tuple[Any, Array, Array]:
        """The lists of a step, and what is observed: in their two states ``[B, 2]``, and at next coordinates."""
        pool, lists = data
        chosen = jax.random.randint(jax.random.fold_in(key, step), (self.method.batch,), 0, lists.actions.shape[0])
        batch = Lists(*(part[chosen] for part in lists))
        return batch, pool[batch.observed[:, np.array([0, SECOND_STATE])]], pool[batch.next_observed]

    def _step(
        self, data: Any, step: Array, key: Array, online: Any, target: Any, average: Any, optimiser: Any, scales: Scales
    ) -> tuple[Any, ...]:
        """One step of one network."""
        batch, seen, seen_next = self._batch(data, step, key)

        def listed(weights: Any) -> tuple[Array, Array]:
            """Means ``[B, m]`` and covariances ``[B, m, m]`` of listed coordinates; two of them have one state."""
            heads = self.heads(weights, seen)
            three = MomentHeads(*(jnp.concatenate([part[:, :1], part], axis=1) for part in heads))
            return _of_actions(three, batch.actions, batch.states)

        mean, covariance = _of_actions(self.heads(target, seen_next), batch.next_actions, batch.next_states)
        if self.queries.sharing == "none":  # branches have nothing in common after their first step
            covariance = covariance * jnp.eye(LISTED)
        drawn: Any = batch.rewards, mean, covariance, self.queries.discount, batch.reward_covariances
        aim = backup(listed(target)[0], *drawn)
        aims = _blocks(aim.mean, aim.covariance)
        alive = batch.actions != OVER
        both = alive[:, :, None] & alive[:, None, :] & UPPER
        same = batch.states[:, :, None] == batch.states[:, None, :]
        one = same & (batch.actions[:, :, None] == batch.actions[:, None, :])
        masks = [alive, alive, both & same & ~one, both & ~same, both & ~one]

        def means(values: Any) -> Array:
            return jnp.stack([_mean(value, mask) for value, mask in zip(values, masks, strict=True)])

        def total(weights: Any) -> tuple[Array, tuple[Any, ...]]:
            found = listed(weights)
            errors = [one - other for one, other in zip(_blocks(*found), aims, strict=True)]
            squared = means([e**2 for e in errors])
            units = jnp.stack([scales.variance, *[scales.variance**2] * 3, scales.gap**2])
            losses = squared / jnp.maximum(scales.errors, EXACT * units)
            factors = jnp.array([self.method.weights[name] for name in BLOCKS])
            return jnp.sum(factors * losses), (found, errors, squared, losses)

        (_, (found, errors, squared, losses)), gradient = jax.value_and_grad(total, has_aux=True)(online)
        off, pairs = draw_errors(*found, *drawn)
        first, second = (_blocks(off[:, k], pairs[:, k]) for k in range(2))
        double = means([a * b for a, b in zip(first, second, strict=True)])
        metrics = Metrics(squared, -means(errors), double, losses)
        changes, optimiser = self.optimiser.update(gradient, optimiser, online)
        online = optax.apply_updates(online, changes)
        target = optax.incremental_update(online, target, self.method.target_rate)
        # The average of the first steps weighs them alike, and forgets the start.
        average = optax.incremental_update(online, average, jnp.maximum(1 - self.method.averaging, 1 / (step + 1.0)))
        sizes = Scales(_mean(aims[1], masks[1]), _mean(aims[4], masks[4]), metrics.squared)
        rate = jnp.maximum(SCALE_RATE, 1 / (step + 1.0))
        scales = Scales(
            *((1 - rate) * old + rate * jnp.maximum(new, LEAST) for old, new in zip(scales, sizes, strict=True))
        )
        return online, target, average, optimiser, scales, metrics


def optimiser_of(method: NeuralSettings, steps: int) -> Any:
    """Adam with a rate that falls to 0 and decay of weights; not of biases, which would pull constants to 0."""

    def are_weights(parameters: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, _: getattr(path[-1], "name", "") == "weight", parameters)

    schedule = optax.cosine_decay_schedule(method.learning_rate, steps)
    adam = optax.adamw(schedule, weight_decay=method.weight_decay, mask=are_weights)
    return optax.chain(optax.clip_by_global_norm(MOST_NORM), adam)


def _of_actions(heads: MomentHeads, actions: Array, states: Array) -> tuple[Array, Array]:
    """Means and covariances of one action at each place of heads ``[…, A]``, 0 where it is over.

    By a product with 0 and 1: the gradient of an index is a scatter, which takes most of a step on a CPU.
    """
    taken = jax.nn.one_hot(actions, heads.mean.shape[-1], dtype=heads.mean.dtype)  # zeros where it is over
    mean, d = (jnp.sum(taken * part, axis=-1) for part in (heads.mean, heads.d))
    v, w = (jnp.einsum("...a,...ak->...k", taken, part) for part in (heads.v, heads.w))
    return mean, MomentHeads(mean, v, w, d).covariances(states, actions)


def _blocks(mean: Array, covariance: Array) -> list[Array]:
    """What the losses of `BLOCKS` are about, out of means ``[B, m]`` and covariances ``[B, m, m]``."""
    own = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    return [mean, own, covariance, covariance, gap_variances(covariance)]


def _mean(values: Array, mask: Array) -> Array:
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)
