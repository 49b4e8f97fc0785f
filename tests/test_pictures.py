"""Pictures are written whole, in the size asked for, and say what is missing when matplotlib is."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.show.plots import diagrams, style


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data.rstrip().endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def words(ax: object) -> str:
    return " ".join(text.get_text() for text in ax.texts)  # type: ignore[attr-defined]


def arrows(ax: object) -> int:
    from matplotlib.patches import FancyArrowPatch

    heads = [p for p in ax.patches if isinstance(p, FancyArrowPatch) and p.get_linewidth() == 0]  # type: ignore[attr-defined]
    return len(heads)


@pytest.mark.parametrize("size", [3, 5])
def test_gridworld(tmp_path: Path, size: int) -> None:
    model, policy = jm.envs.windy_gridworld(size, gust_probability=0.3)
    ax = diagrams.draw_gridworld(model, policy, size)
    path = style.save(ax.figure, tmp_path / "new folder" / "grid.png")
    assert png_size(path) == (580, 620)
    assert path.stat().st_size > 5000
    assert "goal" in words(ax)
    assert "gust with probability 0.3" in words(ax)
    assert arrows(ax) == size * size - 1 + 1  # one for each cell but the goal, and the gust
    ax = diagrams.draw_gridworld(model, jm.envs.uniform_policy(model), size)
    assert arrows(ax) == 4 * (size * size - 1) + 1


def test_chain(tmp_path: Path) -> None:
    model, _ = jm.envs.coupled_reward_chain(4, reward=2.5)
    ax = diagrams.draw_chain(model, "s1")
    assert png_size(style.save(ax.figure, tmp_path / "chain.png")) == (680, 380)
    for text in ("s1", "s2", "a1:  heads +2.5,  tails −2.5", "a2:  heads −2.5,  tails +2.5", "one coin for both"):
        assert text in words(ax)
    assert arrows(ax) == 2


def test_both_in_one_figure(tmp_path: Path) -> None:
    fig, axes = style.figure(columns=2, width=3.0, height=2.5)
    diagrams.draw_gridworld(*jm.envs.windy_gridworld(3), 3, axes[0])
    assert diagrams.draw_chain(jm.envs.coupled_reward_chain()[0], ax=axes[1]) is axes[1]
    assert png_size(style.save(fig, tmp_path / "both.png")) == (1200, 500)


def test_what_cannot_be_drawn() -> None:
    model, policy = jm.envs.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match="needs a windy gridworld of 4×4 cells, not JointMDP"):
        diagrams.draw_gridworld(model, policy, 4)
    chain, _ = jm.envs.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match=r"draw_chain draws two actions.*; s2 differs"):
        diagrams.draw_chain(chain, "s2")
    with pytest.raises(jm.ModelError, match="draw_chain draws two actions"):
        diagrams.draw_chain(model)


def test_the_same_picture_is_the_same_file_and_leaves_no_traces(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    chain, _ = jm.envs.coupled_reward_chain(3)
    one, other = (style.save(diagrams.draw_chain(chain).figure, tmp_path / f"{i}.png") for i in range(2))
    assert one.read_bytes() == other.read_bytes()
    assert dict(matplotlib.rcParams) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "1.png"]


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fig, _ = style.figure()
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")

    def fail(file: object, **options: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    monkeypatch.setattr(fig, "savefig", fail)
    with pytest.raises(jm.ModelError, match=r"cannot write .*figure\.png.*disk full"):
        style.save(fig, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]


def test_curves_are_told_by_more_than_their_colour() -> None:
    assert len(set(style.PALETTE)) == len(style.PALETTE) == len(style.LINES) == len(style.MARKERS)
    assert len({str(line) for line in style.LINES}) == len(set(style.MARKERS)) == len(style.LINES)
    assert style.line(1) == style.line(1 + len(style.PALETTE)) == {"color": "#0072B2", "linestyle": "--", "marker": "s"}
    fig, axes = style.figure(columns=2, rows=3)
    assert axes.shape == (3, 2)
    assert tuple(fig.get_size_inches()) == pytest.approx((2 * style.WIDTH, 3 * style.HEIGHT))


def test_titles_and_legends_drawn_in_the_context_have_our_sizes() -> None:
    with style.context():
        _, ax = style.figure()
        (curve,) = ax.plot([0, 1], label="curve", **style.line(2))
        ax.set_title("title")
        legend = ax.legend()
    assert ax.title.get_fontsize() == style.FONT_SIZE
    assert legend.get_texts()[0].get_fontsize() == style.SMALL
    assert not legend.get_frame_on()
    assert curve.get_markersize() == 4


def test_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, _ = jm.envs.coupled_reward_chain(3)
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (style.figure, style.context, lambda: diagrams.draw_chain(chain)):
        with pytest.raises(ImportError, match=r"pip install 'jointmdp\[plots\]'"):
            draw()


# -- plots of results ----------------------------------------------------------------------------------------------

MODEL, POLICY = jm.envs.windy_gridworld(3)


@cache
def solution() -> jm.results.Solution:
    return jm.evaluate(MODEL, POLICY, order=4)


def gap() -> jm.results.Gap:
    return solution().gap("(0,0)", "R", "L")


@cache
def sample() -> jm.results.GapSample:
    return jm.simulate(MODEL, POLICY, "(0,0)", ["R", "L"], num_samples=50, seed=1, gaps_only=True).gap("R", "L")


TRAINED = SimpleNamespace(
    log=[{"step": i, "mean_double": 2.0**-i, "gap_double": -1.0, "mean_loss": 1.0} for i in (1, 2)]
)
PLOTS: dict[str, tuple[Callable[..., Any], str]] = {
    "correlations": (lambda ax: jm.plots.correlations(solution(), "(0,0)", ax), "correlation of returns in (0,0)"),
    "means": (lambda ax: jm.plots.means(solution(), ax), "mean return; ○ the best action"),
    "gap law": (lambda ax: jm.plots.gap_law(gap(), ax), "x, the gap R − L"),
    "law itself": (lambda ax: jm.plots.gap_law(gap().law(), ax), "x, the gap"),
    "sampled law": (lambda ax: jm.plots.gap_law(sample(), ax), "0.95 band, 50 samples"),
    "ladder": (lambda ax: jm.plots.bound_ladder(gap(), ax=ax), "P(R − L ≤ 0) in (0,0)"),
    "time": (lambda ax: jm.plots.variance_over_time(gap(), ax), "% of the variance"),
    "states": (lambda ax: jm.plots.variance_over_states(gap(), ax), "% of the variance, by state"),
    "returns": (
        lambda ax: jm.plots.returns(SimpleNamespace(actions=("R", "L"), returns=np.ones((20, 2))), ax),
        "x, the return; 20 samples",
    ),
    "two methods": (
        lambda ax: jm.plots.predicted_against_simulated([gap()], [sample()], "std", ax),
        "predicted standard deviation of the gap",
    ),
    "residuals": (
        lambda ax: jm.plots.residuals(jm.evaluate(MODEL, POLICY, jm.Iterate(tolerance=None, max_steps=5)), ax),
        "Bellman residual",
    ),
    "learning": (
        lambda ax: jm.plots.learning_curve(SimpleNamespace(log=[{"updates": 10, "error": 0.1}]), ax),
        "updates of coordinates, all replicas",
    ),
    "training": (lambda ax: jm.plots.training_curves(TRAINED, ax=ax), "squared Bellman residual, by two draws"),
}


def all_words(ax: Any) -> str:
    texts = [ax.get_title(loc) for loc in ("left", "center")] + [ax.get_xlabel(), ax.get_ylabel(), words(ax)]
    return " ".join(texts + [text.get_text() for text in (ax.get_legend().get_texts() if ax.get_legend() else [])])


@pytest.mark.parametrize("name", PLOTS)
def test_plots_draw_where_they_are_told_and_say_what_they_show(name: str) -> None:
    draw, text = PLOTS[name]
    _, axes = style.figure(columns=2)
    assert draw(axes[1]) is axes[1]
    assert text in all_words(axes[1])
    assert not axes[0].has_data()
    alone = draw(None)
    assert text in all_words(alone)
    assert alone.figure is not axes[0].figure


def test_what_plots_show_is_what_results_say() -> None:
    ax = jm.plots.correlations(solution(), "(0,0)")
    assert np.array_equal(ax.images[0].get_array(), solution().correlation[0])
    ax = jm.plots.variance_over_time(gap())
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == pytest.approx((100 * np.asarray(gap().variance_by_step()) / gap().variance)[: len(heights)])
    ax = jm.plots.predicted_against_simulated([gap(), gap()], [sample(), sample()], "mean")
    assert ax.lines[1].get_xydata() == pytest.approx(np.array([[gap().mean, sample().mean]] * 2))
    ax = jm.plots.bound_ladder(gap())
    found = [list(line.get_xdata()) for line in ax.lines[::2]]
    asked = [gap().moment_bounds(order=k).cdf(0.0) for k in (2, 4)] + [gap().law().cdf(0.0)]
    assert found == [[each.lower, each.upper] for each in asked]


def test_grids_of_correlations() -> None:
    axes = jm.plots.correlation_grid(solution(), range(5), columns=3)
    assert axes.shape == (2, 3)
    assert [ax.get_title() for ax in axes.ravel()[:5]] == [MODEL.state_label(s) for s in range(5)]
    assert not axes[1, 2].axison
    _, given = style.figure(columns=2)
    assert jm.plots.correlation_grid(solution(), [0, 1], axes=given) is given
    with pytest.raises(jm.ModelError, match="2 axes for 3 states"):
        jm.plots.correlation_grid(solution(), [0, 1, 2], axes=given)
    with pytest.raises(jm.ModelError, match="at least one state"):
        jm.plots.correlation_grid(solution(), [])


def test_plots_of_what_is_not_there() -> None:
    learned = jm.learn(*jm.envs.coupled_reward_chain(3, discount=0.5), steps=10).gap("s0", "a1", "a2")
    for draw, message in {
        lambda: jm.plots.gap_law(learned): "LearnedGap knows no distribution",
        lambda: jm.plots.bound_ladder(sample()): "GapSample holds no moments",
        lambda: jm.plots.residuals(solution()): "no residuals were kept",
        lambda: jm.plots.learning_curve(SimpleNamespace(log=[])): "no error was reported",
        lambda: jm.plots.training_curves(SimpleNamespace(log=[])): "nothing was logged",
        lambda: jm.plots.training_curves(TRAINED, "cubed"): "choose from squared, signed, double",
        lambda: jm.plots.predicted_against_simulated([gap()], []): "as many gaps twice",
        lambda: jm.plots.correlation_matrix(np.eye(3), ["a", "b"]): "there are 2 labels",
    }.items():
        with pytest.raises(jm.ModelError, match=message):
            draw()


def test_the_gallery_shows_every_plot() -> None:
    page = (Path(__file__).parent.parent / "docs" / "gallery.md").read_text(encoding="utf-8")
    left_out = {"save", "correlation_matrix"}  # the first draws nothing, the second is what correlations draws
    assert [name for name in jm.plots.__all__ if name not in left_out and f"jm.plots.{name}(" not in page] == []
