"""The report: one self-contained HTML file with styles, script and the numbers that it shows.

Of a solution it has the moments of all states, and the laws of as many gaps as time allows. Numbers have few digits and
curves few points, on the safe side where they bound something.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.law.gap_law import GapLaw, Laws
from jointmdp.exact.law.pair_graph import GapQuery
from jointmdp.exact.moments.default_solver import solve, solve_horizon
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.stored_moments import GapEstimate, PairMoments, SameStateMoments, StateMoments
from jointmdp.exact.solution.gap import Gap
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.answers import words
from jointmdp.ground.arrays import Floats, float64
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.files import FilePath, __version__, strict, write_text
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import Limits, TimeLimit
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP

ASSETS = "assets"


def write_page(data: dict[str, Any], path: FilePath) -> Path:
    """Write the report; a reader finds the old file or the new one, never a part."""
    write_text(path, page(data))
    return Path(path)


def page(data: dict[str, Any]) -> str:
    """The report as text. Names from models are data, never markup."""
    numbers = json.dumps(strict(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(str(data["title"])),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "data": numbers.replace("<", "\\u003c"),  # no name can end the script
    }
    # In one pass: what is put in may itself hold such a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("jointmdp.show.report").joinpath(ASSETS, name).read_text(encoding="utf-8")


DIGITS = 6  # of moments; curves have fewer
CURVE = 64  # points of a law, about


def short(value: float, digits: int = DIGITS) -> float:
    """A number to so many digits."""
    return float(f"{value:.{digits}g}")


def shorts(values: Floats, digits: int = DIGITS) -> list[float]:
    """Numbers one after the other, to so many digits."""
    return [short(value, digits) for value in np.asarray(values).ravel().tolist()]


def ends(interval: Interval) -> list[float]:
    """Both ends of an interval, rounded outwards but never over 0."""
    found = []
    for end, sign in ((interval.lower, -1), (interval.upper, 1)):
        unit = 10.0 ** (np.floor(np.log10(abs(end))) - DIGITS + 1) if end and np.isfinite(end) else 0.0
        moved = end + sign * unit
        found.append(short(moved if moved * end > 0 else end))
    return found


def thinned(x: Floats, low: Floats, high: Floats) -> dict[str, Any]:
    """The band of a law, ``low ≤ F ≤ high`` from each x to the next, at fewer points between the same or wider curves.

    Kept are points where the curves have moved by a step of 1/CURVE, and both ends.
    """
    levels = np.floor((low + high) / 2 * CURVE)
    moved = np.flatnonzero(np.diff(levels, prepend=-1.0))
    keep = np.unique(np.concatenate([[0], moved, [len(x) - 1]]))
    last = np.append(keep[1:], len(x)) - 1  # the highest up to the next point that is kept
    return {"x": shorts(x[keep], 5), "low": shorts(low[keep], 4), "high": shorts(high[last], 4)}


TOLERANCE = 0.01  # of the probabilities of signs
FIRST = 4  # gaps whose laws are computed together at first; then twice as many, while time allows
MOST = 1_000  # gaps with a law on one page
FEW_ACTIONS = 5  # up to which every two are compared; beyond, each with the policy's
SHOWN_STEPS, SHOWN_STATES = 16, 12  # parts of a variance
ARROWS = {"up": "↑", "down": "↓", "left": "←", "right": "→", "u": "↑", "d": "↓", "l": "←", "r": "→"}

Grid = tuple[int, int]  # rows, columns


class Reported(NamedTuple):
    """What is reported of a solution."""

    model: JointMDP
    policy: Floats  # [S, A]
    mean: Floats  # [S, A], NaN where an action is not available
    variance: Floats  # [S, A]
    gap_means: Floats  # [S, pairs of actions]
    gaps: Mapping[str, Floats]
    """Variances of gaps by sharing, ``[S, pairs of actions]``, for all kinds that are known."""
    laws: Laws
    mean_error: float
    horizon: int | None
    foot: Sequence[tuple[str, str]]
    minimise: bool = False
    """Whether returns are costs: gaps are then how much less an action costs."""


def report_data(reported: Reported, title: str, limits: Limits, grid: Grid | None) -> dict[str, Any]:
    """Everything on the page."""
    model = reported.model
    names = [model.state_label(s) for s in range(model.num_states)]
    baseline, rival = _compared(reported)
    laws, parts, note = _computed(reported, _queries(reported, baseline, rival), limits)
    over = "an endless future" if reported.horizon is None else f"the first {reported.horizon} steps"
    shared = {"time": "shared at the same time", "state": "shared in the same state", "none": "not shared"}
    return {
        "title": title,
        "summary": f"{model.num_states:,} states, {model.num_actions} actions; noise {shared[model.sharing]}; discount "
        f"{model.discount:g}, {over}. Pick a state and two actions: what is the difference of their "
        + ("costs like? Lower is better." if reported.minimise else "returns like?"),
        "states": names,
        "actions": [model.action_label(a) for a in range(model.num_actions)],
        "arrows": [ARROWS.get(model.action_label(a).lower(), "") for a in range(model.num_actions)],
        "sharing": model.sharing,
        "own": baseline.tolist(),
        "ownTitle": "policy",
        "direction": words(reported.minimise).direction,
        "isCost": reported.minimise,
        "policy": [[(a, short(row[a])) for a in np.flatnonzero(row).tolist()] for row in reported.policy],
        "mean": shorts(reported.mean),
        "variance": shorts(reported.variance),
        "gapMeans": shorts(reported.gap_means),
        "gaps": {kind: shorts(values) for kind, values in reported.gaps.items()},
        "meanError": reported.mean_error,
        "start": _start(reported, baseline, rival),
        "laws": laws,
        "parts": parts,
        "partsNote": note,
        "wrongNote": "The policy's most likely action in each state beside the best other one by its mean. P(better): "
        "certified where the law was computed, else what mean and variance guarantee.",
        "grid": _grid(model, names, grid),
        "foot": [*reported.foot, ("Laws", note)],
    }


def action_pairs(count: int) -> list[tuple[int, int]]:
    """Every two actions, in the order in which the page holds them."""
    return list(combinations(range(count), 2))


# -- which gaps ----------------------------------------------------------------------------------------------------


def _compared(reported: Reported) -> tuple[Any, Any]:
    """The policy's most likely action of each state, and the best other one by its mean (or itself)."""
    baseline = np.argmax(np.where(np.isnan(reported.mean), -1.0, reported.policy), axis=1)
    value = -reported.mean if reported.minimise else reported.mean
    others = np.where(np.isnan(value), -np.inf, value)
    here = np.arange(len(baseline))
    others[here, baseline] = -np.inf
    rival = np.where(np.isfinite(others).any(axis=1), np.argmax(others, axis=1), baseline)
    return baseline, rival


def _gain(reported: Reported, baseline: Any, rival: Any) -> Floats:
    here = np.arange(len(baseline))
    better, worse = checks.subtracted(reported.mean[here, rival], reported.mean[here, baseline], reported.minimise)
    return np.asarray(better - worse)


def _start(reported: Reported, baseline: Any, rival: Any) -> int:
    """The state that is shown first: where another action gives most, or comes nearest, and something is random."""
    here = np.arange(len(baseline))
    is_random = np.nan_to_num(reported.variance[here, rival] + reported.variance[here, baseline]) > 0
    gain = _gain(reported, baseline, rival)
    return int(np.argmax(np.where(is_random & (rival != baseline), gain, gain.min() - 1)))


def _queries(reported: Reported, baseline: Any, rival: Any) -> list[GapQuery]:
    """The gaps whose laws are wanted, the most interesting first: where another action gives more, or nearly so."""
    model = reported.model
    found: list[list[GapQuery]] = [[], [], []]
    for s in np.argsort(-_gain(reported, baseline, rival), kind="stable").tolist():
        own, other = int(baseline[s]), int(rival[s])
        actions = np.flatnonzero(model.available[s]).tolist()
        for a, b in combinations(actions, 2):
            rank = 0 if {a, b} == {own, other} else 1 if own in (a, b) else 2
            if rank < 2 or model.num_actions <= FEW_ACTIONS:
                found[rank].append((s, a, b))
    return [query for some in found for query in some][:MOST]


def _computed(reported: Reported, queries: list[GapQuery], limits: Limits) -> tuple[Any, Any, str]:
    """Laws and split variances of as many gaps as time allows, and a sentence that says how many."""
    laws: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    end, size, why = TimeLimit(limits.seconds), FIRST, ""
    with Meter("report: laws of gaps") as meter:
        while len(laws) < len(queries):
            some = queries[len(laws) : len(laws) + size]
            if end.left <= 0:
                why = f"time was over after {limits.seconds:g} s"
                break
            try:
                scales = np.array([_scale(reported, query) for query in some])
                differences = tuple((s, *checks.subtracted(a, b, reported.minimise)) for s, a, b in some)
                found = reported.laws.gap_laws(differences, scales, TOLERANCE, limits.until(end, 1e-9))
                split = reported.laws.variance_parts(some, limits.until(end, 1.0))
            except NotKnownError as error:
                why = str(error)
                break
            for query, law, steps, states in zip(some, found, split.by_step, split.by_state, strict=True):
                key = ",".join(map(str, query))
                laws[key] = law_data(law)
                whole = float(steps.sum())
                if whole > 0:
                    parts[key] = _shares(steps / whole, states / whole)
            meter.update(len(laws) / len(queries), f"{len(laws):,} gaps")
            size *= 2
    every = f"Certified laws of {len(laws):,} gaps are on this page"
    if len(laws) == len(queries) < MOST:
        return laws, parts, every + (": of every two actions." if reported.model.num_actions <= FEW_ACTIONS else ".")
    reason = why or f"a page holds at most {MOST:,}"
    return (
        laws,
        parts,
        f"{every}, those where another action comes nearest or gives more; others were left out: {reason}.",
    )


def _scale(reported: Reported, query: GapQuery) -> float:
    """The standard deviation of a gap; that of its returns where it has none."""
    s, a, b = query
    of_returns = reported.variance[s, a] + reported.variance[s, b]
    known = reported.gaps.get(reported.model.sharing)
    own = of_returns if known is None else known[s, action_pairs(reported.model.num_actions).index((a, b))]
    return float(np.sqrt(max(own, 1e-12 * of_returns, 1e-300)))


def law_data(law: GapLaw) -> dict[str, Any]:
    """One law, its curves thinned on the safe side."""
    tails = law.cvar(0.05), law.cvar(0.95)
    mean = law.mean_interval
    highest = Interval((mean.lower - 0.95 * tails[1].upper) / 0.05, (mean.upper - 0.95 * tails[1].lower) / 0.05)
    return {
        **thinned(*law.band),
        "better": ends(law.superiority()),
        "worse": ends(law.inferiority()),
        "tie": ends(law.tie()),
        "quantiles": [ends(law.quantile(q)) for q in (0.05, 0.5, 0.95)],
        "lowest": ends(tails[0]),
        "highest": ends(highest),
        "certified": True,
    }


def _shares(steps: Floats, states: Floats) -> dict[str, Any]:
    last = np.flatnonzero(np.abs(steps) >= 5e-4)
    largest = np.argsort(-np.abs(states), kind="stable")[:SHOWN_STATES]
    return {
        "steps": shorts(steps[: min(SHOWN_STEPS, int(last[-1]) + 1 if len(last) else 1)], 4),
        "states": [(int(s), short(states[s], 4)) for s in largest if abs(states[s]) >= 5e-4],
    }


# -- where states lie ----------------------------------------------------------------------------------------------


def _grid(model: JointMDP, names: list[str], grid: Grid | None) -> dict[str, Any] | None:
    """Cells row by row: as the user says, or from names like ``(x,y)`` or ``(row, column)``.

    Up is where actions of that name lead, and away from where down does; where there are none, y grows upwards.
    """
    if grid is not None:
        rows, columns = grid
        if rows * columns != model.num_states:
            raise ModelError(
                f"a grid of {rows}×{columns} has {rows * columns:,} cells, but there are {model.num_states:,} states"
            )
        return {"columns": columns, "cells": list(range(model.num_states))}
    found = [re.fullmatch(r"\(?(-?\d+), ?(-?\d+)\)?", name) for name in names]
    lying = [s for s, match in enumerate(found) if match]
    if len(lying) < max(4, 0.9 * len(names)):  # a few, such as an end, may lie nowhere
        return None
    places = np.zeros((len(names), 2), dtype=np.int64)
    places[lying] = [[int(part) for part in match.groups()] for match in found if match]
    places -= places[lying].min(axis=0)
    up = _moves(model, places, {"up", "u", "north"}) - _moves(model, places, {"down", "d", "south"})
    if abs(up[0]) > abs(up[1]):  # the first number is that of the row
        places, up = places[:, ::-1].copy(), up[::-1]
    columns, rows = (places[lying].max(axis=0) + 1).tolist()
    if rows * columns > 4 * len(names):
        return None
    if up[1] >= 0:
        places[:, 1] = rows - 1 - places[:, 1]
    cells: list[int | None] = [None] * (rows * columns)
    for s in lying:
        cells[int(places[s, 1]) * columns + int(places[s, 0])] = s
    return {"columns": columns, "cells": cells}


def _moves(model: JointMDP, places: Any, words: set[str]) -> Any:
    """Where actions of such a name lead on the whole, along both numbers."""
    actions = [a for a in range(model.num_actions) if model.action_label(a).lower() in words]
    moves = places[model.successors[:, :, actions]] - places[:, None, None]
    return np.sum(moves, axis=(0, 1, 2))


GapOf = Callable[[int, int, int], Gap | GapEstimate]  # of a state and two actions


def of_all_gaps(model: JointMDP, gap_of: GapOf) -> Floats:
    """Mean and variance for every two available actions of every state, ``[2, S, pairs]``; NaN for others."""
    pairs = action_pairs(model.num_actions)
    found = np.full((2, model.num_states, len(pairs)), np.nan)
    for i, (a, b) in enumerate(pairs):
        for s in np.flatnonzero(model.available[:, a] & model.available[:, b]).tolist():
            gap = gap_of(s, a, b)
            found[:, s, i] = gap.mean, gap.variance
    return found


def write_solution(solution: Solution, path: FilePath, title: str | None, grid: Grid | None, limits: Limits) -> Path:
    """The report of a solution; `limits` are those of all laws together."""
    model = solution.model
    gaps: dict[str, Floats] = {model.sharing: of_all_gaps(model, solution.gap)}
    gaps |= {kind: of_all_gaps(model, gap_of) for kind, gap_of in _other_sharings(solution).items()}
    reported = Reported(
        model,
        solution.policy,
        solution.mean,
        solution.variance,
        gaps[model.sharing][0],
        {kind: variances for kind, (_, variances) in gaps.items() if kind != "none"},
        solution.laws,
        solution.certificate.mean_error,
        solution.horizon,
        [
            ("Certificate", f"{solution.status.value} ({solution.certificate})"),
            ("Method", f"{solution.method}, jointmdp {__version__}"),
        ],
        solution.minimise,
    )
    title = "What would the other actions have given?" if title is None else title
    return write_page(report_data(reported, title, limits, grid), path)


def _other_sharings(solution: Solution) -> dict[str, GapOf]:
    """Gaps under the other kinds, where the model knows them, is small, and the moments are exact."""
    found: dict[str, GapOf] = {}
    moments = solution.moments
    if isinstance(moments, StateMoments | PairMoments) and not isinstance(moments, SameStateMoments):
        for kind in ("state", "time"):
            if kind != solution.model.sharing:
                try:
                    model = solution.model.with_sharing(kind)
                except ModelError:  # scenarios have other probabilities in other states
                    continue
                found[kind] = _gaps_under(model, solution.policy, solution.horizon)
    return found


def _gaps_under(model: JointMDP, policy: Floats, horizon: int | None) -> GapOf:
    with float64():
        found = solve(model, policy, Solve()) if horizon is None else solve_horizon(model, policy, horizon)
    return lambda s, a, b: found.moments.difference(s, a, b, found.certificate)
