"""The command line and the demonstration."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import jointmdp as jm
from jointmdp.show.cli import main
from jointmdp.simulation.simulators.registry import MODELS


@pytest.mark.slow
def test_demo_as_json() -> None:
    result = CliRunner().invoke(main, ["demo", "--stock", "3", "--json"])
    found = json.loads(result.stdout)
    assert found["state"] == "stock 3"
    for row in found["gaps"]:
        assert row["std_time"] < row["std_state"] < row["std_none"]


def test_demo_refuses_unknown_stock() -> None:
    result = CliRunner().invoke(main, ["demo", "--stock", "99"])
    assert result.exit_code == 1
    assert "unknown state 99" in result.output
    assert "Traceback" not in result.output


def test_help_does_not_load_jax() -> None:
    run = "from jointmdp.show.cli import main; main(['--help'], standalone_mode=False)"
    code = f"import sys; {run}; print('jax' in sys.modules)"
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert time.monotonic() - start < 5


def test_progress_shows_only_to_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from jointmdp.ground import progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.Meter("solving") as meter:
        meter.update(0.5, "half")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.Meter("solving") as meter:
        meter.update(0.5, "half way")
    assert "half way" in capsys.readouterr().err


# -- list ------------------------------------------------------------------------------------------------------


def test_list_shows_every_model_with_its_settings() -> None:
    result = CliRunner().invoke(main, ["list"])
    assert result.exit_code == 0
    for name, entry in MODELS.items():
        assert f"{name}: {entry.description}" in result.output
    assert "base_stock=none" in result.output
    found = json.loads(CliRunner().invoke(main, ["list", "--json"]).stdout)
    assert [model["name"] for model in found["models"]] == list(MODELS)
    assert found["models"][2]["settings"]["base_stock"] is None


# -- evaluate --------------------------------------------------------------------------------------------------

MACHINE = "machine-replacement"  # nine states; one array shape, compiled once


def evaluate(*arguments: str) -> dict[str, Any]:
    """The JSON object of ``jointmdp evaluate``; NaN and Infinity, which JSON does not know, are refused."""

    def refuse(word: str) -> None:
        raise AssertionError(f"not JSON: {word}")

    result = CliRunner().invoke(main, ["evaluate", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=refuse)


def test_evaluate_prints_a_table_and_its_certificate() -> None:
    result = CliRunner().invoke(main, ["evaluate", MACHINE, "--state", "wear 1", "--state", "8"])
    assert result.exit_code == 0
    assert "In wear 1, each action against keep:" in result.output
    assert "In broken, each action against replace:" in result.output
    assert "keep *" in result.output
    assert "Shown:" not in result.output
    assert "the certified error is within the tolerance (mean ±" in " ".join(result.output.split())


def test_evaluate_shows_the_first_state_and_says_so() -> None:
    result = CliRunner().invoke(main, ["evaluate", MACHINE])
    assert "Shown: wear 0, the first state; others by --state." in result.output
    assert "In wear 0" in result.output
    assert "In wear 1" not in result.output


def test_evaluate_as_json_is_what_the_library_says() -> None:
    found = evaluate(MACHINE, "--state", "1", "--state", "wear 1")
    model, policy = jm.envs.machine_replacement()
    solution = jm.evaluate(model, policy)
    assert (found["sharing"], found["discount"], found["horizon"], found["is_success"]) == ("time", 0.95, None, True)
    (state,) = found["states"]  # asked for twice, shown once
    assert (state["state"], state["index"], state["baseline"]) == ("wear 1", 1, "keep")
    assert [row["action"] for row in state["actions"]] == ["keep", "repair", "replace"]
    assert state["actions"][0]["gap"] is None
    for a in (1, 2):
        row, gap = state["actions"][a], solution.gap(1, a, 0)
        assert row["mean"] == pytest.approx(solution.mean[1, a], rel=1e-12)
        assert row["std"] == pytest.approx(solution.variance[1, a] ** 0.5, rel=1e-12)
        assert (row["gap"]["mean"], row["gap"]["std"]) == (gap.mean, gap.std)
        assert row["gap"]["independent_std"] == pytest.approx(gap.independent_variance**0.5, rel=1e-12)
        assert gap.mean < 0  # so the bound is the other action's
        assert row["gap"]["inferiority_bound"] == 1
        assert row["gap"]["reversal_bound"] == solution.gap(1, 0, a).inferiority_bound < 1
        assert row["gap"]["replications_paired"] == gap.replications_to_select(0.95).paired
        assert row["gap"]["replications_unpaired"] == gap.replications_to_select(0.95).unpaired
    assert found["certificate"]["mean_error"] == solution.certificate.mean_error
    assert found["sentence"] == f"{solution.status.value} ({solution.certificate})"


def test_infinite_numbers_are_null_and_never() -> None:
    gap = evaluate("shared-successors")["states"][0]["actions"][1]["gap"]
    assert gap["replications_paired"] is None
    assert "never" in CliRunner().invoke(main, ["evaluate", "shared-successors"]).output


@pytest.mark.parametrize(
    "kind",
    [
        "uniform",
        "0,0,1,1,0,0,2,0,2",
        "keep,keep,repair,repair,keep,keep,replace,keep,replace",
        "a.npy",
        "b.npy",
        "a.csv",
        "b.csv",
    ],
)
def test_policies(kind: str, tmp_path: Path) -> None:
    model, _ = jm.envs.machine_replacement()
    actions = [0, 0, 1, 1, 0, 0, 2, 0, 2]
    rows = np.eye(3)[actions]
    np.save(tmp_path / "a.npy", actions)
    np.save(tmp_path / "b.npy", rows)
    (tmp_path / "a.csv").write_text("keep\n0\nrepair\nrepair\nkeep\nkeep\nreplace\nkeep\n2\n")
    (tmp_path / "b.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    policy = kind if "." not in kind else str(tmp_path / kind)
    found = evaluate(MACHINE, "--policy", policy, "--state", "2")
    wanted = jm.envs.uniform_policy(model) if kind == "uniform" else rows
    expected = jm.evaluate(model, wanted).mean[2]
    assert [row["mean"] for row in found["states"][0]["actions"]] == pytest.approx(expected, rel=1e-12)
    assert [row["probability"] for row in found["states"][0]["actions"]] == wanted[2].tolist()


def test_sharing_discount_and_horizon() -> None:
    none = evaluate(MACHINE, "--sharing", "none")["states"][0]["actions"][1]["gap"]
    assert none["std"] == pytest.approx(none["independent_std"], rel=1e-9)
    found = evaluate(MACHINE, "--discount", "1", "--horizon", "1")
    assert (found["horizon"], found["discount"], found["status"]) == (1, 1, "completed")
    model, _ = jm.envs.machine_replacement()
    assert found["states"][0]["actions"][0]["mean"] == pytest.approx(model.marginal_mdp().rewards[0, 0], rel=1e-12)


def test_models_and_solutions_from_files(tmp_path: Path) -> None:
    model, policy = jm.envs.machine_replacement()
    jm.save(model, str(tmp_path / "model.npz"))
    jm.save(jm.evaluate(model, policy), str(tmp_path / "solution.npz"))
    plain = evaluate(str(tmp_path / "model.npz"))
    assert plain["remarks"][:2] == [
        '9 states, 4 scenarios, 3 actions; discount 0.95, sharing "time", an endless future',
        "Policy: uniform, as the file holds none.",
    ]
    assert plain["states"] == evaluate(MACHINE, "--policy", "uniform")["states"]
    solved = str(tmp_path / "solution.npz")
    assert evaluate(solved, "--state", "wear 2")["states"] == evaluate(MACHINE, "--state", "wear 2")["states"]
    result = CliRunner().invoke(main, ["evaluate", solved, "--sharing", "none", "--horizon", "3"])
    assert result.exit_code == 1
    assert "holds a solution, which is evaluated already; --sharing, --horizon would need a model" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "'nowhere' is neither a built-in model nor a file; built in: windy-gridworld"),
        (["inventory:stock=3"], "inventory has no setting 'stock'"),
        (["inventory:max_stock=0"], "max_stock is 0; it must be at least 1"),
        ([MACHINE, "--state", "99"], "unknown state 99"),
        ([MACHINE, "--state", "-1"], "unknown state -1"),
        ([MACHINE, "--state", "new"], "unknown state 'new'; known: 'wear 0'"),
        ([MACHINE, "--policy", "greedy"], "policy 'greedy' is not default, uniform"),
        ([MACHINE, "--policy", "0,1"], "the policy has 2 actions for 9 states"),
        ([MACHINE, "--policy", "0,0,0,0,0,0,0,0,0"], "keep is not available in broken"),
        ([MACHINE, "--policy", "keep,sell,keep"], "unknown action 'sell'"),
        ([MACHINE, "--policy", "missing.npy"], "missing.npy: No such file or directory"),
        ([MACHINE, "--policy", "missing.csv"], "missing.csv: No such file or directory"),
        ([MACHINE, "--policy", "text.npy"], "text.npy is not an array that can be read"),
        ([MACHINE, "--policy", "bytes.csv"], "bytes.csv is not a table that can be read"),
        ([MACHINE, "--policy", "uneven.csv"], "uneven.csv must hold rows of equal length"),
        ([MACHINE, "--policy", "words.csv"], "words.csv must hold numbers, [S, A] probabilities"),
        ([MACHINE, "--horizon", "0"], "horizon is 0"),
        ([MACHINE, "--discount", "1"], "an endless future needs a discount below 1, or give a horizon"),
        (["text.npy"], "text.npy"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npy").write_text("not an array")
    Path("bytes.csv").write_bytes(b"\xff\xfe\x00")
    Path("uneven.csv").write_text("1,0,0\n1,0\n")
    Path("words.csv").write_text("a,b,c\n1,0,0\n")
    result = CliRunner().invoke(main, ["evaluate", *arguments])
    assert result.exit_code == 1
    assert message in result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1


def test_a_missed_tolerance_is_a_warning_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from jointmdp.exact.solution import evaluate

    def loose(model: jm.JointMDP, policy: Any, method: Any = None, **settings: Any) -> jm.results.Solution:
        return jm.evaluate(model, policy, jm.Iterate(max_steps=3))

    monkeypatch.setattr(evaluate, "evaluate", loose)
    result = CliRunner().invoke(main, ["evaluate", MACHINE, "--json"])
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: stopped at the step limit")
    assert result.stderr.count("\n") == 1
    assert json.loads(result.stdout)["is_success"] is False


def test_list_does_not_load_jax() -> None:
    code = (
        "import sys; from jointmdp.show.cli import main; "
        "main(['list'], standalone_mode=False); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_reproduce_prints_and_writes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jointmdp_experiments import correlations, tabular_figures

    monkeypatch.setattr(tabular_figures, "results", lambda announce: iter([correlations.run_chain()]))
    out = str(tmp_path / "figures")
    result = CliRunner().invoke(main, ["reproduce", "tabular", "--out", out])
    assert result.exit_code == 0, result.output
    assert "+0.796" in result.output
    assert (tmp_path / "figures" / "README.md").exists()
    found = json.loads(CliRunner().invoke(main, ["reproduce", "tabular", "--out", out, "--json"]).stdout)
    assert found["figures"][0]["name"] == "crc-correlation"
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(main, ["reproduce", "tabular", "--out", str(tmp_path / "file" / "x")])
    assert refused.exit_code == 1
    assert "cannot make the folder" in refused.output


@pytest.mark.parametrize("asked", [[], ["--help"], ["tabular"], ["all", "--quick"]])
def test_experiments_that_are_not_installed_are_refused_with_advice(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jointmdp_experiments", None)
    monkeypatch.delitem(sys.modules, "jointmdp_experiments.commands", raising=False)
    refused = CliRunner().invoke(main, ["reproduce", *asked])
    assert refused.exit_code == 1
    assert refused.output.startswith("Error: the paper's experiments are a package of their own")
    assert "pip install 'jointmdp[experiments]'" in refused.output
    assert refused.output.count("\n") == 1
    assert "reproduce" in CliRunner().invoke(main, ["--help"]).output  # which needs nothing of them


@pytest.mark.slow
def test_demo_with_nothing_to_compare() -> None:
    result = CliRunner().invoke(main, ["demo", "--stock", "20"])
    assert result.exit_code == 1
    assert "only order" in result.output


def test_large_numbers_keep_their_labels() -> None:
    result = CliRunner().invoke(main, ["evaluate", "inventory:price=1000", "--state", "4"])
    assert "order 7 *" in result.output
    assert "normal approximation" in result.output


def test_every_option_can_be_a_variable() -> None:
    asked = ["evaluate", "inventory", "--json"]
    told = CliRunner().invoke(main, [*asked, "--state", "stock 4"])
    found = CliRunner().invoke(main, asked, env={"JOINTMDP_EVALUATE_STATE": "4"})
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == json.loads(told.stdout) != json.loads(CliRunner().invoke(main, asked).stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert "_JOINTMDP_COMPLETE" in script.stdout


def test_completion_knows_commands_options_and_models() -> None:
    def completed(words: list[str], begun: str) -> list[str]:
        return [item.value for item in ShellComplete(main, {}, "jointmdp", "").get_completions(words, begun)]

    assert completed([], "re") == ["report", "reproduce"]
    assert completed(["evaluate"], "inv") == ["inventory"]
    assert completed(["audit"], "windy") == ["windy-gridworld"]
    assert "--sharing" in completed(["evaluate", "inventory"], "--s")
    assert completed(["evaluate", "inventory", "--sharing"], "t") == ["time"]


def test_every_command_has_examples_and_json() -> None:
    def commands(group: click.Group) -> Iterator[click.Command]:
        context = click.Context(group)
        for command in (group.get_command(context, name) for name in group.list_commands(context)):
            assert command is not None
            yield from commands(command) if isinstance(command, click.Group) else [command]

    found = {command.name: command for command in commands(main)}
    assert {"evaluate", "compare", "tabular", "projected", "atari", "all"} <= found.keys()
    assert [name for name, each in found.items() if "Examples:" not in (each.help or "")] == []
    flags = {name: {flag for option in each.params for flag in option.opts} for name, each in found.items()}
    assert [name for name, each in flags.items() if "--json" not in each] == ["completion"]


def test_a_report_says_where_it_is_as_json(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = CliRunner().invoke(main, ["report", "anticorrelated-rewards", "-o", str(page), "--json"])
    assert found.exit_code == 0, found.output
    written = {"page": str(page), "bytes": page.stat().st_size, "remarks": ["Policy: the model's own."]}
    assert json.loads(found.stdout) == written
