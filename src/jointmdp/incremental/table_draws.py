"""Draws from a model in tables: which coordinates come next, and what their joint outcome is.

Coordinates are the available pairs (s, a), numbered in turn. Which randomness is shared stands in one place, `owners`:
a coordinate takes its scenario from the first coordinate of its list that shares its luck, and its next action from the
first that is the same coordinate.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jointmdp.arrays import Floats, on_device
from jointmdp.bellman.sample_backups import Sample
from jointmdp.checks import Sharing
from jointmdp.model.inversion import drawn_rows, interval_ends
from jointmdp.model.joint_mdp import JointMDP

Choice = Literal["sweep", "uniform", "trajectory", "pairs"]


class DrawTables(NamedTuple):
    """A model and a policy, ready for inversion; to be made and used in `arrays.float64`."""

    scenario_ends: Float[Array, "S W"]
    action_ends: Float[Array, "S A"]
    rewards: Float[Array, "X W"]
    successors: Int[Array, "X W"]
    states: Int[Array, " X"]
    place: Int[Array, "S A"]  # number of a coordinate; unavailable actions repeat the first available one
    packed: Int[Array, "S A"]  # the available coordinates of a state first
    counts: Int[Array, " S"]  # how many they are
    start_ends: Float[Array, "1 S"]
    discount: Float[Array, ""]
    restart: Float[Array, ""]

    @property
    def size(self) -> int:
        """X, the number of coordinates."""
        return self.states.shape[0]


def draw_tables(model: JointMDP, policy: Floats, start: Floats, restart: float) -> DrawTables:
    """A model and an ``[S, A]`` policy; walkers begin, and with probability `restart` begin again, by `start`."""
    states, actions = np.nonzero(model.available)
    numbers = np.cumsum(model.available).reshape(model.available.shape) - 1
    first = numbers[np.arange(model.num_states), np.argmax(model.available, axis=1)]
    order = np.argsort(~model.available, axis=1, kind="stable")
    rewards = np.where(model.is_possible, model.rewards, 0.0)

    def ints(values: object) -> Array:
        return on_device(np.asarray(values, dtype=np.int32))

    return DrawTables(
        on_device(interval_ends(model.probabilities)),
        on_device(interval_ends(policy)),
        on_device(rewards[states, :, actions]),
        ints(model.successors[states, :, actions]),
        ints(states),
        ints(np.where(model.available, numbers, first[:, None])),
        ints(np.take_along_axis(numbers, order, axis=1)),
        ints(model.available.sum(axis=1)),
        on_device(interval_ends(start[None, :])),
        on_device(model.discount),
        on_device(restart),
    )


# -- outcomes ----------------------------------------------------------------------------------------------------


def draw_field(tables: DrawTables, luck: Float[Array, " L"], choice: Float[Array, " X"], sharing: Sharing) -> Sample:
    """One outcome for every coordinate, from uniform numbers: `luck` picks scenarios by place, `choice` next actions.

    There is one number of luck under ``"time"``, one a state under ``"state"``, and one a coordinate under ``"none"``.
    """
    here = tables.states
    uniform = {"time": jnp.broadcast_to(luck[:1], here.shape), "state": luck[here], "none": luck}[sharing]
    return _outcomes(tables, jnp.arange(tables.size, dtype=jnp.int32), uniform, choice)


def scenario_draws(tables: DrawTables, sharing: Sharing) -> int:
    """How many numbers of luck a field takes."""
    return {"time": 1, "state": tables.scenario_ends.shape[0], "none": tables.size}[sharing]


def draw_lists(
    tables: DrawTables,
    luck: Float[Array, "B m"],
    choice: Float[Array, "B m"],
    lists: Int[Array, "B m"],
    sharing: Sharing,
) -> Sample:
    """One joint outcome for every list of coordinates, from uniform numbers of which shared ones are used once."""
    scenario, action = owners(tables.states[lists], lists, sharing)
    uniform, chosen = jnp.take_along_axis(luck, scenario, axis=1), jnp.take_along_axis(choice, action, axis=1)
    return _outcomes(tables, lists, uniform, chosen)


def owners(
    states: Int[Array, "B m"], lists: Int[Array, "B m"], sharing: Sharing
) -> tuple[Int[Array, "B m"], Int[Array, "B m"]]:
    """Whose scenario and whose next action each coordinate of a list takes: those of the first that shares them."""
    same = jnp.argmax(lists[:, :, None] == lists[:, None, :], axis=2).astype(jnp.int32)
    if sharing == "time":
        return jnp.zeros_like(same), same
    if sharing == "state":
        return jnp.argmax(states[:, :, None] == states[:, None, :], axis=2).astype(jnp.int32), same
    return same, same


def _outcomes(tables: DrawTables, x: Array, uniform: Array, choice: Array) -> Sample:
    scenario = drawn_rows(tables.scenario_ends, tables.states[x], uniform)
    successor = tables.successors[x, scenario]
    action = drawn_rows(tables.action_ends, successor, choice)
    return Sample(x, tables.rewards[x, scenario], tables.place[successor, action])


# -- which coordinates -------------------------------------------------------------------------------------------


# Uniform numbers a list: which coordinates; or whether walkers begin again, where, and how they go on.
NUMBERS = {"uniform": 2, "pairs": 8, "trajectory": 8}


def length(tables: DrawTables, choice: Choice) -> int:
    """m, how many coordinates a list names."""
    return 2 * tables.place.shape[1] if choice == "trajectory" else 2


def choose(
    tables: DrawTables, choice: Choice, numbers: Float[Array, "B n"], walkers: Int[Array, "B 2"]
) -> tuple[Int[Array, "B m"], Int[Array, "B 2"]]:
    """Lists of coordinates to be drawn next, and the walkers that stand behind them; −1 is a walker yet to start.

    - ``"uniform"``: two coordinates at random.
    - ``"trajectory"``: two walkers follow the policy, and all actions of their two states are listed.
    - ``"pairs"``: a pair of branches, which began in one state with two actions at random (or one action twice).
    """
    first, second = numbers[:, 0:2], numbers[:, 2:4]
    if choice == "uniform":
        return (first * tables.size).astype(jnp.int32), walkers
    if choice == "trajectory":
        begun = drawn_rows(tables.start_ends, jnp.zeros_like(walkers), second)
        walkers = jnp.where((first < tables.restart) | (walkers < 0), begun, walkers)
        return tables.place[walkers].reshape(walkers.shape[0], -1), walkers
    state = drawn_rows(tables.start_ends, jnp.zeros_like(walkers[:, :1]), first[:, 1:])
    begun = tables.packed[state, (second * tables.counts[state]).astype(jnp.int32)]
    walkers = jnp.where((first[:, :1] < tables.restart) | (walkers < 0), begun, walkers)
    return walkers, walkers


def move(
    tables: DrawTables, choice: Choice, numbers: Float[Array, "B n"], walkers: Int[Array, "B 2"], sharing: Sharing
) -> Int[Array, "B 2"]:
    """Where the walkers stand next: each takes an action of the policy, or is its branch's next step.

    They move by draws of their own. If they followed those that the updates use, which coordinates come next would
    depend on the noise, and all replicas would be off in the same direction.
    """
    if choice == "uniform":
        return walkers
    if choice == "pairs":
        return draw_lists(tables, numbers[:, 4:6], numbers[:, 6:8], walkers, sharing).nexts
    taken = tables.place[walkers, drawn_rows(tables.action_ends, walkers, numbers[:, 4:6])]
    return tables.successors[taken, drawn_rows(tables.scenario_ends, walkers, numbers[:, 6:8])]
