"""States of tables by number, actions by number, name and mask, and what bad input is told."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium_worlds import Shop, cartpole_get

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.gusty_cartpole import gusty_cartpole
from jointmdp.simulation.simulators.gymnasium_simulator import EnvState, GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise

# -- tables ------------------------------------------------------------------------------------------------------


def test_states_of_tables_by_number() -> None:
    simulator = GymnasiumSimulator("FrozenLake-v1")
    state = simulator.at(6)
    assert simulator.observe(state) == 6
    assert not simulator.is_over(state)
    assert simulator.is_over(simulator.at(5)), "a hole"
    assert simulator.is_over(simulator.at(15)), "the goal"
    assert simulator.reward_bounds == Interval(0.0, 1.0)
    assert GymnasiumSimulator("Taxi-v4").reward_bounds == Interval(-10.0, 20.0)
    with pytest.raises(ModelError, match="unknown state 16; there are 16 states"):
        simulator.at(16)
    with pytest.raises(ModelError, match="no numbers"):
        GymnasiumSimulator("CartPole-v1").at(0)


def test_a_fickle_passenger_is_part_of_the_state() -> None:
    simulator = GymnasiumSimulator("Taxi-v4", settings={"fickle_passenger": True, "fickle_probability": 0.5})
    inner: Any = simulator.env.unwrapped
    starts = [simulator.reset(seed) for seed in range(40)]
    fickle = []
    for state in starts:
        simulator.query(state, [0], Noise("n"))
        simulator._keeper.restore(state.kept)  # type: ignore[attr-defined]
        fickle.append(inner.fickle_step)
    assert set(fickle) == {True, False}  # all alike once in 2³⁹
    # In the taxi and moving: whoever is fickle changes destination, whoever is not does not.
    change = []
    for state, is_fickle in zip(starts, fickle, strict=True):
        simulator._keeper.restore(state.kept)  # type: ignore[attr-defined]
        inner.s = inner.encode(2, 2, 4, 1)
        riding = EnvState(simulator._keeper.capture(), inner.s, False)  # type: ignore[attr-defined]
        (outcome,) = simulator.query(riding, [0], Noise("m"))
        change.append((simulator.observe(outcome.state) % 4 != 1) == is_fickle)
    assert all(change)


def test_tables_of_others_keep_their_plain_attributes() -> None:
    class Counting(Env[Any, Any]):
        """Pays the number of visits, which the table does not know."""

        action_space, observation_space = spaces.Discrete(1), spaces.Discrete(2)

        def __init__(self) -> None:
            self.P = {s: {0: [(1.0, 1 - s, 0.0, False)]} for s in (0, 1)}
            self.s, self.visits = 0, 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            super().reset(seed=seed)
            self.s, self.visits = 0, 0
            return 0, {}

        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            self.s, self.visits = 1 - self.s, self.visits + 1
            return self.s, float(self.visits), False, False, {}

    assert GymnasiumSimulator(Counting()).state_kind == "copy", "only Gymnasium's own tables are taken at their word"
    simulator = GymnasiumSimulator(Counting(), state="table")
    state = simulator.walk("uniform", 4)
    assert [simulator.query(state, [0], Noise("n"))[0].reward for _ in range(3)] == [5.0] * 3
    assert simulator.identity(state) != simulator.identity(simulator.walk("uniform", 2))


# -- actions -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_number_is_what_the_space_calls_an_action() -> None:
    """Inside, actions count from 0; whoever names one, a policy too, calls it what the environment does."""
    simulator = GymnasiumSimulator(Shop(3, start=5))
    assert simulator.action_names == ("action 5", "action 6", "action 7")
    assert [o.reward for o in simulator.query(simulator.reset(), [0, 2], Noise("n"))] == [5.0, 7.0]
    assert [simulator.action_index(value) for value in (5, 7)] == [0, 2]
    assert [simulator.action_value(number) for number in (0, 2)] == [5, 7]
    assert simulator.sample(simulator.reset(), [5, 7], 1).rewards.tolist() == [[5.0, 7.0]]
    found = jm.simulate(simulator, 6, None, [7, 5], num_samples=2, horizon=2)
    assert found.gap(7, 5).mean == found.gap("action 7", "action 5").mean == 2.0
    assert found.returns.tolist() == [[13.0, 11.0]] * 2  # then the policy's action, 6
    with pytest.raises(ModelError, match=r"0 is none of the actions action 5, action 6, action 7; number 0 of the"):
        simulator.action_index(0)


def test_actions_have_the_names_of_the_documentation() -> None:
    assert GymnasiumSimulator("CartPole-v1").action_names == ("left", "right")
    assert GymnasiumSimulator("CliffWalking-v1").action_names == ("up", "right", "down", "left")
    named = GymnasiumSimulator(Shop(), action_names=["one", "two"])
    assert named.action_index("two") == 1
    with pytest.raises(ModelError, match="3 action names for 2 actions"):
        GymnasiumSimulator(Shop(), action_names=["one", "two", "three"])
    # The names say what happens: on a lake that is not slippery, "right" leads from 0 to 1 and "down" to 4.
    lake = GymnasiumSimulator("FrozenLake-v1", settings={"is_slippery": False})
    reached = lake.query(lake.at(0), [lake.action_index(name) for name in ("right", "down")], Noise("n"))
    assert [lake.observe(outcome.state) for outcome in reached] == [1, 4]


def test_masked_actions_are_not_available() -> None:
    simulator = GymnasiumSimulator("Taxi-v4")
    inner: Any = simulator.env.unwrapped
    state = simulator.at(inner.encode(0, 0, 0, 1))  # in the corner, where the passenger stands
    assert [simulator.action_label(a) for a in simulator.available(state)] == ["south", "east", "pick up"]
    (outcome,) = simulator.query(state, [simulator.action_index("south")], Noise("n"))
    assert "north" in [simulator.action_label(a) for a in simulator.available(outcome.state)]
    # The mask advises: Taxi masks what would change nothing, and its table still says what that brings.
    (outcome,) = simulator.query(state, [simulator.action_index("north", state)], Noise("n"))
    assert (outcome.reward, simulator.observe(outcome.state)) == (-1.0, simulator.observe(state))
    assert list(GymnasiumSimulator("CartPole-v1").available(EnvState(None, None, False))) == [0, 1]


def test_environments_that_refuse_masked_actions_can_be_tried_out() -> None:
    class Strict(Shop):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return super().reset(seed=seed)[0], {"action_mask": self.mask()}

        def step(self, action: Any) -> Any:
            if not self.mask()[action]:
                raise ValueError("not now")
            return *super().step(action)[:4], {"action_mask": self.mask()}

        def mask(self) -> Any:
            return np.array([len(self.queue) % 2, 1 - len(self.queue) % 2], dtype=np.int8)

    simulator = GymnasiumSimulator(Strict())
    assert simulator.state_kind == "copy", simulator.state_reason
    state = simulator.reset()
    assert simulator.available(state) == (0,)
    assert simulator.available(simulator.query(state, [0], Noise("n"))[0].state) == (1,)


def test_continuous_actions_are_drawn_from_the_generator_given() -> None:
    simulator = GymnasiumSimulator("Pendulum-v1")
    assert simulator.action_names is None
    space = simulator.env.action_space
    before = fingerprint(space.np_random.bit_generator.state["state"]["state"])
    first, second = (simulator.random_action(np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)
    assert space.contains(first)
    assert fingerprint(space.np_random.bit_generator.state["state"]["state"]) == before
    with pytest.raises(ModelError, match="not numbered"):
        simulator.available(simulator.reset())
    with pytest.raises(ModelError, match=r"shape \(2,\); Pendulum-v1 takes \(1,\)"):
        simulator.query(simulator.reset(), [[0.1, 0.2]], Noise("n"))


def test_composite_actions_pass_through() -> None:
    class Pair(Shop):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))})  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            action["b"][:] = 9  # environments may write into what they are given
            return super().step(action["a"])

    simulator = GymnasiumSimulator(Pair())
    action = {"a": 2, "b": np.zeros(2, dtype=np.float32)}
    assert [o.reward for o in simulator.query(simulator.reset(), [action, action], Noise("n"))] == [2.0, 2.0]
    assert not action["b"].any()
    drawn = [simulator.random_action(np.random.default_rng(i)) for i in (1, 1)]
    assert fingerprint(drawn[0]) == fingerprint(drawn[1])


# -- bad input ---------------------------------------------------------------------------------------------------

BAD = {
    "no environment": (lambda: GymnasiumSimulator(3), ["int is no gymnasium.Env"]),  # type: ignore[arg-type]
    "unknown id": (lambda: GymnasiumSimulator("Nothing-v9"), ["does not make 'Nothing-v9'"]),
    "unknown setting": (lambda: GymnasiumSimulator.make("CartPole-v1", colour=3), ["CartPole-v1", "colour"]),
    "settings of a made one": (lambda: GymnasiumSimulator(Shop(), settings={}), ["give them to gymnasium.make"]),
    "one hook": (lambda: GymnasiumSimulator(Shop(), get_state=cartpole_get), ["belong together"]),
    "hooks without hooks": (lambda: GymnasiumSimulator(Shop(), state="hooks"), ["get_state and set_state"]),
    "unknown state": (lambda: GymnasiumSimulator(Shop(), state="magic"), ["'magic'", "'table', 'mujoco'"]),  # type: ignore[arg-type]
    "no table": (lambda: GymnasiumSimulator(Shop(), state="table"), ["Shop has no table P"]),
    "no physics": (lambda: GymnasiumSimulator(Shop(), state="mujoco"), ["no MuJoCo environment"]),
    "no such stream": (lambda: GymnasiumSimulator(Shop(), streams=["luck"]), ["'luck'", "'source.rng'"]),
    "stream no generator": (lambda: GymnasiumSimulator(Shop(), streams=["queue"]), ["'queue' is a deque"]),
    "streams as a text": (lambda: GymnasiumSimulator(Shop(), streams="np_random"), ["a list of names"]),
    "names for a box": (
        lambda: GymnasiumSimulator("Pendulum-v1", action_names=["a"]),
        ["numbered actions", "Pendulum-v1"],
    ),
    "discount": (lambda: GymnasiumSimulator(Shop(), discount=1.5), ["discount is 1.5"]),
    "sharing": (lambda: GymnasiumSimulator(Shop(), sharing="all"), ["sharing is 'all'"]),  # type: ignore[arg-type]
    "gust probability": (lambda: gusty_cartpole(2.0), ["probability is 2"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named(kind: str) -> None:
    call, words = BAD[kind]
    with pytest.raises(ModelError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_missing_gymnasium_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "jointmdp.simulation.simulators.gymnasium_simulator")
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[gymnasium\]'"):
        importlib.import_module("jointmdp.simulation.simulators.gymnasium_simulator")
