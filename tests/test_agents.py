"""Agents as they were trained, behind wrappers and with a memory, and their actions beside the best of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.simulation.simulators.agent_views import View
from jointmdp.simulation.simulators.agents_with_memory import RememberingSimulator, with_memories

ACTIONS = {"half": 0, "before": 1}


def walk_game(observe: Any = lambda state: np.array([state[0]])) -> jm.FunctionSimulator:
    """A place on a line that wind moves; "before" pays the place before it, "half" half a unit."""

    def step(state: Any, action: int, noise: Any) -> Any:
        x, before = state
        return (before if action else 0.5) + noise["luck"], (round(x + noise["wind"], 3), x)

    return jm.FunctionSimulator(
        step,
        {"wind": lambda rng: rng.normal(), "luck": lambda rng: rng.normal()},
        start=lambda rng: (round(rng.normal(), 3), 0.0),
        observe=observe,
        actions=ACTIONS,
        discount=0.9,
    )


class Venv:
    """As those of Stable-Baselines3: a wrapper answers for what it wraps."""

    def __init__(self, venv: Any = None) -> None:
        if venv is not None:
            self.venv = venv

    def __getattr__(self, name: str) -> Any:
        if name == "venv":
            raise AttributeError(name)
        return getattr(self.venv, name)


class VecNormalize(Venv):
    def normalize_obs(self, observation: Any) -> Any:
        return (observation - 1.0) / 2.0


class VecFrameStack(Venv):
    def __init__(self, venv: Any, n_stack: int) -> None:
        super().__init__(venv)
        self.stacked_obs = SimpleNamespace(n_stack=n_stack, channels_first=False)


class VecMonitor(Venv): ...


class VecMystery(Venv): ...


class Stacking:
    """Sees the last two places, scaled: takes the gamble where the older one was above 0.5."""

    def __init__(self) -> None:
        self.env = VecMonitor(VecFrameStack(VecNormalize(Venv()), 2))
        self.seen: list[Any] = []

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, None]:
        assert deterministic
        self.seen.append(observation)
        return np.array(int(2 * observation[0] + 1 > 0.5)), None


class Recurrent:
    """The same by a memory of its own."""

    def predict(self, observation: Any, state: Any = None) -> tuple[Any, Any]:
        before = 0.0 if state is None else state[0]
        return np.array(int(before > 0.5)), (float(observation[0]),)


def rule(state: Any) -> int:
    """What both do, as a function of the whole state."""
    return int(state[1] > 0.5)


@pytest.mark.parametrize("make", daily([Recurrent, Stacking]))
def test_every_branch_has_a_memory_of_its_own(make: Any) -> None:
    """Two agents that remember give the very returns of a policy that sees what they remember."""
    settings: dict[str, Any] = {"num_samples": 40, "seed": 3, "horizon": 12}
    agent = make()
    found = jm.simulate(walk_game(), agent, None, ["half", "before"], **settings)
    truth = jm.simulate(walk_game(observe=None), rule, None, ["half", "before"], **settings)
    np.testing.assert_array_equal(found.returns, truth.returns)
    if isinstance(agent, Stacking):
        assert all(seen.shape == (2,) for seen in agent.seen)
        assert agent.seen[0][0] == 0.0  # before the first place there is nothing
    policies = {"agent": agent, "half": "half", "seen": lambda seen: int(seen[0] > 0)}
    beside = jm.compare(walk_game(), policies=policies, horizon=5, pilot=30, max_replications=30)
    assert beside.labels == ("agent", "half", "seen")


@pytest.mark.slow
def test_memories_travel_to_workers() -> None:
    found = [
        jm.simulate(walk_game(), Stacking(), None, num_samples=6, seed=1, horizon=5, executor=executor).returns
        for executor in (None, "processes:1")
    ]
    np.testing.assert_array_equal(*found)


def test_states_are_the_same_only_with_the_same_memory() -> None:
    simulator, (choose,), _ = with_memories(walk_game(), [Recurrent()], None)
    assert isinstance(simulator, RememberingSimulator)
    state = simulator.reset(2)
    again, later = (simulator.query(state, [0], jm.Noise(i))[0].state for i in (1, 1))
    assert simulator.identity(again) == simulator.identity(later)
    known = simulator._arrived(later.place, state.memories)
    assert simulator.identity(known) == simulator.identity(later)
    forgotten = simulator._arrived(later.place, tuple(view.fresh for view in simulator.views))
    assert choose(forgotten, jm.Noise(0)) == 0
    place = simulator.inner.reset(0)
    assert simulator.identity(simulator.snapshot(place)) == simulator.identity(simulator.snapshot(place))


def test_what_an_agent_sees_is_scaled_without_a_memory() -> None:
    class Scaled:
        env = VecNormalize(Venv())

        def predict(self, observation: Any) -> int:
            return int(observation[0] > 0)  # places above 1

    game = walk_game()
    simulator, (choose,), _ = with_memories(game, [Scaled()], None)
    assert simulator is game
    states = [game.reset(seed) for seed in range(40)]
    assert [choose(state, jm.Noise(0)) for state in states] == [int(game.observe(state)[0] > 1) for state in states]
    assert {choose(state, jm.Noise(0)) for state in states} == {0, 1}


def test_frames_of_pictures_and_of_dictionaries_are_stacked_along_their_channels() -> None:
    parts = {"picture": SimpleNamespace(n_stack=3, channels_first=True)}
    frames = SimpleNamespace(sub_stacked_observations=parts)
    venv = Venv(Venv())
    venv.stacked_obs = frames
    view = View.of(SimpleNamespace(env=venv, predict=lambda observation: observation))
    seen, memory = view.act({"picture": np.full((2, 4, 4), 1), "other": 5}, view.fresh)
    assert seen["other"] == 5
    assert seen["picture"].shape == (6, 4, 4)
    seen, _ = view.act({"picture": np.full((2, 4, 4), 2), "other": 6}, memory)
    assert seen["picture"][:, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_what_cannot_be_followed_is_refused() -> None:
    class Mysterious(Recurrent):
        env = VecMystery(Venv())

    with pytest.raises(jm.ModelError, match="trained behind VecMystery"):
        jm.simulate(walk_game(), Mysterious(), None, num_samples=2, horizon=3)
    with pytest.raises(jm.ModelError, match="nothing here keeps that"):
        walk_game().walk(Recurrent(), 3)


@pytest.mark.slow
def test_a_policy_that_works_in_place_changes_no_state() -> None:
    """Observations are the states themselves, as they are or in a dictionary; the agent scales what it is shown."""

    def step(stock: Any, action: int, u: float) -> tuple[float, Any]:
        return float(stock[0]) + u * action, stock * 0.5 + u

    def scaling(seen: Any) -> int:
        seen = seen["stock"] if isinstance(seen, dict) else seen
        seen /= 10.0
        return int(seen[0] > 0.05)

    class Scaling:
        def predict(self, seen: Any, state: Any = None) -> tuple[int, int]:
            return scaling(seen), 1

    for show in (lambda s: s, lambda s: {"stock": s}):
        shop = jm.FunctionSimulator(
            step, lambda rng: rng.random(), start=np.array([1.0]), actions=2, observe=show, discount=0.9
        )
        looking = jm.simulate(
            shop,
            lambda seen: int(np.ravel(next(iter(seen.values())) if isinstance(seen, dict) else seen)[0] > 0.5),
            None,
            [0, 1],
            num_samples=8,
            horizon=6,
        )
        for policy in (scaling, Scaling()):
            found = jm.simulate(shop, policy, None, [0, 1], num_samples=8, horizon=6)
            assert np.array_equal(found.returns, looking.returns)


def test_a_memory_that_begins_in_the_middle_is_said() -> None:
    game = walk_game()
    place = game.walk("half", 3)
    found = jm.compare(game, Recurrent(), place, horizon=4, pilot=20, max_replications=20)
    assert "begin in the state that was given" in found.remark


# -- the agent's question -------------------------------------------------------------------------------------------


def shop() -> tuple[jm.JointMDP, Any]:
    """Three states that never end, three actions, and a policy that is wrong in some of them."""
    rng = np.random.default_rng(2)
    rewards, successors = rng.normal(size=(3, 4, 3)).round(1), rng.integers(3, size=(3, 4, 3))
    return jm.JointMDP(np.full((3, 4), 0.25), rewards, successors, 0.6), np.array([0, 1, 2])


@pytest.mark.slow
def test_a_review_agrees_with_the_exact_gaps() -> None:
    model, policy = shop()
    solution = jm.evaluate(model, policy)
    settings: dict[str, Any] = {"max_replications": 4_000, "indifference": 0.0}
    found = jm.simulators.review_agent(model, policy, 4, steps=12, seed=2, **settings)
    assert found.length == 12
    assert [state.step for state in found.states] == [0, 4, 7, 11]
    simulator = jm.as_simulator(model)
    for state in found.states:
        s = simulator.walk(policy, state.step, seed=2)
        means, action = solution.mean[s], policy[s]
        assert state.chosen == simulator.action_label(int(action))
        lead = means[action] - max(means[a] for a in range(3) if a != action)
        assert state.gap.mean_interval.lower <= lead <= state.gap.mean_interval.upper
        assert state.shown == ("chosen" if lead > 0 else "other")
    assert {state.shown for state in found.states} == {"chosen", "other"}


@pytest.mark.slow
def test_a_review_says_how_much_and_how_often() -> None:
    found = jm.simulators.review_agent(
        walk_game(), Recurrent(), 3, steps=9, horizon=1, seed=1, pilot=400, max_replications=400
    )
    rows = found.table()
    assert [row["step"] for row in rows] == [0, 4, 8]
    # With one step to go the gap is not random: the agent is right.
    assert {row["shown"] for row in rows} == {"chosen"}
    assert found.sentence.endswith("another action is shown better than the agent's. In 3 the agent's is shown best.")
    assert {state.chosen for state in found.states} == {"half", "before"}

    class Contrary(Recurrent):
        def predict(self, observation: Any, state: Any = None) -> tuple[Any, Any]:
            action, after = super().predict(observation, state)
            return 1 - action, after

    wrong = jm.simulators.review_agent(
        walk_game(), Contrary(), 3, steps=9, horizon=1, seed=1, pilot=400, max_replications=400
    )
    worst = min(wrong.states, key=lambda state: state.gap.mean)
    assert wrong.sentence.startswith(
        "In 3 of 3 states along an episode of 9 steps another action is shown better than the agent's, on average by "
    )
    assert f"the most in step {worst.step}: {worst.other} instead of {worst.chosen}" in wrong.sentence
    assert "the other is better" in str(wrong)
    assert "95%" in str(wrong)


@pytest.mark.slow
def test_given_states_are_reviewed_and_continuous_actions_named() -> None:
    game = walk_game()
    places = [game.walk("half", steps) for steps in (1, 3)]
    found = jm.simulators.review_agent(game, "half", places, horizon=2, pilot=20, max_replications=20)
    assert found.length is None
    assert [state.step for state in found.states] == [0, 1]
    assert {state.other for state in found.states} == {"before"}
    level = jm.FunctionSimulator(
        lambda x, action, noise: (-((action - 1.0) ** 2) + noise["n"], x),
        {"n": lambda rng: rng.normal()},
        start=0.0,
        actions=None,
    )
    near = jm.simulators.review_agent(level, lambda seen: 1.0, [0.0], actions=[0.0, 1.0, 3.0], horizon=1, pilot=400)
    assert near.states[0].comparison.labels == ("1.0", "0.0", "3.0")
    assert (near.states[0].other, near.states[0].shown) == ("0.0", "chosen")


@pytest.mark.slow
def test_all_states_together_share_the_error() -> None:
    model, policy = shop()
    one = jm.simulators.review_agent(model, policy, 1, seed=4, max_replications=400, pilot=400)
    many = jm.simulators.review_agent(model, policy, 10, steps=10, seed=4, max_replications=400, pilot=400)
    assert one.states[0].comparison.confidence == pytest.approx(0.95)
    assert many.states[0].comparison.confidence == pytest.approx(0.995)
    assert many.states[0].gap.mean == one.states[0].gap.mean
    assert many.states[0].gap.mean_interval.width > one.states[0].gap.mean_interval.width


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"states": []}, "no states were given"),
        ({"states": 0}, "states"),
        ({"states": 2, "confidence": 2.0}, "confidence"),
        ({"states": 2, "steps": 0}, "steps"),
    ],
)
def test_bad_requests_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(jm.ModelError, match=words):
        jm.simulators.review_agent(walk_game(), "half", **settings)


def test_an_episode_that_is_over_at_once_is_named() -> None:
    class Over(jm.FunctionSimulator):
        def is_over(self, state: Any) -> bool:
            return True

    with pytest.raises(jm.ModelError, match="over where it starts"):
        jm.simulators.review_agent(Over(lambda x, a, noise: (0.0, x), start=0, actions=2), 0)
