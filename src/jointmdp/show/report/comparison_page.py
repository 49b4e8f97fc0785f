"""What the report of a comparison shows: the alternatives as the actions of one state, with sampled laws."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from jointmdp.decisions.comparing.comparison import Comparison, PairedGap
from jointmdp.ground.checks import SHARING_WORDS
from jointmdp.ground.files import FilePath
from jointmdp.show.report.report_page import ends, law_data, short, shorts, write_page


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
