"""Every stock environment of Gymnasium comes back bit for bit; MuJoCo's, and CartPole in gusts of wind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium_worlds import actions_of, by_hand, by_simulator, seen

from jointmdp.simulation.montecarlo.simulate import simulate
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.gusty_cartpole import balancing_policy, gusty_cartpole
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise

KINDS = {
    "table": "FrozenLake-v1 FrozenLake8x8-v1 CliffWalking-v1 CliffWalkingSlippery-v1 Taxi-v4",
    "copy": "CartPole-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1 Blackjack-v1",
    "replay": "LunarLander-v3 LunarLanderContinuous-v3 BipedalWalker-v3 BipedalWalkerHardcore-v3 CarRacing-v3",
    "mujoco": "HalfCheetah-v5 Ant-v5 Hopper-v5 Walker2d-v5 Humanoid-v5 HumanoidStandup-v5 Swimmer-v5 Reacher-v5 "
    "Pusher-v5 InvertedPendulum-v5 InvertedDoublePendulum-v5",
}
NEEDS = {"replay": "Box2D", "mujoco": "mujoco"}
EVERYDAY = {"LunarLander-v3", "BipedalWalker-v3", "HalfCheetah-v5", "Ant-v5", "InvertedPendulum-v5"}


def stock() -> list[Any]:
    found = []
    for kind, names in KINDS.items():
        for name in names.split():
            marks = []
            if kind in NEEDS:
                missing = importlib.util.find_spec(NEEDS[kind]) is None
                marks.append(pytest.mark.skipif(missing, reason=f"{NEEDS[kind]} is not installed"))
                if name not in EVERYDAY:
                    marks.append(pytest.mark.slow)
            found.append(pytest.param(name, kind, marks=marks, id=name))
    return found


@pytest.fixture(autouse=True)
def _somewhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into a file where it stands


# -- every stock environment -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), stock())
def test_a_stock_environment_is_brought_back_bit_for_bit(name: str, kind: str) -> None:
    simulator = GymnasiumSimulator(name)
    assert simulator.state_kind == kind, simulator.state_reason
    steps = 4 if name == "CarRacing-v3" else 12
    actions = actions_of(simulator, steps)
    expected = by_hand(gymnasium.make(name, disable_env_checker=True), 3, actions)
    assert by_simulator(simulator, 3, actions) == expected
    assert len(expected) > 1


@pytest.mark.parametrize(("name", "kind"), stock())
def test_a_query_of_a_stock_environment_changes_nothing(name: str, kind: str) -> None:
    simulator = GymnasiumSimulator(name)
    state = simulator.reset(1)
    chosen = actions_of(simulator, 3)
    before = fingerprint(state)
    first = simulator.query(state, chosen, Noise("a"))
    later = simulator.query(first[0].state, chosen[:1], Noise("b"))
    snapshots = [fingerprint(outcome.state) for outcome in first]
    assert seen(simulator, simulator.query(state, chosen[::-1], Noise("a"))) == seen(simulator, first)[::-1]
    assert seen(simulator, simulator.query(first[0].state, chosen[:1], Noise("b"))) == seen(simulator, later)
    assert fingerprint(state) == before
    assert [fingerprint(outcome.state) for outcome in first] == snapshots


@pytest.mark.parametrize("name", ["phys2d/CartPole-v1", "tabular/Blackjack-v0"])
@pytest.mark.slow
def test_environments_with_jax_keys_take_them_from_the_noise(name: str) -> None:
    simulator = GymnasiumSimulator(name)
    assert simulator.streams == ("np_random", "rng")
    state = simulator.reset()
    outcomes = [simulator.query(state, [1], Noise(i))[0] for i in range(20)]
    again = [simulator.query(state, [1], Noise(i))[0] for i in range(20)]
    assert seen(simulator, outcomes) == seen(simulator, again)
    if name == "tabular/Blackjack-v0":
        assert len({fingerprint(simulator.observe(o.state)) for o in outcomes}) > 3, "a card for each noise"


# -- MuJoCo ------------------------------------------------------------------------------------------------------

needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="mujoco is not installed")


@needs_mujoco
def test_physics_of_dead_states_is_used_again_and_that_of_living_ones_is_not() -> None:
    simulator = GymnasiumSimulator("InvertedPendulum-v5")
    root = simulator.reset()
    kept = [simulator.query(root, [[0.5]], Noise(i))[0].state for i in range(3)]
    before = [simulator.identity(state) for state in kept]
    expected = seen(simulator, simulator.query(kept[0], [[-0.5]], Noise("n")))
    for t in range(200):
        simulator.query(kept[t % 3], [[0.1]], Noise(t))
    assert [simulator.identity(state) for state in kept] == before
    assert seen(simulator, simulator.query(kept[0], [[-0.5]], Noise("n"))) == expected


@needs_mujoco
@pytest.mark.parametrize("state", ["copy", "replay"])
def test_physics_can_be_kept_in_other_ways_too(state: Any) -> None:
    simulator = GymnasiumSimulator("Hopper-v5", state=state)
    actions = actions_of(simulator, 6)
    assert by_simulator(simulator, 0, actions) == by_hand(gymnasium.make("Hopper-v5"), 0, actions)


@needs_mujoco
def test_a_model_that_changes_with_the_episode_is_copied_too() -> None:
    class Heavier(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **options: Any) -> Any:
            found = super().reset(**options)
            model: Any = self.env.unwrapped.model  # type: ignore[attr-defined]
            model.body_mass[-1] = 5 + 5 * self.env.unwrapped.np_random.random()
            return found

    simulator = GymnasiumSimulator(Heavier(gymnasium.make("InvertedPendulum-v5")))
    assert simulator.state_kind == "copy"
    actions = actions_of(simulator, 6)
    expected = by_hand(Heavier(gymnasium.make("InvertedPendulum-v5")), 0, actions)
    assert by_simulator(simulator, 0, actions) == expected
    # Kept as physics alone, the mass of another episode would come along.
    for kind, is_right in (("copy", True), ("mujoco", False)):
        simulator = GymnasiumSimulator(Heavier(gymnasium.make("InvertedPendulum-v5")), state=kind)
        state = simulator.reset(0)
        first = seen(simulator, simulator.query(state, actions[:1], Noise("n")))
        simulator.reset(1)
        assert (seen(simulator, simulator.query(state, actions[:1], Noise("n"))) == first) is is_right


# -- gusty CartPole ----------------------------------------------------------------------------------------------


def test_without_gusts_it_is_cartpole() -> None:
    gusty, _ = gusty_cartpole(0.0, 0.0, max_steps=500)
    actions = actions_of(gusty, 12)
    assert by_simulator(gusty, 3, actions) == by_hand(gymnasium.make("CartPole-v1"), 3, actions)


def test_a_gust_changes_the_speed_of_the_cart_alone() -> None:
    (gusty, _), (calm, _) = gusty_cartpole(1.0, 0.5), gusty_cartpole(0.0, 0.5)
    noise = Noise("n")
    rng = noise.fresh()["np_random"]
    rng.random()
    push = 0.5 * rng.standard_normal()
    blown, still = (
        simulator.observe(simulator.query(simulator.reset(), [1], noise)[0].state) for simulator in (gusty, calm)
    )
    # Explicit Euler at 0.02 s: a push before the step moves the cart by 0.02 push in that step. Float32 observations.
    assert blown - still == pytest.approx([0.02 * push, push, 0, 0], abs=1e-6)
    assert set(gusty.streams) == {"np_random"}


@pytest.mark.slow
def test_would_the_other_action_have_been_better_here() -> None:
    """The pole leans to the right and turns on: pushing the cart to the right keeps it up longer."""
    simulator, _ = gusty_cartpole(max_steps=60)
    assert simulator.action_names == ("left", "right")
    state = simulator.reset(1)
    for t in range(6):  # let it fall to the right for a while
        state = simulator.query(state, [0], Noise("lean", t))[0].state
    assert simulator.observe(state)[2] > 0.05
    sample = simulate(
        simulator, balancing_policy, state, ["right", "left"], num_samples=60, horizon=60, gaps_only=True
    ).gap("right", "left")
    assert sample.mean > 0
    # The one-sided p-value of no difference, by the normal approximation, is below 10⁻⁴.
    assert sample.mean > 3.8 * sample.mean_standard_error


def test_the_balancing_policy_balances() -> None:
    calm, _ = gusty_cartpole(0.0, 0.0)
    assert all(calm.is_over(calm.walk(balancing_policy, 200, seed)) for seed in range(2))
    assert not any(calm.is_over(calm.walk(balancing_policy, 199, seed)) for seed in range(2))
    assert balancing_policy(np.array([0.0, 0.0, 0.2, 0.0]))[1] > 0.9
    assert balancing_policy(np.array([0.0, 0.0, -0.2, 0.0]))[0] > 0.9
