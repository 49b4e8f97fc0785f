"""Gymnasium environments as simulators: every state comes back bit for bit, and all luck comes from the noise."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import random
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Env, spaces, wrappers
from gymnasium.utils import EzPickle

from jointmdp.envs.gusty_cartpole import Gusts, balancing_policy, gusty_cartpole
from jointmdp.envs.tabular import inventory
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.simulation import simulate_gap
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.gym.simulator import EnvState, GymnasiumSimulator
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Outcome

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


def seen(simulator: GymnasiumSimulator, outcomes: list[Outcome]) -> list[Any]:
    """All that can be seen of outcomes."""
    return [
        (o.reward, fingerprint(simulator.observe(o.state)), simulator.is_over(o.state), simulator.identity(o.state))
        for o in outcomes
    ]


def actions_of(simulator: GymnasiumSimulator, count: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [simulator.random_action(rng) for _ in range(count)]


def by_hand(env: Env[Any, Any], seed: int, actions: list[Any]) -> list[tuple[float, bytes, bool]]:
    """The start of a seed and steps from it, with ``np_random`` set before each: no simulator involved."""
    observation, _ = env.reset(seed=Noise("start", seed).seed)
    rows = [(0.0, fingerprint(np.array(observation)), False)]
    for t, action in enumerate(actions):
        env.unwrapped.np_random = Noise("step", seed, t)["np_random"]
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((float(reward), fingerprint(np.array(observation)), bool(terminated or truncated)))
        if rows[-1][2]:
            break
    return rows


def by_simulator(
    simulator: GymnasiumSimulator, seed: int, actions: list[Any], disturb: bool = True
) -> list[tuple[float, bytes, bool]]:
    """The same through snapshots, with other queries and other episodes in between."""
    other = simulator.reset(seed + 1)
    state = simulator.reset(seed)
    rows = [(0.0, fingerprint(np.array(simulator.observe(state))), False)]
    for t, action in enumerate(actions):
        if disturb:
            simulator.query(state, actions[:2], Noise("elsewhere", t))
            (outcome,) = simulator.query(other, [actions[-1]], Noise("other", t))
            other = outcome.state
        (outcome,) = simulator.query(state, [action], Noise("step", seed, t))
        state = outcome.state
        rows.append((outcome.reward, fingerprint(np.array(simulator.observe(state))), simulator.is_over(state)))
        if rows[-1][2]:
            break
    return rows


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


# -- small environments of our own -------------------------------------------------------------------------------


class Source:
    """Something that an environment holds, with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.old = np.random.RandomState()
        self.plain = random.Random()


class Shop(Env[Any, Any]):
    """A queue with several sources of noise; ``draws`` says how often the first source is asked."""

    def __init__(self, num_actions: int = 2, start: int = 0) -> None:
        self.action_space = spaces.Discrete(num_actions, start=start)
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,))
        self.source = Source()
        self.many = [np.random.default_rng(), np.random.default_rng()]
        self.queue: deque[float] = deque([0.0])
        self.draws = 1
        self.buffer = np.zeros(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.same = self.np_random
        self.queue = deque([self.np_random.random()])
        return np.zeros(4), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for _ in range(self.draws):
            self.source.rng.random()
        self.queue.append(float(action) + self.same.random())
        self.buffer[:] = (
            self.source.old.normal(),
            self.source.plain.gauss(0, 1),
            self.many[1].random(),
            sum(self.queue),
        )
        return self.buffer, float(action), len(self.queue) > 50, False, {}


class Uncopied(Shop):
    """Holds a lock, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return super().step(action)


def test_streams_are_found_named_and_all_reseeded() -> None:
    simulator = GymnasiumSimulator(Shop())
    expected = {"np_random", "source.rng", "source.old", "source.plain", "many[0]", "many[1]"}
    assert set(simulator.streams) == expected
    state = simulator.walk("uniform", 3)
    first, second = (seen(simulator, simulator.query(state, [0, 1, 0], Noise("n"))) for _ in range(2))
    assert first == second
    assert first[0] == first[2]
    assert seen(simulator, simulator.query(state, [0], Noise("m")))[0][1] != first[0][1]


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


class Wind(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper with state and noise of its own."""

    def __init__(self, env: Env[Any, Any]) -> None:
        super().__init__(env)
        self.rng = np.random.default_rng()
        self.gusts: list[float] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        self.gusts.append(self.rng.normal())
        return observation, float(reward) + sum(self.gusts), *rest  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_state_and_noise_of_wrappers_travel(name: str) -> None:
    simulator = GymnasiumSimulator(Wind(gymnasium.make(name)))
    assert simulator.streams == ("np_random", "rng")
    state = simulator.reset()
    total = 0.0
    for t in range(5):
        noise = Noise("step", t)
        simulator.query(state, [0, 1], Noise("elsewhere"))
        (outcome,) = simulator.query(state, [t % 2], noise)
        total += noise.fresh()["rng"].normal()
        bare = 1.0 if name == "CartPole-v1" else 0.0
        assert outcome.reward == pytest.approx(bare + total, rel=1e-12), "rounding of a sum of five numbers"
        state = outcome.state
        if simulator.is_over(state):
            break
    assert t > 1


WRAPPED = {
    "stacked frames": lambda: wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 3),
    "time in the observation": lambda: wrappers.TimeAwareObservation(gymnasium.make("Pendulum-v1")),
    "sticky actions": lambda: wrappers.StickyAction(gymnasium.make("FrozenLake-v1"), 0.3),
    "normalised observations": lambda: wrappers.NormalizeObservation(gymnasium.make("MountainCar-v0")),
    "scaled reward": lambda: wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: 2 * r),
    "statistics": lambda: wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1")),
    "gusts": lambda: Gusts(gymnasium.make("CartPole-v1"), 0.5, 1.0),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_wrapped_environments_come_back_bit_for_bit(kind: str) -> None:
    simulator = GymnasiumSimulator(WRAPPED[kind]())
    actions = actions_of(simulator, 10)
    assert by_simulator(simulator, 2, actions) == by_hand(WRAPPED[kind](), 2, actions)


def test_wrappers_that_only_look_on_are_left_out() -> None:
    env = wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    simulator = GymnasiumSimulator(env)
    kinds = [type(level).__name__ for level in (simulator.env, simulator.env.env)]  # type: ignore[attr-defined]
    assert kinds == ["TimeLimit", "CartPoleEnv"]
    assert isinstance(env.env, wrappers.TimeLimit), "the user's own stack of wrappers is as it was"


def test_rendering_is_never_triggered() -> None:
    class Shown(Shop):
        metadata = {"render_modes": ["human"], "render_fps": 1}  # noqa: RUF012

        def step(self, action: Any) -> Any:
            assert self.render_mode is None
            return super().step(action)

    env = Shown()
    env.render_mode = "human"
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == "copy"
    simulator.query(simulator.reset(), [0], Noise("n"))


# -- the end of an episode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["copy", "replay"])
def test_a_time_limit_ends_the_episode_unless_it_is_taken_away(state: Any) -> None:
    for limit, expected in ((True, True), (False, False)):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=5)
        simulator = GymnasiumSimulator(env, time_limit=limit, state=state)
        assert not simulator.is_over(simulator.walk("uniform", 4))
        last = simulator.walk("uniform", 5)
        assert simulator.is_over(last) is expected
        rewards = [outcome.reward for outcome in simulator.query(last, actions_of(simulator, 2), Noise("n"))]
        assert (rewards == [0.0, 0.0]) is expected


def test_the_count_of_a_time_limit_is_part_of_the_state() -> None:
    simulator = GymnasiumSimulator("FrozenLake-v1", settings={"is_slippery": False})
    early = simulator.at(0)
    (late,) = simulator.query(early, ["left"], Noise("n"))  # into the wall
    assert simulator.observe(late.state) == simulator.observe(early) == 0
    assert simulator.identity(late.state) != simulator.identity(early)
    endless = GymnasiumSimulator("FrozenLake-v1", settings={"is_slippery": False}, time_limit=False)
    (late,) = endless.query(endless.at(0), [0], Noise("n"))
    assert endless.identity(late.state) == endless.identity(endless.at(0))


def test_termination_absorbs() -> None:
    simulator = GymnasiumSimulator("Blackjack-v1")
    (stuck,) = simulator.query(simulator.reset(), [0], Noise("n"))
    assert simulator.is_over(stuck.state)
    assert simulator.query(stuck.state, [0, 1], Noise("n")) == [Outcome(0.0, stuck.state)] * 2


# -- hooks -------------------------------------------------------------------------------------------------------


def cartpole_get(env: Any) -> Any:
    return env.unwrapped.state


def cartpole_set(env: Any, value: Any) -> None:
    env.unwrapped.state = value
    env.unwrapped.steps_beyond_terminated = None


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


class Knowing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Knows another level by a name of its own."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.core, self.below = env.unwrapped, env

    def step(self, action: Any) -> Any:
        observation, _, *rest = self.env.step(action)
        return observation, 100.0 * self.below._elapsed_steps + float(getattr(self.core, "s", 0)), *rest


@pytest.mark.parametrize(("name", "kind"), [("FrozenLake-v1", "table"), ("CartPole-v1", "copy")])
def test_wrappers_that_know_another_level_go_on_knowing_it(name: str, kind: str) -> None:
    env = Knowing(gymnasium.make(name))
    env.reset(seed=0)
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == kind
    state = simulator.reset()
    for count in (1, 2, 3):
        (found,) = simulator.query(state, [1], Noise(count))
        where = simulator.observe(found.state) if kind == "table" else 0
        assert found.reward == 100.0 * count + where
        state = found.state


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
    before, after = state.kept, outcome.state.kept
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


class Remade(Shop, EzPickle):
    """Copies of it are made anew by the constructor: without the state, if `deepcopy` is believed."""

    def __init__(self) -> None:
        Shop.__init__(self)
        EzPickle.__init__(self)


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


def test_global_generators_are_left_as_they_were() -> None:
    before, before_numpy = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    GymnasiumSimulator(Shop())
    assert random.getstate() == before
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # type: ignore[index]  # noqa: NPY002


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


def test_numbered_actions_count_from_zero_wherever_the_space_begins() -> None:
    simulator = GymnasiumSimulator(Shop(3, start=5))
    assert simulator.action_names == ("action 0", "action 1", "action 2")
    assert [o.reward for o in simulator.query(simulator.reset(), [0, 2], Noise("n"))] == [5.0, 7.0]


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


def test_would_the_other_action_have_been_better_here() -> None:
    """The pole leans to the right and turns on: pushing the cart to the right keeps it up longer."""
    simulator, _ = gusty_cartpole(max_steps=60)
    assert simulator.action_names == ("left", "right")
    state = simulator.reset()
    for t in range(6):  # let it fall to the right for a while
        state = simulator.query(state, [0], Noise("lean", t))[0].state
    assert simulator.observe(state)[2] > 0.05
    sample = simulate_gap(simulator, balancing_policy, state, "right", "left", num_samples=60, horizon=60)
    assert sample.mean > 0
    # The one-sided p-value of no difference, by the normal approximation, is below 10⁻⁴.
    assert sample.mean > 3.8 * sample.mean_standard_error


def test_the_balancing_policy_balances() -> None:
    calm, _ = gusty_cartpole(0.0, 0.0)
    assert all(calm.is_over(calm.walk(balancing_policy, 200, seed)) for seed in range(2))
    assert not any(calm.is_over(calm.walk(balancing_policy, 199, seed)) for seed in range(2))
    assert balancing_policy(np.array([0.0, 0.0, 0.2, 0.0]))[1] > 0.9
    assert balancing_policy(np.array([0.0, 0.0, -0.2, 0.0]))[0] > 0.9


# -- bad input ---------------------------------------------------------------------------------------------------

BAD = {
    "no environment": (lambda: GymnasiumSimulator(3), ["int is no gymnasium.Env"]),  # type: ignore[arg-type]
    "unknown id": (lambda: GymnasiumSimulator("Nothing-v9"), ["does not make 'Nothing-v9'"]),
    "unknown setting": (lambda: GymnasiumSimulator.make("CartPole-v1", colour=3), ["CartPole-v1", "colour"]),
    "settings of a made one": (lambda: GymnasiumSimulator(Shop(), settings={}), ["made already"]),
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
    monkeypatch.delitem(sys.modules, "jointmdp.simulators.gym.simulator")
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[gymnasium\]'"):
        importlib.import_module("jointmdp.simulators.gym.simulator")
