"""States that are found from a start: the same model as by listing them, and only as much of it as a policy needs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.model import from_noise_and_start
from jointmdp.model.from_noise_and_start import VectorNumbers

NOISE = [(0, 0), (1, 0), (2, 1), (3, 0)]  # demand, and whether the order is late
LAW = [0.2, 0.4, 0.3, 0.1]
ORDERS = [(0, 0), (2, 0), (2, 1), (3, 1)]  # how much, and whether by express
START = (2, 1)


def successor(state: Any, action: Any, noise: Any) -> Any:
    (stock, coming), (order, express), (demand, late) = state, action, noise
    arrives = coming * (1 - late)
    return np.minimum(np.maximum(stock - demand, 0) + arrives + order * express, 5), order * (1 - express)


def reward(state: Any, action: Any, noise: Any) -> Any:
    (stock, _), (order, express), (demand, _) = state, action, noise
    return 5.0 * np.minimum(stock, demand) - order * (1.0 + express) - 0.25 * stock


def fits(state: Any, action: Any) -> Any:
    return state[0] + state[1] + action[0] <= 6


def base_stock(state: Any) -> tuple[Any, Any]:
    """Order 2 as long as the position is below 4."""
    order = 2 * (state[0] + state[1] < 4)
    return order, 0 * order


def found(start: Any = START, **options: Any) -> jm.JointMDP:
    return jm.from_start(
        reward, successor, NOISE, LAW, start, **{"actions": ORDERS, "discount": 0.9, "sharing": "time", **options}
    )


FULL = found()


def test_the_model_is_the_closure_of_the_start() -> None:
    """Every row is what the functions say, and exactly the states that a search by hand reaches are there."""
    reached, front = {START}, [START]
    while front:
        state = front.pop()
        for action, noise in itertools.product(ORDERS, NOISE):
            after = tuple(map(int, successor(state, action, noise)))
            if after not in reached:
                reached.add(after)
                front.append(after)
    assert FULL.state_names is not None
    assert set(FULL.state_names) == reached
    assert FULL.state_names[0] == START
    assert FULL.action_names == tuple(ORDERS)
    for (s, state), (w, noise), (a, action) in itertools.product(
        enumerate(FULL.state_names), enumerate(NOISE), enumerate(ORDERS)
    ):
        assert FULL.rewards[s, w, a] == reward(state, action, noise)
        assert FULL.state_names[FULL.successors[s, w, a]] == successor(state, action, noise)
    assert (FULL.probabilities == np.array(LAW)).all()
    assert FULL.available.all()


STOCHASTIC = {s: {(2, 0): 0.5, (0, 0): 0.5} if sum(s) < 4 else (0, 0) for s in FULL.state_names or ()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start": [START, (0, 0), START]},
        {"available": fits},
        {"policy": base_stock},
        {"policy": base_stock, "available": fits, "start": [(5, 0), START]},
        {"policy": STOCHASTIC},
        {"policy": {s: base_stock(s) for s in FULL.state_names or ()}},
    ],
)
def test_whole_arrays_are_as_good_as_single_calls(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = found(**options)
    assert found(is_vectorised=True, **options) == slow
    monkeypatch.setattr(from_noise_and_start, "BATCH", 1)  # one state at a time
    assert found(is_vectorised=True, **options) == slow


def test_probabilities_of_a_vectorised_policy() -> None:
    def law(states: Any) -> Any:
        low = (states[0] + states[1] < 4)[:, None]
        return np.where(low, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0])

    assert found(is_vectorised=True, policy=law) == found(policy=STOCHASTIC)


def test_text_actions_and_other_states() -> None:
    """States of mixed kinds; an action by its name; arrays and NumPy's numbers are the tuples that they stand for."""

    def move(state: Any, action: str, noise: int) -> Any:
        if action == "stay":
            return state
        return np.array([np.int64(1), noise]) if state == "home" else "home"

    walk = jm.from_start(
        lambda s, a, u: float(a == "go"), move, [0, 1], [0.5, 0.5], "home", actions=["stay", "go"], discount=0.9
    )
    assert walk.state_names == ("home", (1, 0), (1, 1))
    gap = jm.evaluate(walk, "go").gap((1, 0), "go", "stay")
    assert gap.mean == pytest.approx(1)  # 1/(1 − γ) against γ/(1 − γ)


@pytest.mark.slow
def test_a_policy_leaves_its_gaps_as_they_are() -> None:
    """Fewer states, the same means and variances in the start, within both certificates."""
    small = found(policy=base_stock)
    assert small.num_states < FULL.num_states
    assert small.available[0].all()
    assert (small.available[1:].sum(axis=1) == 1).all()
    all_of_it, part = (jm.evaluate(m, {s: base_stock(s) for s in m.state_names or ()}) for m in (FULL, small))
    room = sum(x.certificate.covariance_error + x.certificate.mean_error for x in (all_of_it, part))
    assert room < 1e-9
    for one, other in itertools.combinations(ORDERS, 2):
        wanted, got = all_of_it.gap(START, one, other), part.gap(START, one, other)
        assert abs(got.mean - wanted.mean) <= 2 * room
        assert abs(got.variance - wanted.variance) <= 4 * room
    with pytest.raises(ModelError, match="is not available in"):
        part.gap(small.state_names[1], ORDERS[0], ORDERS[1])  # type: ignore[index]
    assert {row["state"] for row in part.table()} == {str(START)}


@pytest.mark.parametrize("is_vectorised", [False, True])
def test_states_that_are_numbers(is_vectorised: bool) -> None:
    """They are their own indices, whatever the order in which they were found."""
    given = {"actions": 2, "discount": 0.9, "is_vectorised": is_vectorised}
    ring = jm.from_start(lambda s, a, u: 1.0 * s, lambda s, a, u: (s + 2 + a * u) % 7, [0, 1], [0.5, 0.5], 3, **given)
    assert ring.state_names is None
    assert ring == jm.from_noise(
        lambda s, a, u: 1.0 * s,
        lambda s, a, u: (s + 2 + a * u) % 7,
        [0, 1],
        [0.5, 0.5],
        num_states=7,
        num_actions=2,
        discount=0.9,
    )
    with pytest.raises(ModelError, match=r"0, 1, 2, … without gaps.* 3, 5, 7; write them as tuples, \(7,\) for 7"):
        jm.from_start(lambda s, a, u: 0 * s, lambda s, a, u: np.minimum(s + 2, 7), [0], [1.0], 3, **given)


@pytest.mark.parametrize("is_vectorised", [False, True])
def test_states_without_actions_are_over(is_vectorised: bool) -> None:
    def below(s: Any, a: Any) -> Any:
        return s[0] < 3 + 0 * a

    for policy in (None, lambda s: 0 * s[0]):
        model = jm.from_start(
            lambda s, a, u: 1.0,
            lambda s, a, u: (s[0] + 1 + 0 * u,),
            [0, 1],
            [0.5, 0.5],
            (0,),
            actions=1,
            discount=1.0,
            available=below,
            policy=policy,
            is_vectorised=is_vectorised,
        )
        assert model.state_names == ((0,), (1,), (2,), (3,))
        assert model.available.all()
        assert jm.evaluate(model, 0).mean[:, 0] == pytest.approx([3, 2, 1, 0])


def test_noise_that_cannot_happen_leads_nowhere() -> None:
    model = jm.from_start(lambda s, a, u: 0.0, lambda s, a, u: (u,), [0, 9], [1.0, 0.0], (0,), actions=1, discount=0.9)
    assert (model.num_states, model.num_scenarios) == (1, 1)


def test_too_many_states() -> None:
    for is_vectorised in (False, True):
        with pytest.raises(ModelError) as caught:
            jm.from_start(
                lambda s, a, u: 0.0 * s[0],
                lambda s, a, u: (s[0] + 1 + a, 0 * s[0]),
                [0],
                [1.0],
                (0, 0),
                actions=2,
                discount=0.9,
                max_entries=200,
                is_vectorised=is_vectorised,
            )
        assert "101 states are found and only 99 of them" in str(caught.value)
        for cure in ("give a policy", "bound the state", "raise max_entries", "simulate"):
            assert cure in str(caught.value)


def plain(**options: Any) -> jm.JointMDP:
    """A valid model with two states, except for what is given."""
    given = {
        "reward": lambda s, a, u: 1.0 * s[0],
        "successor": lambda s, a, u: (1 - s[0] + 0 * u,),
        "noise": [1, 2],
        "probabilities": [0.5, 0.5],
        "start": (0,),
        "actions": 2,
        "discount": 0.9,
    }
    return jm.from_start(**{**given, **options})


@pytest.mark.parametrize("is_vectorised", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": []}, "start holds no state"),
        ({"actions": []}, "at least one action"),
        ({"actions": [1, 2]}, "actions that are numbers must be 0, 1, 2"),
        ({"noise": []}, "noise has no values"),
        ({"reward": lambda s, a, u: s[0] / 0 if isinstance(u, int) else s[0] * np.nan}, "reward"),
        ({"reward": lambda s, a, u: s[7]}, "reward.* failed: IndexError"),
        ({"successor": lambda s, a, u: s[7]}, "successor.* failed: IndexError"),
        ({"policy": 1}, "the policy must be a function"),
        ({"policy": lambda s: s[7]}, "policy failed.*IndexError"),
        ({"policy": lambda s: 5 + 0 * s[0]}, r"policy failed.*5"),
        ({"policy": {(0,): 1}}, r"policy failed in state \(1,\).*no such state; give an action"),
        ({"policy": lambda s: 0 * s[0], "available": lambda s, a: a == 1}, r"takes action 0 in state \(1,\)"),
        ({"available": lambda s, a: s[7]}, "available failed.*IndexError"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str, is_vectorised: bool) -> None:
    with np.errstate(all="ignore"), pytest.raises(ModelError, match=message):
        plain(is_vectorised=is_vectorised, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": ("a",)}, "start must be a whole number or a tuple"),
        ({"start": [(0,), (0, 1)]}, "start must be a whole number or a tuple"),
        ({"successor": lambda s, a, u: (s[0] + 0.5,)}, r"successors must be whole numbers.*\[0\.5\]"),
        ({"successor": lambda s, a, u: (s[0] * np.nan,)}, r"successors must be whole numbers"),
        ({"successor": lambda s, a, u: (s[0], u)}, "tuple of 1 arrays"),
        ({"successor": lambda s, a, u: (np.zeros(7),)}, r"broadcasts to \[n, W\] = \(2, 2\)"),
        ({"actions": [(0, 0), (1, 1)], "policy": lambda s: s[0]}, "actions are tuples of 2"),
    ],
)
def test_bad_vectorised_input(options: dict[str, Any], message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(ModelError, match=message):
        plain(is_vectorised=True, **options)


def test_a_slip_in_a_policy_is_guessed() -> None:
    walk = {"successor": lambda s, a, u: "later", "reward": lambda s, a, u: 1.0, "start": "now"}
    with pytest.raises(ModelError, match=r"failed in state 'later'.*no such state \('laer' may be a slip for it\)"):
        plain(**walk, policy={"now": 0, "laer": 1})
    with pytest.raises(ModelError, match=r"failed in state 'later'.*unknown action 'sty'; did you mean 'stay'"):
        plain(**walk, actions=["go", "stay"], policy={"now": "go", "later": "sty"})


def test_states_that_cannot_be_looked_up() -> None:
    with pytest.raises(ModelError, match="cannot be looked up"):
        plain(successor=lambda s, a, u: {"a": 1})


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9), st.sampled_from([3, 2**13, 2**39]), st.lists(st.integers(0, 30), max_size=6), st.integers(0, 9)
)
def test_vectors_are_numbered_as_a_dictionary_would(width: int, size: int, fronts: list[int], seed: int) -> None:
    """Also where nine components of 40 bits each are far more than 64 bits."""
    rng = np.random.default_rng(seed)
    space, expected = VectorNumbers(width), dict[tuple[int, ...], int]()
    pool = rng.integers(-size, size, (20, width))
    for count in fronts:
        rows = pool[rng.integers(0, 20, count)]
        wanted = [expected.setdefault(tuple(row), len(expected)) for row in rows.tolist()]
        assert space.numbers(rows).tolist() == wanted
    assert [tuple(row) for row in space.rows.tolist()] == list(expected)


def test_vectors_with_one_key_are_told_apart() -> None:
    space = VectorNumbers(2)
    space._factors = np.zeros(2, dtype=np.uint64)  # the key of a vector is the sum of its components
    assert space.numbers(np.array([[1, 2]])).tolist() == [0]
    rows = np.array([[0, 3], [1, 2], [2, 1], [0, 3]])
    assert space.numbers(rows).tolist() == [1, 0, 2, 1]
    assert space.rows.tolist() == [[1, 2], [0, 3], [2, 1]]
    space._factors = np.zeros(2, dtype=np.uint64)
    space._places = {3: 0, 4: 1, 5: 2}
    assert space.numbers(np.array([[6, 0], [3, 3], [1, 2]])).tolist() == [3, 4, 0]  # new ones among themselves
