"""The table of third-party environments agrees with its page and its lock, and judges what it is given; no package of
it is needed here."""

import re
from typing import Any

import pytest

from wild.__main__ import run
from wild.configuration import Configuration
from wild.judging import judge
from wild.page import LOCK, PAGE, page
from wild.table import CASES


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(CASES, LOCK.read_text(encoding="utf-8")), "python -m wild --page"


def test_the_table_is_wide_and_every_verdict_has_a_reason() -> None:
    assert len(CASES) >= 40
    assert len({row.package for row in CASES}) >= 15
    assert len({row.id for row in CASES}) == len(CASES)
    assert [row.id for row in CASES if not row.reason.endswith(".") or len(row.reason) < 20] == []
    assert [row.id for row in CASES if row.verdict != "passed" and not row.says] == []


def test_the_lock_holds_every_package_and_names_no_index() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert {row.package for row in CASES} <= locked
    assert not re.search(r"https?://|file:|index|find-links", re.sub(r"#.*", "", lock))


ROW = Configuration("nowhere", "row", lambda: None, "Nothing is drawn in a step.")
FAULTY = Configuration("nowhere", "faulty", lambda: None, "It draws.", "failed", ("global random",), compares=False)
REFUSED = Configuration("nowhere", "refused", lambda: None, "No single reward.", "refused", ("vector",))
DISPLAY = Configuration("nowhere", "display", lambda: None, "Nothing is drawn in a step.", needs="a display")


def found(audit: str, text: str = "", compare: str | None = "answered", warned: tuple[str, ...] = ()) -> dict[str, Any]:
    parts: dict[str, Any] = {"make": {"verdict": "made"}, "audit": {"verdict": audit, "text": text or audit}}
    return parts if compare is None else parts | {"compare": {"verdict": compare, "text": compare, "warned": warned}}


@pytest.mark.parametrize(
    ("row", "result", "word", "said"),
    [
        (ROW, found("passed"), "as expected", ""),
        (ROW, found("failed", "hidden state"), "unexpected", "it should have passed"),
        (ROW, found("crashed", "TypeError: x"), "unexpected", "TypeError"),
        (ROW, found("passed", compare="crashed"), "unexpected", "compare crashed"),
        (ROW, found("passed", compare="refused"), "unexpected", "compare refused"),
        (ROW, found("passed", warned=("Noise never mattered: all gave the same",)), "as expected", ""),
        (ROW, found("passed", warned=("a step draws from random",)), "unexpected", "draws from random"),
        (ROW, found("passed", compare=None), "unexpected", "in time"),
        (ROW, {"make": {"verdict": "made"}}, "unexpected", "in time"),
        (ROW, None, "unexpected", "without a result"),
        (ROW, {"make": {"verdict": "crashed", "text": "ImportError: x"}}, "unexpected", "ImportError"),
        (DISPLAY, {"make": {"verdict": "crashed", "text": "no screen"}}, "skipped", "a display: no screen"),
        (FAULTY, found("failed", "Global random: a step draws", "refused"), "as expected", ""),
        (FAULTY, found("failed", "global random", warned=("it draws",)), "as expected", ""),
        (FAULTY, found("failed", "hidden state", "refused"), "unexpected", "without naming global random"),
        (FAULTY, found("failed", "global random"), "unexpected", "without a warning"),
        (FAULTY, found("passed"), "unexpected", "it should have failed"),
        (REFUSED, found("refused", "the reward is a vector", None), "as expected", ""),
        (REFUSED, found("refused", "cannot", None), "unexpected", "without naming vector"),
    ],
)
def test_what_is_found_is_judged(row: Configuration, result: Any, word: str, said: str) -> None:
    judgement = judge(row, result)
    assert judgement.word == word
    assert said in judgement.sentence


def test_a_package_that_is_not_there_is_skipped_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("wild.__main__.ROOT", tmp_path)
    monkeypatch.setattr("wild.__main__.RESULTS", tmp_path / "results" / "wild.json")
    assert run([ROW], limit=10.0, jobs=1) == 0
    assert "nowhere is not installed" in capsys.readouterr().out
