"""One row of the table: a third-party environment, what the auditor must say of it, and a person's reason."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["passed", "failed", "refused"]


@dataclass(frozen=True)
class Configuration:
    """A third-party environment and what is expected of `jm.audit` and `jm.compare` on it."""

    package: str
    """The distribution whose absence skips the row."""
    name: str
    make: Callable[[], Any] = field(repr=False)
    """Imports what it needs and returns what a user hands to `jm.audit`."""
    reason: str
    """Why the verdict is right, written after reading the environment's source."""
    verdict: Verdict = "passed"
    says: tuple[str, ...] = ()
    """What the report or the refusal must name; of a report that passed, warnings."""
    compares: bool = True
    """Whether `jm.compare` is to answer, at most with the warning that noise never mattered; otherwise it refuses or
    warns."""
    needs: str = ""
    """What a machine may lack: the row is skipped where it cannot be made."""
    policy: Any = "uniform"
    decisions: tuple[Any, ...] | None = None
    """For rows that are a function of a decision and noise."""
    horizon: int = 6

    @property
    def id(self) -> str:
        """Package and name."""
        return f"{self.package}: {self.name}"
