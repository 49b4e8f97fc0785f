"""Ordinary MDPs in every form in which people have them: the same model comes out."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jointmdp as jm
from jointmdp.ground.errors import ModelError

P = np.array([[[0.9, 0.1, 0], [0.5, 0, 0.5]], [[0, 1, 0], [0.25, 0.25, 0.5]], [[0, 0, 1], [0, 0, 1]]])  # [S, A, S]
R = np.array([[1.0, 2.0], [0.0, -1.0], [0.0, 0.0]])
MODEL = jm.from_mdp(P, R, 0.9)


def matrices(kind: Any = sp.csr_array) -> list[Any]:
    return [kind(P[:, a]) for a in range(2)]


@pytest.mark.parametrize("kind", [sp.csr_array, sp.coo_matrix, sp.csc_matrix, sp.dok_array])
def test_sparse_transitions(kind: Any) -> None:
    assert jm.from_mdp(matrices(kind), R, 0.9) == MODEL
    by_successor = [sp.csr_array(np.where(P[:, a] > 0, R[:, [a]], 0)) for a in range(2)]
    assert jm.from_mdp(matrices(kind), by_successor, 0.9) == MODEL


def test_sparse_matrices_may_be_out_of_order_and_hold_a_place_twice() -> None:
    def shuffled(matrix: Any) -> sp.csr_array:
        """Every row backwards, and each entry as two halves."""
        dense = np.asarray(matrix)
        rows = [np.repeat(np.flatnonzero(row)[::-1], 2) for row in dense]
        data = np.concatenate([row[places] / 2 for row, places in zip(dense, rows, strict=True)])
        ends = np.cumsum([0, *map(len, rows)])
        return sp.csr_array((data, np.concatenate(rows), ends), shape=dense.shape)

    by_successor = [shuffled(np.where(P[:, a] > 0, R[:, [a]], 0)) for a in range(2)]
    given = [shuffled(P[:, a]) for a in range(2)]
    assert jm.from_mdp(given, by_successor, 0.9) == MODEL
    assert not given[0].has_sorted_indices  # what the user gave stays as it was


def test_dictionaries() -> None:
    names = ["low", "high", "end"]
    plain = {
        names[s]: {act: {names[t]: P[s, a, t] for t in np.flatnonzero(P[s, a])} for a, act in enumerate(("go", "try"))}
        for s in range(2)
    }
    gains = {names[s]: {"go": R[s, 0], "try": R[s, 1]} for s in range(2)}
    model = jm.from_mdp(plain, gains, 0.9)
    assert (model.state_names, model.action_names) == (tuple(names), ("go", "try"))
    assert np.array_equal(model.successors, MODEL.successors)
    assert np.array_equal(model.rewards, MODEL.rewards)
    by_successor = {
        s: {a: dict.fromkeys(outcomes, gains[s][a]) for a, outcomes in row.items()} for s, row in plain.items()
    }
    assert jm.from_mdp(plain, by_successor, 0.9) == model
    listed = {
        s: {a: [(p, t, gains[s][a]) for t, p in outcomes.items()] for a, outcomes in row.items()}
        for s, row in plain.items()
    }
    assert jm.from_mdp(listed, None, 0.9) == model
    assert jm.from_mdp({**listed, "end": {}}, None, 0.9) == model


def test_numbered_dictionaries_tuples_and_unlisted_actions() -> None:
    listed = {0: {0: [(1.0, 1, 2.0)], 1: [(1.0, 0, 0.0)]}, 1: {0: [(1.0, 0, 0.0)]}}
    model = jm.from_mdp(listed, None, 0.9)
    assert model.state_names is None
    assert model.available.tolist() == [[True, True], [True, False]]
    grid = {(0, 0): {"right": [(0.5, (0, 1), 1.0), (0.5, (0, 0), 0.0)]}}
    model = jm.from_mdp(grid, None, 1.0)
    assert model.state_names == ((0, 0), (0, 1))
    assert jm.evaluate(model, "right").mean[0, 0] == pytest.approx(1.0)  # the state that is only reached is over


def test_the_form_of_gymnasium() -> None:
    """Fourth entries end episodes, in an absorbing successor or in one more state."""
    table = {0: {0: [(0.5, 1, 1.0, True), (0.5, 0, 0.0, False)]}, 1: {0: [(1.0, 0, 5.0, False)]}}
    model = jm.from_mdp(table, None, 0.9, common_grid=True)
    assert model == jm.from_gymnasium(table, 0.9)
    assert model.state_names == ("state 0", "state 1", "terminated")


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0)])
def test_swapped_axes_are_named_and_mended(order: tuple[int, int, int]) -> None:
    """Whatever the order was, doing what the message says gives the model."""
    with pytest.raises(ModelError, match=r"transitions.transpose\(") as caught:
        jm.from_mdp(P.transpose(order), R, 0.9)
    advice = str(caught.value).rsplit("transpose", 1)[1]
    mended = P.transpose(order).transpose(*map(int, advice.strip("()").split(", ")))
    assert jm.from_mdp(mended, R, 0.9) == MODEL


def test_a_cube_is_judged_by_its_sums() -> None:
    """As many actions as states: the shape says nothing, the sums say where the next states are."""
    rng = np.random.default_rng(0)
    cube = rng.dirichlet(np.ones(3), size=(3, 3))  # [S, A, S]
    assert jm.from_mdp(cube, np.zeros((3, 3)), 0.9).num_states == 3
    with pytest.raises(ModelError, match="next states in the middle: sums over axis 1 are 1"):
        jm.from_mdp(cube.transpose(0, 2, 1), np.zeros((3, 3)), 0.9)
    with pytest.raises(ModelError, match="next states first: sums over axis 0 are 1"):
        jm.from_mdp(cube.transpose(2, 1, 0), np.zeros((3, 3)), 0.9)


BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "row sum": ({"a": {"go": {"a": 0.5}}}, {"a": {"go": 1}}, {}, "state a, action go sum to 0.5"),
    "no rewards": ({"a": {"go": {"a": 1}}}, None, {}, "state 'a', action 'go' must list"),
    "reward missing": ({"a": {"go": {"a": 1}}}, {"a": {}}, {}, "KeyError: 'go'"),
    "rewards twice": ({"a": {"go": [(1, "a", 0)]}}, {"a": {"go": 1}}, {}, "give rewards=None"),
    "two entries": ({"a": {"go": [(1, "a")]}}, None, {}, "must list"),
    "no actions": ({"a": {}}, None, {}, "no action"),
    "no dictionary": ({"a": [1]}, None, {}, "state 'a' must list its actions"),
    "gaps": ({0: {0: [(1, 7, 0.0)]}}, None, {}, "states that are numbers must be 0, 1, 2"),
    "mixed": ({0: {"go": [(1, "a", 0.0)]}}, None, {}, "states that are numbers.*0, 'a'"),
    "available": ({"a": {"go": [(1, "a", 0)]}}, None, {"available": [[True]]}, "leave available=None"),
    "names": ({"a": {"go": [(1, "a", 0)]}}, None, {"state_names": ["x", "y"]}, "2 state names for 1 states"),
    "sparse shape": ([sp.eye_array(2), sp.eye_array(3)], np.zeros((2, 2)), {}, "matrix of action 1 has shape"),
    "sparse sum": ([2 * sp.eye_array(2)], np.zeros((2, 1)), {}, "state 0, action 0 sum to 2"),
    "sparse rewards": ([sp.eye_array(2)], [sp.eye_array(3)], {}, "one sparse matrix"),
    "dense rewards": ([sp.eye_array(2)], np.zeros(2), {}, "rewards must have shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_forms(case: str) -> None:
    transitions, rewards, options, message = BAD[case]
    with pytest.raises(ModelError, match=message):
        jm.from_mdp(transitions, rewards, 0.9, **options)


# -- vectorised functions of noise -----------------------------------------------------------------------------


def reward(s: Any, a: Any, u: Any) -> Any:
    arrival, price = u
    return price * np.minimum(s, a) - 0.5 * arrival


def successor(s: Any, a: Any, u: Any) -> Any:
    return np.clip(s - a + u[0], 0, 3)


def test_vectorised_functions_of_noise() -> None:
    """One call with arrays is as good as one call for each state, action and value."""
    noise, law = [(0, 1.0), (1, 2.0), (2, 0.5)], [0.2, 0.3, 0.5]
    settings = {"num_states": 4, "num_actions": 3, "discount": 0.9, "sharing": "time"}
    slow = jm.from_noise(reward, successor, noise, law, **settings)
    assert jm.from_noise(reward, successor, noise, law, is_vectorised=True, **settings) == slow
    settings["available"] = np.arange(3)[None, :] <= np.arange(4)[:, None]
    slow = jm.from_noise(reward, successor, noise, law, **settings)
    assert jm.from_noise(reward, successor, noise, law, is_vectorised=True, **settings) == slow
    drawn = {"sampler": lambda rng: rng.normal(), "num_scenarios": 5, "seed": 1, **settings}
    plain = [
        jm.envs.from_sampler(lambda s, a, u: s * u, lambda s, a, u: s, is_vectorised=v, **drawn) for v in (True, False)
    ]
    assert plain[0] == plain[1]


@pytest.mark.parametrize(
    ("reward", "successor", "message"),
    [
        (
            lambda s, a, u: 1.0 if s > 0 else 0.0,
            lambda s, a, u: s,
            r"vectorised reward failed: ValueError.*\[n, W\]",
        ),
        (lambda s, a, u: np.zeros(7), lambda s, a, u: s, "vectorised reward failed.*broadcast"),
        (lambda s, a, u: s * u, lambda s, a, u: s + 0.5, "not a whole number"),
        (lambda s, a, u: s * u, lambda s, a, u: s + a, "outside 0..1"),
        (lambda s, a, u: s / (u - 1), lambda s, a, u: s, "noise 1 is"),
    ],
)
def test_bad_vectorised_functions(reward: Any, successor: Any, message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(ModelError, match=message):
        jm.from_noise(
            reward, successor, [1, 2], [0.5, 0.5], num_states=2, num_actions=2, discount=0.9, is_vectorised=True
        )


def test_a_data_frame_is_the_dictionaries() -> None:
    pd = pytest.importorskip("pandas")
    listed = {
        "calm": {"wait": [(0.9, "calm", 1.0), (0.1, "busy", 1.0)], "act": [(1.0, "busy", 2.0)]},
        "busy": {"wait": [(0.5, "calm", 0.0), (0.5, "gone", -3.0, True)]},
    }
    rows = [
        (s, a, o[1], o[0], o[2], len(o) > 3)
        for s, row in listed.items()
        for a, outcomes in row.items()
        for o in outcomes
    ]
    names = ["state", "action", "successor", "probability", "reward", "over"]
    frame = pd.DataFrame(rows, columns=names)
    one, other = jm.from_mdp(frame, None, 0.9), jm.from_mdp(listed, None, 0.9)
    for name in ("probabilities", "rewards", "successors", "available"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.state_names, one.action_names) == (other.state_names, other.action_names)
    numbered = pd.DataFrame({"state": [0, 1], "action": [0, 0], "successor": [1, 0], "probability": [1.0, 1.0]})
    assert jm.evaluate(jm.from_mdp(numbered, None, 0.5), [0, 0]).mean[0, 0] == 0
    for wrong, said in (
        (frame.drop(columns="probability"), "and no probability"),
        (frame.rename(columns={"over": "reward"}), "each once"),
        (frame.assign(reward=[1.0, None, 2.0, 0.0, -3.0]), "row 1 of the table of transitions has an empty cell"),
        (frame.assign(over="no"), "over is 'no' in row 0"),
        (frame.assign(probability=0.3), "probabilit"),
    ):
        with pytest.raises(jm.ModelError, match=said):
            jm.from_mdp(wrong, None, 0.9)
    with pytest.raises(jm.ModelError, match="give rewards=None"):
        jm.from_mdp(frame, [[0.0]], 0.9)
