"""Every built-in model by its name, with settings from a line of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.simulation.simulators import registry
from jointmdp.simulation.simulators.registry import MODELS, make_model, parse


@pytest.mark.parametrize("name", MODELS)
def test_every_model_keeps_the_contract(name: str) -> None:
    model, policy = make_model(name)
    assert isinstance(model, jm.JointMDP)
    assert policy.shape == model.available.shape
    assert np.array_equal(policy.sum(axis=1), np.ones(model.num_states))
    assert model.state_names is not None
    assert model.action_names is not None
    assert model.is_coupled
    again, policy_again = make_model(name)
    assert again == model
    assert np.array_equal(policy_again, policy)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_public_and_described(name: str) -> None:
    function, description = MODELS[name]
    assert name == function.__name__.replace("_", "-")
    assert getattr(jm.envs, function.__name__) is function
    assert description.endswith(".")
    assert len(description) < 80
    assert {"discount", "sharing"} <= set(MODELS[name].settings)


@pytest.mark.parametrize("name", MODELS)
def test_defaults_written_out_are_the_defaults(name: str) -> None:
    settings = MODELS[name].settings
    text = ",".join(f"{key}={value}" for key, value in settings.items())
    assert parse(f"{name}:{text}") == (name, settings)


def test_settings_have_the_types_of_the_signature() -> None:
    text = "inventory:max_stock=10, demand_mean=3,base_stock=5,sharing=state,discount=0.9"
    name, settings = parse(text)
    assert settings == {"max_stock": 10, "demand_mean": 3.0, "base_stock": 5, "sharing": "state", "discount": 0.9}
    assert [type(value) for value in settings.values()] == [int, float, int, str, float]
    model, policy = make_model(name, **settings)
    expected, expected_policy = jm.envs.inventory(10, demand_mean=3, base_stock=5, sharing="state", discount=0.9)
    assert model == expected
    assert np.array_equal(policy, expected_policy)
    assert parse("inventory:base_stock=none")[1] == {"base_stock": None}
    assert parse("shared-successors:flipped=Yes,sharing=none")[1] == {"flipped": True, "sharing": "none"}
    assert parse("coupled-reward-chain:shifted=0")[1] == {"shifted": False}
    assert parse("inventory") == ("inventory", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere", f"unknown model 'nowhere'; built in: {', '.join(MODELS)}"),
        ("inventory:stock=3", "inventory has no setting 'stock'; its settings: max_stock, max_order,"),
        ("inventory:max_stock", "'max_stock' in 'inventory:max_stock' is not a setting; write inventory:setting=value"),
        ("inventory:", "'' in 'inventory:' is not a setting"),
        ("inventory:max_stock=3,max_stock=4", "max_stock is set twice"),
        ("inventory:max_stock=1.5", "max_stock of inventory is '1.5'; it must be a whole number"),
        ("inventory:price=much", "price of inventory is 'much'; it must be a number"),
        ("inventory:sharing=all", "sharing of inventory is 'all'; it must be one of state, time, none"),
        ("shared-successors:flipped=maybe", "flipped of shared-successors is 'maybe'; it must be true or false"),
    ],
)
def test_lines_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(jm.ModelError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "settings"), [("nowhere", {}), ("inventory", {"stock": 3})])
def test_make_says_what_there_is(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(jm.ModelError, match=r"built in: windy-gridworld|its settings: max_stock"):
        registry.make_model(name, **settings)
