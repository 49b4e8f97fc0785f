"""Pictures are written whole, in the size asked for, and say what is missing when matplotlib is."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

import jointmdp as jm
from jointmdp.report import pictures, style


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
    model, policy = jm.windy_gridworld(size, gust_probability=0.3)
    ax = pictures.draw_gridworld(model, policy, size)
    path = style.save(ax.figure, tmp_path / "new folder" / "grid.png")
    assert png_size(path) == (580, 620)
    assert path.stat().st_size > 5000
    assert "goal" in words(ax)
    assert "gust with probability 0.3" in words(ax)
    assert arrows(ax) == size * size - 1 + 1  # one for each cell but the goal, and the gust
    ax = pictures.draw_gridworld(model, jm.uniform_policy(model), size)
    assert arrows(ax) == 4 * (size * size - 1) + 1


def test_chain(tmp_path: Path) -> None:
    model, _ = jm.coupled_reward_chain(4, reward=2.5)
    ax = pictures.draw_chain(model, "s1")
    assert png_size(style.save(ax.figure, tmp_path / "chain.png")) == (680, 380)
    for text in ("s1", "s2", "a1:  heads +2.5,  tails −2.5", "a2:  heads −2.5,  tails +2.5", "one coin for both"):
        assert text in words(ax)
    assert arrows(ax) == 2


def test_both_in_one_figure(tmp_path: Path) -> None:
    fig, axes = style.figure(columns=2, width=3.0, height=2.5)
    pictures.draw_gridworld(*jm.windy_gridworld(3), 3, axes[0])
    assert pictures.draw_chain(jm.coupled_reward_chain()[0], ax=axes[1]) is axes[1]
    assert png_size(style.save(fig, tmp_path / "both.png")) == (1200, 500)


def test_what_cannot_be_drawn() -> None:
    model, policy = jm.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match="needs a windy gridworld of 4×4 cells, not JointMDP"):
        pictures.draw_gridworld(model, policy, 4)
    chain, _ = jm.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match=r"draw_chain draws two actions.*; s2 differs"):
        pictures.draw_chain(chain, "s2")
    with pytest.raises(jm.ModelError, match="draw_chain draws two actions"):
        pictures.draw_chain(model)


def test_the_same_picture_is_the_same_file_and_leaves_no_traces(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    chain, _ = jm.coupled_reward_chain(3)
    one, other = (style.save(pictures.draw_chain(chain).figure, tmp_path / f"{i}.png") for i in range(2))
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
    chain, _ = jm.coupled_reward_chain(3)
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (style.figure, style.context, lambda: pictures.draw_chain(chain)):
        with pytest.raises(ImportError, match=r"pip install 'jointmdp\[plots\]'"):
            draw()
