"""Large models on one device: the same answers with few arrays, in double and in single precision."""

import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.exact.moments import column_blocks
from jointmdp.exact.solution import evaluate as choice


def models() -> list[tuple[jm.JointMDP, np.ndarray]]:
    """One shape: a gridworld with exploration, shared in both ways, whose goal is idle."""
    found = []
    for sharing in ("state", "time"):
        model, policy = jm.envs.windy_gridworld(5, discount=0.95, sharing=sharing)  # type: ignore[arg-type]
        rewards = np.where(np.arange(25)[:, None, None] == 24, 0.0, -1.0 - model.successors / 25)
        tables = (model.probabilities, rewards, model.successors, 0.95, sharing)
        found.append((jm.JointMDP(*tables), 0.9 * policy + 0.025))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", daily(["double", "single"]))
def test_equals_the_default_within_certificates(which: int, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = models()[which]
    whole = jm.evaluate(model, policy)
    monkeypatch.setattr(choice, "USUAL_ARRAYS", 1e30)
    monkeypatch.setattr(
        column_blocks, "BLOCK_BYTES", 8 * 25 * 8
    )  # columns in several blocks, the last one partly again
    lean = jm.evaluate(model, policy, jm.Solve(relative_tolerance=1e-5, precision=precision))  # type: ignore[arg-type]
    assert lean.status.is_success
    assert type(lean.moments).__name__ == "SameStateMoments"
    for s in range(24):
        for a, b in ((0, 1), (3, 2)):
            one, two = whole.gap(s, a, b), lean.gap(s, a, b)
            assert abs(one.variance - two.variance) <= one.variance_error + two.variance_error
            assert abs(one.mean - two.mean) <= one.mean_error + two.mean_error
    errors = whole.certificate.covariance_error + lean.certificate.covariance_error
    assert np.max(np.abs(whole.covariance - lean.covariance)) <= errors
    # Single precision has 2⁻²⁴ of relative rounding a step, which a return of 1/(1−γ²) steps adds up.
    largest = float(np.max(whole.variance))
    assert (
        lean.certificate.covariance_error
        <= (1e-9 if precision == "double" else 100 * 2.0**-24 / (1 - 0.95**2)) * largest
    )


@pytest.mark.slow
def test_memory_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = models()[0]
    monkeypatch.setattr(choice, "_device_memory", lambda: 2.0 * 8 * 25**2)
    with pytest.raises(jm.ModelError, match=r'up to 19 states fit, 27 with Solve\(precision="single"\)'):
        jm.evaluate(model, policy)
    assert jm.evaluate(model, policy, jm.Solve(precision="single", relative_tolerance=1e-4)).status.is_success
    assert jm.evaluate(model, policy, states=[3]).status.is_success


def test_bad_precision() -> None:
    model, policy = models()[0]
    with pytest.raises(jm.ModelError, match="precision is 'half'"):
        jm.evaluate(model, policy, jm.Solve(precision="half"))  # type: ignore[arg-type]
    with pytest.raises(jm.ModelError, match="above order 2"):
        jm.evaluate(model, policy, jm.Solve(precision="single"), order=3)
    for scale in (1e20, 1e-20):
        scaled = jm.JointMDP(
            model.probabilities, model.rewards * scale, model.successors, model.discount, available=model.available
        )
        with pytest.raises(jm.ModelError, match="beyond the range of single precision"):
            jm.evaluate(scaled, policy, jm.Solve(precision="single"))
