"""`evaluate` within limits: what it knows by then, certified, or a sentence; and nothing is limited afterwards."""

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.exact.moments.certificates import Status
from jointmdp.ground.limits import ends, is_time_over, room_left

AT_ONCE = jm.Limits(seconds=1e-9)


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_what_is_known_when_time_ends_is_certified(sharing: str) -> None:
    model, policy = jm.envs.windy_gridworld(7, discount=0.99, sharing=sharing)
    whole = jm.evaluate(model, policy)
    with pytest.warns(jm.errors.ConvergenceWarning, match="stopped at the time limit"):
        brief = jm.evaluate(model, policy, limits=AT_ONCE)
    assert brief.status is Status.TIME_LIMIT
    assert not ends()
    assert brief.steps < whole.steps
    for s in range(model.num_states):
        for a, b in ((0, 1), (2, 3)):
            one, other = brief.gap(s, a, b), whole.gap(s, a, b)
            assert abs(one.mean - other.mean) <= one.mean_error + other.mean_error
            assert abs(one.variance - other.variance) <= one.variance_error + other.variance_error
    for states in (None, [3, 40]):
        plenty = jm.evaluate(model, policy, states=states, limits=jm.Limits(seconds=600))
        assert plenty.status is Status.CONVERGED


def test_what_cannot_be_had_within_limits_is_said() -> None:
    model, policy = jm.envs.windy_gridworld(7, discount=0.99)
    with pytest.raises(jm.NotKnownError, match=r"0 of 50 backward sweeps were made in the time that was given"):
        jm.evaluate(model, policy, horizon=50, limits=AT_ONCE)
    with pytest.raises(jm.NotKnownError, match="moves of pairs of states or more are needed"):
        jm.evaluate(model, policy, states=[3], limits=AT_ONCE)
    with pytest.raises(jm.ModelError, match="arrays of them in double precision take"):
        jm.evaluate(model, policy, limits=jm.Limits(memory=2**12))
    with pytest.raises(jm.ModelError, match="to more pairs of them than 4,096 bytes hold"):
        jm.evaluate(model, policy, jm.Solve(), states=[3], limits=jm.Limits(memory=2**12))
    for method in (jm.Sharded(), jm.Iterate()):
        with pytest.raises(jm.ModelError, match=r"limits=Limits\(...\) are kept by Solve\(\) for one policy"):
            jm.evaluate(model, policy, method, limits=AT_ONCE)
    with pytest.raises(jm.ModelError, match=r"limits must be jointmdp.Limits\(seconds=…, memory=…\), not 5"):
        jm.evaluate(model, policy, limits=5)  # type: ignore[arg-type]
    assert (ends(), is_time_over(), room_left()) == (False, False, np.inf)


def test_higher_orders_end_in_time() -> None:
    model, policy = jm.envs.inventory()
    whole = jm.evaluate(model, policy, order=4)
    with pytest.warns(jm.errors.ConvergenceWarning, match="stopped at the time limit"):
        brief = jm.evaluate(model, policy, order=4, limits=AT_ONCE)
    one, other = brief.gap(4, 4, 0), whole.gap(4, 4, 0)
    for k in (2, 3, 4):
        room = one.central_moment_error(k) + other.central_moment_error(k)
        assert abs(one.central_moment(k) - other.central_moment(k)) <= room
