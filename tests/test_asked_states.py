"""`evaluate(..., states=[…])`: the numbers of all states, from what the asked ones lead to alone."""

import itertools

import numpy as np
import pytest
from oracle import random_model
from zoo import STATE_AND_SLOW, daily

import jointmdp as jm
from jointmdp.exact.moments import asked_pairs, partial_solve
from jointmdp.model import derived_models


def gaps(model: jm.JointMDP, state: int) -> list[tuple[int, int]]:
    return list(itertools.permutations(np.flatnonzero(model.available[state]).tolist(), 2))


def assert_same(whole: jm.results.Solution, some: jm.results.Solution, states: list[int]) -> None:
    """Every number of the one within what the certificates of both allow of the other."""
    for s in states:
        for a, b in gaps(whole.model, s):
            one, two = whole.gap(s, a, b), some.gap(s, a, b)
            assert abs(one.mean - two.mean) <= one.mean_error + two.mean_error
            assert abs(one.variance - two.variance) <= one.variance_error + two.variance_error
    apart = np.abs(whole.covariance_of(states) - some.covariance_of(states))
    assert np.nanmax(apart) <= whole.certificate.covariance_error + some.certificate.covariance_error
    assert np.nanmax(np.abs(whole.mean - some.mean)[states]) <= (
        whole.certificate.mean_error + some.certificate.mean_error
    )


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("discount", daily([0.99, 0.5, 0.9999]))
def test_equals_the_solution_of_all_states(sharing: str, discount: float) -> None:
    for seed in range(4):
        case = random_model(np.random.default_rng(seed), 6, 3, 3, discount=discount, sharing=sharing)
        model = jm.JointMDP(
            case.probabilities, case.rewards, case.successors, discount, sharing, available=case.available
        )
        some = jm.evaluate(model, case.policy, states=[1, 4])
        assert some.status.is_success
        assert_same(jm.evaluate(model, case.policy), some, [1, 4])


def drifting(size: int, sharing: str, discount: float = 0.9) -> tuple[jm.JointMDP, np.ndarray]:
    """A long line with a cost at every place: one step ahead, or two, or none, and a shared push back."""
    here, rng = np.arange(size), np.random.default_rng(7)
    moved = np.minimum(here[:, None] + np.array([1, 2, 0]), size - 1)
    successors = np.stack([moved, np.maximum(moved - 1, 0)], axis=1)
    costs = np.broadcast_to(-rng.uniform(0.5, 1.5, size)[:, None, None], successors.shape)
    model = jm.JointMDP(np.tile([0.7, 0.3], (size, 1)), costs, successors, discount, sharing)
    return model, np.tile([0.8, 0.1, 0.1], (size, 1))


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("tolerance", daily([1e-3, 1e-1, 1e-6]))
def test_what_is_left_out_is_within_the_certificate(
    sharing: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_models, "MOST_CLOSED", 10)
    model, policy = drifting(160, sharing, discount=0.6)
    some = jm.evaluate(model, policy, jm.Solve(relative_tolerance=tolerance), states=[3, 50])
    part = some.moments.part  # type: ignore[attr-defined]
    assert part.outside is not None, "nothing was left out, so nothing is tested"
    assert some.status.is_success
    for s, (a, b) in itertools.product([3, 50], gaps(model, 3)):
        gap = some.gap(s, a, b)
        assert gap.variance_error <= tolerance * gap.variance
    assert_same(jm.evaluate(model, policy), some, [3, 50])


def test_values_outside_may_be_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far away something terrible waits: the part does not see it, and its certificate must allow for it.
    monkeypatch.setattr(derived_models, "MOST_CLOSED", 10)
    monkeypatch.setattr(partial_solve, "ATTEMPTS", 1)
    model, policy = drifting(60, "state")
    rewards = model.rewards.copy()
    rewards[40:] = -1e6
    model = jm.JointMDP(model.probabilities, rewards, model.successors, model.discount)
    with pytest.warns(jm.errors.ConvergenceWarning):
        some = jm.evaluate(model, policy, jm.Solve(relative_tolerance=1e-1), states=[3])
    assert_same(jm.evaluate(model, policy), some, [3])


@pytest.mark.parametrize("sharing", daily(["state", "time"]))
def test_states_outside_differ_from_each_other(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two corridors that end in two gambles: both branches leave the part in one step, and not to the same place.
    monkeypatch.setattr(derived_models, "MOST_CLOSED", 10)
    monkeypatch.setattr(partial_solve, "ATTEMPTS", 1)
    length, count = 30, 63  # the start, two corridors, two gambles
    successors = np.tile(np.arange(count)[:, None, None], (1, 2, 2))
    successors[0] = [1, 1 + length]
    for first, gamble in ((1, 61), (1 + length, 62)):
        successors[first : first + length, :, :] = np.append(np.arange(first + 1, first + length), gamble)[
            :, None, None
        ]
    rewards = np.zeros((count, 2, 2))
    rewards[61] = [[1e9, 1e9], [-1e9, -1e9]]
    rewards[62] = [[-1e9, -1e9], [1e9, 1e9]]
    model = jm.JointMDP(np.full((count, 2), 0.5), rewards, successors, 0.5, sharing)
    policy = np.tile([1.0, 0.0], (count, 1))
    with pytest.warns(jm.errors.ConvergenceWarning):
        some = jm.evaluate(model, policy, jm.Solve(relative_tolerance=1e-1), states=[0])
    assert some.moments.part.outside is not None  # type: ignore[attr-defined]
    whole = jm.evaluate(model, policy)
    assert whole.gap(0, 0, 1).variance > 0.1
    assert_same(whole, some, [0])


def test_only_what_is_reached_is_looked_at() -> None:
    # Two copies of a model that know nothing of each other.
    one, policy = drifting(12, "state")
    twice = jm.JointMDP(
        np.tile(one.probabilities, (2, 1)),
        np.concatenate([one.rewards, 100 + one.rewards]),
        np.concatenate([one.successors, 12 + one.successors]),
        one.discount,
    )
    some = jm.evaluate(twice, np.tile(policy, (2, 1)), states=[2])
    assert len(some.moments.part.states) <= 12  # type: ignore[attr-defined]
    assert np.isnan(some.mean[12:]).all()
    alone = jm.evaluate(one, policy)
    for a, b in gaps(one, 2):
        assert some.gap(2, a, b).variance == pytest.approx(alone.gap(2, a, b).variance, rel=1e-6)
    assert len(some.table()) == 3


def test_the_discount_may_be_one_where_returns_end() -> None:
    model, policy = jm.envs.coupled_reward_chain(8, discount=1.0)
    assert_same(jm.evaluate(model, policy), jm.evaluate(model, policy, states=["s1"]), [1])


@pytest.mark.slow
def test_laws_and_best_actions_are_those_of_the_whole() -> None:
    model, policy = jm.envs.windy_gridworld(4, discount=0.9)
    whole, some = jm.evaluate(model, policy), jm.evaluate(model, policy, states=["(1,1)", "(0,2)"])
    for other in ("R", "D", "L"):
        one, two = whole.gap("(0,2)", "U", other), some.gap("(0,2)", "U", other)
        assert two.superiority().lower == pytest.approx(one.superiority().lower, abs=1e-6)
        assert two.quantile(0.9).upper == pytest.approx(one.quantile(0.9).upper, abs=1e-6)
    assert some.best_action("(0,2)", ["U", "R"]).probability == pytest.approx(
        whole.best_action("(0,2)", ["U", "R"]).probability, abs=1e-6
    )


def test_what_was_not_asked_about_is_refused() -> None:
    model, policy = jm.envs.windy_gridworld(4)
    some = jm.evaluate(model, policy, states=["(1,1)"])
    with pytest.raises(jm.ModelError, match=r"\(2,2\) was not among the states asked about"):
        some.gap("(2,2)", "U", "R")
    for ask in (some.signs, some.report):
        with pytest.raises(jm.ModelError, match=r"1 of 16 were asked about"):
            ask()
    with pytest.raises(jm.ModelError, match="distinct states"):
        some.covariance_between("(1,1)", "U", "(2,2)", "R")
    with pytest.raises(jm.ModelError, match="some states only cannot be saved"):
        jm.save(some, "nowhere.zip")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"states": []}, "no state"),
        ({"states": "(1,1)"}, "a list of states"),
        ({"states": ["nowhere"]}, "unknown state"),
        ({"states": [0], "order": 3}, "leave order"),
        ({"states": [0], "horizon": 3}, "leave order"),
        ({"states": [0], "method": jm.Iterate()}, "leave order"),
    ],
)
def test_bad_questions(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(jm.ModelError, match=reason):
        jm.evaluate(*jm.envs.windy_gridworld(3), **settings)  # type: ignore[arg-type]


def test_too_many_pairs_are_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_pairs, "MEMORY", 60_000)
    model, policy = drifting(160, "state", discount=0.6)
    with pytest.raises(jm.ModelError, match=r"simulate\("):
        jm.evaluate(model, policy, states=[3])


def test_reach_says_before_what_will_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = drifting(160, "state", discount=0.6)
    found = jm.Solve().reach(model, policy, [3])
    some = jm.evaluate(model, policy, states=[3])
    assert found.pairs == len(some.moments.pairs.codes)  # type: ignore[attr-defined]
    assert found.is_complete
    assert "nothing is left out" in str(found)
    monkeypatch.setattr(derived_models, "MOST_CLOSED", 10)
    less = jm.Solve(relative_tolerance=1e-2).reach(model, policy, [3])
    assert not less.is_complete
    assert less.pairs < found.pairs


def test_weights_of_pairs_are_formed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_models, "MOST_CLOSED", 10)
    model, policy = drifting(160, "state", discount=0.6)
    whole = jm.Solve(relative_tolerance=1e-2).reach(model, policy, [3, 50])
    monkeypatch.setattr(asked_pairs, "AT_ONCE", 40)
    assert jm.Solve(relative_tolerance=1e-2).reach(model, policy, [3, 50]) == whole


def test_a_name_is_not_a_list_of_states() -> None:
    names = [(x, y) for y in range(3) for x in range(3)]
    model, policy = jm.envs.windy_gridworld(3)
    named = jm.JointMDP(model.probabilities, model.rewards, model.successors, 0.9, state_names=names)
    with pytest.raises(jm.ModelError, match=r"write states=\[\(1, 2\)\]"):
        jm.evaluate(named, policy, states=(1, 2))
    assert len(jm.evaluate(named, policy, states=((1, 2), (0, 1))).asked) == 2
