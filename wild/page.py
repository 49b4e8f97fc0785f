"""docs/wild.md, made from the table and the lock: it needs none of the packages."""

import re
from collections.abc import Iterable
from pathlib import Path

from wild.configuration import Configuration

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "wild.md"
LOCK = ROOT / "requirements-wild.lock"

INTRODUCTION = """# In the wild

`make wild` audits {rows} configurations of {packages} packages that nobody here wrote, compares two or three actions in
each, and fails where one crashes or gives another verdict than this page says. It has an environment of its own, from
requirements-wild.lock; what cannot be installed or made on a machine is skipped by name. Some rows alone:
`make wild ROWS="minigrid pgx"`. The verdicts were written by hand after reading the environments' sources; this page is
made from the table in wild/ by `python -m wild --page`.

| verdict | means |
|---|---|
| passed | `jm.audit` finds no fault; it may warn, and must warn of what stands here |
| failed | it must fail, and name what stands here |
| refused | `jm.as_simulator` or `jm.audit` says in one sentence why it cannot |

`jm.compare` answers unless the page says that it must refuse or warn.
"""

WALKS = """
## Two walks

| script | what it does |
|---|---|
| `python -m wild.walk_agents` | an agent on MiniGrid, a driver in highway-env: from where one stands to a checked gap |
| `python -m wild.walk_call_centre` | a SimPy call centre with five staffings: broken, audited, mended, compared |
"""


def page(cases: Iterable[Configuration], lock: str) -> str:
    """The page as it should be."""
    rows = list(cases)
    versions = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    packages = list(dict.fromkeys(row.package for row in rows))
    parts = [INTRODUCTION.format(rows=len(rows), packages=len(packages))]
    for package in packages:
        parts.append(f"\n## {package} {versions[package]}\n\n| configuration | verdict | why |\n|---|---|---|\n")
        parts.extend(f"| {row.name} | {verdict(row)} | {row.reason} |\n" for row in rows if row.package == package)
    return "".join([*parts, WALKS])


def verdict(row: Configuration) -> str:
    """What is expected, in a few words."""
    words = row.verdict + (f": {', '.join(row.says)}" if row.says else "")
    return (
        words + ("" if row.compares else "; `compare` refuses or warns") + (f"; needs {row.needs}" if row.needs else "")
    )
