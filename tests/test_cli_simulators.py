"""``jointmdp audit`` and ``jointmdp compare``: what they print, how they fail, and their exit status."""

import json

import pytest
from click.testing import CliRunner
from faults import GlobalNumpy, Lever, OutOfStep
from zoo import daily_rows

from jointmdp.show.cli import main
from jointmdp.simulation.simulators import registry


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def named(monkeypatch):
    """Puts simulators of the tests behind names of the command line."""

    def put(**simulators):
        monkeypatch.setattr(registry, "open_named", lambda name: (simulators[name](), "uniform"))

    return put


@pytest.mark.slow
def test_audit_prints_a_report():
    result = run("audit", "gymnasium:FrozenLake-v1")
    assert result.exit_code == 0
    assert "FrozenLake-v1: 16 passed" in result.output
    assert "✓ restore" in result.output


@pytest.mark.parametrize(
    ("name", "flags", "status"),
    daily_rows([("global", [], 1), ("healthy", ["--strict"], 0), ("shifted", [], 0), ("shifted", ["--strict"], 1)]),
)
def test_the_exit_status_of_an_audit_follows_the_failures(named, name, flags, status):
    named(healthy=Lever, shifted=OutOfStep, **{"global": GlobalNumpy})
    result = run("audit", name, "--json", *flags)
    assert result.exit_code == status
    found = json.loads(result.stdout)
    assert found["is_ok"] == (name != "global")
    assert ("global numpy.random" in found["faults"]) == (name == "global")


def test_an_audit_that_cannot_be_made_is_json_too(named):
    result = run("audit", "gymnasium:FrozenLak-v1", "--json")
    assert result.exit_code == 2
    assert "does not make" in json.loads(result.stdout)["error"]

    def broken():
        raise ZeroDivisionError("no wheels")

    named(broken=broken, healthy=Lever)
    result = run("audit", "broken", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "ZeroDivisionError: no wheels"
    result = run("audit", "healthy", "--json", "--seconds", "1e-6")
    assert result.exit_code == 2
    assert "out of time" in {row["name"]: row["message"] for row in json.loads(result.stdout)["checks"]}["restore"]


def test_compare_prints_an_answer(tmp_path):
    picture = tmp_path / "orders.png"
    given = ["--state", "stock 4", "--actions", "order 4, order 0", "--half-width", "8", "--figure", str(picture)]
    result = run("compare", "inventory", *given)
    assert result.exit_code == 0, result.output
    assert "Every gap is known to ±" in result.output
    assert picture.stat().st_size > 10_000


def test_compare_for_scripts():
    given = ["--state", "2", "--actions", "0,3", "--horizon", "3", "--sharing", "none", "--half-width", "20", "--json"]
    result = run("compare", "inventory:max_stock=6,max_order=3", *given)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["sharing"] == "none"
    assert [each["label"] for each in found["alternatives"]] == ["order 0", "order 3"]
    other = json.loads(run("compare", "inventory:max_stock=6,max_order=3", *given, "--policy", "order 0").stdout)
    assert other["gaps"][0]["mean"] != found["gaps"][0]["mean"]


@pytest.mark.slow
def test_compare_begins_after_some_steps():
    result = run("compare", "gymnasium:CartPole-v1", "--after", "5", "--horizon", "8", "--max-replications", "300")
    assert result.exit_code == 0, result.output
    assert "First actions in CartPole-v1" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "frozen"], "unknown simulator 'frozen'"),
        (["audit", "gymnasium:FrozenLak-v1"], "gymnasium does not make 'FrozenLak-v1'"),
        (["audit", "gymnax:CartPol"], "gymnax cannot make"),
        (["compare", "inventory", "--state", "stock 99"], "unknown state 'stock 99'"),
        (["compare", "inventory", "--state", "stock 4", "--actions", "order 99,order 1"], "unknown action"),
        (["compare", "inventory", "--state", "stock 4", "--after", "3"], "both say where to begin"),
        (["compare", "inventory", "--policy", "best"], "unknown action 'best'"),
        (["compare", "inventory", "--state", "4", "--actions", "1"], "at least two alternatives"),
        (["compare", "inventory", "--state", "4", "--executor", "threads"], "is no executor"),
        (["compare", "inventory", "--state", "4", "--address", "here:1"], "--executor ray"),
        (["compare", "gymnasium:CartPole-v1", "--state", "3"], "have no numbers"),
        (["compare", "gymnasium:FrozenLake-v1", "--state", "15"], "the episode is over"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    result = run(*arguments)
    assert result.exit_code == (2 if arguments[0] == "audit" else 1)
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1
