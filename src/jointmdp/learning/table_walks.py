"""The compiled half of the walker: lanes on a model in tables, all of them at once.

Coordinates are the available pairs (s, a), numbered in turn. Which randomness is shared stands in one place, `owners`:
a coordinate takes its scenario from the first coordinate of its list that shares its noise, and its next action from
the first that is the same coordinate. Lists along trajectories and pairs follow *walkers*: states or coordinates that
move on by one random transition in each step and say which coordinates the next list names. `walks` has the same kinds
of walks for any simulator: `choose` and `move` are its `ListWalks`, and `trunk_step` is its `TrunkWalks`.
"""

from functools import partial
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jointmdp.exact.bellman.sample_backups import Sample, TupleLinks
from jointmdp.ground.arrays import Floats, on_device
from jointmdp.ground.checks import Sharing
from jointmdp.learning.walks import APART, Choice
from jointmdp.model.inverse_sampling import drawn_rows, interval_ends
from jointmdp.model.joint_mdp import JointMDP

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # so that a key of zeros is none of the keys of the rounds
# Uniform numbers a list: which coordinates; or whether walkers begin again, where, and how they move.
LIST_UNIFORMS = {"uniform": 2, "pairs": 8, "trajectory": 8}
TRUNK_LIST = 3  # coordinates that a step along a trunk lists
BEGIN, DRAW, MOVE = 7, 4 * TRUNK_LIST, 2  # uniform numbers of a lane in such a step


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
    restart: Float[Array, ""]
    links: TupleLinks | None = None  # of sorted tuples, where the moments of all of them are learned

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
    rewards = model.paid_rewards

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
        on_device(restart),
    )


def draw_field(
    tables: DrawTables, scenario: Float[Array, " L"], action: Float[Array, " X"], sharing: Sharing
) -> Sample:
    """One outcome for every coordinate, from `scenario_draws` uniform numbers for scenarios and X for next actions."""
    here = tables.states
    uniform = {"time": jnp.broadcast_to(scenario[:1], here.shape), "state": scenario[here], "none": scenario}[sharing]
    return _outcomes(tables, jnp.arange(tables.size, dtype=jnp.int32), uniform, action)


def scenario_draws(tables: DrawTables, sharing: Sharing) -> int:
    """How many uniform numbers the scenarios of a field take: one, one a state, or one a coordinate."""
    return {"time": 1, "state": tables.scenario_ends.shape[0], "none": tables.size}[sharing]


def draw_lists(
    tables: DrawTables,
    scenario: Float[Array, "B m"],
    action: Float[Array, "B m"],
    lists: Int[Array, "B m"],
    sharing: Sharing,
) -> Sample:
    """One joint outcome for every list of coordinates, from uniform numbers of which shared ones are used once."""
    whose, same = owners(tables.states[lists], lists, sharing)
    uniform, chosen = jnp.take_along_axis(scenario, whose, axis=1), jnp.take_along_axis(action, same, axis=1)
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


def _outcomes(tables: DrawTables, x: Array, scenario: Array, action: Array) -> Sample:
    w = drawn_rows(tables.scenario_ends, tables.states[x], scenario)
    successor = tables.successors[x, w]
    return Sample(x, tables.rewards[x, w], tables.place[successor, drawn_rows(tables.action_ends, successor, action)])


def length(tables: DrawTables, choice: Choice) -> int:
    """m, how many coordinates a list names."""
    return 2 * tables.place.shape[1] if choice == "trajectory" else 2


def choose(
    tables: DrawTables, choice: Choice, uniform: Float[Array, "B n"], walkers: Int[Array, "B 2"]
) -> tuple[Int[Array, "B m"], Int[Array, "B 2"]]:
    """Lists of coordinates to be drawn next, and the walkers that they follow; −1 is a walker yet to begin.

    - ``"uniform"``: two coordinates at random.
    - ``"trajectory"``: two walkers follow the policy, and all actions of their two states are listed.
    - ``"pairs"``: a pair of branches, which began in one state with two actions at random (or one action twice).
    """
    first, second = uniform[:, 0:2], uniform[:, 2:4]
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
    tables: DrawTables, choice: Choice, uniform: Float[Array, "B n"], walkers: Int[Array, "B 2"], sharing: Sharing
) -> Int[Array, "B 2"]:
    """Where the walkers stand next: each takes an action of the policy, or is its branch's next step.

    They move by draws of their own. If they followed those that the updates use, which coordinates come next would
    depend on the noise, and all replicas would be off in the same direction.
    """
    if choice == "uniform":
        return walkers
    if choice == "pairs":
        return draw_lists(tables, uniform[:, 4:6], uniform[:, 6:8], walkers, sharing).nexts
    taken = tables.place[walkers, drawn_rows(tables.action_ends, walkers, uniform[:, 4:6])]
    return tables.successors[taken, drawn_rows(tables.scenario_ends, walkers, uniform[:, 6:8])]


class TrunkStep(NamedTuple):
    """A step of L lanes along trunks: lists, and two draws of what they give."""

    walkers: Int[Array, "L 3"]  # the trunk's state and two coordinates; −1 where something new must begin
    listed: Int[Array, "L m"]
    rewards: Float[Array, "L 2 m"]
    nexts: Int[Array, "L 2 m"]


@partial(jax.jit, static_argnames="sharing")
def trunk_step(
    tables: DrawTables,
    walkers: Int[Array, "L 3"],
    key: Array,
    episode_restart: Float[Array, ""],
    is_over: Bool[Array, " S"],
    sharing: Sharing,
) -> TrunkStep:
    """The next step of all lanes."""
    drawn = uniforms(key, (walkers.shape[0], BEGIN + DRAW + MOVE))
    begin, draw, move = jnp.split(drawn, [BEGIN, BEGIN + DRAW], axis=1)
    trunk, x, y = walkers.T
    first = drawn_rows(tables.start_ends, jnp.zeros_like(trunk), begin[:, 0])
    trunk = jnp.where((trunk < 0) | (begin[:, 1] < episode_restart), first, trunk)
    new = tables.packed[trunk, (begin[:, 3] * tables.counts[trunk]).astype(jnp.int32)]
    is_new = (x < 0) | (begin[:, 2] < tables.restart)
    is_apart = (x >= 0) & (begin[:, 6] < APART)
    second = jnp.where(is_apart, new, _other(tables, new, begin[:, 4]))
    x, y = jnp.where(is_new & ~is_apart, new, x), jnp.where(is_new, second, y)
    listed = jnp.stack([x, _other(tables, x, begin[:, 5]), y], axis=1)
    found = [
        draw_lists(tables, each[:, :TRUNK_LIST], each[:, TRUNK_LIST:], listed, sharing)
        for each in jnp.split(draw, 2, axis=1)
    ]
    rewards, nexts = (jnp.stack([getattr(each, name) for each in found], axis=1) for name in ("rewards", "nexts"))
    one, other = nexts[:, 0, 0], nexts[:, 0, 2]
    one_over, other_over = is_over[tables.states[one]], is_over[tables.states[other]]
    one, other = jnp.where(one_over, other, one), jnp.where(other_over, one, other)
    ends = one_over & other_over
    taken = tables.place[trunk, drawn_rows(tables.action_ends, trunk, move[:, 0])]
    trunk = tables.successors[taken, drawn_rows(tables.scenario_ends, trunk, move[:, 1])]
    after = [jnp.where(is_over[trunk], -1, trunk), jnp.where(ends, -1, one), jnp.where(ends, -1, other)]
    return TrunkStep(jnp.stack(after, axis=1).astype(jnp.int32), listed, rewards, nexts)


def _other(tables: DrawTables, x: Int[Array, " L"], uniform: Float[Array, " L"]) -> Int[Array, " L"]:
    """Another action of the same state; the same one where there is no other."""
    state = tables.states[x]
    first, count = tables.packed[state, 0], tables.counts[state]  # coordinates of a state follow each other
    return first + (x - first + 1 + (uniform * (count - 1)).astype(jnp.int32)) % count


def uniforms(key: Array, shape: tuple[int, ...]) -> Array:
    """What `jax.random.uniform` gives for a key of its default kind, in less than half of its time on a CPU.

    Numbers in [0, 1) with 52 bits from Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random
    numbers: as easy as 1, 2, 3", 2011). JAX compiles the rounds as a loop, which is short to compile and slow to run.
    To be used in `arrays.float64`.
    """
    count = prod(shape)
    assert count < 2**32
    high, low = _threefry(jax.random.key_data(key), jnp.zeros(count, jnp.uint32), jnp.arange(count, dtype=jnp.uint32))
    # 32 bits and the upper 20 of the others: both are whole numbers below 2⁵², so nothing is rounded.
    whole = high.astype(jnp.float64) * 2.0**20 + (low >> jnp.uint32(12)).astype(jnp.float64)
    return (whole * 2.0**-52).reshape(shape)


def _threefry(key: Array, first: Array, second: Array) -> tuple[Array, Array]:
    keys = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY)
    first, second = first + keys[0], second + keys[1]
    for block in range(5):
        for bits in ROTATIONS[block % 2]:
            first = first + second
            second = (second << jnp.uint32(bits) | second >> jnp.uint32(32 - bits)) ^ first
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return first, second
