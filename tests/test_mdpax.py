"""Problems of mdpax as joint models: by hand on small stand-ins every day, on mdpax itself where it is installed."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import daily, slow_or_long

import jointmdp as jm
from jointmdp.model.action_laws import merged_by_state, merged_everywhere
from jointmdp.model.from_mdpax import from_mdpax, mdpax_policy
from jointmdp.simulation.simulators.jax_adapters import mdpax_simulator


class Orchard:
    """A stand-in with mdpax's methods: a tree of age 0..3; wait (0) or pick (1); storm or not (event 1, 0)."""

    def __init__(self, chance: Any = lambda age, act: 0.25, index: Any = lambda state: state[0]) -> None:
        self.state_space = jnp.arange(4).reshape(-1, 1)
        self.action_space = jnp.array([[0], [1]])
        self.random_event_space = jnp.array([[0], [1]])
        self.chance, self.state_to_index = chance, index

    def random_event_probability(self, state: Any, action: Any, event: Any) -> Any:
        storm = self.chance(state[0], action[0])
        return jnp.where(event == 1, storm, 1 - storm)  # shape (1,), as some of mdpax's own problems have it

    def transition(self, state: Any, action: Any, event: Any) -> Any:
        gain = jnp.where(action[0] == 1, 2.0 * state[0] - event[0], 0.0)
        grown = jnp.minimum(state[0] + 1, 3)
        after = jnp.where(action[0] == 1, 0, jnp.where(event[0] == 1, jnp.maximum(state[0] - 1, 0), grown))
        return jnp.array([after]), gain


def kernel(problem: Orchard) -> tuple[np.ndarray, np.ndarray]:
    """Transitions [S, A, S] and mean rewards [S, A] by plain loops."""
    moves, gains = np.zeros((4, 2, 4)), np.zeros((4, 2))
    for s, a, e in np.ndindex(4, 2, 2):
        given = (np.array([s]), np.array([a]), np.array([e]))
        after, gain = problem.transition(*given)
        chance = float(problem.random_event_probability(*given)[0])
        moves[s, a, int(after[0])] += chance
        gains[s, a] += chance * float(gain)
    return moves, gains


def agrees(model: jm.JointMDP, problem: Orchard) -> bool:
    """Marginals equal, up to the single precision of the chances."""
    moves, gains = kernel(problem)
    found = model.marginal_mdp()
    return np.allclose(found.transitions, moves, rtol=0, atol=1e-6) and np.allclose(
        found.rewards, gains, rtol=0, atol=1e-5
    )


def test_events_of_their_own_are_the_scenarios() -> None:
    problem = Orchard()
    for sharing in ("time", "state", "none"):
        model = from_mdpax(problem, 0.9, sharing)
        assert model.probabilities.tolist() == [[0.75, 0.25]] * 4
        assert agrees(model, problem)
        assert model.rewards[2].tolist() == [[0, 4], [0, 3]]  # a storm takes one from whoever picks
        assert model.successors[2].tolist() == [[3, 0], [1, 0]]
        assert model.sharing == sharing
    assert model.state_names == ("0", "1", "2", "3")


def test_chances_that_depend_on_the_state() -> None:
    problem = Orchard(lambda age, act: (1 + age) / 8)
    model = from_mdpax(problem, 0.9, "state")
    assert model.probabilities.tolist() == [[1 - c, c] for c in (1 / 8, 1 / 4, 3 / 8, 1 / 2)]
    assert agrees(model, problem)
    timed = from_mdpax(problem, 0.9, "time")
    assert agrees(timed, problem)
    assert timed.num_scenarios == 5  # one grid with the break points of all states
    assert np.ptp(timed.probabilities, axis=0).max() == 0


def test_chances_that_depend_on_the_action() -> None:
    """Picking halves the storm: one uniform runs through each action's events in listed order."""
    problem = Orchard(lambda age, act: jnp.where(act == 1, 0.125, 0.25))
    for sharing in ("time", "state"):
        model = from_mdpax(problem, 0.9, sharing)
        assert agrees(model, problem)
        assert model.probabilities[2].tolist() == [0.75, 0.125, 0.125]
        assert model.successors[2, :, 0].tolist() == [3, 1, 1]
        assert model.rewards[2, :, 1].tolist() == [4, 4, 3]
    apart = from_mdpax(problem, 0.9, "state", "independent")
    assert agrees(apart, problem)
    assert apart.num_scenarios == 4


def test_impossible_events_are_left_out() -> None:
    assert from_mdpax(Orchard(lambda age, act: 0.0), 0.9).num_scenarios == 1


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (object(), "is no mdpax problem: it has no state_space"),
        (Orchard(lambda age, act: 1.5), "probability of state 0, action 0, event 0 is -0.5"),
        (Orchard(index=lambda state: state[0] + 1), "state 0, action 0, event 0 leads to 1, which .* calls 2"),
        (Orchard(index=lambda state: jnp.minimum(state[0], 2)), "leads to 3, which state_to_index calls 2"),
        (Orchard(index=lambda state: state[0] + 9), "calls 10"),
        (Orchard(index=lambda state: state[7, 7]), "functions failed"),
    ],
)
def test_bad_problems(problem: Any, message: str) -> None:
    with pytest.raises(jm.ModelError, match=message):
        from_mdpax(problem, 0.9)


def test_more_bad_problems() -> None:
    with pytest.raises(jm.ModelError, match=r"S·A·E = 4·2·2 = 16 outcomes, more than max_entries = 15"):
        from_mdpax(Orchard(), 0.9, max_entries=15)
    short = Orchard()
    short.random_event_space = jnp.array([[0]])
    with pytest.raises(jm.ModelError, match=r"event probabilities of state 0, action 0 sum to 0\.75"):
        from_mdpax(short, 0.9)
    odd = Orchard()
    odd.transition = lambda s, a, e: (s, jnp.where(s[0] == 1, jnp.nan, 0.0))  # type: ignore[method-assign]
    with pytest.raises(jm.ModelError, match="reward of state 1, action 0, event 0 is nan"):
        from_mdpax(odd, 0.9)


# -- scenarios that are alike --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 9), st.integers(1, 4))
def test_merged_scenarios_have_the_same_law(seed: int, S: int, W: int, A: int) -> None:
    """The chance of every joint outcome is as before, each stands there once, and none is impossible."""
    rng = np.random.default_rng(seed)
    chances = rng.integers(0, 4, (S, W)) / 4.0
    chances[:, 0] += 0.25
    rewards, successors = rng.integers(-1, 2, (S, W, A)) * 0.5, rng.integers(0, 2, (S, W, A))
    law, gains, targets = merged_by_state((chances, rewards, successors))

    def outcomes(s: int, table: tuple[np.ndarray, ...]) -> dict[Any, float]:
        found: dict[Any, float] = {}
        for p, r, t in zip(*(part[s] for part in table), strict=True):
            if p > 0:
                found[tuple(r), tuple(t)] = found.get((tuple(r), tuple(t)), 0.0) + p
        return found

    for s in range(S):
        wanted = outcomes(s, (chances, rewards, successors))
        assert outcomes(s, (law, gains, targets)) == wanted
        assert np.count_nonzero(law[s]) == len(wanted)
    one = np.tile(chances[:1], (S, 1))
    law, gains, targets = merged_everywhere((one, rewards, successors))
    for s in range(S):
        assert outcomes(s, (law, gains, targets)) == outcomes(s, (one, rewards, successors))
    rows = {(rewards[:, w].tobytes(), successors[:, w].tobytes()) for w in range(W) if one[0, w] > 0}
    assert law.shape[1] == len(rows)


def four_events(problem: Orchard) -> Orchard:
    """Two kinds of calm and two kinds of storm that do the same."""
    problem.random_event_space = jnp.array([[0], [1], [2], [3]])
    move, chance = problem.transition, problem.random_event_probability
    problem.transition = lambda s, a, e: move(s, a, e // 2)  # type: ignore[method-assign]
    problem.random_event_probability = lambda s, a, e: chance(s, a, e // 2) / 2  # type: ignore[method-assign]
    return problem


@pytest.mark.parametrize("chance", [lambda age, act: 0.25, lambda age, act: (1 + age) / 8])
def test_events_that_do_the_same_are_one_scenario(chance: Any) -> None:
    for sharing in ("time", "state"):
        plain, doubled = (
            from_mdpax(Orchard(chance), 0.9, sharing),
            from_mdpax(four_events(Orchard(chance)), 0.9, sharing),
        )
        assert doubled == plain


# -- from a start under a policy -----------------------------------------------------------------------------------


def careful(state: Any) -> int:
    """Pick from age 2 on."""
    return int(state[0] >= 2)


@pytest.mark.parametrize("sharing", daily(["time", "state", "none"]))
@pytest.mark.parametrize("chance", [lambda age, act: 0.25, lambda age, act: jnp.where(act == 1, 0.125, 0.25)])
def test_a_start_and_a_policy_leave_the_gap_as_it_is(chance: Any, sharing: Any) -> None:
    problem = Orchard(chance)
    whole, part = from_mdpax(problem, 0.9, sharing), from_mdpax(problem, 0.9, sharing, start=(1,), policy=careful)
    assert part.state_names == ("0", "1", "2")  # the tree is picked before it is 3
    assert part.available.tolist() == [[True, False], [True, True], [False, True]]
    solutions = [jm.evaluate(model, mdpax_policy(problem, careful, model)) for model in (whole, part)]
    wanted, got = (solution.gap("1", "1", "0") for solution in solutions)
    # Both are certified; chances in single precision are the same numbers in both.
    assert got.mean == pytest.approx(wanted.mean, abs=1e-9)
    assert got.variance == pytest.approx(wanted.variance, abs=1e-9)
    assert from_mdpax(problem, 0.9, sharing, start=[0, 3]).num_states == 4  # all actions everywhere


def test_forms_of_policies() -> None:
    problem = Orchard()
    forms = [careful, np.array([0, 0, 1, 1]), jnp.array([[0], [0], [1], [1]]), {(0,): 0, (1,): (0,), (2,): [1], 3: 1}]
    for policy in forms:
        assert mdpax_policy(problem, policy).tolist() == [0, 0, 1, 1]
        model = from_mdpax(problem, 0.9, start=1, policy=policy)
        assert mdpax_policy(problem, policy, model).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": careful}, "a policy needs a start"),
        ({"start": (9,)}, r"start \(9,\) is no state of the problem; its first one is 0"),
        ({"start": []}, "start holds no state"),
        ({"start": 0, "policy": lambda s: 5}, "gives 5, which is no action, in state 1"),
        ({"start": 0, "policy": {0: 1}}, "says nothing in state 1"),
        ({"start": 0, "policy": lambda s: s[7]}, "policy failed in state 1: IndexError"),
        ({"start": 0, "policy": [1, 0]}, "one action for each of the 4 states"),
        ({"start": 0, "max_entries": 3}, "2 states are found so far.*give start= and policy=.*mdpax_simulator"),
        ({"max_entries": 15}, "give start= and policy=.*mdpax_simulator"),
    ],
)
def test_bad_starts_and_policies(options: dict[str, Any], message: str) -> None:
    with pytest.raises(jm.ModelError, match=message):
        from_mdpax(Orchard(), 0.9, **options)
    with pytest.raises(jm.ModelError, match="'else' of the model is not named after a state"):
        mdpax_policy(Orchard(), careful, from_mdpax(Orchard(), 0.9, state_names=["else", *"123"]))


@pytest.mark.slow
def test_a_problem_as_a_simulator() -> None:
    """Mean and variance of a sampled gap against the exact ones; actions see the same storm, and the chances differ."""
    problem = Orchard(lambda age, act: jnp.where(act == 1, 0.125, 0.25))
    model, simulator = from_mdpax(problem, 0.8), mdpax_simulator(problem, 0.8, start=(2,))
    assert simulator.action_names == ("0", "1")
    assert simulator.observe(simulator.at((3,))) == 3
    policy = mdpax_policy(problem, careful)
    exact = jm.evaluate(model, policy).gap("2", "1", "0")
    sample = jm.simulate(simulator, policy, simulator.at([2]), ["1", "0"], num_samples=4000, gaps_only=True).gap(
        "1", "0"
    )
    error = sample.std / 4000**0.5
    assert abs(sample.mean - exact.mean) < 5 * error  # false alarms: 6e-7
    assert abs(sample.std / exact.std - 1) < 0.1  # the std of a sampled std is about 1/√(2·4000) = 1.1% of it
    assert abs(exact.std / exact.independent_variance**0.5 - 1) > 0.2  # independent actions would be told apart


# -- mdpax itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def own_settings() -> Iterator[None]:
    """Whoever imports mdpax has double precision from then on, and so would all tests after these."""
    before = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
@pytest.mark.usefixtures("own_settings")
@pytest.mark.filterwarnings("ignore")  # of mdpax and what it imports, none of ours to mend
@pytest.mark.parametrize("name", slow_or_long(["DeMoorSingleProductPerishable", "Forest"], 1))
def test_means_are_those_of_mdpax(name: str) -> None:
    """Policy evaluation by mdpax's own solver, in single precision, against ours."""
    reason = "mdpax is not installed (it pulls in CUDA; `make slow` installs it without its dependencies)"
    problems = pytest.importorskip("mdpax.problems", reason=reason, exc_type=ImportError)
    solvers = pytest.importorskip("mdpax.solvers", reason=reason, exc_type=ImportError)
    gamma = 0.9
    settings = {"S": 6} if name == "Forest" else {"max_order_quantity": 5, "max_demand": 30}
    problem = getattr(problems, name)(**settings)
    moves, gains = (np.asarray(part, dtype=np.float64) for part in problem.build_transition_and_reward_matrices())
    events = problem.n_random_events
    unit = 2.0**-24
    solver = solvers.PolicyIteration(
        problem, gamma=gamma, epsilon=1e-4, max_eval_iter=5000, convergence_test="max_diff", verbose=0
    )
    vectors = np.asarray(solver.policy)
    policy = np.array([np.flatnonzero((np.asarray(problem.action_space) == v).all(axis=1))[0] for v in vectors])
    values = np.asarray(solver._evaluate_policy(solver.policy), dtype=np.float64)
    for sharing in ("time", "state"):
        model = from_mdpax(problem, gamma, sharing)
        found = model.marginal_mdp()
        size = np.abs(model.rewards).max()
        # A sum of E products in single precision.
        assert np.abs(found.transitions - moves.transpose(1, 0, 2)).max() <= (events + 2) * unit
        assert np.abs(found.rewards - gains).max() <= (events + 2) * unit * size
        mine = jm.evaluate(model, policy).mean[np.arange(len(policy)), policy]
        # Where a sweep moves nothing by more than the threshold, the values are within threshold/(1−γ); each sweep
        # rounds E products and sums, and its chances sum to 1 within as many roundings. Errors add up to 1/(1−γ).
        largest = size + gamma * np.abs(values).max()
        room = (float(solver.conv_threshold) + (2 * events + 4) * unit * largest) / (1 - gamma)
        assert np.abs(mine - values).max() <= room
        assert room < 1e-3 * np.ptp(values)


@pytest.mark.slow
@pytest.mark.usefixtures("own_settings")
@pytest.mark.filterwarnings("ignore")
def test_two_perishable_products_from_a_start() -> None:
    """Whole, from a start, and sampled: three ways to one gap; events are merged to what can be sold."""
    reason = "mdpax is not installed (it pulls in CUDA; `make slow` installs it without its dependencies)"
    problems = pytest.importorskip("mdpax.problems", reason=reason, exc_type=ImportError)
    sizes = {
        "max_order_quantity_a": 3,
        "max_order_quantity_b": 2,
        "demand_poisson_mean_a": 2,
        "demand_poisson_mean_b": 1,
    }
    problem = problems.HendrixTwoProductPerishable(**sizes)
    start = (1, 0, 2, 0)

    def base_stock(state: Any) -> tuple[int, int]:
        return max(3 - int(state[:2].sum()), 0), max(2 - int(state[2:].sum()), 0)

    whole = from_mdpax(problem, 0.8, "state")
    part = from_mdpax(problem, 0.8, "state", start=start, policy=base_stock)
    assert part.num_states < whole.num_states == problem.n_states
    at = part.state_index(str(start))
    assert np.count_nonzero(part.probabilities[at]) <= 2 * 3 < problem.n_random_events  # of A up to 1, of B up to 2
    gaps = [
        jm.evaluate(model, mdpax_policy(problem, base_stock, model)).gap(start, "(2, 1)", "(0, 1)")
        for model in (whole, part)
    ]
    assert gaps[0].mean == pytest.approx(gaps[1].mean, abs=1e-9)
    assert gaps[0].variance == pytest.approx(gaps[1].variance, abs=1e-9)
    simulator = jm.simulators.mdpax_simulator(problem, 0.8, "state")
    policy = mdpax_policy(problem, base_stock)
    count = 1_000
    sample = jm.simulate(
        simulator, policy, simulator.at(start), ["(2, 1)", "(0, 1)"], num_samples=count, gaps_only=True
    ).gap("(2, 1)", "(0, 1)")
    assert abs(sample.mean - gaps[0].mean) < 5 * sample.std / count**0.5  # false alarms: 6e-7
    assert abs(sample.std / gaps[0].std - 1) < 0.1  # the std of a sampled std is about 1/√(2·1000) = 2.2% of it
