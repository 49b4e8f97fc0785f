"""The report: one self-contained HTML file with styles, script and the numbers that it shows.

Of a solution it has the moments of all states, and the laws of as many gaps as time allows. Numbers have few digits and
curves few points, on the safe side where they bound something.
"""

from __future__ import annotations

import html
import importlib.util
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from jointmdp.decisions.comparing.comparison import Comparison, PairedGap
from jointmdp.exact.hindsight.study_of_logs import Study
from jointmdp.exact.law.pair_graph import GapQuery
from jointmdp.exact.moments.default_solver import solve, solve_horizon
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.stored_moments import GapEstimate, PairMoments, SameStateMoments, StateMoments
from jointmdp.exact.solution.gap import Gap
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.answers import flat, html_table, words
from jointmdp.ground.arrays import Floats, float64
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.files import FilePath, __version__, strict, write_text
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import Limits, TimeLimit
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import at_time

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
SHOWN_EPISODES = 100  # of a list
SHOWN_STEPS, SHOWN_STATES = 16, 12  # parts of a variance
ARROWS = {"up": "↑", "down": "↓", "left": "←", "right": "→", "u": "↑", "d": "↓", "l": "←", "r": "→"}

Grid = tuple[int, int]  # rows, columns


def write_solution(solution: Solution, path: FilePath, title: str | None, grid: Grid | None, limits: Limits) -> Path:
    """The report of a solution; `limits` are those of all laws together."""
    model, minimise, certificate = solution.model, solution.minimise, solution.certificate
    names = [model.state_label(s) for s in range(model.num_states)]
    gaps = _all_gaps(solution)
    baseline, rival = _compared(solution)
    gain = _gain(solution, baseline, rival)
    laws, parts, note = _computed(solution, gaps, _queries(solution, baseline, rival, gain), limits)
    over = "an endless future" if solution.horizon is None else f"the first {solution.horizon} steps"
    shared = SHARING_WORDS[model.sharing].removeprefix("noise ")
    data = {
        "title": "What would the other actions have given?" if title is None else title,
        "summary": f"{model.num_states:,} states, {model.num_actions} actions; noise {shared}; discount "
        f"{model.discount:g}, {over}. Pick a state and two actions: what is the difference of their "
        + ("costs like? Lower is better." if minimise else "returns like?"),
        "states": names,
        "actions": [model.action_label(a) for a in range(model.num_actions)],
        "arrows": [ARROWS.get(model.action_label(a).lower(), "") for a in range(model.num_actions)],
        "sharing": model.sharing,
        "own": baseline.tolist(),
        "ownTitle": "policy",
        "direction": words(minimise).direction,
        "isCost": minimise,
        "policy": [[(a, short(row[a])) for a in np.flatnonzero(row).tolist()] for row in at_time(solution.policy, 0)],
        "mean": shorts(solution.mean),
        "variance": shorts(solution.variance),
        "gapMeans": shorts(gaps[model.sharing][0]),
        "gaps": {kind: shorts(variances) for kind, (_, variances) in gaps.items() if kind != "none"},
        "meanError": certificate.mean_error,
        "start": _start(solution, baseline, rival, gain),
        "laws": laws,
        "parts": parts,
        "partsNote": note,
        "wrongNote": "The policy's most likely action in each state beside the best other one by its mean. P(better): "
        "certified where the law was computed, else what mean and variance guarantee.",
        "grid": _grid(model, names, grid),
        "foot": [
            ("Certificate", f"{solution.status.value} ({certificate})"),
            ("Method", f"{solution.method}, jointmdp {__version__}"),
            ("Laws", note),
        ],
    }
    return write_page(data, path)


def action_pairs(count: int) -> list[tuple[int, int]]:
    """Every two actions, in the order in which the page holds them."""
    return list(combinations(range(count), 2))


# -- which gaps ----------------------------------------------------------------------------------------------------


def _compared(solution: Solution) -> tuple[Any, Any]:
    """The policy's most likely action of each state, and the best other one by its mean (or itself)."""
    baseline = np.argmax(np.where(np.isnan(solution.mean), -1.0, at_time(solution.policy, 0)), axis=1)
    value = -solution.mean if solution.minimise else solution.mean
    others = np.where(np.isnan(value), -np.inf, value)
    others[np.arange(len(baseline)), baseline] = -np.inf
    rival = np.where(np.isfinite(others).any(axis=1), np.argmax(others, axis=1), baseline)
    return baseline, rival


def _gain(solution: Solution, baseline: Any, rival: Any) -> Floats:
    here = np.arange(len(baseline))
    better, worse = checks.subtracted(solution.mean[here, rival], solution.mean[here, baseline], solution.minimise)
    return np.asarray(better - worse)


def _start(solution: Solution, baseline: Any, rival: Any, gain: Floats) -> int:
    """The state that is shown first: where another action gives most, or comes nearest, and something is random."""
    here = np.arange(len(baseline))
    is_random = np.nan_to_num(solution.variance[here, rival] + solution.variance[here, baseline]) > 0
    return int(np.argmax(np.where(is_random & (rival != baseline), gain, gain.min() - 1)))


def _queries(solution: Solution, baseline: Any, rival: Any, gain: Floats) -> list[GapQuery]:
    """The gaps whose laws are wanted, the most interesting first: where another action gives more, or nearly so."""
    model = solution.model
    found: list[list[GapQuery]] = [[], [], []]
    for s in np.argsort(-gain, kind="stable").tolist():
        own, other = int(baseline[s]), int(rival[s])
        for a, b in combinations(np.flatnonzero(model.available[s]).tolist(), 2):
            rank = 0 if {a, b} == {own, other} else 1 if own in (a, b) else 2
            if rank < 2 or model.num_actions <= FEW_ACTIONS:
                found[rank].append((s, a, b))
    return [query for some in found for query in some][:MOST]


def _computed(
    solution: Solution, gaps: dict[str, Floats], queries: list[GapQuery], limits: Limits
) -> tuple[Any, Any, str]:
    """Laws and split variances of as many gaps as time allows, and a sentence that says how many."""
    laws: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    end, size, why = TimeLimit(limits.seconds), FIRST, ""
    pairs = {pair: i for i, pair in enumerate(action_pairs(solution.model.num_actions))}
    variances = gaps[solution.model.sharing][1]
    with Meter("report: laws of gaps") as meter:
        while len(laws) < len(queries):
            some = queries[len(laws) : len(laws) + size]
            if end.left <= 0:
                why = f"time was over after {limits.seconds:g} s"
                break
            # The standard deviation of a gap; that of its returns where it has none.
            of_returns = np.array([solution.variance[s, a] + solution.variance[s, b] for s, a, b in some])
            own = np.array([variances[s, pairs[a, b]] for s, a, b in some])
            scales = np.sqrt(np.maximum(own, np.maximum(1e-12 * of_returns, 1e-300)))
            try:
                differences = tuple((s, *checks.subtracted(a, b, solution.minimise)) for s, a, b in some)
                found = solution.laws.gap_laws(differences, scales, TOLERANCE, limits.until(end, 1e-9))
                split = solution.laws.variance_parts(some, limits.until(end, 1.0))
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
        return laws, parts, every + (": of every two actions." if solution.model.num_actions <= FEW_ACTIONS else ".")
    reason = why or f"a page holds at most {MOST:,}"
    note = f"{every}, those where another action comes nearest or gives more; others were left out: {reason}."
    return laws, parts, note


def law_data(law: Any, highest: list[float] | None = None) -> dict[str, Any]:
    """One law, its curves thinned on the safe side; `highest` is the mean of its highest 5 %, if that is known."""
    if highest is None:
        mean, lower = law.mean_interval, law.cvar(0.95)
        highest = ends(Interval((mean.lower - 0.95 * lower.upper) / 0.05, (mean.upper - 0.95 * lower.lower) / 0.05))
    return {
        **thinned(*law.band),
        "better": ends(law.superiority()),
        "worse": ends(law.inferiority()),
        "tie": ends(law.tie()),
        "quantiles": [ends(law.quantile(q)) for q in (0.05, 0.5, 0.95)],
        "lowest": ends(law.cvar(0.05)),
        "highest": highest,
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


def _all_gaps(solution: Solution) -> dict[str, Floats]:
    """Mean and variance for every two available actions of every state, ``[2, S, pairs]``, by sharing; NaN for others.

    Of the other kinds those that the model knows, where it is small and the moments are exact.
    """
    model, moments = solution.model, solution.moments
    pairs = action_pairs(model.num_actions)
    found: dict[str, Floats] = {}
    is_small = isinstance(moments, StateMoments | PairMoments) and not isinstance(moments, SameStateMoments)
    for kind in SHARINGS:
        gap_of: Callable[[int, int, int], Gap | GapEstimate] = solution.gap
        if kind != model.sharing:
            if kind == "none" or not is_small:
                continue
            try:
                other = model.with_sharing(kind)
            except ModelError:  # scenarios have other probabilities in other states
                continue
            with float64():
                if solution.horizon is None:
                    answer = solve(other, solution.policy, Solve())
                else:
                    answer = solve_horizon(other, solution.policy, solution.horizon)
            gap_of = partial(answer.moments.difference, certificate=answer.certificate)
        found[kind] = np.full((2, model.num_states, len(pairs)), np.nan)
        for i, (a, b) in enumerate(pairs):
            for s in np.flatnonzero(model.available[:, a] & model.available[:, b]).tolist():
                gap = gap_of(s, a, b)
                found[kind][:, s, i] = gap.mean, gap.variance
    return found


# -- a study of logs --------------------------------------------------------------------------------------------------


def write_study(study: Study, path: FilePath, title: str | None) -> Path:
    """Write the page, whole or not at all."""
    heading = f"{study.words} instead of what was done" if title is None else title
    style = _asset("page.css")
    style += "main { display: block; } html main { visibility: visible !important; } section { margin-bottom: 1rem; }"
    style += "svg { max-width: 100%; height: auto; }"
    parts = [
        _section("What an episode gives on average", _picture(study) + _table(_estimates(study)), _meaning(study)),
        _section("Outcomes: observed, and what they would have been", *_outcomes(study)),
        _section("Episodes that gain most", _table(study.gains()[:SHOWN_EPISODES]), _note(study, "the most first")),
        _section(
            "Episodes that lose most", _table(study.gains()[::-1][:SHOWN_EPISODES]), _note(study, "the most first")
        ),
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(heading)}</title><style>{style}</style></head>"
        f'<body><header><h1>{html.escape(heading)}</h1><p class="lead">{len(study):,} logged episodes; '
        f"{html.escape(str(study.answers[0].question.model))}</p></header>"
        f"<main>{''.join(parts)}</main><footer>jointmdp {__version__}</footer></body></html>\n"
    )
    write_text(path, page)
    return Path(path)


def _section(title: str, content: str, note: str) -> str:
    return f'<section><h2>{html.escape(title)}</h2>{content}<p class="note">{html.escape(note)}</p></section>'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [{name: "–" if value != value else value for name, value in flat(row).items()} for row in rows]
    return f'<div class="scroll">{html_table(shown)}</div>' if rows else "<p>None.</p>"


def _estimates(study: Study) -> list[dict[str, Any]]:
    return [
        {
            "estimate": each.what,
            "mean": each.mean,
            "sampled from": each.interval.lower,
            "to": each.interval.upper,
            "certified ±": each.certified_error,
            "remark": each.remark,
        }
        for each in study.estimates
    ]


def _meaning(study: Study) -> str:
    return (
        f"Intervals are sampled: {study.confidence:.0%} of {study.resamples:,} resamples of the episodes (seed "
        f"{study.seed}), percentiles of the bootstrap. The certified error is that of the mean over these very "
        "episodes, for the tables, the coupling and the sharing of this model, which are assumed."
    )


def _outcomes(study: Study) -> tuple[str, str]:
    try:
        rows = study.outcomes()
    except NotKnownError as error:
        return "", str(error)
    flips, undecided = study.flips(), study.undecided()
    sure = sum(row["flips"] > 1 - 1e-9 for row in flips)
    sentence = (
        f"Rows: what was observed. Columns: how many of these episodes would have had which outcome, on average. In "
        f"{sure:,} episodes the outcome surely flips, given the model; in {len(undecided):,} the log leaves it open."
    )
    lists = f"<h3>Whose outcome may be another one</h3>{_table(flips[:SHOWN_EPISODES])}"
    return _table(rows) + lists, sentence


def _note(study: Study, order: str) -> str:
    return f"{min(SHOWN_EPISODES, len(study)):,} of {len(study):,} episodes, {order}; to_csv writes all."


def _picture(study: Study) -> str:
    """The figure, where there is something to draw it with."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    drawn = io.StringIO()
    study.figure().savefig(drawn, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", drawn.getvalue(), flags=re.DOTALL)


def write_comparison(found: Comparison, path: FilePath, title: str) -> Path:
    """The report of a comparison."""
    pairs = list(combinations(range(len(found.alternatives)), 2))
    sharings: dict[str, list[float | None]] = {"state": [], "time": []}
    for gap in found.gaps:
        for kind, std in (("state", gap.std_state), ("time", gap.std_time)):
            known = gap.std if kind == found.sharing else std
            sharings[kind].append(None if known is None else short(known**2))
    runs = f"{found.num_replications:,} replications"
    data = {
        "title": title,
        "summary": f"Best: {found.best_label} ({found.status.value}). {found.title}: {len(found.alternatives)} "
        f"alternatives, {SHARING_WORDS[found.sharing]}, {runs}."
        + (" Returns are costs: lower is better." if found.minimise else ""),
        "states": [found.title],
        "actions": list(found.labels),
        "arrows": [""] * len(found.labels),
        "sharing": found.sharing,
        "own": [found.best_index],
        "ownTitle": "best in",
        "direction": found.direction,
        "isCost": found.minimise,
        "policy": [[(i, short(each.best, 4)) for i, each in enumerate(found.alternatives)]],
        "mean": [short(each.mean) for each in found.alternatives],
        "variance": [short(each.std**2) for each in found.alternatives],
        "gapMeans": [short(gap.mean) for gap in found.gaps],
        "gaps": {kind: values for kind, values in sharings.items() if None not in values},
        "meanError": 0.0,
        "start": 0,
        "laws": {f"0,{i},{j}": _sampled(gap) for (i, j), gap in zip(pairs, found.gaps, strict=True)},
        "parts": {},
        "partsNote": "Samples do not tell where the variance arises; the gaps of jointmdp.evaluate do.",
        "wrongNote": "",
        "grid": None,
        "foot": [
            ("What is promised", found.guarantee),
            *([("Remark", found.remark)] if found.remark else []),
            *(("Warning", each) for each in found.warnings),
        ],
    }
    return write_page(data, path)


def _sampled(gap: PairedGap) -> dict[str, Any]:
    """The sampled law; its band holds the whole of the law with the confidence of the gap."""
    highest = shorts(-np.array(ends(gap.reversed().cvar(0.05)))[::-1])
    return {**law_data(gap, highest), "certified": False, "mean": ends(gap.mean_interval)}
