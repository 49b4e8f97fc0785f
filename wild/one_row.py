"""One row in a process of its own: ``python -m wild.one_row "package: name" FILE`` writes what was found to a file."""

import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jointmdp as jm
from wild.configuration import Configuration
from wild.table import CASES

REPLICATIONS = 24  # enough for `compare` to find it odd that none differs from another
SECONDS = 240.0  # for an audit, which takes some seconds for most rows and minutes where states are replayed
SEEN = ("state_kind", "state_reason", "streams")
Found = dict[str, Any]


def main(id: str, file: str, parts: str = "audit,compare") -> None:
    """Make the environment, audit it, compare two or three actions; each result is written when it is there."""
    row = {case.id: case for case in CASES}[id]
    found: Found = {"id": id}
    source: Any = None
    simulator: Any = None

    def opened() -> Any:
        return source if row.decisions is not None else jm.as_simulator(source)

    def asked(part: str, ask: Callable[[], Found]) -> None:
        begun = time.perf_counter()
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            answer = _answer(ask)
        ours = [str(each.message) for each in raised if each.category.__module__.startswith("jointmdp")]
        found[part] = answer | {"warned": ours, "seconds": round(time.perf_counter() - begun, 1)}
        Path(file).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")

    def make() -> Found:
        nonlocal source
        source = row.make()
        return {"verdict": "made"}

    def open_and_audit() -> Found:
        nonlocal simulator
        simulator = opened()
        return _audit(row, simulator)

    asked("make", make)
    if found["make"]["verdict"] == "made":
        asked("audit", open_and_audit)
        if simulator is not None and "compare" in parts:
            asked("compare", lambda: _compare(row, simulator))


def _answer(ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except jm.ModelError as error:
        return {"verdict": "refused", "text": str(error)}
    except Exception as error:
        return {"verdict": "crashed", "text": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def _audit(row: Configuration, simulator: Any) -> Found:
    report = jm.audit(simulator, policy=row.policy, decisions=row.decisions, seconds=SECONDS)
    return {
        "verdict": ("passed", "failed", "ran out of time")[report.exit_status()],
        "failures": [check.fault for check in report.failures],
        "warnings": [check.fault for check in report.warnings],
        "text": str(report),
    } | {name: str(getattr(simulator, name)) for name in SEEN if hasattr(simulator, name)}


def _compare(row: Configuration, simulator: Any) -> Found:
    few: dict[str, Any] = {"max_replications": REPLICATIONS, "pilot": REPLICATIONS}
    if row.decisions is not None:
        found = jm.compare(simulator, decisions=row.decisions, **few)
    else:
        state = simulator.reset(1)
        if simulator.action_names is not None:
            actions = list(simulator.available(state))[:3]
        else:
            actions = [simulator.random_action(np.random.default_rng(i)) for i in range(2)]
        found = jm.compare(simulator, row.policy, state, actions, horizon=row.horizon, **few)
    return {"verdict": "answered", "text": str(found)}


if __name__ == "__main__":
    main(*sys.argv[1:])
