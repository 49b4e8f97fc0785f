"""Install a lock into another environment: as a whole or, where that fails, package by package."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TORCH = "torch==2.13.0+cpu"  # builds for CPUs have this label; those without it bring several GB


def main(python: str, lock: str) -> None:
    """What cannot be had is named on standard output and left out."""
    left_out = [] if _installed(python, lock) else _one_by_one(python, Path(lock).read_text(encoding="utf-8"))
    if not _with_pip(python, TORCH):
        left_out.append("torch")
    if left_out:
        print(f"Left out, since they could not be installed: {', '.join(left_out)}")


def _one_by_one(python: str, lock: str) -> list[str]:
    left_out = []
    for block in re.findall(r"^[A-Za-z0-9._-]+==.*(?:\n    .*)*", lock, re.MULTILINE):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(block)
            file.flush()
            if not _installed(python, file.name):
                left_out.append(block.partition("==")[0])
    return left_out


def _installed(python: str, lock: str) -> bool:
    """By uv, since pip takes ten times as long; without dependencies, all of which the lock has."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--no-deps", "--require-hashes"]
    return subprocess.run([*command, "--python", python, "-r", lock], capture_output=True).returncode == 0


def _with_pip(python: str, what: str) -> bool:
    """By pip, which knows the places for packages that a user has set up."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", what]
    return subprocess.run(command, capture_output=True).returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
