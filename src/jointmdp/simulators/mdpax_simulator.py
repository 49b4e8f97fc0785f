"""Problems of mdpax as simulators, for those whose outcomes are too many to list: a table of one state at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import users_calls
from jointmdp.checks import Sharing
from jointmdp.model.mdpax_outcomes import ListedProblem, labels
from jointmdp.simulators.jax_simulator import JaxSimulator, JaxState


class MdpaxSimulator(JaxSimulator):
    """A `JaxSimulator` whose states are vectors, which may also be given as tuples or lists."""

    def at(self, state: Any) -> JaxState:
        """The snapshot of a state."""
        return super().at(state if isinstance(state, JaxState) else np.asarray(state))


@users_calls()
def mdpax_simulator(
    problem: Any,
    discount: float,
    sharing: Sharing = "time",
    *,
    start: Any = None,
    reward_bounds: tuple[float, float] | None = None,
) -> JaxSimulator:
    """A simulator from an mdpax problem.

    A step draws one uniform and takes the first event whose cumulative chance exceeds it, so actions are coupled as by
    the comonotone coupling of `from_mdpax`. Snapshots hold state vectors, as in ``simulator.at((4, 0, 4, 0))``. A
    policy sees the state's number: what `mdpax_policy` gives is one, and so are arrays ``[S]`` or ``[S, A]`` over the
    problem's states.

    Args:
        problem: for example ``mdpax.problems.HendrixTwoProductPerishable()``.
        discount, sharing, reward_bounds: as in `Simulator`.
        start: the state vector that episodes begin in; by default the problem's first.
    """
    listed = ListedProblem(problem)
    actions, events = jnp.asarray(listed.actions), jnp.asarray(listed.events)
    begin = listed.states[0 if start is None else int(listed.state_numbers(start)[0])]

    def step(key: Array, state: Any, action: Any) -> tuple[Any, Any]:
        act = actions[action]
        chances = jax.vmap(problem.random_event_probability, (None, None, 0))(state, act, events).reshape(-1)
        ends = jnp.cumsum(chances)
        place = jnp.sum(ends <= jax.random.uniform(key, dtype=ends.dtype) * ends[-1])
        # A product that is rounded up to the whole sum lies behind the last possible event.
        last = len(chances) - 1 - jnp.argmax(chances[::-1] > 0)
        after, reward = problem.transition(state, act, events[jnp.minimum(place, last)])
        return jnp.reshape(reward, ()), jnp.reshape(after, state.shape)

    return MdpaxSimulator(
        step,
        np.asarray(begin),
        actions=labels(listed.actions),
        observe=lambda state: jnp.asarray(problem.state_to_index(state)).reshape(()),
        discount=discount,
        sharing=sharing,
        reward_bounds=reward_bounds,
        name=f"mdpax:{getattr(problem, 'name', type(problem).__name__)}",
    )
