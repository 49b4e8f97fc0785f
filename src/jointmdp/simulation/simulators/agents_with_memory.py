"""A simulator whose states hold what agents remember, so that every branch has a memory of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

from jointmdp.simulation.simulators.agent_views import Memory, View
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import (
    Action,
    Agent,
    Outcome,
    Simulator,
    Snapshot,
    as_agent,
    as_choice,
    drawn_choice,
    policy_form,
)


class Situation(NamedTuple):
    """A state, and what each agent does and remembers there."""

    place: Snapshot
    actions: tuple[Action, ...]
    """None where the episode is over."""
    memories: tuple[Memory, ...]
    """With the observation of this state."""


# Of the simulator inside, as they are: they have nothing to do with states.
SETTINGS = ("name", "discount", "sharing", "action_names", "reward_bounds", "refuses_unavailable", "reseeds")
METHODS = ("random_action", "policy_draw", "action_label")


class RememberingSimulator(Simulator):
    """Another simulator, with states that hold the memories of agents; all else is as it says.

    Whatever is done in a step, each agent sees the state that it leads to.
    """

    def __init__(self, inner: Simulator, views: Sequence[View]) -> None:
        self.inner, self.views = inner, tuple(views)
        vars(self).update({name: getattr(inner, name) for name in (*SETTINGS, "frozen_noise", *METHODS)})

    def choose(self, agent: int, state: Situation, noise: Noise) -> Action:
        """What one of the agents does."""
        found = state.actions[agent]
        if self.views[agent].gives_law:
            return drawn_choice(found(), state.place, self.inner, noise)
        return as_choice(found, state.place, self.inner)

    def start(self, noise: Noise) -> Situation:
        return self.snapshot(self.inner.start(noise))

    def reset(self, seed: int = 0) -> Situation:
        return self.snapshot(self.inner.reset(seed))

    def snapshot(self, state: Any) -> Situation:
        """A state; where it is one of the simulator inside, memories begin there."""
        if isinstance(state, Situation):
            return state
        return self._arrived(self.inner.snapshot(state), tuple(view.fresh for view in self.views))

    def step(self, state: Situation, action: Action, noise: Noise) -> Outcome:
        found = self.inner.step(state.place, action, noise)
        return Outcome(found.reward, self._arrived(found.state, state.memories))

    def query(self, state: Situation, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        found = self.inner.query(state.place, actions, noise)
        return [Outcome(reward, self._arrived(place, state.memories)) for reward, place in found]

    def observe(self, state: Situation) -> Any:
        return self.inner.observe(state.place)

    def is_over(self, state: Situation) -> bool:
        return self.inner.is_over(state.place)

    def identity(self, state: Situation) -> Hashable:
        return self.inner.identity(state.place), fingerprint(state.memories)

    def available(self, state: Situation) -> Sequence[Action]:
        return self.inner.available(state.place)

    def action_index(self, action: Action, state: Situation | None = None) -> Action:
        return self.inner.action_index(action, None if state is None else state.place)

    def _arrived(self, place: Snapshot, memories: tuple[Memory, ...]) -> Situation:
        if self.inner.is_over(place):
            return Situation(place, (None,) * len(self.views), memories)
        seen = self.inner.observe(place)
        found = [view.act(seen, memory) for view, memory in zip(self.views, memories, strict=True)]
        return Situation(place, tuple(action for action, _ in found), tuple(memory for _, memory in found))


def with_memories(
    simulator: Simulator, policies: Sequence[Any], state: Snapshot | None
) -> tuple[Simulator, list[Agent], Snapshot | None]:
    """Simulator, agents and state, with the memories of those agents that have one made part of the states."""
    if isinstance(simulator, RememberingSimulator):
        simulator = simulator.inner
    views: list[View | None] = []
    for policy in policies:
        form, agent = policy_form(policy, simulator)
        view = View.of(agent) if form == "predicting" else None
        if view is not None and view.may_remember:
            place = state.place if isinstance(state, Situation) else state
            try:
                seen = simulator.observe(simulator.reset() if place is None else place)
                view = None if view.act(seen, view.fresh)[1].is_empty else view
            except Exception:  # whatever an agent raises comes out with the place where it is asked in earnest
                view = None
        views.append(view if view is not None and view.may_remember else None)
    agents = [as_agent(policy, simulator) for policy in policies]
    if not any(views):
        return simulator, agents, state
    outer = RememberingSimulator(simulator, [view for view in views if view is not None])
    for i, view in enumerate(views):
        agents[i] = partial(outer.choose, outer.views.index(view)) if view is not None else partial(_inside, agents[i])
    return outer, agents, None if state is None else outer.snapshot(state)


def _inside(agent: Agent, state: Situation, noise: Noise) -> Action:
    """What an agent without a memory does: it sees the state of the simulator inside."""
    return agent(state.place, noise)
