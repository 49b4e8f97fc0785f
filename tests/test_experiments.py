"""The paper's experiments: what the figures claim, and that every file is written."""

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from jointmdp_experiments import correlations, gap_validation, learning_curves, residuals, tabular_figures
from jointmdp_experiments.result import FigureResult
from scipy import stats
from zoo import SHARINGS, slow_or_long

from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.show.cli import main

pytestmark = pytest.mark.optimised


@pytest.mark.slow
@pytest.mark.parametrize("size", slow_or_long([4, gap_validation.SIZE], 1))
def test_everything_is_reproduced_and_is_as_the_paper_says(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run of the command for all that can be read from it: it takes minutes."""
    pairs: dict[Sharing, list[gap_validation.Pair]] = {}
    kept: list[FigureResult] = []
    simulate, run = gap_validation.simulated_pairs, residuals.run

    def simulated(sharing: Sharing) -> list[gap_validation.Pair]:
        pairs[sharing] = simulate(sharing, 2_048, size)  # what is simulated at once; 2,500 would take twice as long
        return pairs[sharing]

    def found() -> FigureResult:
        kept.append(run())
        return kept[0]

    beyond = gap_validation.run_tightness_beyond
    monkeypatch.setattr(gap_validation, "run_tightness_beyond", lambda found: beyond(found, size))
    monkeypatch.setattr(gap_validation, "simulated_pairs", simulated)
    monkeypatch.setattr(residuals, "run", found)
    learned = learning_curves.run
    monkeypatch.setattr(learning_curves, "run", lambda: learned(3_000 if size < gap_validation.SIZE else 30_000))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["reproduce", "tabular"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "tabular"
    names = {path.stem for path in folder.glob("*.png")}
    assert len(names) == 10
    for name in names:
        assert (folder / f"{name}.csv").stat().st_size > 0
        assert f"{name}.png" in (folder / "README.md").read_text(encoding="utf-8")
    assert "noise not shared" in (folder / "README.md").read_text(encoding="utf-8")
    for sharing in SHARINGS:
        check_calibrated(pairs[sharing])
        for pair in pairs[sharing]:  # Cantelli's bound, and five standard errors of a frequency
            frequency = np.mean(pair.sample.gaps <= 0)
            assert frequency <= pair.gap.inferiority_bound + 5 * np.sqrt(0.25 / len(pair.sample.gaps))
    check_residuals(kept[0])


def check_calibrated(pairs: list[gap_validation.Pair]) -> None:
    """z-scores over all states and alternatives look standard normal.

    Each pair has a seed of its own. Kolmogorov–Smirnov of the means at 1e-4; of the variances, whose standard error is
    estimated from a skewed sample, mean within 4 standard errors and spread within 0.58..1.45 (chi-square: below 1e-4).
    """
    pairs = [pair for pair in pairs if pair.is_random]
    means = np.array([pair.mean_score for pair in pairs])
    variances = np.array([pair.variance_score for pair in pairs])
    assert len(pairs) >= 39
    assert stats.kstest(means, "norm").pvalue > 1e-4
    assert abs(variances.mean()) <= 4 / np.sqrt(len(pairs))
    assert 0.58 <= variances.std() <= 1.45
    # The test could fail: means that are off by a standard error are rejected.
    assert stats.kstest(means + 1.0, "norm").pvalue < 1e-4


def check_residuals(result: FigureResult) -> None:
    """They fall as the theorem says."""
    grid = np.array([r["residual"] for r in result.rows if r["model"] == residuals.GRID and r["sharing"] == "state"])
    assert len(grid) == residuals.STEPS + 1
    assert np.all(grid[1:] <= 0.99 * grid[:-1] * (1 + 1e-12))
    chain = [r["residual"] for r in result.rows if r["model"] == residuals.CHAIN and r["sharing"] == "state"]
    assert chain[30] == 0
    assert "0.9900" in result.text
    assert "raw moments reach 10,000" in result.text  # rounding, not patience, ends the raw iteration short of 1e-8


@pytest.mark.slow
def test_gaps_without_noise_agree_exactly() -> None:
    for pair in gap_validation.simulated_pairs("time", num_samples=20, size=3):
        if not pair.is_random:
            assert np.allclose(pair.sample.gaps, pair.gap.mean, atol=pair.gap.mean_error + 1e-12)


def test_chain_correlations() -> None:
    result = correlations.run_chain()
    found = {(r["policy"], r["sharing"]): r["correlation"] for r in result.rows if r["action"] != r["other"]}
    assert found["uniform", "state"] == pytest.approx(0.796, abs=5e-4)
    assert found["one action", "state"] == pytest.approx(0.896, abs=5e-4)
    assert found["uniform", "none"] == 0
    assert "+0.796" in result.text


def test_diagrams(tmp_path) -> None:
    result = tabular_figures.run_diagrams()
    assert {row["policy"] for row in result.rows} == {"R", "U"}
    result.save(tmp_path)
    assert (tmp_path / "models.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_files_are_written(tmp_path) -> None:
    result = correlations.run_gridworld("state")
    result.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"wgw-correlation.{end}" for end in ("png", "csv", "md")}
    assert (tmp_path / "wgw-correlation.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "wgw-correlation.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 9 * 16


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot make the folder"):
        tabular_figures.reproduce(tmp_path / "file" / "below")


@pytest.mark.slow
def test_reproduce_writes_one_page(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(announce):  # the real list takes a minute; its members are tested above
        announce("chain")
        yield correlations.run_chain()

    monkeypatch.setattr(tabular_figures, "results", some)
    heard: list[str] = []
    done = tabular_figures.reproduce(tmp_path / "out", heard.append)
    assert heard == ["chain"]
    assert isinstance(done[0], FigureResult)
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "crc-correlation.png" in page
    assert "+0.796" in page
