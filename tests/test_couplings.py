"""Couplings keep every action's own law and join the laws as they say."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.model.action_laws import SAME_POINT, ActionLaw, laws_from_entries
from jointmdp.model.couplings import coupled_tables
from jointmdp.model.from_mdp import from_gymnasium, from_mdp
from jointmdp.model.from_noise_and_start import from_noise, from_sampler
from jointmdp.model.joint_mdp import JointMDP

NAMED = ["comonotone", "antithetic", "independent", "maximal", "gumbel-max"]


def random_mdp(seed: int, S: int = 4, A: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Transitions with some impossible successors, and rewards by successor."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * (rng.random((S, A, S)) < 0.7)
    kernel[..., 0] += kernel.sum(axis=2) == 0
    return kernel / kernel.sum(axis=2, keepdims=True), rng.normal(size=(S, A, S))


def shuffled_product(state: int, laws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A coupling from outside: the product, listed in an unusual order, with an impossible scenario added."""
    choices = np.array(list(itertools.product(*(range(len(law)) for law in laws))))[::-1]
    chances = np.prod([law[choices[:, a]] for a, law in enumerate(laws)], axis=0)
    return np.append(chances, 0.0), np.vstack([choices, choices[:1]])


def assert_marginals(model: JointMDP, kernel: np.ndarray, rewards: np.ndarray, tolerance: float = 1e-12) -> None:
    """The model's own ordinary MDP is the given one, outcome by outcome."""
    marginal = model.marginal_mdp()
    np.testing.assert_allclose(marginal.transitions, kernel, rtol=0, atol=tolerance)
    expected = np.einsum("sat,sat->sa", kernel, rewards)
    np.testing.assert_allclose(marginal.rewards, expected, rtol=0, atol=tolerance)
    for s, a in np.ndindex(kernel.shape[:2]):
        law = model.query_law(s, [a])
        assert np.array_equal(law.rewards[:, 0], rewards[s, a, law.successors[:, 0]])


def overlap(first: np.ndarray, second: np.ndarray, flipped: bool) -> np.ndarray:
    """``∫₀¹ 1[F_a⁻¹(u) = i] 1[F_b⁻¹(u or 1 − u) = j] du`` as lengths of intervals, for all ``i, j``."""
    low, high = np.cumsum(first) - first, np.cumsum(first)
    other_low, other_high = np.cumsum(second) - second, np.cumsum(second)
    if flipped:
        other_low, other_high = 1 - other_high, 1 - other_low
    return np.maximum(np.minimum.outer(high, other_high) - np.maximum.outer(low, other_low), 0)


def joint_of_pair(model: JointMDP, s: int, a: int, b: int) -> np.ndarray:
    """``P(S'_a = i, S'_b = j)`` from the model."""
    joint = np.zeros((model.num_states, model.num_states))
    np.add.at(joint, (model.successors[s, :, a], model.successors[s, :, b]), model.probabilities[s])
    return joint


# -- every coupling keeps the marginals ------------------------------------------------------------------------


@pytest.mark.parametrize("common_grid", [None, False, True])
@pytest.mark.parametrize("coupling", [*NAMED, shuffled_product])
@pytest.mark.parametrize("seed", range(4))
def test_marginals_are_the_given_mdp(coupling: Any, seed: int, common_grid: bool | None) -> None:
    kernel, rewards = random_mdp(seed)
    assert_marginals(from_mdp(kernel, rewards, 0.9, coupling, common_grid=common_grid), kernel, rewards)


def test_rewards_without_successors() -> None:
    kernel, rewards = random_mdp(5)
    model = from_mdp(kernel, rewards[:, :, 0], 0.9)
    assert_marginals(model, kernel, np.broadcast_to(rewards[:, :, :1], kernel.shape))


def test_rewards_of_impossible_successors_are_ignored() -> None:
    kernel, rewards = random_mdp(6)
    assert (kernel == 0).any()
    model = from_mdp(kernel, np.where(kernel > 0, rewards, np.nan), 0.9)
    assert model == from_mdp(kernel, rewards, 0.9)


@pytest.mark.parametrize("coupling", [*NAMED, shuffled_product])
def test_unavailable_actions_are_ignored(coupling: Any) -> None:
    kernel, rewards = random_mdp(7)
    available = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1]], dtype=bool)
    broken = np.where(available[:, :, None], kernel, np.nan)

    def only_available(state: int, laws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        assert [len(law) > 0 for law in laws] == available[state].tolist()
        chances, choices = shuffled_product(state, [law if len(law) else np.ones(1) for law in laws])
        return chances, np.where(available[state], choices, np.nan)

    chosen = only_available if callable(coupling) else coupling
    model = from_mdp(broken, rewards, 0.9, chosen, available=available)
    marginal = model.marginal_mdp()
    np.testing.assert_allclose(marginal.transitions[available], kernel[available], rtol=0, atol=1e-12)
    assert np.array_equal(model.available, available)


def test_single_precision_tables() -> None:
    kernel, rewards = random_mdp(8)
    single = kernel.astype(np.float32).astype(np.float64)
    sums = single.sum(axis=2, keepdims=True)
    assert np.abs(sums - 1).max() > 1e-9
    assert_marginals(from_mdp(kernel.astype(np.float32), rewards, 0.9), single / sums, rewards)


def test_names_and_sharing_are_passed_on() -> None:
    kernel, rewards = random_mdp(9)
    model = from_mdp(kernel, rewards, 0.8, sharing="none", state_names=list("wxyz"))
    assert (model.state_names, model.sharing, model.discount) == (("w", "x", "y", "z"), "none", 0.8)


# -- the couplings are what they say ---------------------------------------------------------------------------


@pytest.mark.parametrize("common_grid", [False, True])
@pytest.mark.parametrize("coupling", ["comonotone", "antithetic"])
@pytest.mark.parametrize("seed", range(4))
def test_one_uniform_against_direct_integration(coupling: Any, seed: int, common_grid: bool) -> None:
    kernel, rewards = random_mdp(seed, S=5, A=4)
    model = from_mdp(kernel, rewards, 0.9, coupling, common_grid=common_grid)
    for s, (a, b) in itertools.product(range(5), itertools.combinations(range(4), 2)):
        flipped = coupling == "antithetic" and (a - b) % 2 == 1
        expected = overlap(kernel[s, a], kernel[s, b], flipped)
        np.testing.assert_allclose(joint_of_pair(model, s, a, b), expected, rtol=0, atol=1e-14)


def test_one_uniform_joins_all_actions_at_once() -> None:
    # The outcome of each action at 20,000 values of u, looked up one by one, gives the triple's law.
    kernel, rewards = random_mdp(10)
    model = from_mdp(kernel, rewards, 0.9, "antithetic")
    u = (np.arange(20_000) + 0.5) / 20_000
    for s in range(4):
        outcomes = [np.argmax(kernel[s, a].cumsum() > (1 - u if a == 1 else u)[:, None], axis=1) for a in range(3)]
        seen = np.zeros((4, 4, 4))
        np.add.at(seen, tuple(outcomes), 1 / len(u))
        joint = np.zeros((4, 4, 4))
        np.add.at(joint, tuple(model.successors[s].T), model.probabilities[s])
        # Each cell of the joint law is an interval of u, whose grid count is off by at most one at either end.
        np.testing.assert_allclose(seen, joint, rtol=0, atol=2 / len(u))


def test_comonotone_actions_with_one_law_always_agree_and_antithetic_ones_do_not() -> None:
    kernel = np.full((2, 2, 2), [0.25, 0.75])
    agree = from_mdp(kernel, np.zeros((2, 2)), 0.9, "comonotone")
    assert np.array_equal(agree.successors[..., 0], agree.successors[..., 1])
    oppose = from_mdp(kernel, np.zeros((2, 2)), 0.9, "antithetic")
    np.testing.assert_allclose(joint_of_pair(oppose, 0, 0, 1), [[0, 0.25], [0.25, 0.5]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("common_grid", [False, True])
def test_independent_is_the_product(common_grid: bool) -> None:
    kernel, rewards = random_mdp(11)
    model = from_mdp(kernel, rewards, 0.9, "independent", common_grid=common_grid)
    assert not model.is_coupled
    for s in range(4):
        joint = np.zeros((4, 4, 4))
        np.add.at(joint, tuple(model.successors[s].T), model.probabilities[s])
        product = np.einsum("i,j,k->ijk", *kernel[s])
        np.testing.assert_allclose(joint, product, rtol=0, atol=1e-14)
    assert from_mdp(kernel, rewards, 0.9, "comonotone").is_coupled


def test_independent_works_with_many_sure_actions() -> None:
    # More actions than NumPy arrays can have axes.
    kernel = np.zeros((2, 70, 2))
    kernel[..., 1] = 1
    kernel[0, 3] = [0.5, 0.5]
    assert from_mdp(kernel, np.zeros((2, 70)), 0.9, "independent").num_scenarios == 2


def test_padding_has_probability_zero() -> None:
    kernel = np.array([[[1.0, 0.0]], [[0.25, 0.75]]])
    model = from_mdp(kernel, np.zeros((2, 1)), 0.9)
    assert model.probabilities.tolist() == [[1, 0], [0.25, 0.75]]


# -- break points ----------------------------------------------------------------------------------------------


def test_roundings_make_no_sliver_scenarios() -> None:
    third, two_thirds = 1 / 3, 1 - (1 / 3 + 1 / 3)
    kernel = np.zeros((3, 2, 3))
    kernel[:, 0] = [third, third, two_thirds]
    kernel[:, 1] = [2 / 3, 0, 1 / 3]
    assert from_mdp(kernel, np.zeros((3, 2)), 0.9).num_scenarios == 3
    tenths = np.array([[[0.1, 0.2, 0.7]], [[0.3, 0.7, 0.0]], [[0.1 + 0.2, 0.7, 0.0]]])
    assert from_mdp(tenths, np.zeros((3, 1)), 0.9, common_grid=True).num_scenarios == 3


fractional_laws = st.lists(
    st.lists(st.integers(0, 12), min_size=3, max_size=3).filter(any).map(
        lambda weights: [Fraction(weight, sum(weights)) for weight in weights]
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


@settings(max_examples=100, deadline=None, derandomize=True)
@given(fractional_laws, st.sampled_from(["comonotone", "antithetic"]))
def test_scenarios_are_the_exact_refinement(laws: list[list[Fraction]], coupling: Any) -> None:
    points = {Fraction(0)}
    for a, law in enumerate(laws):
        ordered = law[::-1] if coupling == "antithetic" and a % 2 else law
        points |= {sum(ordered[: i + 1], Fraction(0)) for i in range(3)}
    kernel = np.tile(np.array(laws, dtype=float), (3, 1, 1))
    model = from_mdp(kernel, np.zeros((3, len(laws))), 0.9, coupling)
    edges = sorted(points)
    expected = [float(high - low) for low, high in itertools.pairwise(edges)]
    np.testing.assert_allclose(model.probabilities[0], expected, rtol=0, atol=2 * SAME_POINT)


@pytest.mark.parametrize("tiny", [1e-300, 1e-17, SAME_POINT / 2])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_outcomes_below_the_resolution_can_be_lost_but_do_no_harm(tiny: float, place: int) -> None:
    law = np.insert([0.5, 0.5 - tiny], place, tiny)
    kernel = np.tile(law, (3, 2, 1))
    model = from_mdp(kernel, np.zeros((3, 2)), 0.9, "antithetic")
    np.testing.assert_allclose(model.marginal_mdp().transitions, kernel, rtol=0, atol=2 * SAME_POINT)


# -- common grids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", NAMED)
def test_common_grid_comes_with_time_sharing(coupling: Any) -> None:
    kernel, rewards = random_mdp(12, S=3, A=2)
    model = from_mdp(kernel, rewards, 0.9, coupling, sharing="time")
    assert np.all(model.probabilities == model.probabilities[0])
    assert_marginals(model, kernel, rewards)
    alone = from_mdp(kernel, rewards, 0.9, coupling)
    assert alone.num_scenarios < model.num_scenarios
    assert from_mdp(kernel, rewards, 0.9, coupling, common_grid=True).with_sharing("time") == model


def test_common_grid_means_the_same_uniform_in_every_state() -> None:
    kernel, rewards = random_mdp(13, S=3, A=2)
    model = from_mdp(kernel, rewards, 0.9, sharing="time")
    u = model.probabilities[0].cumsum() - model.probabilities[0] / 2  # the middle of each scenario
    for s, a in np.ndindex(3, 2):
        assert np.array_equal(model.successors[s, :, a], np.argmax(kernel[s, a].cumsum() > u[:, None], axis=1))


def test_time_sharing_without_a_common_grid_is_refused() -> None:
    kernel, rewards = random_mdp(14)
    with pytest.raises(ModelError, match="one scenario grid"):
        from_mdp(kernel, rewards, 0.9, sharing="time", common_grid=False)
    with pytest.raises(ModelError, match="one scenario grid"):
        from_mdp(kernel, rewards, 0.9, shuffled_product, sharing="time")


def test_a_coupling_function_may_bring_its_own_common_grid() -> None:
    kernel = np.tile([[0.5, 0.5], [0.25, 0.75]], (2, 1, 1))
    model = from_mdp(kernel, np.zeros((2, 2)), 0.9, shuffled_product, sharing="time")
    assert_marginals(model, kernel, np.zeros((2, 2, 2)))


# -- exogenous noise -------------------------------------------------------------------------------------------


def test_from_noise_is_the_table_of_the_functions() -> None:
    model = from_noise(
        lambda s, a, u: s + 10 * a + 100 * u,
        lambda s, a, u: "up" if u + a > 1 else "down",
        [0, 1, 2],
        [0.5, 0.25, 0.25],
        num_states=2,
        num_actions=2,
        discount=0.9,
        sharing="time",
        available=[[True, True], [True, False]],
        state_names=["down", "up"],
        action_names=["stay", "push"],
    )
    assert model.probabilities.tolist() == [[0.5, 0.25, 0.25]] * 2
    assert model.rewards[0].tolist() == [[0, 10], [100, 110], [200, 210]]
    assert model.rewards[1].tolist() == [[1, 0], [101, 0], [201, 0]]
    assert model.successors[0].tolist() == [[0, 0], [0, 1], [1, 1]]
    assert (model.sharing, model.action_names) == ("time", ("stay", "push"))


def test_from_noise_skips_unavailable_actions() -> None:
    def reward(s: int, a: int, u: int) -> float:
        assert (s, a) != (1, 0)
        return 1.0

    model = from_noise(
        reward, lambda s, a, u: s, "ab", [0.5, 0.5], num_states=2, num_actions=2, discount=0.9,
        available=[[True, True], [False, True]],
    )  # fmt: skip
    assert model.rewards[1].tolist() == [[0, 1], [0, 1]]


def test_from_sampler_is_the_sample_with_equal_weights() -> None:
    options: dict[str, Any] = {"num_states": 1, "num_actions": 2, "discount": 0.9}

    def sampled(count: int, seed: int) -> JointMDP:
        return from_sampler(
            lambda s, a, u: u + a, lambda s, a, u: 0, lambda rng: rng.normal(), count, seed=seed, **options
        )

    model = sampled(50, 3)
    rng = np.random.default_rng(3)
    assert model.rewards[0, :, 0].tolist() == [rng.normal() for _ in range(50)]
    assert np.array_equal(model.rewards[0, :, 1], model.rewards[0, :, 0] + 1)  # one draw serves both actions
    assert np.all(model.probabilities == 1 / 50)
    assert model == sampled(50, 3)
    assert model != sampled(50, 4)


# -- Gymnasium's tables ----------------------------------------------------------------------------------------


def toy_text(name: str, **options: Any) -> Any:
    """The bare environment, without wrappers."""
    return gymnasium.make(name, **options).unwrapped


def test_the_live_frozen_lake_is_comonotone() -> None:
    """The same generator state gives, for every action, the outcome that the imported scenario predicts."""
    live = toy_text("FrozenLake-v1")
    model = from_gymnasium(live, 0.99)
    assert (model.num_states, model.num_scenarios, model.num_actions) == (16, 3, 4)
    ends = model.probabilities[0].cumsum()
    for seed in range(1000):
        state = seed % 16
        scenario = int(np.argmax(ends > np.random.default_rng(seed).random()))
        for action in range(4):
            live.np_random = np.random.default_rng(seed)
            live.s = state
            successor, reward, _, _, _ = live.step(action)
            assert successor == model.successors[state, scenario, action]
            assert reward == model.rewards[state, scenario, action]


TOYS: list[tuple[str, dict[str, Any], int]] = [
    ("FrozenLake-v1", {}, 0),
    ("FrozenLake-v1", {"is_slippery": False}, 0),
    ("FrozenLake8x8-v1", {}, 0),
    ("CliffWalking-v1", {}, 1),
    ("CliffWalkingSlippery-v1", {}, 1),
    ("Taxi-v4", {}, 1),
    ("Taxi-v4", {"is_rainy": True}, 1),
]


@pytest.mark.parametrize(("name", "options", "extra"), TOYS)
def test_values_of_imported_tables(name: str, options: dict[str, Any], extra: int) -> None:
    """The uniform policy's values equal those computed from ``P`` directly, where an episode's end pays no more."""
    table = toy_text(name, **options).P
    model = from_gymnasium(table, 0.9)
    assert model.num_states == len(table) + extra
    assert (model.state_names or ("",))[-1] == ("terminated" if extra else "")
    A = model.num_actions
    S = len(table)
    live, gains = np.zeros((S, S)), np.zeros(S)
    for s, row in table.items():
        for p, target, reward, terminated in itertools.chain(*row.values()):
            gains[s] += p * reward / A
            live[s, target] += p * (not terminated) / A
    marginal = model.marginal_mdp()
    kernel = marginal.transitions.mean(axis=1)
    values = np.linalg.solve(np.eye(model.num_states) - 0.9 * kernel, marginal.rewards.mean(axis=1))
    np.testing.assert_allclose(values[:S], np.linalg.solve(np.eye(S) - 0.9 * live, gains), rtol=0, atol=1e-10)
    assert np.all(values[S:] == 0)


@pytest.mark.parametrize("coupling", NAMED)
@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_imported_tables_work_under_every_sharing(coupling: Any, sharing: Any) -> None:
    table = toy_text("CliffWalkingSlippery-v1").P
    model = from_gymnasium(table, 0.99, coupling, sharing)
    assert model.sharing == sharing
    if coupling != "gumbel-max" or sharing == "time":
        assert np.all(model.probabilities == model.probabilities[0])
    expected = from_gymnasium(table, 0.99).marginal_mdp().transitions
    np.testing.assert_allclose(model.marginal_mdp().transitions, expected, rtol=0, atol=1e-12)


def test_imported_tables_take_a_coupling_function() -> None:
    model = from_gymnasium(toy_text("FrozenLake-v1"), 0.99, shuffled_product)
    expected = from_gymnasium(toy_text("FrozenLake-v1"), 0.99).marginal_mdp().transitions
    np.testing.assert_allclose(model.marginal_mdp().transitions, expected, rtol=0, atol=1e-12)
    assert not model.is_coupled


def test_wrapped_environments_and_names() -> None:
    wrapped = gymnasium.make("CliffWalking-v1")
    model = from_gymnasium(wrapped, 0.9, state_names=range(48), action_names=["up", "right", "down", "left"])
    assert model.state_index("terminated") == 48
    assert model.state_index("36") == 36
    assert model.query_law(35, ["down"]).successors.tolist() == [[48]]  # the goal's cell itself is never entered
    assert model.query_law("terminated", ["up", "left"]).rewards.tolist() == [[0, 0]]


def test_unlisted_actions_are_unavailable() -> None:
    table = {
        0: {0: [(1.0, 1, 1.0, False)], 1: [(0.5, 0, 0.0, False), (0.5, 1, 2.0, True)]},
        1: {1: [(1.0, 0, 3.0, False)]},
    }
    model = from_gymnasium(table, 0.9)
    assert model.available.tolist() == [[True, True], [False, True], [True, True]]
    assert model.state_names == ("state 0", "state 1", "terminated")


def test_listed_order_is_kept() -> None:
    table = {0: {0: [(0.25, 1, 5.0, False), (0.75, 0, 6.0, False)]}, 1: {0: [(1.0, 1, 1.0, False)]}}
    model = from_gymnasium(table, 0.9)
    assert model.probabilities[0].tolist() == [0.25, 0.75]
    assert model.rewards[0, :, 0].tolist() == [5, 6]


def test_a_fickle_passenger_is_refused() -> None:
    with pytest.raises(ModelError, match="fickle passenger"):
        from_gymnasium(toy_text("Taxi-v4", fickle_passenger=True), 0.9)


# -- all states at once against one state at a time -----------------------------------------------------------------


def edges_by_hand(ends: list[np.ndarray]) -> np.ndarray:
    edges = [0.0]
    for point in np.unique(np.concatenate(ends)).tolist():
        if point < 1 - SAME_POINT and point - edges[-1] > SAME_POINT:
            edges.append(point)
    return np.array([*edges, 1.0])


def tables_by_hand(laws: list[list[ActionLaw]], coupling: str, common: bool) -> list[np.ndarray]:
    """One uniform through every law, state by state and action by action."""
    step = [-1 if coupling == "antithetic" and a % 2 == 1 else 1 for a in range(len(laws[0]))]
    ends = [[law.probabilities[:: step[a]].cumsum() for a, law in enumerate(row)] for row in laws]
    every = edges_by_hand([end for row in ends for end in row])
    grids = [every if common else edges_by_hand(row) for row in ends]
    shape = (len(laws), max(map(len, grids)) - 1, len(laws[0]))
    tables = [np.zeros(shape[:2]), np.zeros(shape), np.tile(np.arange(shape[0])[:, None, None], (1, *shape[1:]))]
    for s, edges in enumerate(grids):
        cells = len(edges) - 1
        tables[0][s, :cells] = np.diff(edges)
        for a, (end, law) in enumerate(zip(ends[s], laws[s], strict=True)):
            if len(end):
                place = np.searchsorted(edges, end[:-1], side="right") - 1
                place = np.where(end[:-1] < 1 - SAME_POINT, place, cells)
                choice = np.searchsorted(place, np.arange(cells), side="right")
                choice = choice if step[a] == 1 else len(end) - 1 - choice
                tables[1][s, :cells, a], tables[2][s, :cells, a] = law.rewards[choice], law.successors[choice]
    return tables


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.booleans(), st.sampled_from(NAMED[:2]))
def test_all_states_at_once_to_the_last_bit(seed: int, S: int, A: int, common: bool, coupling: Any) -> None:
    """Laws of 1 to 40 outcomes: thirds, impossible outcomes, break points a rounding apart, single precision."""
    rng = np.random.default_rng(seed)
    exists = rng.random((S, A)) < 0.8
    exists[:, 0] |= ~exists.any(axis=1)
    listed: dict[tuple[int, int], np.ndarray] = {}
    for s, a in np.argwhere(exists).tolist():
        size = int(rng.choice([1, 2, 3, 7, 8, 9, 17, 40]))
        law = rng.dirichlet(np.full(size, 0.3)) * (rng.random(size) < 0.8)
        law = law if law.any() else np.full(size, 1.0)
        if rng.random() < 0.3:
            law = rng.integers(0, 3, size) + (np.arange(size) == 0)
        law = law / law.sum()
        if rng.random() < 0.3:
            law = law.astype(np.float32).astype(np.float64)
        if rng.random() < 0.2 and size > 2:
            law[0], law[1] = law[0] + law[1] - 1e-16 * (law[1] > 0), 1e-16 * (law[1] > 0)
        listed[s, a] = law
    owners = np.concatenate([np.full(len(law), s * A + a) for (s, a), law in listed.items()])
    chances = np.concatenate(list(listed.values()))
    gains, targets = rng.normal(size=len(owners)), rng.integers(0, S, len(owners))
    laws = laws_from_entries(owners, chances, gains, targets, exists, lambda s, a: f"{s}, {a}")
    for (s, a), law in listed.items():
        assert np.array_equal(laws.law(s * A + a).probabilities, checks.as_law("law", "outcome", targets, law))
    expected = tables_by_hand([laws.of_state(s) for s in range(S)], coupling, common)
    for got, wanted in zip(coupled_tables(laws, coupling, common, 10**7), expected, strict=True):
        assert np.array_equal(got, wanted)


def test_large_sparse_models_take_seconds() -> None:
    """Two thousand states with three outcomes for each of four actions, by all forms the same."""
    rng = np.random.default_rng(0)
    S, A, K = 2000, 4, 3
    targets = np.sort(rng.permuted(np.tile(np.arange(20), (S, A, 1)), axis=2)[:, :, :K], axis=2)
    law = rng.dirichlet(np.ones(K), size=(S, A))
    gains = rng.normal(size=(S, A))
    rows = np.repeat(np.arange(S), K)
    sparse = [sp.csr_array((law[:, a].ravel(), (rows, targets[:, a].ravel())), shape=(S, S)) for a in range(A)]
    paid = [
        sp.csr_array((np.repeat(gains[:, a], K), matrix.nonzero()), shape=(S, S)) for a, matrix in enumerate(sparse)
    ]
    outcomes = {
        s: {a: [(law[s, a, i], int(targets[s, a, i]), gains[s, a]) for i in range(K)] for a in range(A)}
        for s in range(S)
    }
    model = from_mdp(sparse, gains, 0.9)
    assert from_mdp(sparse, paid, 0.9) == model
    assert from_mdp(outcomes, None, 0.9) == model
