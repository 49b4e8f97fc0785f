"""All tabular figures of the paper, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from jointmdp.errors import ModelError
from jointmdp.experiments import correlations, diagrams, gap_validation, law_bands, learning_curves, residuals
from jointmdp.experiments.result import SHARINGS, WORDS, FigureResult
from jointmdp.files.atomic_write import write_text


def results(announce: Callable[[str], None] = lambda _: None) -> Iterator[FigureResult]:
    """The experiments one after the other; `announce` hears what comes next."""
    announce("the two models")
    yield diagrams.run()
    announce("residuals of the paper's iteration")
    yield residuals.run()
    announce("correlation matrices")
    yield correlations.run_gridworld("state")
    yield correlations.run_gridworld("time")
    yield correlations.run_chain()
    pairs = {}
    for sharing in SHARINGS:
        announce(f"simulated gaps, {WORDS[sharing]}")
        pairs[sharing] = gap_validation.simulate(sharing)
    yield gap_validation.run(pairs)
    yield gap_validation.run_tightness(pairs)
    announce("higher moments and certified laws of the same gaps")
    yield law_bands.run_tightness(pairs, gap_validation.SIZE)
    announce("laws of two gaps, certified and simulated")
    yield law_bands.run_bands(law_bands.bands())
    announce("learning the same moments from samples")
    yield learning_curves.run()


def reproduce(folder: Path, announce: Callable[[str], None] = lambda _: None) -> list[FigureResult]:
    """Write every figure, its numbers and its text into `folder`, with one page that holds them all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"cannot make the folder {folder}: {error.strerror}") from None
    done = []
    for result in results(announce):
        result.save(folder)
        done.append(result)
    parts = [
        f"## {r.title}\n\n![{r.title}]({r.name}.png)\n\n{r.text}\n\nNumbers: [{r.name}.csv]({r.name}.csv)" for r in done
    ]
    write_text(folder / "README.md", "\n\n".join(["# The paper's tabular experiments", *parts]) + "\n")
    return done
