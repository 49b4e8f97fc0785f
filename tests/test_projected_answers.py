"""Projected solutions: the face of the answer, and bad input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_projected import PairChain
from projected_models import projected, ring, stalls
from zoo import SHARINGS

import jointmdp as jm
from jointmdp.exact.moments.certificates import Status
from jointmdp.ground.checks import Sharing
from jointmdp.learning.projected.features import one_hot
from jointmdp.learning.projected.projecting import ProjectedSolution


def test_the_face_of_the_answer(tmp_path: Path) -> None:
    model, policy = stalls()
    solution = jm.evaluate(model, policy, jm.Projected(one_hot()))
    exact = jm.evaluate(model, policy)
    assert isinstance(solution, ProjectedSolution)
    assert solution.method == "Projected, covariance ⪰ 0"
    assert repr(solution).startswith("ProjectedSolution(JointMDP(4 states")
    assert "5 features: at the fixed point; contraction of means 0." in repr(solution)
    assert np.isnan(solution.mean[2, 1])
    assert solution.mean[3].tolist() == [0, 0]  # the goal
    for mine, theirs in zip(solution.table(), exact.table(), strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["std"] == pytest.approx(theirs["std"], abs=1e-9)
        assert mine["variance_error"] < 1e-6
    assert solution.to_xarray()["mean"].sel(state="b", action="right") == pytest.approx(exact.mean[1, 1])
    assert solution.figure().axes
    best, truth = solution.best_action("a"), exact.best_action("a")
    assert best.is_certified
    assert best.probability == pytest.approx(truth.probability, abs=1e-2)
    signs, certain = solution.signs(), exact.signs()
    assert (signs.better[0][:2] <= certain.better[1][:2]).all()
    assert (signs.better[1][:2] >= certain.better[0][:2]).all()
    assert signs.width < 0.01
    with pytest.raises(jm.ModelError, match="a ProjectedSolution cannot be saved: files hold exact moments"):
        jm.save(solution, tmp_path / "solution")
    assert not (tmp_path / "solution").exists()
    with pytest.raises(jm.ModelError, match="belongs to another model or policy"):
        solution.projection_errors(jm.evaluate(model, "uniform"))


def test_unseen_pairs_are_said_to_be_unseen() -> None:
    chain = PairChain(ring("state", (1, 2)), np.full((6, 2), 0.5))
    phi = np.random.default_rng(0).normal(size=(6, 2, 3))
    solution = projected(chain, phi, "stationary")
    assert "sees none of the 6 pairs of two actions in one state: nothing was learned" in solution.coverage
    assert solution.coverage in repr(solution)
    assert not solution.covers(0, 0, 1)
    assert solution.pair_error(0, 0, 0, 1) == math.inf
    assert math.isfinite(solution.pair_error(0, 0, 0, 0))
    assert math.isfinite(solution.gap(0, 0, 1).variance_error)  # from the equations, which hold everywhere


# Bad input

LOOP = ring("state", (1, 2))
PHI = np.random.default_rng(7).normal(size=(6, 2, 3))
FULL = np.ones((6, 2, 6, 2))
OFF = FULL * (1 - np.eye(12)).reshape(6, 2, 6, 2)
ALONE = np.eye(12).reshape(6, 2, 6, 2)


def asked(features: Any = PHI, *arguments: Any, model: Any = LOOP, **options: Any) -> Callable[[], Any]:
    return lambda: jm.evaluate(model, "uniform", jm.Projected(features, *arguments, **options))


def at(place: tuple[int, ...], value: float, table: np.ndarray = PHI) -> np.ndarray:
    changed = table.copy()
    changed[place] = value
    return changed


def one_step() -> jm.JointMDP:
    """A state that leads to one that pays for ever; seen from the first alone, φ = (1, 2) has no fixed point at 1/2."""
    return jm.JointMDP([[1.0]] * 2, [[[1.0]], [[1.0]]], [[[1]], [[1]]], 0.5)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "dependent features": (
        asked(np.concatenate([PHI, 2 * PHI[..., :1] - PHI[..., 1:2]], axis=2)),
        "the restart weighting: 1 of 4 features depend on the others: 'feature [013]' is a combination of",
    ),
    "a feature that is zero": (asked(at((..., 1), 0.0)), "'feature 1' is zero wherever the weighting has weight"),
    "features of states that are not reached": (
        lambda: jm.evaluate(LOOP, [0] * 6, jm.Projected(one_hot(), states=[0])),
        "5 of 12 features depend on the others .*'a=1: state 1' is zero wherever the weighting has weight",
    ),
    "a feature that is no number": (asked(at((2, 1, 0), math.nan)), r"feature 0 .* of state 2, action 1 is nan"),
    "an endless feature": (asked(at((2, 1, 0), math.inf)), r"feature 0 .* of state 2, action 1 is inf"),
    "no features": (asked(PHI[..., :0]), "there are no features"),
    "features of another model": (asked(PHI[:5]), r"features have shape \(5, 2, 3\), expected \[S, A, K\]"),
    "large features": (asked(PHI * 1e60), "'feature 0' is at most .*e.60 in size.*rescale"),
    "small features": (asked(PHI * np.array([1, 1e-60, 1])), "'feature 1' is at most .*e-60 in size.*rescale"),
    "too many features": (asked(np.ones((6, 2, 200))), "200 features have 20,100 products.*use fewer features"),
    "a weighting without the asked pair": (
        asked(weighting=ALONE, states=[1]),
        "no weight on action 0 and action 1 in state 1, which is asked about",
    ),
    "weights of nothing": (asked(weighting=0 * FULL), "the weighting is 0 for every pair"),
    "negative weights": (asked(weighting=at((1, 0, 2, 1), -1.0, FULL)), "the weight of .* is -1; none may be negative"),
    "weights that are no numbers": (asked(weighting=at((1, 0, 2, 1), math.nan, FULL)), "weight .* is nan"),
    "weights of another model": (asked(weighting=FULL[:5]), "weighting has shape .*expected"),
    "an unknown weighting": (asked(weighting="uniform"), 'weighting is \'uniform\'; known are "restart", "stationary"'),
    "no weighting": (asked(weighting=None), 'weighting is None; known are "restart", "stationary"'),
    "a number for a weighting": (asked(weighting=5), 'weighting is 5; known are "restart", "stationary"'),
    "an unknown part": (asked(parts=["same"]), 'name one or several of "all", "same_state", "same_action"'),
    "a part without a list": (asked(parts="all"), "parts are 'all'; name one or several"),
    "no parts": (asked(parts=[]), "parts are .*; name one or several"),
    "variances without weight": (
        asked(weighting=OFF),
        r"with a constraint there may be no best matrix.*pairs \(x, x\).*constraint=None",
    ),
    "an unknown constraint": (asked(constraint="psd"), "constraint is 'psd'; known are \"covariance\""),
    "c too small": (asked(c=0.81), "c is 0.81; a restart weighting needs c between γ² = 0.81.* and 1"),
    "c too large": (asked(c=1.0), "c is 1; a restart weighting needs c between"),
    "c that is no number": (asked(c=math.nan), "c is nan; a restart weighting needs c between"),
    "c of another weighting": (asked(weighting="stationary", c=0.9), "c belongs to the restart weighting"),
    "c of own weights": (asked(weighting=FULL, c=0.9), "c belongs to the restart weighting"),
    "no state": (asked(states=[]), "states is empty"),
    "an unknown state": (asked(states=[17]), "unknown state 17"),
    "states of the stationary weighting": (asked(weighting="stationary", states=[0]), "states do not change the stat"),
    "a tolerance of 0": (asked(tolerance=0), "tolerance is 0"),
    "no steps": (asked(max_steps=0), "max_steps is 0"),
    "a higher order": (
        lambda: jm.evaluate(LOOP, "uniform", jm.Projected(PHI), order=3),
        "fits means and second moments of an endless future; leave order and horizon out",
    ),
    "a horizon": (lambda: jm.evaluate(LOOP, "uniform", jm.Projected(PHI), horizon=5), "leave order and horizon out"),
    "discount 1": (asked(model=LOOP.with_discount(1)), "a projection contracts only below discount 1"),
    "a goal": (
        lambda: jm.evaluate(*stalls(), jm.Projected(one_hot(), "stationary")),
        r"comes back to every state, but under this policy it never leaves \{goal\} once it is there.*\"restart\"",
    ),
    "the goal alone": (
        lambda: jm.evaluate(*stalls(), jm.Projected(one_hot(), states=["goal"])),
        "nothing is ever paid in the states asked about",
    ),
    "a model that is over": (
        asked(model=jm.JointMDP(np.ones((6, 1)), np.zeros((6, 1, 2)), [[[s, s]] for s in range(6)], 0.9)),
        "nothing is ever paid in this model",
    ),
    "no fixed point": (
        asked([[[1.0]], [[2.0]]], np.diag([1.0, 0.0]).reshape(2, 1, 2, 1), model=one_step()),
        "the projected equations have no solution with these features and weights",
    ),
    "rewards beyond floats": (
        asked(model=jm.JointMDP(LOOP.probabilities, 1e160 * LOOP.rewards, LOOP.successors, 0.9)),
        "have squares beyond the range of floats; rescale",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what: str) -> None:
    make, message = BAD[what]
    with pytest.raises(jm.ModelError, match=message):
        make()


def test_hard_but_good_input() -> None:
    chain = PairChain(LOOP, np.full((6, 2), 0.5))
    usual = projected(chain, PHI)
    for scale in (1e-40, 1e40, np.array([1e-40, 1, 1e40])):
        scaled = projected(chain, PHI * scale)
        assert scaled.mean == pytest.approx(usual.mean, rel=1e-9)
        assert scaled.covariance == pytest.approx(usual.covariance, rel=1e-8)
    nearly = PHI.copy()
    nearly[..., 2] = nearly[..., 0] + 3e-8 * nearly[..., 2]  # the rank check lets it pass
    assert projected(chain, nearly).mean == pytest.approx(usual.mean, rel=1e-6)
    for sharing, discount in itertools.product(SHARINGS, (0.9999, 1e-3)):
        extreme = PairChain(LOOP.with_discount(discount).with_sharing(sharing), chain.policy)
        solution = projected(extreme, PHI)
        assert solution.status is Status.CONVERGED
        m = PHI.reshape(12, 3) @ solution.theta
        residual = m - extreme.backed_mean(m)
        assert PHI.reshape(12, 3).T @ (extreme.table(solution.weighting.mean) * residual) == pytest.approx(0, abs=1e-9)
    idle = jm.JointMDP(LOOP.probabilities, 0 * LOOP.rewards, LOOP.successors, 0.9)
    gap = projected(PairChain(idle, chain.policy), PHI).gap(0, 0, 1)
    assert (gap.mean, gap.variance) == (0, 0)


@pytest.mark.parametrize(
    ("sharing", "weighting", "constraint", "names"),
    [
        ("state", "restart", "covariance", ["all", "same_state", "same_action"]),
        ("time", "restart", None, ["all", "same_state", "same_action"]),
        ("state", "stationary", "covariance", ["all"]),  # it sees pairs (x, x) alone, where the parts are one
        ("state", "restart", "second_moment", ["all"]),  # the paper's
        ("none", "restart", "covariance", ["all", "same_action"]),  # the first is 0
    ],
)
def test_covariances_have_the_parts_that_are_of_use(
    sharing: Sharing, weighting: str, constraint: Any, names: list[str]
) -> None:
    model = ring(sharing, (1, 2))
    features = np.stack([np.ones((6, 2)), np.arange(12.0).reshape(6, 2)], axis=2)
    solution = jm.evaluate(model, "uniform", jm.Projected(features, weighting, constraint))
    assert isinstance(solution, ProjectedSolution)
    assert list(solution.parts) == names
    if sharing == "none":  # distinct coordinates are independent, and the answer knows
        assert solution.covariance_between(0, 0, 1, 1) == 0
        assert solution.covariance[2, 0, 1] == 0
        assert solution.variance.min() > 0
    whole = jm.evaluate(model, "uniform", jm.Projected(one_hot(), weighting, constraint))
    assert isinstance(whole, ProjectedSolution)
    assert list(whole.parts) == ["all"]
