"""Certified intervals at the ends of the number line, against exact rational laws.

Rewards of 1e-290 to 1e290, weights down to the least floats, levels next to 0 and next to 1. Where probabilities do not
add up to 1 exactly, the law is meant up to that: both readings are tried.
"""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground.errors import ConvergenceWarning
from jointmdp.ground.intervals import Interval

LEVELS = [2.0**-1000, 2.0**-60, 1e-13, 1e-3, 0.05, 0.5, 0.95, 1 - 1e-3, 1 - 1e-12, 1 - 2.0**-53]
Law = dict[Fraction, Fraction]
DISCOUNT = 0.5


def model_of(seed: int) -> jm.JointMDP:
    """Two steps: 0 leads to 1 or to the end, 1 to the end."""
    rng = np.random.default_rng([seed, 17])
    light = 2.0 ** -float(rng.choice([1, 2, 10, 30, 52, 60, 200, 1000, 1074]))
    rows = [[light, 1 - light, 0.0], [0.25, 0.5, 0.25]][:: rng.choice([1, -1])]
    scales = 2.0 ** rng.integers(*[(-30, 31), (-480, 481), (-960, 961)][rng.integers(3)], size=4).astype(float)
    rewards = np.zeros((3, 3, 2))
    rewards[:2] = rng.integers(-4, 5, (2, 3, 2)) * rng.choice(scales, size=(2, 3, 2))
    if rng.random() < 0.3:
        rewards[:2, :, 1] = 0.0
    to = np.full((3, 3, 2), 2)
    to[0] = rng.integers(1, 3, (3, 2))
    return jm.JointMDP([*rows, [1.0, 0.0, 0.0]], rewards, to, DISCOUNT, str(rng.choice(["state", "none"])))


def law_of(model: jm.JointMDP) -> Law:
    """Of the gap of the actions in state 0, where action 0 follows; the weights as they are."""
    chances = [[Fraction(float(p)) for p in row] for row in model.probabilities]
    rewards = [[[Fraction(float(r)) for r in row] for row in rows] for rows in model.rewards]

    def later(place: tuple[int, int]) -> Law:
        found: Law = {}
        is_one = place[0] == place[1] and model.sharing != "none"
        ways = [(w, w, p) for w, p in enumerate(chances[1])] if is_one else []
        if not is_one:
            ways = [(w, u, p * q) for w, p in enumerate(chances[1]) for u, q in enumerate(chances[1])]
        for w, u, p in ways:
            gap = sum(
                (rewards[1][x][0] * sign for s, x, sign in zip(place, (w, u), (1, -1), strict=True) if s == 1),
                Fraction(0),
            )
            found[gap] = found.get(gap, Fraction(0)) + p
        return found

    found: Law = {}
    ways = [(w, w, p) for w, p in enumerate(chances[0])]
    if model.sharing == "none":
        ways = [(w, u, p * q) for w, p in enumerate(chances[0]) for u, q in enumerate(chances[0])]
    for w, u, p in ways:
        if p:
            place = int(model.successors[0, w, 0]), int(model.successors[0, u, 1])
            for gap, q in later(place).items():
                value = rewards[0][w][0] - rewards[0][u][1] + Fraction(DISCOUNT) * gap
                found[value] = found.get(value, Fraction(0)) + p * q
    return {value: p for value, p in sorted(found.items()) if p}


def readings(law: Law) -> list[Law]:
    """With probabilities that add up to 1: all in proportion, or what is too much taken from the heaviest."""
    total, most = sum(law.values()), max(law, key=lambda value: law[value])
    return [{v: p / total for v, p in law.items()}, {v: p - (total - 1) * (v == most) for v, p in law.items()}]


def quantile(law: Law, q: Fraction) -> Fraction:
    mass = Fraction(0)
    for value, p in law.items():
        mass += p
        if mass >= q:
            return value
    raise AssertionError


def cvar(law: Law, alpha: Fraction) -> Fraction:
    left, found = alpha, Fraction(0)
    for value, p in law.items():
        found += min(p, left) * value
        left -= min(p, left)
    return found / alpha


def truths(law: Law, levels: list[float]) -> dict[str, Fraction]:
    """Everything that is asked, by name."""
    mean = sum(p * v for v, p in law.items())
    found = {"mean": mean, "variance": sum(p * (v - mean) ** 2 for v, p in law.items())}
    found |= {"superiority": sum(p for v, p in law.items() if v > 0), "tie": law.get(Fraction(0), Fraction(0))}
    for level in levels:
        found |= {f"quantile {level}": quantile(law, Fraction(level)), f"cvar {level}": cvar(law, Fraction(level))}
    for value in law:
        t = float(value)
        found[f"cdf {t!r}"] = sum(p for v, p in law.items() if v <= Fraction(t))
    return found


def misses(seed: int) -> list[str]:
    """What is certified and not so: by the moments, by the law, and by bounds from exact moments."""
    model = model_of(seed)
    laws = readings(law_of(model))
    levels = np.random.default_rng([seed, 18]).choice(LEVELS, 2, replace=False).tolist()
    true = [truths(law, levels) for law in laws]
    try:
        gap = jm.evaluate(model, 0).gap(0, 0, 1)
    except jm.ModelError as error:
        return [] if "range of floats" in str(error) else [str(error)]
    certified = {
        "mean": Interval(gap.mean - gap.mean_error, gap.mean + gap.mean_error),
        "variance": Interval(gap.variance - gap.variance_error, gap.variance + gap.variance_error),
    }
    rows = [("moments", gap.moment_bounds(), true), ("law", gap.law(tolerance=1e300), true)]
    if (bounds := bounds_of(laws[0])) is not None:
        rows.append(("bounds", bounds, true[:1]))
    found = []
    for name in true[0]:
        what, _, level = name.partition(" ")
        for who, source, truth in [("gap", None, true)] if name in certified else rows:
            if source is None:
                interval = certified[name]
            elif hasattr(source, what):
                interval = getattr(source, what)(float(level)) if level else getattr(source, what)()
            else:
                continue
            if not any(interval.lower <= each[name] <= interval.upper for each in truth):
                found.append(f"seed {seed}: {who}: {name} is {float(truth[0][name])!r}, not in {tuple(interval)!r}")
    return found


def bounds_of(law: Law) -> Any:
    """Bounds by three moments, with their rounding as errors, on the floats around the support."""
    try:
        exact = [sum(p * v**k for v, p in law.items()) for k in (1, 2, 3)]
        moments = [float(m) for m in exact]
        errors = [float(abs(Fraction(x) - m)) * (1 + 1e-9) for x, m in zip(moments, exact, strict=True)]
        support = np.nextafter(float(min(law)), -np.inf), np.nextafter(float(max(law)), np.inf)
        return jm.bounds.MomentBounds(moments, support, errors=errors if any(errors) else None)
    except (OverflowError, jm.ModelError):
        return None


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow if b < 9 else pytest.mark.long) for b in range(1, 2000))]
)
def test_what_is_certified_holds_at_the_ends(block: int) -> None:
    """Five models each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = [miss for seed in range(5 * block, 5 * block + 5) for miss in misses(seed)]
    assert not found, "\n".join(found)
