"""Strict JSON: what is infinite or not a number is null, intervals are objects, arrays are lists."""

import enum
import json
import math
from typing import Any

import numpy as np

from jointmdp.intervals import Interval


def to_json(value: Any) -> str:
    """`value` as one JSON text."""
    return json.dumps(strict(value), indent=2, ensure_ascii=False, allow_nan=False)


def strict(value: Any) -> Any:
    """`value` with everything in it that JSON does not know replaced."""
    if isinstance(value, Interval):
        return {"lower": strict(value.lower), "upper": strict(value.upper)}
    if isinstance(value, dict):
        return {key: strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict(value.tolist())
    if isinstance(value, enum.Enum):
        return value.name.lower()
    return None if isinstance(value, float) and not math.isfinite(value) else value
