"""Bad models, policies and requests: each gets a `ModelError` that names the place and the cause."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.model.built_in_models import coupled_reward_chain, inventory, windy_gridworld
from jointmdp.model.from_mdp import from_gymnasium, from_mdp
from jointmdp.model.from_noise_and_start import from_noise, from_sampler
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy

NAN, INF = float("nan"), float("inf")


def parts(**changes: Any) -> dict[str, Any]:
    """A valid model of 3 states, 2 scenarios and 2 actions as keyword arguments, with some of them replaced."""
    return {
        "probabilities": [[0.25, 0.75]] * 3,
        "rewards": np.arange(12.0).reshape(3, 2, 2),
        "successors": np.arange(12).reshape(3, 2, 2) % 3,
        "discount": 0.9,
    } | changes


def with_entry(name: str, place: tuple[int, ...], value: float, **changes: Any) -> dict[str, Any]:
    """The valid model with one entry of one array replaced."""
    array = np.array(parts()[name], dtype=float)
    array[place] = value
    return parts(**{name: array}, **changes)


BAD_MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "probability nan": (with_entry("probabilities", (1, 0), NAN), ["state 1, scenario 0", "nan"]),
    "probability infinite": (with_entry("probabilities", (2, 1), INF), ["state 2, scenario 1", "inf"]),
    "probability negative": (with_entry("probabilities", (2, 0), -0.1), ["state 2, scenario 0", "negative"]),
    "probabilities below one": (with_entry("probabilities", (1, 1), 0.73), ["state 1", "0.98", "normalise"]),
    "probabilities above one": (with_entry("probabilities", (2, 1), 0.77), ["state 2", "1.02", "normalise"]),
    "probabilities all zero": (parts(probabilities=[[1, 0], [0, 0], [1, 0]]), ["state 1", "filled in"]),
    "probabilities without a scenario axis": (parts(probabilities=[1.0, 1.0, 1.0]), ["[S, W]", "1 axes"]),
    "probabilities ragged": (parts(probabilities=[[1.0], [0.5, 0.5]]), ["probabilities", "numeric array"]),
    "probabilities of text": (parts(probabilities=[["a", "b"]] * 3), ["probabilities", "numeric array"]),
    "probabilities complex": (parts(probabilities=[[1j, 1]] * 3), ["probabilities", "complex"]),
    "reward nan": (with_entry("rewards", (1, 1, 0), NAN), ["state 1, scenario 1, action 0", "nan"]),
    "reward infinite": (with_entry("rewards", (0, 1, 1), -INF), ["state 0, scenario 1, action 1", "inf"]),
    "rewards with two axes": (parts(rewards=np.zeros((3, 2))), ["rewards", "[S, W, A]", "2 axes"]),
    "rewards of another size": (parts(rewards=np.zeros((3, 4, 2))), ["rewards", "(3, 4, 2)", "(3, 2, 2)"]),
    "rewards with swapped axes": (
        parts(rewards=np.zeros((2, 3, 2))),
        ["rewards", "(2, 3, 2)", "another order"],
    ),
    "rewards as objects": (parts(rewards=[[[None, 1], [1, 1]]] * 3), ["rewards", "object"]),
    "successor too large": (
        with_entry("successors", (2, 0, 1), 3),
        ["state 2, scenario 0, action 1", "outside 0..2", "count from 0"],
    ),
    "successor negative": (
        with_entry("successors", (0, 1, 0), -1),
        ["state 0, scenario 1, action 0", "outside 0..2"],
    ),
    "successor fractional": (
        with_entry("successors", (1, 0, 0), 0.5),
        ["state 1, scenario 0, action 0", "not a whole number", "transition probabilities"],
    ),
    "successor nan": (
        with_entry("successors", (1, 1, 1), NAN),
        ["state 1, scenario 1, action 1", "not a whole number"],
    ),
    "successors of another size": (parts(successors=np.zeros((3, 2, 3))), ["successors", "(3, 2, 3)"]),
    "no states": (
        parts(probabilities=np.zeros((0, 2)), rewards=np.zeros((0, 2, 2)), successors=np.zeros((0, 2, 2))),
        ["no states"],
    ),
    "no scenarios": (
        parts(probabilities=np.zeros((3, 0)), rewards=np.zeros((3, 0, 2)), successors=np.zeros((3, 0, 2))),
        ["no scenarios"],
    ),
    "no actions": (parts(rewards=np.zeros((3, 2, 0)), successors=np.zeros((3, 2, 0))), ["no actions"]),
    "discount above one": (parts(discount=1.01), ["discount is 1.01"]),
    "discount negative": (parts(discount=-0.5), ["discount is -0.5", "[0, 1)"]),
    "discount nan": (parts(discount=NAN), ["discount is nan"]),
    "discount no number": (parts(discount="high"), ["discount must be a number", "'high'"]),
    "discount an array": (parts(discount=[0.9, 0.9]), ["discount must be a number"]),
    "sharing misspelt": (parts(sharing="states"), ["sharing is 'states'", '"time"']),
    "sharing none, not a word": (parts(sharing=None), ["sharing is None", '"none"']),
    "time sharing of state-dependent noise": (
        parts(probabilities=[[0.5, 0.5], [0.5, 0.5], [0.25, 0.75]], sharing="time"),
        ["scenario 0", "0.5 in state 0", "0.25 in state 2", "one scenario grid"],
    ),
    "available of another shape": (parts(available=[[True, True]] * 2), ["available", "(2, 2)"]),
    "available with swapped axes": (parts(available=np.ones((2, 3), bool)), ["available", "another order"]),
    "available not boolean": (parts(available=[[0.5, 1.0]] * 3), ["available", "booleans"]),
    "a state without actions": (
        parts(available=[[1, 0], [0, 0], [0, 1]]),
        ["state 1", "no available action"],
    ),
    "too few state names": (parts(state_names=["a", "b"]), ["2 state names for 3 states"]),
    "too many action names": (parts(action_names=["a", "b", "c"]), ["3 action names for 2 actions"]),
    "state names twice": (parts(state_names=["a", "b", "a"]), ["state name 'a'", "twice"]),
    "action names twice once printed": (parts(action_names=[1, "1"]), ["action name '1'", "twice"]),
    "names as one string": (parts(state_names="abc"), ["state_names", "not 'abc'"]),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models(case: str) -> None:
    arguments, fragments = BAD_MODELS[case]
    with pytest.raises(ModelError) as caught:
        JointMDP(**arguments)
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_the_model_that_the_bad_ones_start_from_is_good() -> None:
    assert JointMDP(**parts()).num_states == 3


def limited() -> JointMDP:
    """Three named states; "jump" exists in "b" alone, and nobody ever enters "c"."""
    return JointMDP(
        **parts(successors=np.zeros((3, 2, 2))),
        available=[[True, False], [True, True], [True, False]],
        state_names=["a", "b", "c"],
        action_names=["walk", "jump"],
    )


BAD_POLICIES: dict[str, tuple[Any, list[str]]] = {
    "row sum off in a state never visited": ([[1, 0], [1, 0], [0.9, 0]], ["state 2", "0.9", "normalise"]),
    "row of zeros in a state never visited": ([[1, 0], [1, 0], [0, 0]], ["state 2", "filled in"]),
    "negative probability": ([[1, 0], [1.5, -0.5], [1, 0]], ["state 1, action 1", "negative"]),
    "nan": ([[1, 0], [NAN, 0], [1, 0]], ["state 1, action 0", "nan"]),
    "unavailable action with probability": ([[1, 0], [1, 0], [0.5, 0.5]], ["jump", "in c", "not available"]),
    "unavailable action chosen": ([0, 1, 1], ["jump", "in c", "not available"]),
    "unavailable action chosen by name": (["jump", "jump", "walk"], ["jump", "in a", "not available"]),
    "action outside the range": ([0, 2, 0], ["in b is 2", "0..1"]),
    "negative action": ([0, -1, 0], ["in b is -1", "0..1"]),
    "fractional action": ([0, 0.5, 0], ["in b is 0.5", "[S, A] array"]),
    "unknown action name": (["walk", "fly", "walk"], ["fly", "'walk'", "'jump'"]),
    "too few states": ([0, 0], ["policy", "2 actions for 3 states"]),
    "axes swapped": (np.full((2, 3), 0.5), ["policy", "(2, 3)", "another order"]),
    "three axes": (np.zeros((3, 2, 1)), ["policy", "[T, S, A]", "horizon"]),
    "one number": (0.5, ["policy", "0 axes"]),
    "ragged": ([[1], [1, 0], [1, 0]], ["policy", "[S, A]"]),
    "nothing": (None, ["policy", "None"]),
}


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_bad_policies(case: str) -> None:
    policy, fragments = BAD_POLICIES[case]
    with pytest.raises(ModelError) as caught:
        as_policy(limited(), policy)
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


BAD_REQUESTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "unknown state": (lambda: limited().query_law(3, [0]), ["unknown state 3", "0..2"]),
    "negative state": (lambda: limited().query_law(-1, [0]), ["unknown state -1"]),
    "unknown state name": (lambda: limited().query_law("d", [0]), ["unknown state 'd'", "'a', 'b', 'c'"]),
    "state name in a nameless model": (lambda: JointMDP(**parts()).state_index("a"), ["'a'", "no names"]),
    "fractional state": (lambda: limited().state_index(0.5), ["state must be an index or a name", "0.5"]),
    "a truth value as a state": (lambda: limited().state_index(True), ["state must be an index", "True"]),
    "nan as a state": (lambda: limited().state_index(NAN), ["state must be an index", "nan"]),
    "nothing as a state": (lambda: limited().state_index(None), ["state must be an index", "None"]),
    "unknown action": (lambda: limited().query_law(1, [0, 2]), ["unknown action 2", "0..1"]),
    "unknown action name": (lambda: limited().query_law(1, ["walk", "fly"]), ["unknown action 'fly'"]),
    "unavailable action": (lambda: limited().query_law("c", ["walk", "jump"]), ["jump", "not available in c"]),
    "no actions": (lambda: limited().query_law(0, []), ["at least one action"]),
    "a name instead of a list": (lambda: limited().query_law(0, "walk"), ["sequence", "'walk'"]),
    "with_sharing": (lambda: limited().with_sharing("always"), ["sharing is 'always'"]),
    "with_discount": (lambda: limited().with_discount(2), ["discount is 2"]),
    "start law of another size": (lambda: limited().as_gymnasium([0.5, 0.5]), ["start", "(2,)"]),
    "start law off": (lambda: limited().as_gymnasium([0.5, 0.4, 0]), ["start probabilities", "0.9"]),
    "start state unknown": (lambda: limited().as_gymnasium("d"), ["unknown state 'd'"]),
    "no steps": (lambda: limited().as_gymnasium(max_steps=0), ["max_steps is 0"]),
    "gridworld of one cell": (lambda: windy_gridworld(1), ["size is 1", "at least 2"]),
    "gridworld of half a cell": (lambda: windy_gridworld(2.5), ["size must be a whole number", "2.5"]),
    "gridworld of True cells": (lambda: windy_gridworld(np.True_), ["size must be a whole number", "True"]),
    "gust more than certain": (lambda: windy_gridworld(3, gust_probability=1.2), ["gust_probability", "1.2"]),
    "gust negative": (lambda: windy_gridworld(3, gust_probability=-0.1), ["gust_probability is -0.1"]),
    "gust no number": (lambda: windy_gridworld(3, gust_probability="breeze"), ["gust_probability", "breeze"]),
    "chain of one state": (lambda: coupled_reward_chain(1), ["num_states is 1", "at least 2"]),
    "chain without reward": (lambda: coupled_reward_chain(3, reward=0), ["reward is 0", "positive"]),
    "orders that never fit": (lambda: inventory(5, 6), ["max_order is 6", "max_stock = 5"]),
    "base stock above capacity": (lambda: inventory(base_stock=21), ["base_stock is 21", "max_stock = 20"]),
    "demand without mean": (lambda: inventory(demand_mean=0), ["demand_mean is 0", "positive"]),
    "negative price": (lambda: inventory(price=-1), ["price is -1", "not negative"]),
    "infinite holding cost": (lambda: inventory(holding_cost=INF), ["holding_cost is inf", "finite"]),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_bad_requests(case: str) -> None:
    request, fragments = BAD_REQUESTS[case]
    with pytest.raises(ModelError) as caught:
        request()
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def kernel(place: tuple[int, ...] | None = None, value: float = 0.0) -> np.ndarray:
    """Valid transitions of 3 states and 2 actions, with one entry replaced."""
    array = np.full((3, 2, 3), [0.5, 0.25, 0.25])
    if place is not None:
        array[place] = value
    return array


def mdp(transitions: Any = None, rewards: Any = None, **options: Any) -> JointMDP:
    """`from_mdp` on valid arrays except for what is given."""
    transitions = kernel() if transitions is None else transitions
    return from_mdp(transitions, np.zeros((3, 2)) if rewards is None else rewards, 0.9, **options)


def noise(
    reward: Any = lambda s, a, u: u, successor: Any = lambda s, a, u: s, values: Any = (1, 2), law: Any = (0.5, 0.5)
) -> JointMDP:
    """`from_noise` with 2 states and 2 actions, valid except for what is given."""
    return from_noise(reward, successor, values, law, num_states=2, num_actions=2, discount=0.9)


def table(**changes: Any) -> dict[int, Any]:
    """A valid toy-text table of two states and one action, with the outcomes of state 1 replaced."""
    return {0: {0: [(1.0, 1, 0.0, False)]}, 1: changes.get("row", {0: [(1.0, 1, 0.0, True)]})}


def fair(state: int, laws: list[np.ndarray]) -> tuple[Any, Any]:
    """A coupling with one scenario per outcome of action 0, whatever the laws are."""
    return laws[0], np.stack([np.arange(len(laws[0]))] * len(laws), axis=1)


def ones(state: int, laws: list[np.ndarray]) -> tuple[Any, Any]:
    """A coupling that always hands out the second outcome."""
    return [1.0], [[1] * len(laws)]


BAD_COUPLINGS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "row sum off": (lambda: mdp(kernel((1, 0, 2), 0.5)), ["state 1, action 0", "1.25", "normalise"]),
    "row of zeros": (lambda: mdp(kernel((2, 1), 0)), ["state 2, action 1", "filled in"]),
    "negative": (lambda: mdp(kernel((0, 1, 2), -0.1)), ["state 0, action 1", "successor 2", "negative"]),
    "nan": (lambda: mdp(kernel((2, 0, 1), NAN)), ["state 2, action 0", "successor 1", "nan"]),
    "transitions not square": (lambda: mdp(np.ones((3, 2, 4)) / 4), ["transitions", "(3, 2, 4)"]),
    "transitions flat": (lambda: mdp(np.ones((3, 3)) / 3), ["transitions", "2 axes"]),
    "transitions empty": (lambda: mdp(np.ones((0, 2, 0))), ["transitions are empty"]),
    "rewards of another size": (lambda: mdp(rewards=np.zeros((3, 3))), ["rewards", "(3, 3)", "[S, A]"]),
    "rewards by successor of another size": (lambda: mdp(rewards=np.zeros((3, 2, 2))), ["(3, 2, 2)", "[S, A, S]"]),
    "rewards ragged": (lambda: mdp(rewards=[[0, 0], [0], [0, 0]]), ["rewards", "numeric array"]),
    "rewards flat": (lambda: mdp(rewards=[0, 0, 0]), ["rewards", "[S, A] or [S, A, S]", "1 axes"]),
    "reward nan": (lambda: mdp(rewards=[[0, 0], [0, NAN], [0, 0]]), ["reward of state 1, action 1", "nan"]),
    "coupling misspelt": (lambda: mdp(coupling="comontone"), ["'comontone'", '"antithetic"', '"gumbel-max"']),
    "no draws": (lambda: mdp(coupling=jm.GumbelMax(draws=0)), ["draws is 0"]),
    "draws no number": (lambda: mdp(coupling=jm.GumbelMax(draws="many")), ["draws", "'many'"]),
    "seed negative": (lambda: mdp(coupling=jm.GumbelMax(seed=-1)), ["seed is -1"]),
    "too few draws for all states": (
        lambda: mdp(
            np.random.default_rng(0).dirichlet(np.ones(3), (3, 2)), coupling=jm.GumbelMax(3), sharing="time"
        ).rewards,  # drawn when they are first read
        ["take more draws", "6 actions", 'sharing="state"'],
    ),
    "maximal table too large": (lambda: mdp(coupling="maximal", max_entries=5), ["maximal", "3·3·2 = 18"]),
    "gumbel table too large": (
        lambda: mdp(coupling="gumbel-max", max_entries=5).rewards,
        ["gumbel-max", "fewer draws"],
    ),
    "sharing misspelt": (lambda: mdp(sharing="clock"), ["sharing is 'clock'"]),
    "table too large": (lambda: mdp(coupling="independent", max_entries=50), ["9 scenarios", "3·9·2 = 54", "50"]),
    "no entries allowed": (lambda: mdp(max_entries=0), ["max_entries is 0"]),
    "coupling raises": (lambda: mdp(coupling=lambda s, laws: 1 / 0), ["in state 0", "ZeroDivisionError"]),
    "coupling returns one thing": (lambda: mdp(coupling=lambda s, laws: None), ["failed in state 0"]),
    "coupling of another shape": (
        lambda: mdp(coupling=lambda s, laws: ([1.0], [[0]])),
        ["choices in state 0", "(1, 1)", "(1, 2)"],
    ),
    "coupling off by a sum": (
        lambda: mdp(coupling=lambda s, laws: ([0.5], [[0, 0]])),
        ["probabilities in state 0", "sum to 0.5"],
    ),
    "coupling with an unknown outcome": (
        lambda: mdp(coupling=lambda s, laws: (laws[0], [[0, 3], [1, 1], [2, 2]])),
        ["state 0", "action 1 gets outcome 3", "0..2"],
    ),
    "coupling with other marginals": (
        lambda: mdp(kernel((1, 1), [0.25, 0.5, 0.25]), coupling=fair),
        ["state 1, action 1, outcome 0", "0.5", "0.25", "own law"],
    ),
    "coupling with no noise at all": (lambda: mdp(coupling=ones), ["state 0, action 0", "0.25"]),
    "coupling given and too large": (lambda: mdp(coupling=fair, max_entries=17), ["given", "3·3·2 = 18"]),
    "noise empty": (lambda: noise(values=[], law=[]), ["noise has no values"]),
    "noise law of another size": (lambda: noise(law=[1.0]), ["one for each noise value", "(1,)"]),
    "noise law off": (lambda: noise(law=[0.5, 0.4]), ["noise probabilities", "0.9"]),
    "noise law negative": (lambda: noise(law=[1.5, -0.5]), ["noise probabilities", "value 1", "negative"]),
    "reward raises": (
        lambda: noise(reward=lambda s, a, u: 1 / (s + a + u - 4)),
        ["reward of state 1, action 1, noise 2", "ZeroDivisionError"],
    ),
    "reward nan at a noise value": (
        lambda: noise(reward=lambda s, a, u: NAN if (s, u) == (1, 2) else 0),
        ["reward of state 1, action 0, noise 2", "nan"],
    ),
    "reward no number": (lambda: noise(reward=lambda s, a, u: "much"), ["state 0, action 0, noise 1", "much"]),
    "successor raises": (
        lambda: noise(successor=lambda s, a, u: [0, 0][s + u - 1]),
        ["successor of state 1, action 0, noise 2", "IndexError"],
    ),
    "successor no state": (
        lambda: noise(successor=lambda s, a, u: s + a),
        ["successor of state 1, action 1, noise 1", "unknown state 2"],
    ),
    "sampler raises": (
        lambda: from_sampler(
            lambda s, a, u: u, lambda s, a, u: s, lambda rng: rng.nothing(), 5, seed=0,
            num_states=1, num_actions=1, discount=0.9,
        ),
        ["draw 0", "AttributeError"],
    ),
    "sampler without draws": (
        lambda: from_sampler(
            lambda s, a, u: u, lambda s, a, u: s, lambda rng: 0, 0, seed=0,
            num_states=1, num_actions=1, discount=0.9,
        ),
        ["num_scenarios is 0"],
    ),
    "no table": (lambda: from_gymnasium(3, 0.9), ["transition table P", "3"]),
    "an environment without a table": (lambda: from_gymnasium(limited().as_gymnasium(), 0.9), ["table P"]),
    "table empty": (lambda: from_gymnasium({}, 0.9), ["0, 1, 2"]),
    "table with a gap": (lambda: from_gymnasium({0: {}, 2: {}}, 0.9), ["0, 1, 2"]),
    "table row without actions": (lambda: from_gymnasium(table(row={}), 0.9), ["state 1", "no actions"]),
    "table row no dictionary": (lambda: from_gymnasium(table(row=[(1.0, 1)]), 0.9), ["state 1", "no actions"]),
    "table action no number": (lambda: from_gymnasium(table(row={"up": []}), 0.9), ["state 1, action up"]),
    "outcome of three parts": (
        lambda: from_gymnasium(table(row={0: [(1.0, 0, 0.0)]}), 0.9),
        ["state 1, action 0", "(probability, successor, reward, terminated)"],
    ),
    "outcome to nowhere": (
        lambda: from_gymnasium(table(row={0: [(1.0, 2, 0.0, False)]}), 0.9),
        ["state 1, action 0", "unknown state 2"],
    ),
    "table without outcomes": (lambda: from_gymnasium(table(row={0: []}), 0.9), ["state 1, action 0", "filled in"]),
    "table sum off": (
        lambda: from_gymnasium(table(row={0: [(0.5, 1, 0.0, True)]}), 0.9),
        ["state 1, action 0", "0.5", "normalise"],
    ),
    "table reward infinite": (
        lambda: from_gymnasium(table(row={0: [(1.0, 0, INF, False)]}), 0.9),
        ["state 1, action 0, successor 0", "inf"],
    ),
    "too few names beside an added state": (
        lambda: from_gymnasium(table(row={0: [(1.0, 0, 1.0, True)]}), 0.9, state_names=["only"]),
        ["1 state names for 2 states"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_COUPLINGS)
def test_bad_ordinary_models(case: str) -> None:
    request, fragments = BAD_COUPLINGS[case]
    with pytest.raises(ModelError) as caught:
        request()
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_the_ordinary_models_that_the_bad_ones_start_from_are_good() -> None:
    assert mdp().num_states == mdp(coupling=fair).num_states == 3
    assert noise().num_scenarios == from_gymnasium(table(), 0.9).num_states == 2


def test_errors_of_user_functions_stay_attached() -> None:
    with pytest.raises(ModelError) as caught:
        noise(reward=lambda s, a, u: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_model_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="discount is 3"):
        JointMDP(**parts(discount=3))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"stay": "U"}, "unknown state 'stay'"),
        ({0: "U", 1: "U"}, r"nothing of \(2,0\) and 6 more"),
        ("stay", "action in .* unknown action 'stay'"),
        (lambda s: 4, "unknown action 4"),
        (lambda s: None, "must be an index or a name, not None"),
        (lambda s: [1.0], r"policy in \(0,0\) has shape \(1,\)"),
        (lambda s: {"U": 0.5}, "sum to 0.5"),
        (lambda s: {"U": "much"}, "must be a number"),
        (lambda s, rng: 0, "depends on time: .* a function of two things, time and state"),
        (object(), 'give an .* or "uniform"'),
    ],
)
def test_things_that_are_no_policy(policy: object, message: str) -> None:
    model, _ = jm.envs.windy_gridworld(3)
    with pytest.raises(ModelError, match=message):
        jm.evaluate(model, policy)


def test_a_policy_of_the_wrong_length_says_so_in_words() -> None:
    model, _ = jm.envs.windy_gridworld(3)
    with pytest.raises(ModelError, match="2 actions for 9 states"):
        jm.evaluate(model, [0, 1])


def test_swapped_axes_are_guessed() -> None:
    with pytest.raises(ModelError, match="last two axes swapped"):
        JointMDP(np.full((4, 6), 1 / 6), np.zeros((4, 2, 6)), np.zeros((4, 2, 6)), 0.9)
    with pytest.raises(ModelError, match=r"looks like \[A, S, S\]"):
        jm.from_mdp(np.full((2, 4, 4), 0.25), np.zeros((4, 2)), 0.9)


def test_near_names_are_suggested() -> None:
    model, _ = jm.envs.inventory()
    with pytest.raises(ModelError, match="did you mean 'stock 4'"):
        model.state_index("Stock 4")
    with pytest.raises(ModelError, match="and 13 more"):
        model.state_index("zzz")


def test_a_process_forked_after_jax_is_told_so() -> None:
    """JAX's threads do not survive a fork: what would need them says so at once, and the rest works."""
    model, policy = jm.envs.inventory()
    jm.evaluate(model, policy)
    calls: dict[str, Callable[[], Any]] = {
        "evaluate": lambda: jm.evaluate(model, policy),
        "simulate": lambda: jm.simulate(model, policy, 0, [0, 1], num_samples=8, seed=0),
        "compare": lambda: jm.compare(lambda decision, seed: decision + seed, decisions=[0, 1], max_replications=2),
    }
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # in place of waiting without end
            for name, call in calls.items():
                try:
                    call()
                    said = "done"
                except jm.ModelError as error:
                    said = str(error)
                os.write(writer, f"{name}: {said}\n".encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        heard = dict(line.rstrip().split(": ", 1) for line in file)
    assert os.waitpid(child, 0)[1] == 0
    assert heard["compare"] == "done"
    for name in ("evaluate", "simulate"):
        assert heard[name].startswith("this process was forked from one in which JAX had already computed")
        assert 'get_context("spawn")' in heard[name]
    assert jm.evaluate(model, policy).mean.shape  # here nothing has changed
