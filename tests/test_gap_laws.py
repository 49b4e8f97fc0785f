"""What a user asks of a gap's law, through the public names: widths, limits, agreement of the ways to ask."""

import json
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from click.testing import CliRunner

import jointmdp as jm
from jointmdp.ground.intervals import Interval
from jointmdp.show.cli import main

STALL = {
    "probabilities": [[0.6, 0.4], [0.6, 0.4]],
    "rewards": [[[3, 2], [0, -1]], [[4, 3], [-2, -1]]],
    "successors": [[[0, 1], [0, 1]], [[1, 0], [1, 0]]],
    "discount": 0.9,
    "action_names": ["stay", "move"],
}


@pytest.fixture(scope="module")
def stall() -> jm.results.Solution:
    return jm.evaluate(jm.JointMDP(**STALL, sharing="time"), [0, 0], order=4)


@pytest.mark.slow
def test_widths_are_what_was_asked_for(stall: jm.results.Solution) -> None:
    gap = stall.gap(0, 0, 1)
    assert gap.superiority(tolerance=1e-3).width <= 1e-3
    assert gap.tie(tolerance=1e-3).width <= 1e-3
    assert gap.cvar(0.05, tolerance=0.01).width <= 0.01 * gap.std
    law = gap.law(tolerance=0.01)
    assert max(law.superiority().width, law.tie().width, law.inferiority().width) <= 0.01
    assert "stay − move" in repr(law)
    assert law.mean_interval.lower <= gap.mean <= law.mean_interval.upper
    assert law.estimate.values @ law.estimate.probabilities == pytest.approx(gap.mean, abs=1e-9)
    assert law.estimate.probabilities.sum() == pytest.approx(1)


def test_ways_to_ask_agree(stall: jm.results.Solution) -> None:
    """Gap, law, table of signs and the better of two actions speak of the same number, so their intervals meet."""
    gap = stall.gap(0, 0, 1)
    law = gap.law()
    signs = stall.signs(tolerance=1e-3)
    better = Interval(float(signs.better[0][0, 0, 1]), float(signs.better[1][0, 0, 1]))
    equal = Interval(float(signs.equal[0][0, 0, 1]), float(signs.equal[1][0, 0, 1]))
    assert signs.width <= 1e-3
    for one, other in ((gap.superiority(), better), (law.superiority(), better), (gap.tie(), equal)):
        assert (one & other).width <= min(one.width, other.width)
    back = stall.gap(0, 1, 0)
    assert (back.inferiority() & gap.superiority()).width <= gap.superiority().width
    assert signs.better[0][0, 0, 0] == signs.better[1][0, 0, 0] == 0
    assert signs.equal[0][0, 0, 0] == 1
    best = stall.best_action(0)
    assert best.is_certified
    # Both are guaranteed, so the point in the one and the middle of the other are apart by no more than both widths.
    apart = best.intervals[0].width + better.width + equal.width / 2
    assert best.probability[0] == pytest.approx(better.middle + equal.middle / 2, abs=apart)
    assert apart <= 0.03  # two default tolerances, and half of one


def test_more_moments_and_the_law_only_narrow(stall: jm.results.Solution) -> None:
    gap = stall.gap(0, 0, 1)
    two, four = (gap.moment_bounds(order=order).cdf(0.0) for order in (2, 4))
    assert two.lower - 1e-12 <= four.lower <= four.upper <= two.upper + 1e-12
    inferior = 1 - gap.superiority().middle
    assert four.lower < inferior < four.upper
    assert gap.inferiority_bound >= four.upper - 1e-9


def test_without_memory_the_moments_answer(stall: jm.results.Solution) -> None:
    gap = jm.evaluate(stall.model, stall.policy).gap(0, 0, 1)
    with pytest.warns(jm.errors.ConvergenceWarning, match="wide"):
        found = gap.superiority(limits=jm.Limits(memory=1))
    assert found.status is jm.errors.LawStatus.LIMIT
    assert found.lower == pytest.approx(1 - gap.inferiority_bound, abs=1e-9)
    with pytest.raises(jm.ModelError, match="limit of memory"):
        gap.law(limits=jm.Limits(memory=1))
    with pytest.raises(jm.ModelError, match="limit of memory"):
        jm.evaluate(stall.model, stall.policy).signs(limits=jm.Limits(memory=1))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda gap: gap.superiority(tolerance=0), "tolerance"),
        (lambda gap: gap.quantile(1.5), "q is"),
        (lambda gap: gap.cvar(0.0), "alpha is"),
        (lambda gap: gap.law(limits=jm.Limits(memory=0)), "memory is 0"),
        (lambda gap: gap.superiority(limits=5), r"limits must be jointmdp\.Limits\(seconds"),
        (lambda gap: gap.law().cdf("x"), "t "),
        (lambda gap: gap.law().cdf(float("inf")), "finite"),
        (lambda gap: gap.moment(5), "order=5"),
    ],
)
def test_questions_that_make_no_sense(stall: jm.results.Solution, ask: object, message: str) -> None:
    with pytest.raises(jm.ModelError, match=message):
        ask(stall.gap(0, 0, 1))  # type: ignore[operator]


def test_an_action_against_itself(stall: jm.results.Solution) -> None:
    gap = stall.gap(0, 1, 1)
    assert (gap.superiority(), gap.tie(), gap.inferiority()) == ((0, 0), (1, 1), (0, 0))
    assert gap.quantile(0.3) == gap.cvar(0.3) == (0, 0)
    with pytest.raises(jm.ModelError, match="itself"):
        gap.law()


def test_nothing_is_left_to_chance() -> None:
    """Constant rewards: the gap is one number, and everything about it is certain."""
    model = jm.JointMDP([[1.0]], [[[1.0, 3.0]]], [[[0, 0]]], 0.5)
    solution = jm.evaluate(model, [0])
    gap = solution.gap(0, 1, 0)
    assert gap.superiority().lower >= 1 - 1e-9
    assert gap.tie().upper <= 1e-9
    assert 2.0 in gap.quantile(0.5)
    # All that is open is the mean's certified error and, by Cantelli, three standard deviations at 10 %.
    assert gap.cvar(0.1).width <= 2 * (3 * gap.variance_error**0.5 + solution.certificate.mean_error * 2)
    zero = jm.evaluate(jm.JointMDP([[1.0]], [[[0.0, 0.0]]], [[[0, 0]]], 0.5), [0]).gap(0, 1, 0)
    assert zero.tie().lower >= 1 - 1e-9
    assert zero.superiority().upper <= 1e-9


def test_guarantees_that_contradict_each_other_are_not_hidden() -> None:
    assert (Interval(0.0, 0.5) & Interval(0.4, 1.0)) == (0.4, 0.5)
    assert (Interval(0.0, 0.5) & Interval(0.5 + 1e-12, 1.0)) == (0.5, 0.5 + 1e-12)
    with pytest.raises(ArithmeticError, match="report"):
        Interval(0.0, 1e-8) & Interval(2e-8, 1.0)  # small amounts are no rounding
    with pytest.raises(ArithmeticError, match="report"):
        Interval(0.0, 0.5) & Interval(0.6, 1.0)


def test_laws_on_the_command_line() -> None:
    arguments = ["evaluate", "shared-successors", "--law"]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    assert "worst 5 %" in shown.output
    found = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    gaps = [row["gap"] for row in found["states"][0]["actions"] if row["gap"] is not None]
    for gap in gaps:
        assert 0 <= gap["superiority"]["lower"] <= gap["superiority"]["upper"] <= 1
        assert gap["cvar_05"]["lower"] <= gap["quantile_05"]["upper"]


def test_sparse_and_dense_rewards_of_one_model_agree() -> None:
    """A cost of living added to every reward changes no gap; shaping takes it off again."""
    model, policy = jm.envs.windy_gridworld(3, discount=0.9)
    dear = jm.JointMDP(model.probabilities, model.rewards - 0.3, model.successors, 0.9)
    signs, other = (jm.evaluate(m, policy).signs(tolerance=1e-6) for m in (model, dear))
    assert signs.width <= 1e-6
    assert np.nanmax(np.abs(signs.better[0] - other.better[0])) <= 1e-6


def test_ties_by_cancellation_on_a_lattice_without_discount() -> None:
    """±1 for three steps, no discount, branches that never meet: P(G = 0) is that of two independent walks meeting."""
    model = jm.JointMDP([[0.5, 0.5]] * 2, [[[1, 1], [-1, -1]]] * 2, [[[0, 1], [0, 1]]] * 2, 1.0)
    solution = jm.evaluate(model, [0, 1], horizon=3)
    tie = solution.gap(0, 0, 1).tie()
    # The first toss is shared; the two later ones of each branch are independent: P(equal sums of two) = 6/16.
    assert tie.lower == pytest.approx(6 / 16, abs=1e-12)
    assert tie.upper == pytest.approx(6 / 16, abs=1e-12)


def test_intervals_print_as_asked() -> None:
    assert f"{Interval(0.12345, 2.0):.2f}" == "[0.12, 2.00]"
    assert f"{Interval(0.5, 2.0)}" == "[0.5, 2]"


def test_atoms_at_zero_by_cancellation_are_told_as_far_as_they_can_be() -> None:
    """9 now against 10 (or 4) a step later, at γ = 0.9, which is a little more than that: 9 is nearly 0.9·10.

    What is less than the rounding of the table's own numbers decides, and asking again gives the same.
    """
    rewards = [[[9, 0], [9, 0]], [[0, 0], [0, 0]], [[10, 10], [4, 4]], [[0, 0], [0, 0]]]
    successors = [[[1, 2], [1, 2]], [[3, 3]] * 2, [[3, 3]] * 2, [[3, 3]] * 2]
    model = jm.JointMDP([[0.5, 0.5]] * 4, rewards, successors, 0.9)
    gap = jm.evaluate(model, [0, 0, 0, 0]).gap(0, 0, 1)
    first = gap.superiority(tolerance=1e-3)
    truth = 1.0 if Fraction(0.9) * 10 < 9 else 0.5
    assert first.lower <= truth <= first.upper
    assert gap.superiority(tolerance=1e-3) == first


@pytest.mark.parametrize("minimise", [False, True])
def test_every_question_can_be_simulated_beside(minimise: bool) -> None:
    """The same number twice: certified, and from a sample of futures, of 95 % each and all at one seed."""
    shop, policy = jm.envs.inventory()
    gap = jm.evaluate(shop, policy, minimise=minimise).gap("stock 4", "order 4", "order 0")
    asked = [gap.superiority, gap.inferiority, gap.tie]
    asked += [partial(ask, level) for ask in (gap.quantile, gap.cvar) for level in (0.05, 0.6)]
    for ask in asked:
        found = ask(simulate=True)
        assert found.simulated is not None
        assert found.simulated.lower <= found.upper
        assert found.lower <= found.simulated.upper
        assert ask().simulated is None
