"""A joint MDP and the policies of its branches, as the compiled engine simulates them."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from jointmdp.ground.arrays import Floats, float64, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.model.inverse_sampling import drawn_rows, interval_ends
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy, depends_on_time, timed_policy, uniform_policy
from jointmdp.model.tables import endless_state, terminal_states
from jointmdp.simulation.montecarlo.compiled_branches import columns_of, of_branches

FILLED = 2**16  # outcomes of a table that is filled up; larger ones would take memory, and compile rarely
LEAST = (32, 4, 4)  # states, scenarios and actions of a table that is filled up: reading one this small costs the same

AnyArray = npt.NDArray[Any]


class TableDynamics(NamedTuple):
    """All by inversion: one uniform for the scenario of a step, one for each action."""

    scenario_ends: Array  # [S, W]
    action_ends: Array  # [P·T·S, A] of policy k at step t in state s at (k·T + t)·S + s
    last: Array  # T − 1: the policies do not change after this step
    start_ends: Array  # [1, S]
    kinds: Array  # [m]
    first: Array | None  # [m] first actions; None: the policies choose them too
    rewards: Array  # [S, W, A]
    successors: Array  # [S, W, A]
    is_terminal: Array  # [S] where nothing more is paid
    discount: Array

    @property
    def drawn_together(self) -> int:
        """On CPUs eight small draws take twice as long as a large one, and those of a few lone branches are smaller."""
        return 8 if self.kinds.shape[0] > 1 else 128

    def start(self, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
        """All branches of a replication in one starting state."""
        uniform = jax.random.uniform(key, (shape[0], 1), dtype=jnp.float64)
        one = drawn_rows(self.start_ends, jnp.zeros(uniform.shape, dtype=jnp.int32), uniform)
        state = jnp.broadcast_to(one, shape)
        return state, self.is_terminal[state]

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """One uniform for each branch ``[N, m]``, or for all of a replication ``[N, 1]``."""
        return self.chances(key, (shape[0], shape[1] if len(shape) > 1 else 1))

    def step(self, state: Array, action: Array, noise: Array) -> tuple[Array, Array, Array]:
        """The scenario, and its outcome for each branch's action."""
        scenario = drawn_rows(self.scenario_ends, state, noise)
        successor = self.successors[state, scenario, action]
        return self.rewards[state, scenario, action], successor, self.is_terminal[successor]

    def chances(self, key: Array, shape: tuple[int, int]) -> Array:
        """One uniform for each branch."""
        return columns_of(partial(jax.random.uniform, dtype=jnp.float64), key, shape)

    def choose(self, state: Array, chances: Array, leader: Array, time: Array) -> Array:
        """Actions of the branches' policies."""
        rows = state + (self.kinds * (self.last + 1) + jnp.minimum(time, self.last)) * self.rewards.shape[0]
        return drawn_rows(self.action_ends, rows, of_branches(chances, leader))

    def mistake(self, state: Array, action: Array, column: int) -> str:
        """The sum of a table's rewards has grown too large for a number."""
        return "the rewards so far add up to more than a number can hold"

    def only(self, places: tuple[int, ...]) -> "TableDynamics":
        """Those of some branches."""
        of = np.asarray(places)
        return self._replace(kinds=self.kinds[of], first=None if self.first is None else self.first[of])

    def snapshot(self, state: Array, is_over: Array) -> int:
        """The state's number."""
        return int(state)


def table_dynamics(
    model: JointMDP, policies: Sequence[Floats], kinds: Sequence[int], first: Sequence[int] | None, start: Floats
) -> TableDynamics:
    """Branches that follow ``policies[kinds[j]]``, ``[S, A]`` or ``[T, S, A]``, from a law ``[S]`` of starting states.

    Small tables are filled up to powers of two with what is never drawn: models of about one size are one program.
    """
    if first is not None:
        states = np.flatnonzero(start)
        for i, j in np.argwhere(~model.available[states][:, list(first)]):
            model.action_index(first[j], int(states[i]))  # raises, and says where it is not available

    def ints(values: Any) -> Array:
        return on_device(np.asarray(values, dtype=np.int32))

    size = tuple(max(least, 1 << (n - 1).bit_length()) for n, least in zip(model.rewards.shape, LEAST, strict=True))
    S, W, A = size if math.prod(size) <= FILLED else model.rewards.shape
    steps = max(1 if each.ndim == 2 else len(each) for each in policies)
    rows = np.stack([np.broadcast_to(each, (steps, *each.shape[-2:])) for each in policies])  # [P, T, S, A]
    action_ends = enlarged(interval_ends(rows), (len(policies), steps, S, A), np.inf)
    with float64():
        return TableDynamics(
            on_device(enlarged(interval_ends(model.probabilities), (S, W), np.inf)),
            on_device(action_ends.reshape(-1, A)),
            ints(steps - 1),
            on_device(enlarged(interval_ends(start[None, :]), (1, S), np.inf)),
            ints(kinds),
            None if first is None else ints(first),
            on_device(enlarged(model.rewards, (S, W, A), 0.0)),
            ints(enlarged(model.successors, (S, W, A), 0)),
            on_device(enlarged(terminal_states(model), (S,), True)),
            on_device(model.discount),
        )


def enlarged(values: AnyArray, shape: tuple[int, ...], value: float) -> AnyArray:
    """An array in the corner of a larger one."""
    return np.pad(values, [(0, n - m) for n, m in zip(shape, values.shape, strict=True)], constant_values=value)


def as_table_policy(model: JointMDP, policy: Any, horizon: int | None = None) -> Floats | None:
    """A policy that is a table, as ``[S, A]`` probabilities; None for a function or an object, asked state by state.

    Over a `horizon` it may depend on time, ``[T, S, A]``.
    """
    if isinstance(policy, str) and policy == "uniform" and policy not in (model.action_names or ()):
        return uniform_policy(model)
    if isinstance(policy, str | int | np.integer):
        action = model.action_index(policy if isinstance(policy, str) else int(policy))
        return np.eye(model.num_actions)[[action] * model.num_states] if model.available[:, action].all() else None
    is_asked = callable(policy) or callable(getattr(policy, "predict", None))
    if is_asked:
        return None
    if horizon is not None and depends_on_time(policy):
        return timed_policy(model, policy, horizon)
    return as_policy(model, policy)


def check_ends(model: JointMDP, policies: Sequence[Floats], start: Floats, first: Sequence[int] | None) -> None:
    """Raise unless episodes of an undiscounted model surely end from everywhere that they can come to."""
    states = np.flatnonzero(start)
    if first is not None:
        possible = model.probabilities[states] > 0  # [n, W]
        states = model.successors[states][possible][:, list(first)].ravel()
    for policy in policies:
        state = endless_state(model, policy, states)
        if state is not None:
            raise ModelError(
                f"discount is 1, and an episode that comes to {model.state_label(state)} never ends; simulating an "
                "endless future needs a discount below 1, or a horizon"
            )
