"""All luck of a Gymnasium environment comes from the noise, one stream for each of its sources."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium_worlds import Shop, seen

from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise


def test_streams_are_found_named_and_all_reseeded() -> None:
    simulator = GymnasiumSimulator(Shop())
    expected = {"np_random", "source.rng", "source.old", "source.plain", "many[0]", "many[1]"}
    assert set(simulator.streams) == expected
    state = simulator.walk("uniform", 3)
    first, second = (seen(simulator, simulator.query(state, [0, 1, 0], Noise("n"))) for _ in range(2))
    assert first == second
    assert first[0] == first[2]
    assert seen(simulator, simulator.query(state, [0], Noise("m")))[0][1] != first[0][1]


class Slotted:
    """Holds its generator in a slot."""

    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = np.random.default_rng()


def test_streams_in_slots_and_in_lists_with_attributes_are_found() -> None:
    class Listed(list[Any]):
        pass

    env: Any = Shop()
    env.slotted, env.listed = Slotted(), Listed([1])
    env.listed.rng = np.random.default_rng()
    assert {"slotted.rng", "listed.rng"} <= set(GymnasiumSimulator(env).streams)


class Kept(Env[Any, Any]):
    """Keeps a method of its generator, from each reset on."""

    action_space, observation_space = spaces.Discrete(2), spaces.Box(0, 100, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.draw, self.total = self.np_random.normal, 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.total += float(self.draw()) + action
        return np.array([self.total], np.float32), self.total, False, False, {}


def test_a_method_of_a_generator_that_a_reset_keeps_has_its_noise() -> None:
    simulator = GymnasiumSimulator(Kept())
    state = simulator.start(Noise("start"))
    first, second, other = (simulator.query(state, [0, 1], Noise(name)) for name in ("n", "n", "m"))
    assert [o.reward for o in first] == [o.reward for o in second]
    assert first[1].reward == pytest.approx(first[0].reward + 1)
    assert other[0].reward != first[0].reward


def test_what_another_source_draws_shifts_nothing() -> None:
    found = []
    for draws in (1, 7):
        env = Shop()
        env.draws = draws
        simulator = GymnasiumSimulator(env)
        found.append(simulator.observe(simulator.query(simulator.reset(), [1], Noise("n"))[0].state))
    assert np.array_equal(*found)


def test_one_stream_for_everything_would_shift() -> None:
    """The guard above can fail: where both sources are one generator, the draws of one move the other."""
    found = []
    for draws in (1, 7):
        env = Shop()
        env.draws = draws
        env.source.rng = env.many[1]
        simulator = GymnasiumSimulator(env)
        assert "many[1]" in simulator.streams or "source.rng" in simulator.streams
        assert len(simulator.streams) == 5, "two places, one stream"
        found.append(simulator.observe(simulator.query(simulator.reset(), [1], Noise("n"))[0].state))
    assert found[0][2] != found[1][2]
    assert np.array_equal(found[0][[0, 1, 3]], found[1][[0, 1, 3]])


def test_streams_named_by_the_user_are_the_only_ones() -> None:
    simulator = GymnasiumSimulator(Shop(), streams=["np_random", "source.old", "source.plain"], state="copy")
    assert simulator.streams == ("np_random", "source.old", "source.plain")
    state = simulator.reset()
    found = [simulator.observe(simulator.query(state, [1], Noise(i))[0].state) for i in range(2)]
    assert found[0][2] == found[1][2], "a stream that is not named stays as the snapshot holds it"
    assert (found[0] != found[1]).tolist() == [True, True, False, True]


def test_draws_of_numpy_generators_are_counted() -> None:
    simulator = GymnasiumSimulator(Shop())
    noise = Noise("n")
    simulator.step(simulator.reset(), 0, noise)
    assert {name: noise.draws[name] for name in ("np_random", "source.rng", "many[0]", "many[1]")} == {
        "np_random": 1,
        "source.rng": 1,
        "many[0]": 0,
        "many[1]": 1,
    }


class Sampling(Env[Any, Any]):
    """Draws from its own observation space, as one should not."""

    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({"x": spaces.Box(0, 1, (2,)), "y": spaces.Discrete(5)})
        self.other_space = spaces.Box(0, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def test_spaces_that_an_environment_draws_from_are_streams() -> None:
    simulator = GymnasiumSimulator(Sampling())
    used = {"observation_space.spaces['x']._np_random", "observation_space.spaces['y']._np_random"}
    assert set(simulator.streams) == {"np_random", *used}
    state = simulator.reset()
    first, second = (simulator.query(state, [0, 1], Noise("n")) for _ in range(2))
    assert seen(simulator, first) == seen(simulator, second)


def test_global_generators_are_left_as_they_were() -> None:
    before, before_numpy = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    GymnasiumSimulator(Shop())
    assert random.getstate() == before
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("state", ["copy", "replay"])
def test_plain_steps_have_the_law_of_steps_and_can_be_gone_on_from(state: Any) -> None:
    simulator = GymnasiumSimulator("Blackjack-v1", state=state)
    root = simulator.reset(4)
    rng = np.random.default_rng(0)
    plain = [simulator.plain_step(root, 1, rng).state for _ in range(400)]
    noisy = [simulator.step(root, 1, Noise(i)).state for i in range(400)]
    bust = [np.mean([s.is_over for s in states]) for states in (plain, noisy)]
    # The share that goes bust, from two samples of 400: 4.9 standard errors of at most 1/√800, once in a million.
    assert abs(bust[0] - bust[1]) < 4.9 / np.sqrt(800)
    alive = next(s for s in plain if not s.is_over)
    first, second = (simulator.query(alive, [0, 1], Noise("n")) for _ in range(2))
    assert seen(simulator, first) == seen(simulator, second)
    different = {fingerprint(simulator.observe(s)) for s in plain}
    assert len(different) > 5
