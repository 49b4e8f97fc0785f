"""`make wild`: every row in a process of its own, a table at the end, and a status of 1 where a person must look."""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from wild.configuration import Configuration
from wild.judging import Judgement, judge
from wild.page import LOCK, PAGE, ROOT, page
from wild.table import CASES

RESULTS = ROOT / "results" / "wild.json"
MARKS = {"as expected": "✓", "unexpected": "✗", "skipped": "-"}
Result = tuple[Judgement, dict[str, Any]]


def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m wild", description=__doc__)
    parser.add_argument("rows", nargs="*", help="packages, or parts of the names of rows; all by default")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rows at a time")
    parser.add_argument("--page", action="store_true", help="only write docs/wild.md from the table")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(page(CASES, LOCK.read_text(encoding="utf-8")), encoding="utf-8")
        return
    rows = [row for row in CASES if not given.rows or any(words in row.id for words in given.rows)]
    sys.exit(run(rows, given.limit, given.jobs))


def run(rows: list[Configuration], limit: float, jobs: int) -> int:
    """All rows, `jobs` at a time; the exit status."""
    results: dict[str, Result] = {}
    begun = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_one, row, limit): row for row in rows}
        for done in as_completed(waiting):
            row = waiting[done]
            results[row.id] = done.result()
            spent = time.monotonic() - begun
            left = spent / len(results) * (len(rows) - len(results))
            print(f"[{len(results)}/{len(rows)}, {left / 60:.0f} min left] {_line(row, results[row.id])}", flush=True)
    _write(rows, results)
    print()
    for row in rows:
        print(_line(row, results[row.id]))
    counts = {word: sum(result[0].word == word for result in results.values()) for word in MARKS}
    print("\n" + ", ".join(f"{count} {word}" for word, count in counts.items()), f"→ {RESULTS.relative_to(ROOT)}")
    return int(any(result[0].is_bad for result in results.values()))


def _one(row: Configuration, limit: float) -> Result:
    """One row in a process of its own, in a folder of its own: some packages write files where they stand."""
    try:
        importlib.metadata.version(row.package)
    except importlib.metadata.PackageNotFoundError:
        return Judgement("skipped", f"{row.package} is not installed"), {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        settings = {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu", "SDL_VIDEODRIVER": "dummy"}
        command = [sys.executable, "-m", "wild.one_row", row.id, str(file)]
        ended = ""
        with (Path(folder) / "printed.txt").open("w+", encoding="utf-8") as printed:
            try:
                done = subprocess.run(
                    command, cwd=folder, env=os.environ | settings, stdout=printed, stderr=printed, timeout=limit
                )
                if done.returncode:
                    printed.seek(0)
                    ended = f" (status {done.returncode}: {' '.join(printed.read().splitlines()[-1:])})"
            except subprocess.TimeoutExpired:
                ended = f" (stopped after {limit:g} s)"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    verdict = judge(row, found)
    return verdict._replace(sentence=verdict.sentence + ended if verdict.is_bad else verdict.sentence), found or {}


def _line(row: Configuration, result: Result) -> str:
    judgement, found = result
    asked = [(part, found[part]) for part in ("audit", "compare") if part in found]
    said = judgement.sentence or "; ".join(f"{part} {got['verdict']} in {got['seconds']:.0f} s" for part, got in asked)
    return f"{MARKS[judgement.word]} {row.id:<62} {said}"


def _write(rows: list[Configuration], results: dict[str, Result]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    table = [
        {"id": row.id, "expected": row.verdict, "reason": row.reason}
        | {"judgement": results[row.id][0].word, "sentence": results[row.id][0].sentence}
        | {"found": results[row.id][1]}
        for row in rows
    ]
    RESULTS.write_text(json.dumps(table, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
