"""Environments that nobody here planned for, each as a small stand-in: they work, or one error says what to do."""

from __future__ import annotations

import enum
import functools
import itertools
import sys
import types
import weakref
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import Env, spaces, wrappers
from gymnasium_worlds import Shop, actions_of, by_simulator, cartpole_get, cartpole_set, seen

import jointmdp as jm
from jointmdp.simulation.simulators import gymnasium_wrappers
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.gymnasium_simulator import MOST_REPEATED, GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import as_agent


class World(Env[Any, Any]):
    """A count that grows by the action and by what `draw` gives."""

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.total, self.num_steps = 0.0, 0

    def draw(self) -> float:
        return float(self.np_random.random())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total, self.num_steps = 0.0, 0
        return np.array([0.0]), {}

    def step(self, action: Any) -> Any:
        self.total += float(action) + self.draw()
        self.num_steps += 1
        return np.array([self.total]), self.total, self.num_steps >= 100, False, {}


def is_under_the_noise(simulator: GymnasiumSimulator) -> bool:
    """Whether the same noise gives the same again, and other noise something else."""
    state = simulator.walk(1, 3)
    first, again, other = (seen(simulator, simulator.query(state, [0, 1], Noise(n))) for n in (1, 1, 2))
    return first == again and first[0][1] != other[0][1]


# -- what crashed ------------------------------------------------------------------------------------------------


class Rebuilt(World):
    """Makes its spaces anew in every reset, as highway-env does."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.action_space, self.observation_space = spaces.Discrete(3), spaces.Dict({"x": spaces.Box(-9, 999, (1,))})
        return {"x": super().reset(seed=seed)[0]}, {}

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return {"x": observation}, *rest


class Late(World):
    """Two holders of one generator, of which the second has nothing before the reset, as in crafter."""

    def __init__(self) -> None:
        super().__init__()
        self.map = types.SimpleNamespace(random=None)
        self.player: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.map.random = np.random.RandomState(seed)
        self.player = types.SimpleNamespace(random=self.map.random)
        return super().reset(seed=seed)

    def draw(self) -> float:
        assert self.player.random is self.map.random
        return float(self.player.random.uniform())


WILD: dict[str, Any] = {
    "spaces made anew": Rebuilt,
    "a second holder with nothing": Late,
    "transformed": lambda: wrappers.TransformObservation(World(), lambda o: 2 * o, None),
    "filtered": lambda: wrappers.FilterObservation(_reset(Rebuilt()), ["x"]),
    "flattened": lambda: wrappers.FlattenObservation(_reset(Rebuilt())),
    "time-aware": lambda: wrappers.TimeAwareObservation(wrappers.TimeLimit(World(), 50)),
    "reward of one number": lambda: wrappers.TransformReward(World(), lambda r: np.array([r])),
}


def _reset(env: Any) -> Any:
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("kind", WILD)
def test_what_crashed_works_and_is_copied(kind: str) -> None:
    simulator = GymnasiumSimulator(WILD[kind]())
    assert simulator.state_kind == "copy", simulator.state_reason
    assert is_under_the_noise(simulator)
    assert simulator.frozen_noise == ""
    replayed = GymnasiumSimulator(WILD[kind](), state="replay")
    actions = actions_of(simulator, 6)
    assert by_simulator(simulator, 3, actions) == by_simulator(replayed, 3, actions)


class Several(World):
    """Pays two numbers."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, [1.0, float(action)], *rest


def test_several_rewards_are_weighed_or_refused() -> None:
    with pytest.raises(jm.ModelError, match=r"Several.*2 numbers.*reward=\[1.0, 1.0\]"):
        GymnasiumSimulator(Several())
    weights: Any
    for weights in ([1.0, 10.0], lambda pair: pair[0] + 10.0 * pair[1]):
        simulator = GymnasiumSimulator(Several(), reward=weights)
        found = simulator.query(simulator.reset(), [0, 2], Noise("n"))
        assert [outcome.reward for outcome in found] == [1.0, 21.0]
    with pytest.raises(jm.ModelError, match="3 weights"):
        GymnasiumSimulator(Several(), reward=[1, 2, 3])


def _failing(where: str) -> Env[Any, Any]:
    class Failing(World):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if where == "reset":
                raise KeyError("map")
            return np.zeros(1) if where == "old reset" else super().reset(seed=seed)

        def step(self, action: Any) -> Any:
            observation, reward, over, *_ = super().step(action)
            if where == "step":
                raise RuntimeError("engine")
            paid: Any = None if where == "no reward" else reward
            return (observation, paid, over, {}) if where == "old step" else (observation, paid, over, False, {})

    return Failing()


FAILURES = {
    "reset": "Failing failed in a trial.*KeyError: 'map'.*by itself",
    "step": "Failing failed in a trial.*RuntimeError: engine",
    "old reset": "Failing.*reset returned one ndarray, not .observation, info.*shimmy",
    "old step": "Failing.*step returned 4 values.*shimmy",
    "no reward": "Failing.*paid None",
}


@pytest.mark.parametrize("where", FAILURES)
def test_what_an_environment_raises_is_one_error_with_its_name(where: str) -> None:
    with pytest.raises(jm.ModelError, match=FAILURES[where]):
        GymnasiumSimulator(_failing(where))


def test_an_error_in_a_later_step_names_the_action() -> None:
    class Picky(World):
        def step(self, action: Any) -> Any:
            if self.num_steps > 30:
                raise ZeroDivisionError("the sum")
            return super().step(action)

    simulator = GymnasiumSimulator(Picky())
    with pytest.raises(jm.ModelError, match=r"Picky failed in step\(1\): ZeroDivisionError: the sum"):
        simulator.walk(1, 40)


def test_environments_of_the_older_gym_are_told_apart() -> None:
    old = type("Env", (), {"__module__": "gym.core", "reset": lambda self: 0, "step": lambda self, action: 0})
    with pytest.raises(jm.ModelError, match=r"older gym package.*shimmy"):
        jm.as_simulator(old())


class Connection:
    """Closes what the original still uses when a copy is given up."""

    open: ClassVar[dict[int, bool]] = {}

    def __init__(self) -> None:
        self.number = 7
        self.open[7] = True

    def __del__(self) -> None:
        self.open[self.number] = False


class Connected(World):
    def __init__(self) -> None:
        super().__init__()
        self.connection = Connection()

    def draw(self) -> float:
        assert Connection.open[7], "not connected"
        return super().draw()


def test_parts_that_close_something_are_not_copied() -> None:
    simulator = GymnasiumSimulator(Connected())
    assert simulator.state_kind == "replay"
    assert "connection has a __del__" in simulator.state_reason
    assert is_under_the_noise(simulator)


# -- where generators hide ---------------------------------------------------------------------------------------


class TorchGenerator:
    """As PyTorch's: seeded by `manual_seed`, made on a device."""

    def __init__(self, device: str = "cpu") -> None:
        self.device, self._inner = device, np.random.default_rng()

    def manual_seed(self, number: int) -> TorchGenerator:
        assert 0 <= number < 2**63
        self._inner = np.random.default_rng(number)
        return self

    def random(self) -> float:
        return float(self._inner.random())


def _closure() -> Any:
    rng = np.random.default_rng()
    return lambda: rng.random()


def _default(rng: np.random.Generator = np.random.default_rng()) -> float:  # noqa: B008 - on purpose
    return float(rng.random())


def _nested() -> Any:
    inner: Any = np.random.RandomState(3)
    for _ in range(10):
        inner = types.SimpleNamespace(part=inner)

    def draw() -> float:
        at = inner
        while hasattr(at, "part"):
            at = at.part
        return float(at.uniform())

    return draw, inner


class Drawing(World):
    """Draws by a function that it is given; `kept` is held beside it."""

    def __init__(self, function: Any, kept: Any = None) -> None:
        super().__init__()
        self.function, self.kept = function, kept

    def draw(self) -> float:
        return float(self.function(self.kept) if self.kept is not None else self.function())


HIDDEN: dict[str, Any] = {
    "closure": lambda: Drawing(_closure()),
    "default": lambda: Drawing(_default),
    "ten attributes deep": lambda: Drawing(*_nested()[:1]),
    "tuple": lambda: Drawing(lambda pair: pair[1].random(), (1, np.random.default_rng())),
    "method": lambda: Drawing(np.random.default_rng().random),
    "method of random": lambda: Drawing(__import__("random").Random().random),
    "partial": lambda: Drawing(functools.partial(lambda rng, low: low + rng.random(), np.random.default_rng(), 0.0)),
    "default_rng in a dict in a list": lambda: Drawing(
        lambda box: box[0]["r"].random(), [{"r": np.random.default_rng()}]
    ),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_generators_are_found_where_they_hide(kind: str) -> None:
    simulator = GymnasiumSimulator(HIDDEN[kind]())
    assert len(simulator.streams) == 2, simulator.streams
    assert is_under_the_noise(simulator)
    twin = GymnasiumSimulator(HIDDEN[kind]())
    actions = actions_of(simulator, 6)
    assert by_simulator(simulator, 0, actions) == by_simulator(twin, 0, actions), "the noise alone decides"


@pytest.mark.parametrize("is_held", [True, False])
def test_torch_generators_are_streams(monkeypatch: pytest.MonkeyPatch, is_held: bool) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Generator=TorchGenerator))  # type: ignore[arg-type]
    rng = TorchGenerator()
    simulator = GymnasiumSimulator(Drawing(lambda rng: rng.random(), rng) if is_held else Drawing(lambda: rng.random()))
    assert len(simulator.streams) == 2
    assert is_under_the_noise(simulator)
    assert fingerprint({"a": rng}) == fingerprint({"a": TorchGenerator()}), "no part of a state"


def test_torch_itself() -> None:
    torch = pytest.importorskip("torch")
    simulator = GymnasiumSimulator(Drawing(lambda rng: torch.rand(1, generator=rng).item(), torch.Generator()))
    assert simulator.streams == ("np_random", "kept")
    assert is_under_the_noise(simulator)


def test_a_running_generator_function_is_seeded_where_it_stands() -> None:
    def noises() -> Any:
        rng = np.random.default_rng()
        while True:
            yield rng.random()

    running = noises()
    next(running)
    simulator = GymnasiumSimulator(Drawing(next, running))
    assert simulator.state_kind == "replay", "which Python does not copy"
    assert is_under_the_noise(simulator)


# -- noise that is out of reach ----------------------------------------------------------------------------------


class Compiled:
    """A generator that shows nothing of itself, as one in compiled code; its copies go on alike."""

    inside: ClassVar[weakref.WeakKeyDictionary[Compiled, np.random.Generator]] = weakref.WeakKeyDictionary()

    def __init__(self, seed: int) -> None:
        self.inside[self] = np.random.default_rng(seed)

    def __deepcopy__(self, memo: Any) -> Compiled:
        found = Compiled(0)
        self.inside[found].bit_generator.state = self.inside[self].bit_generator.state
        return found

    def random(self) -> float:
        return float(self.inside[self].random())


class Sticky(World):
    """As ALE with sticky actions: the reset seeds a generator that cannot be reached."""

    def __init__(self, is_seeded: bool = True, weight: float = 1.0) -> None:
        super().__init__()
        self.engine, self.is_seeded, self.weight = Compiled(3), is_seeded, weight

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and self.is_seeded:
            self.engine = Compiled(seed)
        return super().reset(seed=seed)

    def draw(self) -> float:
        return self.weight * self.engine.random()


FROZEN: dict[str, Any] = {
    "seeded by the reset": Sticky,
    "never seeded": lambda: Sticky(False),
    "an iterator": lambda: Drawing(next, itertools.cycle(np.random.default_rng(1).random(1000).tolist())),
    "beside noise that is found": lambda: wrappers.StickyAction(Sticky(), 0.5),
}


@pytest.mark.parametrize("kind", FROZEN)
def test_frozen_noise_is_noticed(kind: str) -> None:
    with pytest.warns(UserWarning, match="random in a way that the noise does not reach.*streams="):
        simulator = GymnasiumSimulator(FROZEN[kind]())
    assert "same future" in simulator.frozen_noise
    assert not is_under_the_noise(simulator) or kind == "beside noise that is found"


class Learning(World):
    """Remembers earlier episodes in the open."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = 0.0

    def draw(self) -> float:
        self.memory += 1.0
        return self.memory


CALM: dict[str, Any] = {
    "nothing hidden": World,
    "a generator without effect": lambda: Sticky(weight=0.0),
    "a memory of earlier episodes": Learning,
    "running means": lambda: wrappers.NormalizeReward(wrappers.NormalizeObservation(World())),
    "found": HIDDEN["closure"],
}


@pytest.mark.parametrize("kind", CALM)
def test_healthy_twins_are_not_said_to_be_frozen(kind: str) -> None:
    assert GymnasiumSimulator(CALM[kind]()).frozen_noise == ""


# -- the environment one stands in -------------------------------------------------------------------------------


class Telling(World):
    """Draws its start, and can be asked for its observation."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total = float(self.np_random.normal())
        return self._get_obs(), {}

    def _get_obs(self) -> Any:
        return np.array([self.total])


MAKERS: dict[str, Any] = {
    "copy": lambda: wrappers.TimeLimit(Telling(), 60),
    "table": lambda: gymnasium.make("FrozenLake-v1"),
    "mujoco": lambda: gymnasium.make("InvertedPendulum-v5"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_reset_is_the_environments_own(kind: str) -> None:
    simulator = GymnasiumSimulator(MAKERS[kind]())
    assert simulator.state_kind == kind
    for seed in (0, 1, 12345):
        expected, _ = MAKERS[kind]().reset(seed=seed)
        assert fingerprint(simulator.observe(simulator.reset(seed))) == fingerprint(expected)


@pytest.mark.parametrize("kind", MAKERS)
def test_the_present_state_of_a_live_environment_is_captured(kind: str) -> None:
    env = MAKERS[kind]()
    simulator = GymnasiumSimulator(env)
    env.reset(seed=3)
    actions = actions_of(simulator, 4)
    for action in actions[:2]:
        observation, *_ = env.step(action)
    state = simulator.capture(env, observation)
    assert fingerprint(simulator.observe(state)) == fingerprint(observation)
    assert fingerprint(simulator.observe(simulator.capture(env))) == fingerprint(observation), "it can be read, too"
    noise = Noise("n")
    (found,) = simulator.query(state, [actions[2]], noise)
    env.unwrapped.np_random = noise.fresh()["np_random"]
    observation, reward, terminated, truncated, _ = env.step(actions[2])
    assert (found.reward, simulator.is_over(found.state)) == (float(reward), terminated or truncated)
    assert fingerprint(simulator.observe(found.state)) == fingerprint(observation)
    again = simulator.query(state, [actions[2]], noise)
    assert seen(simulator, again) == seen(simulator, [found]), "stepping the live environment changes no snapshot"


def test_what_cannot_be_captured_says_so() -> None:
    hooked = GymnasiumSimulator("CartPole-v1", get_state=cartpole_get, set_state=cartpole_set)
    env = _reset(gymnasium.make("CartPole-v1"))
    state = hooked.capture(env)
    with pytest.raises(jm.ModelError, match=r"capture\(env, observation\)"):
        hooked.observe(state)
    assert len(hooked.query(state, [0, 1], Noise("n"))) == 2, "the first action needs no observation"
    with pytest.raises(jm.ModelError, match="another environment than that of CartPole-v1: AcrobotEnv"):
        hooked.capture(gymnasium.make("Acrobot-v1"))
    replayed = GymnasiumSimulator(Shop(), state="replay")
    with pytest.raises(jm.ModelError, match="histories since the start"):
        replayed.capture(_reset(Shop()))


def test_an_environment_that_is_handed_over_stays_its_owners() -> None:
    env = _reset(Telling())
    env.render_mode = "human"
    env.step(2)
    before = env.total
    simulator = GymnasiumSimulator(env)
    simulator.walk("uniform", 5)
    assert (env.total, env.num_steps, env.render_mode) == (before, 1, "human")


def test_what_is_taken_for_a_state_is_named() -> None:
    simulator = GymnasiumSimulator("CartPole-v1")
    observation, info = gymnasium.make("CartPole-v1").reset(seed=0)
    outcome = simulator.query(simulator.reset(), [0], Noise("n"))[0]
    over = simulator.walk(0, 200)
    assert simulator.is_over(over)
    for given, words in (
        (observation, r"is an observation of CartPole-v1.*capture\(env\)"),
        ((observation, info), "is an observation of CartPole-v1"),
        (simulator.env, "an environment, not a state"),
        (outcome, "outcome.state"),
        (over, "is over in this state"),
        ("left", "'left' is no state of CartPole-v1"),
    ):
        with pytest.raises(jm.ModelError, match=words):
            jm.simulate(simulator, "uniform", given, [0, 1], num_samples=2, gaps_only=True).gap(0, 1)


class Model:
    """As Stable-Baselines3 has it."""

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, None]:
        assert deterministic
        return np.array(1), None


def test_the_predict_of_a_model_is_taken_for_the_model() -> None:
    simulator = GymnasiumSimulator(World())
    for policy in (Model(), Model().predict):
        assert as_agent(policy, simulator)(simulator.reset(), Noise("n")) == 1


# -- names -------------------------------------------------------------------------------------------------------


class Move(enum.IntEnum):
    turn_left = 0
    turn_right = 1
    forward = 2
    pick_up = 3


def _with(**attributes: Any) -> Env[Any, Any]:
    env = World()
    vars(env).update(attributes)
    return env


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (_with(actions=Move), ("turn left", "turn right", "forward")),
        (
            _with(action_type=types.SimpleNamespace(actions={0: "LANE_LEFT", 1: "IDLE", 2: "LANE_RIGHT"})),
            ("lane left", "idle", "lane right"),
        ),
        (_with(action_names=["a", "b", "c"]), ("a", "b", "c")),
        (_with(action_names=["a", "b"]), ("action 0", "action 1", "action 2")),
        (_with(actions=[1, 2, 3]), ("action 0", "action 1", "action 2")),
        (wrappers.TransformAction(_with(actions=Move), lambda a: 2 - a, None), ("action 0", "action 1", "action 2")),
    ],
)
def test_actions_are_called_as_the_environment_calls_them(env: Env[Any, Any], names: tuple[str, ...]) -> None:
    assert GymnasiumSimulator(env).action_names == names


def test_ids_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("wildlands")
    monkeypatch.setattr(gymnasium_wrappers.metadata, "packages_distributions", lambda: {"wildlands": ["wildlands"]})
    with pytest.raises(jm.ModelError, match="did you mean wildlands:Wildlands-Plain-v0"):
        GymnasiumSimulator("Wildlands-Plain-v0")
    monkeypatch.setitem(sys.modules, "wildlands", package)
    with pytest.raises(jm.ModelError, match="wildlands, already imported, did not register it"):
        GymnasiumSimulator("Wildlands-Plain-v0")
    with pytest.raises(jm.ModelError, match="is the package nowhere installed"):
        jm.as_simulator("nowhere:Wildlands-Plain-v0")
    with pytest.raises(jm.ModelError, match="package:Elsewhere-v0"):
        GymnasiumSimulator("Elsewhere-v0")
    gymnasium.register("Wildlands-Plain-v0", entry_point=World)
    try:
        for name in ("wildlands:Wildlands-Plain-v0", "gymnasium:wildlands:Wildlands-Plain-v0", "Wildlands-Plain-v0"):
            assert jm.as_simulator(name).name == "Wildlands-Plain-v0"
    finally:
        del gymnasium.registry["Wildlands-Plain-v0"]


# -- cheap states ------------------------------------------------------------------------------------------------


def _copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    copied = gymnasium_wrappers.copied
    monkeypatch.setattr(gymnasium_wrappers, "copied", lambda *given: (made.append(1), copied(*given))[1])
    return made


def test_a_state_that_is_left_once_costs_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = GymnasiumSimulator(Telling())
    made = _copies(monkeypatch)
    simulator.walk(1, MOST_REPEATED)
    assert len(made) == 2, "the start, and the one step that leaves it"
    simulator.walk(1, 3 * MOST_REPEATED)
    assert len(made) == 2 + 2 + 2, "and one after so many steps"


def test_states_that_were_left_are_as_they_were() -> None:
    simulator, replayed = GymnasiumSimulator(Telling()), GymnasiumSimulator(Telling(), state="replay")
    for one in (simulator, replayed):
        states = [one.reset(5)]
        for t in range(2 * MOST_REPEATED):
            states.append(one.query(states[-1], [t % 3], Noise("way", t))[0].state)
        later = [one.query(state, [0, 2], Noise("later")) for state in reversed(states)]
        if one is simulator:
            names = [one.identity(state) for state in states]
            assert len(set(names)) == len(names)
            expected = later
    found = [[(o.reward, o.state.observation.tolist()) for o in row] for row in later]
    assert [[(o.reward, o.state.observation.tolist()) for o in row] for row in expected] == found


def test_what_asks_a_global_generator_is_copied_before_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = GymnasiumSimulator(Drawing(lambda: np.random.random()))  # noqa: NPY002 - on purpose
    made = _copies(monkeypatch)
    states = [simulator.reset()]
    for t in range(5):
        states.append(simulator.query(states[-1], [0], Noise(t))[0].state)
    assert len(made) == 6, "taken again, the steps would go another way"


# -- hashes of objects that point to each other ------------------------------------------------------------------


def _crowd(size: int, last: int = 0) -> Any:
    world = types.SimpleNamespace(members=[], chunks={0: set()})
    members = [types.SimpleNamespace(world=world, number=i) for i in range(size)]
    members[-1].number += last
    for member in members:
        member.others = members
        world.members.append(member)
    return world


def test_crowds_of_objects_are_hashed_in_time() -> None:
    found = [fingerprint(_crowd(12)), fingerprint(_crowd(12)), fingerprint(_crowd(12, last=1)), fingerprint(_crowd(11))]
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_a_cycle_through_a_set_ends() -> None:
    class Chunk:
        def __init__(self, number: int) -> None:
            self.number, self.near = number, {self}

    assert fingerprint(Chunk(1)) == fingerprint(Chunk(1)) != fingerprint(Chunk(2))


def test_parts_that_are_shared_or_not_hash_alike() -> None:
    part = types.SimpleNamespace(x=[1, 2])
    part.me = part
    twin = types.SimpleNamespace(x=[1, 2])
    twin.me = twin
    assert fingerprint([part, [part]]) == fingerprint([part, [twin]])
