"""What is published: a wheel and a source archive that hold all they should, and work where nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import jointmdp as jm

pytestmark = [pytest.mark.slow, pytest.mark.optimised]
ROOT = Path(__file__).parent.parent
PYTHONS = (
    "3.13",
    *(pytest.param(each, marks=pytest.mark.long) for each in ("3.11", "3.12")),
)  # all other tests run on the oldest


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def interpreter(version: str) -> str | None:
    """A Python of this version: this one, one by its name, or one of pyenv."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:  # a shim may lead nowhere
        return found
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
        return next((str(path) for path in sorted(Path(root).glob(f"versions/{version}.*/bin/python"))), None)
    return None


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = message_from_bytes(archive.read(metadata))
    assert {name.partition("/")[0] for name in names} == {"jointmdp", metadata.partition("/")[0]}
    source = ROOT / "src"
    files = [path for path in (source / "jointmdp").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(source)) for path in files} == {n for n in names if n.startswith("jointmdp/")}
    assert f"jointmdp-{jm.__version__}.dist-info/licenses/LICENSE" in names
    assert (told["Version"], told["License-Expression"]) == (jm.__version__, "MIT")
    assert told["Description-Content-Type"] == "text/markdown"
    assert jm.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert jm.__version__ in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_source_archive_holds_what_builds_and_tests_it(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    needed = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "src/jointmdp/py.typed",
        "tests/test_package.py",
    )
    assert [name for name in needed if name not in names] == []
    assert not [name for name in names if name.startswith((".venv", "results", "build", "dist"))]


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "environment"
    subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
    own, only = str(place / "bin" / "python"), ["--only-binary", ":all:", str(wheel)]
    quick = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--python", own, *only]
    if subprocess.run(quick, cwd=tmp_path, capture_output=True).returncode != 0:  # pip knows places that uv does not
        subprocess.run([own, "-m", "ensurepip"], check=True, capture_output=True)
        plain = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *only]
        subprocess.run(plain, check=True, cwd=tmp_path)
    asked = ["evaluate", "shared-successors", "--law", "--json"]
    found = subprocess.run([str(place / "bin" / "jointmdp"), *asked], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["model"] == "shared-successors"
    page = subprocess.run([str(place / "bin" / "jointmdp"), "report", "shared-successors"], cwd=tmp_path)
    assert page.returncode == 0
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    refused = subprocess.run(
        [str(place / "bin" / "jointmdp"), "audit", "gymnasium:CartPole-v1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert refused.returncode == 2
    assert "pip install 'jointmdp[gymnasium]'" in refused.stderr  # an extra that is missing is named
    apart = subprocess.run([str(place / "bin" / "jointmdp"), "reproduce"], capture_output=True, text=True, cwd=tmp_path)
    assert apart.returncode == 1
    assert "pip install 'jointmdp[experiments]'" in apart.stderr


def test_the_experiments_are_a_package_beside_the_library(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "experiments", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("jointmdp_experiments-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = message_from_bytes(archive.read(metadata))
    assert "jointmdp_experiments/commands.py" in names
    assert {name.partition("/")[0] for name in names} == {"jointmdp_experiments", metadata.partition("/")[0]}
    assert told["Version"] == jm.__version__
    assert told["Requires-Dist"].startswith("jointmdp[")
