"""What an audit found: one plain sentence a check, a guess at the cause, and an exit status."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from jointmdp.files.strict_json import to_json

CheckStatus = Literal["pass", "warn", "fail", "skip"]
MARKS: dict[CheckStatus, str] = {"pass": "✓", "warn": "!", "fail": "✗", "skip": "-"}

CLAIMS = {
    "answers": "every query is answered with one outcome an action",
    "untouched": "a query leaves the snapshots untouched",
    "observation": "the observation is not stale after a restore",
    "globals": "no hidden global generator",
    "restore": "restoring gives back the same state",
    "history": "what was run before does not matter",
    "repetition": "the same action asked twice in one query gives the same outcome",
    "order": "the order of the actions does not matter",
    "noise": "the actions consume the noise in step",
    "law": "each coordinate of a query has the law of a plain step",
    "rewards": "rewards lie within their claimed bounds",
    "finite": "rewards and observations are finite",
    "identity": "states that are the same, and only those, have the same identity",
    "over": "a state that is over pays nothing and stays",
}


@dataclass(frozen=True)
class Check:
    """One claim about a simulator and what became of it."""

    name: str
    status: CheckStatus
    message: str
    """What was seen, in a sentence."""
    cause: str = ""
    """A guess at the fault and what to do about it."""
    fault: str = ""
    """The fault by name, where there is one."""

    @property
    def claim(self) -> str:
        """What the check stands for, as a sentence."""
        return CLAIMS[self.name]


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The checks of one simulator; ``print(report)`` is the table, `is_ok` the verdict."""

    simulator: str
    checks: tuple[Check, ...]
    false_alarm: float
    """The most that a healthy simulator fails with; all of it belongs to the check of the law."""
    num_tests: int
    """Statistical tests that share the false-alarm rate."""
    num_states: int
    num_samples: int
    """Samples of each statistical test, from the query and from the plain step."""
    seed: int
    seconds: float

    def __getitem__(self, name: str) -> Check:
        """The check called `name`."""
        return {check.name: check for check in self.checks}[name]

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return self._with("fail")

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The checks that warn."""
        return self._with("warn")

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults found, by name; those of warnings too."""
        return tuple(dict.fromkeys(check.fault for check in self.checks if check.fault))

    @property
    def is_ok(self) -> bool:
        """Whether nothing failed; warnings are not failures."""
        return not self.failures

    def exit_status(self, strict: bool = False) -> int:
        """0 where all is well, 1 where a check failed; with `strict`, or where one warns."""
        return int(not self.is_ok or (strict and bool(self.warnings)))

    def table(self) -> list[dict[str, Any]]:
        """One row per check."""
        return [{**asdict(check), "claim": check.claim} for check in self.checks]

    def to_json(self) -> str:
        """The report as one JSON object."""
        found = {
            "simulator": self.simulator,
            "is_ok": self.is_ok,
            "faults": list(self.faults),
            "false_alarm": self.false_alarm,
            "num_tests": self.num_tests,
            "num_states": self.num_states,
            "num_samples": self.num_samples,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "checks": self.table(),
        }
        return to_json(found)

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        counts = [f"{len(self._with(status))} {word}" for status, word in _WORDS.items() if self._with(status)]
        return f"{self.simulator}: {', '.join(counts)}"

    @property
    def guarantee(self) -> str:
        """What the verdict is worth, in a sentence or two."""
        exact = (
            f"Compared bit for bit in {self.num_states} state{'s' * (self.num_states != 1)} in {self.seconds:.1f} s."
        )
        if not self.num_tests:
            return exact
        return (
            f"{exact} {self.num_tests} statistical tests with {self.num_samples} samples a side; a healthy simulator "
            f"fails one of them with probability at most {self.false_alarm:g}."
        )

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        margin = " " * (width + 5)
        lines = [self.summary, ""]
        for check in self.checks:
            text = [check.message] if check.message else [check.claim]
            if check.fault:
                text[0] = f"{check.fault}: {text[0]}"
            if check.cause:
                text.append(f"→ {check.cause}")
            wrapped = [line for part in text for line in textwrap.wrap(part, 116 - len(margin))]
            lines.append(f"  {MARKS[check.status]} {check.name:<{width}} {wrapped[0]}")
            lines.extend(margin + line for line in wrapped[1:])
        return "\n".join([*lines, "", *textwrap.wrap(self.guarantee, 116)])

    def _with(self, status: CheckStatus) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == status)


_WORDS: dict[CheckStatus, str] = {"fail": "failed", "warn": "with a warning", "pass": "passed", "skip": "not checked"}


def in_order(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks as they are listed, whatever the order they were made in."""
    order = list(CLAIMS)
    return tuple(sorted(checks, key=lambda check: order.index(check.name)))


def skipped(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name, "skip", f"not checked: {reason}")
