"""Problems of mdpax as joint models: by hand on small stand-ins every day, on mdpax itself where it is installed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.model.mdpax_importer import from_mdpax


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


# -- mdpax itself ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of mdpax and what it imports, none of ours to mend
@pytest.mark.parametrize("name", ["Forest", "DeMoorSingleProductPerishable"])
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
