"""The command line and the demonstration."""

import json
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from jointmdp.cli import main


def test_demo_prints_a_table_and_an_answer() -> None:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0
    assert "How much to order today?" in result.output
    assert "Order 4." in result.output
    assert "certified" in result.output


def test_demo_as_json() -> None:
    result = CliRunner().invoke(main, ["demo", "--stock", "3", "--json"])
    found = json.loads(result.output)
    assert found["state"] == "stock 3"
    for row in found["gaps"]:
        assert row["std_time"] < row["std_state"] < row["std_none"]


def test_demo_refuses_unknown_stock() -> None:
    result = CliRunner().invoke(main, ["demo", "--stock", "99"])
    assert result.exit_code == 1
    assert "unknown state 99" in result.output
    assert "Traceback" not in result.output


def test_help_does_not_load_jax() -> None:
    run = "from jointmdp.cli import main; main(['--help'], standalone_mode=False)"
    code = f"import sys; {run}; print('jax' in sys.modules)"
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert time.monotonic() - start < 5


def test_progress_shows_only_to_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from jointmdp import progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.Meter("solving") as meter:
        meter.update(0.5, "half")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.Meter("solving") as meter:
        meter.update(0.5, "half way")
    assert "half way" in capsys.readouterr().err
