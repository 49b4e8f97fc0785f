"""Faults beside intact streams (`faults_streams`): found by name, never compared in silence, and no twin is blamed."""

from __future__ import annotations

from typing import Any

import pytest
from faults_streams import FAULTS
from planted import Planted, audited, compared, proof

DAILY = {
    "half words",
    "functools.partial",
    "cached property of a shared model",
    "open for longer",
    "the first day's generator is kept",
}

# Rows that the auditor or `compare` does not see yet. A row that is seen has to leave: xfail is strict here.
AUDIT_MISSES = {
    "inspections eat the repairs",
    "vaccinations eat the epidemic",
    "the last of twelve eats a draw",
    "one replication in ten",
    "slow, and the third is broken",
    "rejected until they fit",
    "lots among equals",
    "one seed of two is shifted",
    "the last of twelve has its own seed",
    "checksum of the plan",
    "stream of the decision",
    "spawned in another order",
    "children of a generator",
    "jumped ahead",
    "seed of the noise and the decision",
    "sixteen winters",
    "hundreds of seeds are one",
    "two sources, one seed",
    "every day is the same day",
    "mirrored for one",
    "each site has its own weather",
    "seeded too late",
    "cache without the decision",
    "patience of those who wait",
    "an intervention with another's dice",
    "streams made when first used",
    "dice behind a map",
    "seeded by the rudder",
    "every start is the same start",
    "an engine with dice",
    "a rare gust from numpy.random",
    "the order eats the demand",
    "one source is seeded with the order",
    "an engine in the state",
    "a start without its key",
    "a key for each action",
    "one of two keys holds the action",
    "a policy with dice",
    "a policy that remembers",
}
COMPARE_MISSES = {
    "inspections eat the repairs",
    "vaccinations eat the epidemic",
    "the last of twelve eats a draw",
    "one replication in ten",
    "slow, and the third is broken",
    "rejected until they fit",
    "order of as many stops as asked",
    "half words",
    "lots among equals",
    "threads that take turns",
    "one seed of two is shifted",
    "the last of twelve has its own seed",
    "checksum of the plan",
    "stream of the decision",
    "spawned in another order",
    "children of a generator",
    "jumped ahead",
    "seed of the noise and the decision",
    "sixteen winters",
    "two sources, one seed",
    "every day is the same day",
    "mirrored for one",
    "each site has its own weather",
    "cache without the decision",
    "cached property of a shared model",
    "choice from a set",
    "chunks",
    "open for longer",
    "one generator in SimPy",
    "patience of those who wait",
    "an intervention with another's dice",
    "streams made when first used",
    "dice behind a map",
    "the rudder eats the wind",
    "seeded by the rudder",
    "an engine with dice",
    "the order eats the demand",
    "one source is seeded with the order",
    "NumPy behind a callback",
    "a key for each action",
    "one of two keys holds the action",
}
TWINS_BLAMED = {"inner environment without a seed"}
TWINS_DOUBTED: set[str] = set()


def by_day(misses: set[str], rows: list[Planted] = FAULTS) -> list[Any]:
    """All rows: few of every day, the others slow."""
    return [
        pytest.param(
            row,
            id=f"{row.family}: {row.name}",
            marks=[pytest.mark.slow] * (row.name not in DAILY) + [pytest.mark.xfail] * (row.name in misses),
        )
        for row in rows
    ]


@pytest.mark.parametrize("row", by_day(AUDIT_MISSES))
def test_the_audit_finds_the_fault_by_name(row: Planted) -> None:
    report = audited(row, True)
    assert set(report.faults) & row.names, str(report)


@pytest.mark.parametrize("row", by_day(TWINS_BLAMED))
def test_the_audit_blames_no_twin(row: Planted) -> None:
    report = audited(row, False)
    assert not report.failures, str(report)


@pytest.mark.parametrize("row", by_day(COMPARE_MISSES, [row for row in FAULTS if not row.harmless]))
def test_a_comparison_is_refused_or_says_what_is_wrong(row: Planted) -> None:
    _, said = compared(row, True)
    assert said


@pytest.mark.parametrize("row", by_day(TWINS_DOUBTED))
def test_a_comparison_of_a_twin_is_not_doubted(row: Planted) -> None:
    _, said = compared(row, False)
    assert not said


@pytest.mark.parametrize("row", by_day(set()))
def test_faults_break_common_random_numbers_and_twins_do_not(row: Planted) -> None:
    """Without the library: see `planted`."""
    assert not proof(row)


def test_every_row_has_a_name_and_a_cause_of_its_own() -> None:
    assert len({(row.family, row.name) for row in FAULTS}) == len({row.cause for row in FAULTS}) == len(FAULTS)
    assert all(row.cause and row.names for row in FAULTS)
