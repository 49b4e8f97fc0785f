"""The ready-made models are the ones described, and a model played as an environment follows its own tables."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from oracle import exact_moments, random_model

from jointmdp.ground.errors import ModelError
from jointmdp.model.built_in_models import coupled_reward_chain, inventory, windy_gridworld
from jointmdp.model.from_mdp import from_gymnasium
from jointmdp.model.from_noise_and_start import from_noise
from jointmdp.model.gymnasium_env import JointEnv
from jointmdp.model.joint_mdp import JointMDP

# -- windy gridworld -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_gridworld_against_the_rules_told_one_by_one(size: int) -> None:
    model, _ = windy_gridworld(size, gust_probability=0.3)
    assert model.action_names == ("U", "R", "D", "L")
    assert np.array_equal(model.probabilities, np.tile([0.7, 0.3], (size * size, 1)))
    goal = f"({size - 1},{size - 1})"
    moves = {"U": (0, 1), "R": (1, 0), "D": (0, -1), "L": (-1, 0)}
    for x, y in np.ndindex(size, size):
        s = model.state_index(f"({x},{y})")
        for a, (dx, dy) in moves.items():
            own = (min(max(x + dx, 0), size - 1), min(max(y + dy, 0), size - 1))
            blown = (max(own[0] - 1, 0), own[1])
            for w, cell in enumerate([own, blown]):
                expected = goal if f"({x},{y})" == goal else f"({cell[0]},{cell[1]})"
                assert model.state_label(model.successors[s, w, model.action_index(a)]) == expected
                assert model.rewards[s, w, model.action_index(a)] == (f"({x},{y})" == goal)


def test_gridworld_policy_goes_right_then_up_and_arrives() -> None:
    model, policy = windy_gridworld(4)
    for s in range(16):
        assert policy[s].tolist() == ([0, 1, 0, 0] if s % 4 < 3 else [1, 0, 0, 0])
    s, steps = model.state_index("(0,0)"), 0
    while s != model.state_index("(3,3)"):
        s, steps = int(model.successors[s, 0, policy[s].argmax()]), steps + 1
    assert steps == 6


def test_gridworld_settings() -> None:
    model, _ = windy_gridworld()
    assert (model.num_states, model.discount, model.sharing) == (25, 0.99, "state")
    assert model.probabilities[0].tolist() == [0.8, 0.2]
    assert model.is_coupled
    assert not windy_gridworld(3, gust_probability=0)[0].is_coupled
    assert windy_gridworld(3, 0.5, sharing="time")[0].sharing == "time"


def test_large_gridworlds_build_fast() -> None:
    start = time.perf_counter()
    model, policy = windy_gridworld(50)
    assert time.perf_counter() - start < 1  # takes a few hundredths; the rest is for a busy machine
    assert policy.shape == (model.num_states, model.num_actions) == (2500, 4)


# -- coupled-reward chain --------------------------------------------------------------------------------------


def test_chain_tables() -> None:
    model, policy = coupled_reward_chain(4, reward=2)
    assert model.rewards[:3].tolist() == [[[2, -2], [-2, 2]]] * 3
    assert model.successors[:, 0, 0].tolist() == [1, 2, 3, 3]
    assert np.all(model.successors == model.successors[:, :1, :1])
    assert np.all(model.rewards[3] == 0)
    assert np.all(model.probabilities == 0.5)
    assert np.all(policy == 0.5)
    assert (model.state_names, model.action_names) == (("s0", "s1", "s2", "s3"), ("a1", "a2"))
    assert np.all(coupled_reward_chain(4, deterministic=True)[1] == [1, 0])


@pytest.mark.parametrize(("deterministic", "correlation"), [(False, 0.7961), (True, 0.8960)])
def test_chain_moments(deterministic: bool, correlation: float) -> None:
    model, policy = coupled_reward_chain(deterministic=deterministic)
    exact = exact_moments(model.probabilities, model.rewards, model.successors, 0.99, policy)
    block = exact.covariance_blocks_float()[0]
    assert block[0, 0] == pytest.approx(sum(0.99 ** (2 * t) for t in range(24)), rel=1e-12)
    assert block[0, 1] / block[0, 0] == pytest.approx(correlation, abs=5e-5)


def test_shifted_chain_has_the_same_correlations() -> None:
    plain, policy = coupled_reward_chain(5, 0.9, reward=3)
    shifted, _ = coupled_reward_chain(5, 0.9, reward=3, shifted=True)
    assert shifted.rewards[:4].tolist() == [[[1, 0], [0, 1]]] * 4
    assert np.all(shifted.rewards[4] == 0)
    one, other = (exact_moments(m.probabilities, m.rewards, m.successors, 0.9, policy) for m in (plain, shifted))
    np.testing.assert_allclose(other.covariance_blocks_float(), one.covariance_blocks_float() / 36, rtol=0, atol=1e-13)
    assert other.mean_float()[0, 0] == pytest.approx(sum(0.5 * 0.9**t for t in range(4)), rel=1e-12)


# -- inventory -------------------------------------------------------------------------------------------------


def test_inventory_is_the_textbook_model() -> None:
    model, _ = inventory(order_cost=1.5)

    def sold(s: int, q: int, d: int) -> int:
        return min(s + q, d)

    rebuilt = from_noise(
        lambda s, q, d: (
            10 * sold(s, q, d) - 4 * q - 1.5 * (q > 0) - 0.2 * (s + q - sold(s, q, d)) - 5 * (d - sold(s, q, d))
        ),
        lambda s, q, d: f"stock {s + q - sold(s, q, d)}",
        range(model.num_scenarios),
        model.probabilities[0],
        num_states=21,
        num_actions=8,
        discount=0.95,
        sharing="time",
        available=np.add.outer(np.arange(21), np.arange(8)) <= 20,
        state_names=[f"stock {x}" for x in range(21)],
        action_names=[f"order {q}" for q in range(8)],
    )
    np.testing.assert_allclose(rebuilt.rewards, model.rewards, rtol=0, atol=1e-12)
    assert np.array_equal(rebuilt.successors, model.successors)
    assert np.array_equal(rebuilt.available, model.available)
    assert (rebuilt.state_names, rebuilt.action_names) == (model.state_names, model.action_names)


@pytest.mark.parametrize("mean", [1e-10, 0.01, 0.5, 4.0, 30.0])
def test_demand_is_poisson_with_its_tail_in_the_last_value(mean: float) -> None:
    model, _ = inventory(demand_mean=mean)
    chances = model.probabilities[0]
    term, pmf = np.exp(-mean), []
    for d in range(len(chances)):
        pmf.append(term)
        term *= mean / (d + 1)
    np.testing.assert_allclose(chances[:-1], pmf[:-1], rtol=1e-11)
    assert chances[-1] == pytest.approx(1 - sum(pmf[:-1]), abs=1e-12)
    assert chances.sum() == pytest.approx(1, abs=1e-14)
    assert chances[-1] - pmf[-1] < 1e-9


def test_inventory_is_a_sensible_decision_problem() -> None:
    """The default policy is optimal, neighbouring orders are close, and common random numbers tell them apart."""
    model, policy = inventory()
    assert (model.num_states, model.num_actions, model.sharing, model.discount) == (21, 8, "time", 0.95)
    order = policy.argmax(axis=1)
    assert order.tolist() == [7, 7, 6, 5, 4, 3, 2, 1] + [0] * 13
    marginal = model.marginal_mdp()
    here = np.arange(21)
    values = np.linalg.solve(np.eye(21) - 0.95 * marginal.transitions[here, order], marginal.rewards[here, order])
    q = np.where(model.available, marginal.rewards + 0.95 * marginal.transitions @ values, -np.inf)
    assert np.all(q.max(axis=1) <= values + 1e-9)

    # One step is enough to see the effect: the spread of R + γv(S') over demands, per action and for the gap.
    outcome = model.rewards[4] + 0.95 * values[model.successors[4]]
    chosen, rival = outcome[:, order[4]], outcome[:, order[4] - 1]

    def spread(x: np.ndarray) -> float:
        p = model.probabilities[4]
        return float(np.sqrt(p @ (x - p @ x) ** 2))

    independent = np.hypot(spread(chosen), spread(rival))
    assert 0 < q[4, order[4]] - q[4, order[4] - 1] < independent / 10
    assert spread(chosen - rival) < independent / 4


def test_inventory_policy_settings() -> None:
    assert inventory(base_stock=3)[1].argmax(axis=1)[:5].tolist() == [3, 2, 1, 0, 0]
    assert inventory(base_stock=20)[1].argmax(axis=1)[[0, 13, 15, 20]].tolist() == [7, 7, 5, 0]
    assert inventory(base_stock=0)[1].argmax(axis=1).max() == 0
    assert inventory(price=1, unit_cost=4, shortage_cost=0)[1].argmax(axis=1).max() == 0  # selling does not pay
    assert inventory(4, 2, demand_mean=30.0)[1].argmax(axis=1).tolist() == [2, 2, 2, 1, 0]


# -- models as Gymnasium environments --------------------------------------------------------------------------


def small(**options: Any) -> JointMDP:
    """A random model of 4 states, 3 scenarios, 2 actions whose last state is absorbing without reward."""
    p, R, N, discount, *_ = random_model(np.random.default_rng(2), 4, 3, 2, discount=0.9)
    R[3], N[3] = 0, 3
    return JointMDP(p, R, N, discount, **options)


@pytest.mark.parametrize(
    "model", [small(), windy_gridworld(3)[0], coupled_reward_chain(5)[0], small(action_names=["a", "b"])]
)
@pytest.mark.parametrize("max_steps", [None, 10])
def test_environments_pass_gymnasium_checks(model: JointMDP, max_steps: int | None) -> None:
    env = model.as_gymnasium(max_steps=max_steps)
    check_env(env, skip_render_check=True)
    assert isinstance(env, JointEnv)
    assert (env.observation_space.n, env.action_space.n) == (model.num_states, model.num_actions)


def test_step_shows_the_whole_row() -> None:
    model = small()
    env = model.as_gymnasium()
    seen = set()
    for seed in range(60):
        state, info = env.reset(seed=seed)
        assert info["action_mask"].tolist() == [1, 1]
        entered, reward, terminated, truncated, info = env.step(seed % 2)
        w = info["scenario"]
        assert info["rewards"].tolist() == model.rewards[state, w].tolist()
        assert info["successors"].tolist() == model.successors[state, w].tolist()
        assert (entered, reward) == (info["successors"][seed % 2], info["rewards"][seed % 2])
        assert terminated == (entered == 3)
        assert truncated is False
        info["rewards"][:] = 7  # a copy: the model does not change
        seen.add((state, w))
    assert len(seen) > 5
    assert np.abs(model.rewards).max() < 7


def test_frequencies_follow_the_model() -> None:
    """Scenario and start frequencies within five standard errors.

    Sixteen counts are compared, each off by that much with probability 6e-7 in the normal approximation: over
    seeds the false-alarm rate is about 1e-5, and the seed is fixed.
    """
    model = small()
    start = [0.1, 0.2, 0.3, 0.4]
    env = model.as_gymnasium(start)
    runs = 4000
    starts, scenarios = np.zeros(4), np.zeros((4, 3))
    env.reset(seed=0)
    for _ in range(runs):
        state, _ = env.reset()
        starts[state] += 1
        _, _, _, _, info = env.step(0)
        scenarios[state, info["scenario"]] += 1
    assert np.all(np.abs(starts - runs * np.array(start)) <= 5 * np.sqrt(runs * np.array(start)))
    expected = starts[:, None] * model.probabilities
    deviation = 5 * np.sqrt(expected * (1 - model.probabilities))
    assert np.all(np.abs(scenarios - expected) <= deviation)


def test_default_start_leaves_out_terminal_states() -> None:
    env = small().as_gymnasium()
    env.reset(seed=1)
    assert {env.reset()[0] for _ in range(100)} == {0, 1, 2}
    nowhere_else = JointMDP([[1.0]] * 2, np.zeros((2, 1, 1)), [[[0]], [[1]]], 0.9).as_gymnasium()
    nowhere_else.reset(seed=1)
    assert {nowhere_else.reset()[0] for _ in range(30)} == {0, 1}


@pytest.mark.parametrize("start", [2, "two", np.int64(2), [0, 0, 1.0, 0]])
def test_start_in_one_state(start: Any) -> None:
    env = small(state_names=["zero", "one", "two", "end"]).as_gymnasium(start)
    assert {env.reset(seed=seed)[0] for seed in range(20)} == {2}
    assert env.reset(options={"state": "one"})[0] == env.reset(options={"state": 1})[0] == 1


def test_terminal_means_absorbing_without_reward() -> None:
    grid, _ = windy_gridworld(2)
    env = grid.as_gymnasium()
    assert not env.is_terminal.any()  # the goal pays for ever
    chain, _ = coupled_reward_chain(3)
    env = chain.as_gymnasium("s1")
    env.reset(seed=0)
    entered, _, terminated, _, _ = env.step("a2")
    assert (entered, terminated) == (2, True)
    # What cannot happen does not count: an impossible scenario, an unavailable action.
    rewards = np.array([[[0.0, 1.0], [1.0, 1.0]]])
    odd = JointMDP([[1.0, 0.0]], rewards, np.zeros((1, 2, 2)), 0.9, available=[[True, False]])
    assert odd.as_gymnasium().is_terminal.tolist() == [True]


def test_truncation_after_max_steps() -> None:
    env = windy_gridworld(3)[0].as_gymnasium(start="(0,0)", max_steps=3)
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step("L")[3] for _ in range(3)] == [False, False, True]


def test_unavailable_actions_are_masked_and_refused() -> None:
    model, _ = inventory(4, 3)
    env = model.as_gymnasium(start="stock 4")
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 0, 0, 0]
    with pytest.raises(ModelError, match="order 2 is not available in stock 4"):
        env.step(2)
    with pytest.raises(ModelError, match="unknown action 9"):
        env.step(9)
    for _ in range(50):
        entered, _, _, _, info = env.step(env.action_space.sample(info["action_mask"]))
        assert info["action_mask"].tolist() == model.available[entered].tolist()


def test_requests_that_make_no_sense() -> None:
    env = small().as_gymnasium()
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(0)
    with pytest.raises(ModelError, match="unknown reset options: 'stat'"):
        env.reset(options={"stat": 1})
    with pytest.raises(ModelError, match="unknown state 4"):
        env.reset(options={"state": 4})


def test_rounding_never_picks_an_impossible_scenario() -> None:
    # Ten times 0.1 add up to less than 1 one by one; the scenarios before and after them cannot happen.
    p = np.array([0.0, *[0.1] * 10, 0.0])
    assert p.cumsum()[-1] < 1
    env = JointMDP([p], np.zeros((1, 12, 1)), np.zeros((1, 12, 1)), 0.9).as_gymnasium()
    env.reset(seed=0)

    class Fixed(np.random.Generator):
        value = 0.0

        def random(self, *args: Any, **kwargs: Any) -> Any:
            return self.value

    for value, scenario in [(0.0, 1), (0.05, 1), (0.1, 2), (np.nextafter(1, 0), 10)]:
        env.np_random = Fixed(np.random.PCG64(0))
        env.np_random.value = value
        assert env.step(0)[4]["scenario"] == scenario


def test_the_same_seed_plays_the_same_frozen_lake() -> None:
    """One uniform for the start, one for each step: the imported game is the live one, move by move."""
    live = gymnasium.make("FrozenLake-v1").unwrapped
    env = from_gymnasium(live, 0.99).as_gymnasium(start=0)
    moves = np.random.default_rng(0)
    for seed in range(100):
        assert live.reset(seed=seed)[0] == env.reset(seed=seed)[0]
        ended = False
        while not ended:
            action = int(moves.integers(4))
            theirs, ours = live.step(action), env.step(action)
            assert ours[:3] == tuple(theirs[:3])
            ended = bool(theirs[2])


def test_missing_gymnasium_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "jointmdp.model.gymnasium_env")
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[gymnasium\]'"):
        importlib.import_module("jointmdp.model.gymnasium_env")
