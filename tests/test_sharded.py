"""Pairs of states sharded over devices and processes: the same numbers, and runs that survive their processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import jointmdp as jm
from jointmdp.exact.moments import column_blocks
from jointmdp.exact.moments.column_blocks import ShardFiles
from jointmdp.exact.moments.stored_moments import SameStateMoments, StateMoments
from jointmdp.ground.lost_processes import Survivor, speak
from jointmdp.show.cli import main

ROOT = Path(__file__).parent.parent
MODEL = ("windy-gridworld:size=3", "--policy", "uniform", "--discount", "0.99")


def gridworld(sharing: str) -> jm.JointMDP:
    return jm.envs.windy_gridworld(3)[0].with_sharing(sharing)


def held(solution: jm.results.Solution) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(solution.moments, StateMoments)
    return np.asarray(solution.moments.D), solution.moments.errors.pairs


def check_equal(one: jm.results.Solution, other: jm.results.Solution) -> None:
    """Two answers differ by no more than their certified errors together."""
    (D, errors), (E, more) = held(one), held(other)
    assert np.all(np.abs(D - E) <= errors + more)
    assert np.max(errors + more) < 1e-6 * np.max(D)  # the bounds say something
    off = one.certificate.covariance_error + other.certificate.covariance_error
    assert np.nanmax(np.abs(one.covariance - other.covariance)) <= off


# -- one process -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_one_device_finds_what_the_default_method_finds(sharing: str) -> None:
    model = gridworld(sharing)
    sharded = jm.evaluate(model, "uniform", jm.Sharded())
    assert sharded.status is jm.errors.Status.CONVERGED
    assert sharded.method == "Sharded"
    check_equal(sharded, jm.evaluate(model, "uniform"))
    iterated = jm.evaluate(model, "uniform", jm.Iterate(tolerance=1e-6))
    both = sharded.certificate.covariance_error + iterated.certificate.covariance_error
    assert np.nanmax(np.abs(sharded.covariance - iterated.covariance)) <= both


def test_without_sharing_there_is_nothing_to_shard() -> None:
    model = gridworld("none")
    one, other = jm.evaluate(model, "uniform", jm.Sharded()), jm.evaluate(model, "uniform")
    assert np.array_equal(one.covariance, other.covariance, equal_nan=True)


def test_of_many_states_the_pairs_of_actions_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = jm.evaluate(gridworld("state"), "uniform", jm.Sharded())
    monkeypatch.setattr(column_blocks, "WHOLE_LIMIT", 1)
    kept = jm.evaluate(gridworld("state"), "uniform", jm.Sharded())
    assert isinstance(kept.moments, SameStateMoments)
    assert np.asarray(kept.moments.D).shape == (9, 4, 4)
    np.testing.assert_allclose(kept.covariance, whole.covariance, rtol=1e-12, atol=1e-12)
    for action in (1, 2, 3):
        gap, other = kept.gap(4, 0, action), whole.gap(4, 0, action)
        assert gap.mean == other.mean
        assert gap.variance == pytest.approx(other.variance, rel=1e-12)
        assert gap.variance_error == pytest.approx(other.variance_error, rel=1e-9)
    with pytest.raises(jm.NotKnownError, match="distinct states are not kept"):
        kept.covariance_between(0, 0, 1, 0)
    jm.save(kept, tmp_path / "kept.npz")
    again = jm.load(tmp_path / "kept.npz")
    assert isinstance(again, jm.results.Solution)
    assert again.gap(4, 0, 1) == kept.gap(4, 0, 1)
    assert np.array_equal(again.covariance, kept.covariance)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gridworld("state")
    with pytest.raises(jm.ModelError, match="order 2, not 3"):
        jm.evaluate(model, "uniform", jm.Sharded(), order=3)
    with pytest.raises(jm.ModelError, match="max_sweeps is 0"):
        jm.Sharded(max_sweeps=0)
    monkeypatch.setattr(column_blocks, "PAIR_LIMIT", 40)
    with pytest.raises(jm.ModelError, match="use at least 3 devices"):
        jm.evaluate(model, "uniform", jm.Sharded())


# -- checkpoints ---------------------------------------------------------------------------------------------------


def stopped(folder: Path, sweeps: int) -> jm.results.Solution:
    method = jm.Sharded(max_sweeps=sweeps, checkpoint=folder, checkpoint_seconds=0)
    with pytest.warns(jm.errors.ConvergenceWarning, match="step limit"):
        return jm.evaluate(gridworld("state"), "uniform", method)


def names(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("sweep-*"))


def test_a_run_goes_on_from_its_checkpoint_to_the_last_bit(tmp_path: Path) -> None:
    plain = jm.evaluate(gridworld("state"), "uniform", jm.Sharded())
    assert stopped(tmp_path, 48).steps == 48
    assert names(tmp_path) == [32, 48]  # the last two
    resumed = jm.evaluate(gridworld("state"), "uniform", jm.Sharded(checkpoint=tmp_path))
    assert resumed.steps == plain.steps > 48
    assert held(resumed)[0].tobytes() == held(plain)[0].tobytes()
    done = jm.evaluate(gridworld("state"), "uniform", jm.Sharded(checkpoint=tmp_path))  # nothing is left to do
    assert done.steps == plain.steps
    assert held(done)[0].tobytes() == held(plain)[0].tobytes()


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path: Path) -> None:
    plain = jm.evaluate(gridworld("state"), "uniform", jm.Sharded())
    stopped(tmp_path, 48)
    newest = tmp_path / "sweep-000000048-process-0-of-1.npz"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with pytest.warns(UserWarning, match="checksum does not match"):
        resumed = jm.evaluate(gridworld("state"), "uniform", jm.Sharded(checkpoint=tmp_path))
    assert resumed.steps == plain.steps
    assert held(resumed)[0].tobytes() == held(plain)[0].tobytes()


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    stopped(tmp_path, 16)
    with pytest.raises(jm.ModelError, match="not the same model, simulator or policy"):
        jm.evaluate(gridworld("time"), "uniform", jm.Sharded(checkpoint=tmp_path))
    with pytest.raises(jm.ModelError, match="belongs to a run of 1 processes, and here are 2"):
        ShardFiles(tmp_path, 0, 2).saved()
    ours = ShardFiles(tmp_path, 0, 1)
    ours.run = {"digest": "x", "devices": 3, "processes": 1}
    with pytest.raises(jm.ModelError, match="another run"):
        ours.saved()
    (tmp_path / "file").write_text("")
    with pytest.raises(jm.ModelError, match="cannot be a folder"):
        ShardFiles(tmp_path / "file", 0, 1).saved()


def test_a_sweep_counts_once_every_process_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another process had been killed one checkpoint, or all checkpoints, before this one."""
    plain = jm.evaluate(gridworld("state"), "uniform", jm.Sharded())
    real = column_blocks.gathered

    def beside(saved: list[float]):
        def gathered(mesh, values):
            found = real(mesh, values)
            return np.concatenate([found, [saved]]) if values.shape == (2,) else found

        return gathered

    stopped(tmp_path, 48)
    with monkeypatch.context() as patch:
        patch.setattr(column_blocks, "gathered", beside([16.0, 32.0]))
        begun = stopped(tmp_path, 33)
    assert begun.steps == 33
    assert names(tmp_path) == [32, 33]  # 48 is forgotten
    with monkeypatch.context() as patch:
        patch.setattr(column_blocks, "gathered", beside([-1.0, -1.0]))
        with pytest.warns(UserWarning, match="begun anew"):
            anew = jm.evaluate(gridworld("state"), "uniform", jm.Sharded(checkpoint=tmp_path, checkpoint_seconds=0))
    assert held(anew)[0].tobytes() == held(plain)[0].tobytes()


# -- what is said --------------------------------------------------------------------------------------------------


def test_errors_of_the_transport_become_advice(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(
            jm.errors.LostProcessError, match=r"process 1 of 2 lost .* sweep 3 .* with the same command"
        ) as caught,
        Survivor(1, 2, lambda: "sweep 3 is saved in 'here'"),
    ):
        raise ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    speak()
    assert capfd.readouterr().err == f"Error: {caught.value}\n"
    for other in (jm.ModelError("UNKNOWN: not a transport"), RuntimeError("RESOURCE_EXHAUSTED: memory")):
        with pytest.raises(type(other), match=str(other)), Survivor(1, 2, lambda: ""):
            raise other
    with pytest.raises(ValueError, match="UNKNOWN"), Survivor(0, 1, lambda: ""):
        raise ValueError("UNKNOWN: a run of one process loses nobody")
    assert capfd.readouterr().err == ""


def test_last_words_are_said_by_a_process_that_is_killed() -> None:
    code = (
        "import os; from jointmdp.ground.lost_processes import LastWords\n"
        "words = LastWords('first'); words.tell('second\\nline'); os.abort()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "second line\n"


def test_options_of_processes_need_distributed() -> None:
    result = CliRunner().invoke(main, ["evaluate", *MODEL, "--processes", "2"])
    assert result.exit_code == 1
    assert "--processes is for --distributed" in result.output


# -- several devices and processes -------------------------------------------------------------------------------

SOLVE = """
import sys
import jax, numpy as np, jointmdp as jm
from jointmdp.exact.moments import column_blocks

*joined, path = sys.argv[1:]
if joined:
    jax.distributed.initialize(joined[0], 2, int(joined[1]))
found = {}
for sharing in ("state", "time"):
    model = jm.envs.windy_gridworld(3)[0].with_sharing(sharing)
    found[sharing] = np.asarray(jm.evaluate(model, "uniform", jm.Sharded()).moments.D)
column_blocks.WHOLE_LIMIT = 1
found["kept"] = jm.evaluate(model, "uniform", jm.Sharded()).covariance
np.savez(path, **found)
if joined:
    try:
        jm.evaluate(model.with_discount(0.9 + 0.01 * int(joined[1])), "uniform", jm.Sharded())
    except jm.ModelError as error:
        print(error)
"""


def check_bits(path: Path) -> None:
    """What was solved elsewhere is what one device finds here, to the last bit."""
    there = np.load(path)
    for sharing in ("state", "time"):
        here = jm.evaluate(gridworld(sharing), "uniform", jm.Sharded())
        assert held(here)[0].tobytes() == there[sharing].tobytes()
    np.testing.assert_allclose(there["kept"], here.covariance, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_devices(tmp_path: Path) -> None:
    """Nine states on four devices: three of padding."""
    flags = os.environ.get("XLA_FLAGS", "")  # those of the other tests change bits too
    setting = {**os.environ, "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", SOLVE, str(tmp_path / "four.npz")], check=True, env=setting)
    check_bits(tmp_path / "four.npz")


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    """Two processes, the second of which evaluates another model at last: both refuse that."""
    address, pipe = free_address(), subprocess.PIPE
    commands = [[sys.executable, "-c", SOLVE, address, str(i), str(tmp_path / f"{i}.npz")] for i in range(2)]
    for code, out, words in ended([subprocess.Popen(each, stdout=pipe, stderr=pipe, text=True) for each in commands]):
        assert code == 0, words
        assert "process 1 evaluates another model or policy than process 0" in out
    for i in range(2):
        check_bits(tmp_path / f"{i}.npz")


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def started(count: int, *arguments: str) -> list[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-c",
        "from jointmdp.show.cli import main; main()",
        "evaluate",
        *arguments,
        "--json",
        "--distributed",
    ]
    joined = ["--coordinator", free_address(), "--processes", str(count), "--process"]
    return [
        subprocess.Popen([*command, *joined, str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(count)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    try:
        return [(each.wait(), *outputs) for each in processes if (outputs := each.communicate(timeout=300))]
    finally:
        for each in processes:
            each.kill()


def answer(processes: list[subprocess.Popen[str]]) -> dict:
    """The answer of the first of several processes, after all have ended well."""
    first, *others = ended(processes)
    assert first[0] == 0, first[2]
    assert [(each[0], each[1]) for each in others] == [(0, "")] * len(others)  # one speaks for all
    return json.loads(first[1])


@pytest.mark.slow
def test_a_killed_process_ends_the_others_with_advice_and_the_run_goes_on(tmp_path: Path) -> None:
    """One run, in which first the second process is killed, then the one that all connect to."""
    saving = ("--checkpoint", str(tmp_path), "--checkpoint-seconds", "0")
    reached = 0
    for victim in (1, 0):
        processes = started(2, *MODEL, *saving)
        for _ in range(600):
            if len(names(tmp_path)) >= 4 and min(names(tmp_path)) > reached:
                break
            time.sleep(0.05)
        processes[victim].send_signal(signal.SIGKILL)
        outcomes = ended(processes)
        assert outcomes[victim][0] == -signal.SIGKILL
        code, _, words = outcomes[1 - victim]
        assert code != 0
        assert f"process {1 - victim} of 2" in words
        advice = next(line for line in words.splitlines() if "Error: process" in line)  # JAX's threads may print after
        assert f"is saved in {str(tmp_path)!r}" in advice
        assert "Start all 2 processes again with the same command" in advice
        assert max(names(tmp_path)) > reached  # it went on from where it was
        reached = max(names(tmp_path))
    resumed = answer(started(2, *MODEL, *saving))
    assert max(names(tmp_path)) > reached  # there was something left to do
    plain = json.loads(CliRunner().invoke(main, ["evaluate", *MODEL, "--json"]).stdout)
    whole = jm.evaluate(gridworld("state").with_discount(0.99), "uniform", jm.Sharded())
    assert resumed["states"][0]["actions"][1]["gap"]["std"] == whole.gap(0, 1, 0).std
    for row, other in zip(resumed["states"][0]["actions"], plain["states"][0]["actions"], strict=True):
        assert row["mean"] == pytest.approx(other["mean"], rel=1e-12)
