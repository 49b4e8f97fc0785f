"""Several results a run: one comparison each, of the same replications, and what is traded for what.

A function ``run(decision, seed)`` may return ``{"profit": …, "wait": …}``. All results come from the same runs, so the
gaps of one can be held against those of another replication by replication: who is better in both, and whether what
is gained in one is lost in the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from jointmdp.decisions.comparing.comparison import (
    Comparison,
    _ends,
    _list,
    _paragraph,
    cost,
    number_in,
    varies,
    verdict,
)
from jointmdp.ground.answers import ResultFace, SavedFace, aligned, upstairs
from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import to_json
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.montecarlo.confidence_intervals import proportion


@dataclass(frozen=True, eq=False)
class TradeoffPair:
    """How one alternative compares with another in two results at once."""

    label: str
    other: str
    both: float
    """Fraction of replications in which it is better in both results."""
    both_interval: Interval
    """Of P(better in both)."""
    neither: float
    """Fraction of replications in which it is worse in both."""
    neither_interval: Interval
    """Of P(worse in both)."""
    correlation: float
    """Of the two gaps, each positive where it is better: below zero, what is gained in one is lost in the other.

    NaN where a gap never varied.
    """
    correlation_interval: Interval
    """Of it, by the central limit theorem."""
    means: tuple[float, float]
    """How much better it is in the two results on average."""
    num_replications: int


@dataclass(frozen=True, eq=False, repr=False)
class Tradeoff(ResultFace):
    """Two results of the same runs against each other; ``print(tradeoff)`` explains it."""

    results: tuple[str, str]
    pairs: tuple[TradeoffPair, ...]
    """One for each pair, the earlier alternative first."""
    not_dominated: tuple[str, ...]
    """The alternatives than which no other is shown to be better in both results."""
    confidence: float

    def table(self) -> list[dict[str, Any]]:
        """One row for each pair."""
        one, other = self.results
        rows = []
        for pair in self.pairs:
            row = {name: value for name, value in vars(pair).items() if name != "means"}
            rows.append({**row, f"mean {one}": pair.means[0], f"mean {other}": pair.means[1]})
        return rows

    def to_json(self) -> str:
        """One strict JSON object; what is not known is null."""
        return to_json({**vars(self), "pairs": self.table()})

    def __repr__(self) -> str:
        one, other = self.results
        better = f"better {one}", f"better {other}"
        rows = [["", "instead of", *better, "P(both better)", "P(both worse)", "correlation"]]
        for pair in self.pairs:
            chances = ((pair.both, pair.both_interval), (pair.neither, pair.neither_interval))
            told = f"{pair.correlation:.2f} {_ends(pair.correlation_interval, 0.01)}"
            rows.append([pair.label, pair.other, *(f"{mean:.4g}" for mean in pair.means)])
            rows[-1] += [f"{chance:.3f} {_ends(interval, 0.01)}" for chance, interval in chances]
            rows[-1].append("" if math.isnan(pair.correlation) else told)
        best = f"No other is shown better in both {one} and {other}: {_list(list(self.not_dominated))}."
        promise = f"The intervals of all pairs hold together with probability {self.confidence:g}, approximately."
        return "\n".join([best, "", *aligned(rows), "", _paragraph(promise)])


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(SavedFace):
    """Alternatives compared in several results of the same runs: ``found["profit"]`` is the comparison of one."""

    names: tuple[str, ...]
    parts: tuple[Comparison, ...] = field(repr=False)
    """One comparison for each name. All intervals of gaps, of all results, hold together."""

    @property
    def results(self) -> dict[str, Comparison]:
        """The comparisons by name."""
        return dict(zip(self.names, self.parts, strict=True))

    def __getitem__(self, name: str) -> Comparison:
        if name not in self.names:
            raise ModelError(f"there is no result {name!r}; a run returned {', '.join(map(repr, self.names))}")
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_replications(self) -> int:
        """Replications in all."""
        return self.parts[0].num_replications

    @property
    def not_dominated(self) -> tuple[str, ...]:
        """The alternatives than which no other is shown to be better in every result."""
        return _not_dominated(self.parts)

    def tradeoff(self, one: str, other: str) -> Tradeoff:
        """Two of the results against each other, pair by pair: who is better in both, and what is traded for what.

        Its intervals, three for each pair, hold together with the confidence of the comparison.
        """
        found = self[one], self[other]
        if one == other:
            raise ModelError(f"{one!r} is held against itself; name two results")
        pairs = list(itertools.combinations(found[0].labels, 2))
        error = 1 - found[0].gaps[0].confidence  # that of the other intervals, of which there are more
        return Tradeoff(
            (one, other),
            tuple(_pair(*pair, found, error) for pair in pairs),
            _not_dominated(found),
            found[0].confidence,
        )

    def resume(
        self,
        replications: int | None = None,
        *,
        max_replications: int = 100_000,
        seconds: float | None = None,
        executor: Any = None,
    ) -> Comparisons:
        """Go on with the same stream of replications: see `Comparison.resume`."""
        settings = {"half_width": None, "indifference": None, "max_replications": max_replications, "seconds": seconds}
        go_on = upstairs("decisions.comparing.compare", "resumed")
        return Comparisons.of(go_on(self.results, replications, executor, **settings))

    @classmethod
    def of(cls, results: dict[str, Comparison]) -> Comparisons:
        """From comparisons by name."""
        return cls(tuple(results), tuple(results.values()))

    def table(self) -> list[dict[str, Any]]:
        """One row for each result and pair."""
        return [{"result": name, **row} for name, part in self.results.items() for row in part.table()]

    def to_json(self) -> str:
        """One strict JSON object with a comparison for each result."""
        import json  # what `Comparison.to_json` wrote is read again

        return to_json(
            {
                "results": {name: json.loads(part.to_json()) for name, part in self.results.items()},
                "not_dominated": self.not_dominated,
            }
        )

    def __repr__(self) -> str:
        first = self.parts[0]
        rows = [["", *self.names]]
        for i, label in enumerate(first.labels):
            each = (part.alternatives[i] for part in self.parts)
            rows.append([label, *(number_in(one.mean, one.mean_interval) for one in each)])
        said = [_paragraph(f"{name}: {verdict(part)}") for name, part in self.results.items()]
        warned = [_paragraph(f"Careful: {text}") for text in first.warnings]
        stay = f"No other is shown better in every result: {_list(list(self.not_dominated))}."
        more = f'More: found["{self.names[0]}"], found.tradeoff("{self.names[0]}", "{self.names[-1]}").'
        text = [*said, *warned, "", *aligned(rows), "", _paragraph(stay), _paragraph(cost(first))]
        return "\n".join([*text, _paragraph(first.guarantee), *([more] if len(self.names) > 1 else [])])


def _not_dominated(parts: tuple[Comparison, ...]) -> tuple[str, ...]:
    labels = parts[0].labels

    def is_beaten(label: str, by: str) -> bool:
        return all(part.gap(by, label).mean_interval.lower > 0 for part in parts)

    return tuple(label for label in labels if not any(is_beaten(label, by) for by in labels if by != label))


def _pair(label: str, other: str, found: tuple[Comparison, Comparison], error: float) -> TradeoffPair:
    one, two = (part.gap(label, other) for part in found)  # each positive where `label` is better
    x, y, off_x, off_y = one.gaps, two.gaps, one.slack, two.slack

    def chance(sign: int) -> tuple[float, Interval]:
        """Of being better in both, or worse in both."""
        sure = (sign * x > off_x) & (sign * y > off_y)
        maybe = (sign * x + off_x > 0) & (sign * y + off_y > 0)
        counts = np.array([np.count_nonzero(sure), np.count_nonzero(maybe)])
        return float(sure.mean()), proportion(counts, len(x), error)

    known: tuple[float, Interval] = math.nan, Interval(-1.0, 1.0)
    if varies(x, off_x) and varies(y, off_y):
        known = _correlation(x, y, error)
    means = float(x.mean()), float(y.mean())
    return TradeoffPair(label, other, *chance(1), *chance(-1), *known, means, len(x))


def _correlation(x: Floats, y: Floats, error: float) -> tuple[float, Interval]:
    """The correlation, and an interval from its influence function on Fisher's scale, which no tails mislead."""
    u, v = ((values - values.mean()) / values.std() for values in (x, y))
    r = float(np.mean(u * v))
    if 1 - r * r < 1e-12:
        return r, Interval(-1.0, r) if r < 0 else Interval(r, 1.0)
    spread = float(np.std(u * v - r * (u * u + v * v) / 2, ddof=1)) / (1 - r * r)
    half = -float(scipy.special.stdtrit(len(x) - 1, error / 2)) * spread / math.sqrt(len(x))
    return r, Interval(math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))
