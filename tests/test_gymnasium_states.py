"""States of Gymnasium environments by hooks, by copies and by replayed histories."""

from __future__ import annotations

import copy
import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium_worlds import Remade, Shop, Uncopied, actions_of, by_hand, by_simulator, cartpole_get, cartpole_set, seen

from jointmdp.model.built_in_models import inventory
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise

# -- hooks -------------------------------------------------------------------------------------------------------


def test_hooks_bring_back_what_they_read() -> None:
    simulator = GymnasiumSimulator("CartPole-v1", get_state=cartpole_get, set_state=cartpole_set)
    assert simulator.state_kind == "hooks"
    actions = actions_of(simulator, 12)
    assert by_simulator(simulator, 3, actions) == by_hand(gymnasium.make("CartPole-v1"), 3, actions)


def test_hooks_that_forget_a_part_are_seen_to_fail() -> None:
    def forgetful(env: Any, value: Any) -> None:
        cartpole_set(env, np.array([*value[:3], env.unwrapped.state[3]]))

    simulator = GymnasiumSimulator("CartPole-v1", get_state=cartpole_get, set_state=forgetful)
    actions = actions_of(simulator, 12)
    assert by_simulator(simulator, 3, actions) != by_hand(gymnasium.make("CartPole-v1"), 3, actions)


def test_hooks_that_hand_out_the_live_state_do_no_harm() -> None:
    def get(env: Any) -> Any:
        return env.unwrapped.queue  # the very object that the next step appends to

    def put(env: Any, value: Any) -> None:
        env.unwrapped.queue = value

    simulator = GymnasiumSimulator(Shop(), get_state=get, set_state=put)
    copies = GymnasiumSimulator(Shop(), state="copy")
    actions = actions_of(simulator, 6)
    assert by_simulator(simulator, 0, actions) == by_simulator(copies, 0, actions)


def test_identity_with_hooks_is_a_function_of_what_they_read() -> None:
    simulator = GymnasiumSimulator(
        "CartPole-v1",
        get_state=cartpole_get,
        set_state=cartpole_set,
        identity=lambda state: bool(state[0] > 0),
    )
    assert {simulator.identity(simulator.reset(seed)) for seed in range(20)} == {(True, False), (False, False)}


def test_identity_without_hooks_is_a_function_of_the_environment() -> None:
    simulator = GymnasiumSimulator("CartPole-v1", identity=lambda env: round(float(env.unwrapped.state[0]), 2))
    state = simulator.reset()
    assert simulator.identity(state) == (round(float(simulator.observe(state)[0]), 2), False)


# -- copies ------------------------------------------------------------------------------------------------------


class Tied(gymnasium.Env[Any, Any]):
    """Its moves are functions that hold on to the environment, which no deep copy follows."""

    action_space, observation_space = spaces.Discrete(2), spaces.Box(-99.0, 99.0, (), np.float64)

    def __init__(self) -> None:
        self.x = 0
        self.moves = {0: lambda: self.move(-1), 1: lambda: self.move(1)}

    def move(self, by: int) -> None:
        self.x += by

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = 0
        return np.float64(0), {}

    def step(self, action: Any) -> Any:
        self.moves[int(action)]()
        return np.float64(self.x), float(self.x), False, False, {}


def test_functions_that_hold_on_to_the_environment_forbid_copies() -> None:
    env = Tied()
    env.reset()
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == "replay"
    assert "moves" in simulator.state_reason
    assert [each.reward for each in simulator.query(simulator.reset(), [0, 1], Noise(1))] == [-1.0, 1.0]


def test_a_function_behind_a_function_forbids_copies_too() -> None:
    env: Any = Shop()
    inner = lambda: env.queue  # noqa: E731
    env.hooks = [functools.partial(lambda hook: hook(), inner)]
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == "replay"
    assert "the function Shop.hooks[0] holds on to the environment" in simulator.state_reason
    env = Shop()
    env.hooks = [functools.partial(max, 3), lambda x, scale=2.0: scale * x]
    assert GymnasiumSimulator(env).state_kind == "copy"


def test_states_that_are_the_same_have_the_same_identity() -> None:
    simulator = GymnasiumSimulator("Blackjack-v1")
    state = simulator.reset()
    found = [simulator.query(state, [1], Noise(i))[0].state for i in range(60)]
    by_observation: dict[Any, set[Any]] = {}
    for each in found:
        by_observation.setdefault((simulator.observe(each), each.is_over), set()).add(simulator.identity(each))
    # Thirteen ranks, ten values: after one card the observation tells the card, except for the ace's two values.
    assert all(len(names) == 1 for names in by_observation.values())
    assert len(by_observation) > 5


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1", "joint model", "Shop"])
def test_a_deep_copy_of_a_snapshot_is_the_same_state(name: str) -> None:
    env = {"joint model": lambda: inventory(max_stock=4, max_order=3)[0].as_gymnasium(), "Shop": Shop}.get(
        name, lambda: name
    )()
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == "copy"
    state = simulator.walk("uniform", 3)
    again = copy.deepcopy(state)
    assert simulator.identity(again) == simulator.identity(state)
    both = [simulator.query(each, [0, 1], Noise("n")) for each in (state, again)]
    assert seen(simulator, both[0]) == seen(simulator, both[1])
    assert len({simulator.identity(simulator.reset(seed)) for seed in range(8)}) > 1


def test_copies_share_what_cannot_change_and_nothing_else() -> None:
    simulator = GymnasiumSimulator(Shop())
    state = simulator.reset()
    (outcome,) = simulator.query(state, [1], Noise("n"))
    before, after = (simulator._keeper.told(one.kept) for one in (state, outcome.state))
    assert before.action_space is after.action_space
    for name in ("queue", "buffer", "source", "many"):
        assert getattr(before, name) is not getattr(after, name)
    assert after.same is after._np_random, "one generator in two places stays one"


def test_an_observation_is_not_the_buffer_of_the_next_step() -> None:
    for state in ("copy", "replay"):
        simulator = GymnasiumSimulator(Shop(), state=state)
        first = simulator.query(simulator.reset(), [1], Noise("n"))[0].state
        shown = simulator.observe(first).copy()
        simulator.query(first, [0, 1], Noise("m"))
        assert np.array_equal(simulator.observe(first), shown)


def test_copies_made_anew_by_the_constructor_are_not_believed() -> None:
    env = Remade()
    env.reset(seed=0)
    env.step(1)
    assert len(copy.deepcopy(env).queue) != len(env.queue), "what a plain deep copy does"
    simulator = GymnasiumSimulator(Remade())
    assert simulator.state_kind == "copy"
    actions = actions_of(simulator, 6)
    assert by_simulator(simulator, 0, actions) == by_simulator(GymnasiumSimulator(Shop()), 0, actions)


class Shared(Shop):
    """Claims to be copied and is not."""

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


@pytest.mark.parametrize(
    ("make", "words"), [(Shared, "another way"), (Uncopied, "cannot pickle '_thread.lock' object")]
)
def test_where_copies_do_not_serve_histories_are_replayed(make: Any, words: str) -> None:
    simulator = GymnasiumSimulator(make())
    assert simulator.state_kind == "replay"
    assert words in simulator.state_reason
    actions = actions_of(simulator, 8)
    assert by_simulator(simulator, 1, actions) == by_simulator(GymnasiumSimulator(Shop()), 1, actions)


class Loose(Shop, EzPickle):
    """Every copy has lost its gain, so that copies agree with each other."""

    def __init__(self, gain: float = 2.0) -> None:
        Shop.__init__(self)
        EzPickle.__init__(self)
        self.gain = gain

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"gain": 0.0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def step(self, action: Any) -> Any:
        seen, reward, *rest = super().step(action)
        return seen, reward * self.gain, *rest


class HiddenLoose(Loose):
    """The gain stands in a function, which looks the same in every copy."""

    def __init__(self) -> None:
        super().__init__()
        self.law = _times(self.gain)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"law": _times(0.0)})

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, self.law(float(action)), *rest


def _times(gain: float) -> Any:
    return lambda value: gain * value


@pytest.mark.parametrize(("make", "state"), [(Loose, None), (Loose, "replay"), (HiddenLoose, "replay")])
def test_copies_that_all_lost_the_same_are_not_believed(make: Any, state: Any) -> None:
    simulator = GymnasiumSimulator(make(), state=state)
    assert simulator.state_kind == "replay"
    assert state or "a copy has another Loose.gain than the original" in simulator.state_reason
    outcomes = simulator.query(simulator.reset(1), [0, 1], Noise("n"))
    assert [found.reward for found in outcomes] == [0.0, 2.0]


class Watched(Shop):
    """Its copies have no viewer, as in highway-env."""

    viewer: Any = None

    def __deepcopy__(self, memo: Any) -> Watched:
        found = type(self)()
        vars(found).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name != "viewer"})
        found.viewer = None
        return found


def test_a_viewer_that_copies_leave_out_is_not_missed() -> None:
    env = Watched()
    env.viewer = object()
    assert GymnasiumSimulator(env).state_kind == "copy"


# -- replay ------------------------------------------------------------------------------------------------------


def test_replayed_and_copied_states_bring_the_same() -> None:
    copies, histories = (GymnasiumSimulator("CartPole-v1", state=kind) for kind in ("copy", "replay"))
    actions = actions_of(copies, 15)
    assert by_simulator(histories, 5, actions) == by_simulator(copies, 5, actions)


def test_going_on_step_by_step_replays_nothing() -> None:
    simulator = GymnasiumSimulator(Uncopied())
    env: Any = simulator.env.unwrapped
    state = simulator.reset()
    before = env.steps
    for t in range(20):
        state = simulator.step(state, 1, Noise(t)).state
    assert env.steps - before == 20
    simulator.step(state, 0, Noise("n"))
    simulator.step(state, 1, Noise("n"))
    assert env.steps - before == 20 + 1 + 20 + 1


def test_two_branches_of_a_remade_environment_replay_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(Remade, "step", lambda self, action: taken.append(action) or Shop.step(self, action))
    simulator = GymnasiumSimulator(Remade(), state="replay")
    root = simulator.walk("uniform", 10)
    taken.clear()
    branches = [root, root]
    for t in range(10):
        branches = [simulator.step(branches[j], j, Noise(t)).state for j in (0, 1)]
    assert len(taken) == 10 + 20, "the root's ten steps for the second branch, and ten of each"


def test_identity_of_a_history_is_the_history() -> None:
    simulator = GymnasiumSimulator("CartPole-v1", state="replay")
    state = simulator.reset()
    (a, b, c) = simulator.query(state, [0, 0, 1], Noise("n"))
    assert simulator.identity(a.state) == simulator.identity(b.state) != simulator.identity(c.state)
    (d,) = simulator.query(state, [0], Noise("m"))
    assert simulator.identity(a.state) != simulator.identity(d.state)


# -- captured from a live environment --------------------------------------------------------------------------------


class Slots(gymnasium.Env):
    """Its state holds values that are one object in the whole program: None, small numbers, an empty tuple."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.slots, self.stock, self.past = [None, None, None], [7, 3, 5], ()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if action:
            self.slots[0] = 1
        self.past = (*self.past, action)
        paid = sum(slot is None for slot in self.slots) + 10 * sum(self.stock) + 1000 * len(self.past)
        return np.zeros(1, np.float32), float(paid), False, False, {}


@pytest.fixture
def slots_id():
    name = "JointmdpSlots-v0"
    gymnasium.register(name, entry_point=Slots, max_episode_steps=5)
    yield name
    del gymnasium.registry[name]


@pytest.mark.parametrize("kind", ["plain", "made", "used before"])
def test_what_is_one_object_everywhere_stays_what_it_is(slots_id, kind):
    """A copy of a live environment replaces how it was made by what the simulator has, and nothing else."""

    def made():
        return Slots() if kind == "plain" else gymnasium.make(slots_id)

    first = made()
    if kind == "used before":
        first.reset(seed=0)
        _ = first.spec
    simulator = GymnasiumSimulator(first)
    for seed in (7, 0, None):
        env = made()
        observation, _ = env.reset(seed=seed)
        here = simulator.capture(env, observation)
        assert [each.reward for each in simulator.query(here, [0, 1], Noise(1))] == [1153.0, 1152.0]


def test_stock_environments_are_captured_as_they_are_made():
    simulator, env = GymnasiumSimulator("CartPole-v1"), gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=7)
    (found,) = simulator.query(simulator.capture(env, observation), [1], Noise(1))
    assert np.array_equal(simulator.observe(found.state), env.step(1)[0])
