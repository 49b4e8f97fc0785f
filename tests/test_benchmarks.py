"""The benchmarks: each needs only what it measures."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import MODULES

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_benchmark_imports_its_own_module_only() -> None:
    code = """
import runpy, sys
for name in ("ale_py", "gymnasium", "ray", "matplotlib"):
    sys.modules[name] = None  # an import of it fails
import benchmarks.gpu_sweep
benchmarks.gpu_sweep.main = lambda: print("measured")
sys.argv = ["benchmarks", "gpu"]
runpy.run_module("benchmarks", run_name="__main__", alter_sys=False)
print(sorted(name for name in sys.modules if name.startswith("benchmarks.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["measured", "['benchmarks.gpu_sweep']"]


def test_every_benchmark_is_there() -> None:
    assert [name for name, module in MODULES.items() if not (ROOT / "benchmarks" / f"{module}.py").is_file()] == []


def test_an_unknown_benchmark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import __main__

    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpus"])
    with pytest.raises(SystemExit, match="unknown benchmark 'gpus'; there are sweep"):
        __main__.main()
