"""The report: its numbers are the solution's, its curves hold the laws, and names are never markup."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jointmdp as jm
from jointmdp.show.cli import main
from jointmdp.show.report import report_page
from jointmdp.show.report.report_page import page

HOSTILE = "</script><img src=x onerror=alert(1)>{{data}}"


def data_of(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data


@pytest.fixture(scope="module")
def solution() -> jm.results.Solution:
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.9, sharing="time")
    return jm.evaluate(model, policy)


@pytest.fixture(scope="module")
def data(solution: jm.results.Solution, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return data_of(solution.report(tmp_path_factory.mktemp("report") / "page.html"))


def near(value: float, truth: float) -> bool:
    """Six digits are kept."""
    return value == pytest.approx(truth, rel=1e-5, abs=1e-12)


def test_moments_are_those_of_the_solution(solution: jm.results.Solution, data: dict[str, Any]) -> None:
    S, A = solution.mean.shape
    pairs = report_page.action_pairs(A)
    for s in range(S):
        for a in range(A):
            given = data["mean"][s * A + a]
            if not solution.model.available[s, a]:
                assert given is None
                continue
            assert near(given, solution.mean[s, a])
            assert near(data["variance"][s * A + a], solution.variance[s, a])
    others = {kind: jm.evaluate(solution.model.with_sharing(kind), solution.policy) for kind in ("time", "state")}
    assert set(data["gaps"]) == set(others)
    for kind, other in others.items():
        for i, (a, b) in enumerate(pairs):
            for s in range(S):
                given = data["gaps"][kind][s * len(pairs) + i]
                if solution.model.available[s, [a, b]].all():
                    assert near(given, other.gap(s, a, b).variance)
                    assert near(data["gapMeans"][s * len(pairs) + i], other.gap(s, a, b).mean)
                else:
                    assert given is None


@pytest.mark.slow
def test_laws_and_parts_are_those_of_the_gaps(solution: jm.results.Solution, data: dict[str, Any]) -> None:
    checked = 0
    for key, law in data["laws"].items():
        s, a, b = map(int, key.split(","))
        gap = solution.gap(s, a, b)
        for name, found in (("better", gap.superiority()), ("tie", gap.tie()), ("worse", gap.inferiority())):
            low, high = law[name]
            assert low <= found.upper
            assert found.lower <= high
        assert law["lowest"][0] <= gap.cvar(0.05).upper
        assert sum(data["parts"][key]["steps"]) == pytest.approx(1, abs=0.02)
        split = dict(data["parts"][key]["states"])
        exact = np.asarray(gap.variance_by_state()) / gap.variance
        assert all(share == pytest.approx(exact[s], abs=1e-3) for s, share in split.items())
        checked += 1
    assert checked == len(report_page.action_pairs(4)) * solution.model.num_states - missing(solution)


def missing(solution: jm.results.Solution) -> int:
    """Pairs of actions that are not both available."""
    both = solution.model.available[:, :, None] & solution.model.available[:, None, :]
    return int((~both).sum() - (~solution.model.available).sum()) // 2


def test_thinned_curves_hold_the_whole_band(solution: jm.results.Solution) -> None:
    law = solution.gap(0, 0, 3).law()
    x, low, high = law.band
    thin = report_page.law_data(law)
    place = np.searchsorted(np.array(thin["x"]), x, side="right") - 1
    inside = place >= 0  # x is rounded to five digits, so the first may lie before
    assert inside.sum() >= len(x) - 1
    off = 1e-4  # values are rounded to four digits
    near_a_step = np.min(np.abs(x[:, None] - np.array(thin["x"])[None]), axis=1) <= 1e-4 * np.abs(x).max()
    kept = inside & ~near_a_step
    assert (np.array(thin["low"])[place[kept]] <= low[kept] + off).all()
    assert (np.array(thin["high"])[place[kept]] >= high[kept] - off).all()


def test_names_are_data_and_never_markup(tmp_path: Path) -> None:
    model = jm.JointMDP(
        [[0.5, 0.5]], [[[1, 0], [0, 2]]], [[[0, 0], [0, 0]]], 0.5, state_names=[HOSTILE], action_names=[HOSTILE, "b"]
    )
    path = jm.evaluate(model, [0]).report(tmp_path / "page.html", title=HOSTILE)
    text = path.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert data_of(path)["states"] == [HOSTILE]
    assert data_of(path)["title"] == HOSTILE


def test_nothing_is_fetched() -> None:
    text = page({"title": "x"})
    assert "http://www.w3.org/2000/svg" in text  # a name, not an address that is opened
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "import(" not in text
    assert "fetch(" not in text


def test_rows_and_columns_are_told_from_x_and_y() -> None:
    """Where names are (row, column), up lowers the first number; nobody says so but the moves."""
    names = [(row, column) for row in range(2) for column in range(3)]
    to = np.zeros((6, 1, 4), dtype=int)
    for s, (r, c) in enumerate(names):
        for a, (dr, dc) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            to[s, 0, a] = names.index((min(max(r + dr, 0), 1), min(max(c + dc, 0), 2)))
    model = jm.JointMDP(
        np.ones((6, 1)), np.zeros((6, 1, 4)), to, 0.9, state_names=names, action_names=["Up", "Right", "Down", "Left"]
    )
    found = report_page._grid(model, [model.state_label(s) for s in range(6)], None)
    assert found == {"columns": 3, "cells": [0, 1, 2, 3, 4, 5]}


def test_grids_are_seen() -> None:
    model, _ = jm.envs.windy_gridworld(3, 0.9)
    names = [model.state_label(s) for s in range(9)]
    found = report_page._grid(model, names, None)
    assert found is not None
    assert found["columns"] == 3
    rows = np.array(found["cells"]).reshape(3, 3)
    assert names[rows[0, 0]] == "(0,2)"  # y grows upwards, as U does
    assert names[rows[2, 2]] == "(2,0)"
    given = report_page._grid(model, names, (1, 9))
    assert given == {"columns": 9, "cells": list(range(9))}
    with pytest.raises(jm.ModelError, match="2×3 has 6 cells, but there are 9 states"):
        report_page._grid(model, names, (2, 3))


def test_without_time_moments_are_shown(solution: jm.results.Solution, tmp_path: Path) -> None:
    found = data_of(solution.report(tmp_path / "page.html", limits=jm.Limits(seconds=1e-9)))
    assert found["laws"] == {}
    assert "time was over" in found["partsNote"] or "all the time that was given" in found["partsNote"]
    assert len(found["mean"]) == len(solution.mean.ravel())


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "lake.html"
    result = CliRunner().invoke(main, ["report", "windy-gridworld:size=2", "-o", str(out), "--grid", "2x2"])
    assert result.exit_code == 0, result.output
    assert data_of(out)["title"] == "windy-gridworld:size=2"
    result = CliRunner().invoke(main, ["report", "windy-gridworld:size=2", "--grid", "two"])
    assert result.exit_code == 1
    assert "write rows and columns, as in 8x8" in result.output
    result = CliRunner().invoke(main, ["report", "windy-gridworld:size=2", "-o", str(tmp_path / "no" / "page.html")])
    assert result.exit_code == 1
    assert "cannot write" in result.output


@pytest.mark.parametrize("minimise", [False, True])
def test_comparisons_have_a_page_too(minimise: bool, tmp_path: Path) -> None:
    def profit(order: int, seed: int) -> float:
        demand = np.random.default_rng(seed).poisson(3)
        return 5.0 * min(order, demand) - 3.0 * order

    found = jm.compare(profit, decisions=[2, 3, 4], max_replications=2000, minimise=minimise, seed=1)
    data = data_of(found.report(tmp_path / "page.html"))
    assert data["actions"] == list(found.labels)
    assert data["own"] == [found.best_index]
    for (i, j), key in zip(report_page.action_pairs(3), data["laws"], strict=True):
        gap, law = found.gap(found.labels[i], found.labels[j]), data["laws"][key]
        assert key == f"0,{i},{j}"
        assert data["gapMeans"][report_page.action_pairs(3).index((i, j))] == pytest.approx(gap.mean, rel=1e-5)
        assert law["better"][0] <= gap.superiority().lower
        assert law["highest"][1] >= -gap.reversed().cvar(0.05).lower - 1e-9
        x = np.array(law["x"])
        last = np.append(np.diff(x) > 0, True)  # a gap within its slack makes two steps that round to one place
        F = np.searchsorted(np.sort(gap.gaps), x[last] + 1e-3, side="right") / len(gap.gaps)
        assert (np.array(law["low"])[last] <= F + 1e-4).all()
        assert (np.array(law["high"])[last] >= F - 1e-4).all()
