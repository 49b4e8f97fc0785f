"""Whether what a row gave is what a person expects of it."""

from typing import Any, NamedTuple

from wild.configuration import Configuration


class Judgement(NamedTuple):
    """One word for the table, and a sentence where something is wrong."""

    word: str  # "as expected", "unexpected" or "skipped"
    sentence: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether a person must look."""
        return self.word == "unexpected"


def judge(row: Configuration, found: dict[str, Any] | None) -> Judgement:
    """Compare `found`, the file of `one_row` (None where there is none), with the row."""
    if found is None:
        return Judgement("unexpected", "the process ended without a result")
    if found["make"]["verdict"] != "made":
        text = found["make"]["text"]
        return (
            Judgement("skipped", f"needs {row.needs}: {text}")
            if row.needs
            else Judgement("unexpected", f"make: {text}")
        )
    wrong = [*_wrong_audit(row, found.get("audit"))]
    if not wrong and row.verdict != "refused":
        wrong = [*_wrong_comparison(row, found.get("compare"))]
    return Judgement("unexpected", "; ".join(wrong)) if wrong else Judgement("as expected")


def _wrong_audit(row: Configuration, audit: dict[str, Any] | None) -> list[str]:
    if audit is None:
        return ["the audit did not end in time"]
    got, text = audit["verdict"], audit["text"]
    if got != row.verdict:
        why = ", ".join(audit.get("failures", ())) or text.splitlines()[0]
        return [f"the audit {got} ({why}), it should have {row.verdict}"]
    missing = [words for words in row.says if words.lower() not in text.lower()]
    return [f"the audit {got} without naming {', '.join(missing)}"] if missing else []


def _wrong_comparison(row: Configuration, comparison: dict[str, Any] | None) -> list[str]:
    if comparison is None:
        return ["compare did not end in time"]
    got, warned = comparison["verdict"], comparison["warned"]
    if got == "crashed" or (got == "refused" and row.compares):
        return [f"compare {got}: {comparison['text']}"]
    # Rewards that are rare are all the same in a few short replications, and then it says so.
    others = [text for text in warned if "never mattered" not in text]
    if row.compares and others:
        return [f"compare warned: {others[0]}"]
    if not row.compares and not warned and got == "answered":
        return ["compare answered without a warning"]
    return []
