"""Every certified answer about a gap against every other one about the same gap: no two may exclude each other.

None of them is the truth, so this needs no oracle and runs on any model: routes that share no code (linear solves,
sweeps, moment problems, laws) have to meet.
"""

import itertools
import math
import warnings
from collections import defaultdict

import numpy as np
import pytest
from oracle import RandomModel
from test_hostile_laws import hostile_amounts, hostile_model, hostile_row
from zoo import SHARINGS, build, cases, daily, padded

import jointmdp as jm
from jointmdp.ground.limits import OutOfTimeError

SHAPE = 8, 3, 3  # one shape is compiled for once
ALPHAS = 0.05, 0.5, 0.9
SECONDS = 1.0  # for one law

Answers = defaultdict[str, list[tuple[str, jm.Interval]]]


def of_moments(name: str, gap: jm.results.Gap, answers: Answers) -> None:
    """What one solution's moments say, the highest of them left out or not."""
    answers["mean"].append((name, gap.mean_interval))
    answers["variance"].append((name, gap.variance_interval))
    answers["P(G ≤ 0)"].append((f"{name}, Cantelli", jm.Interval(0.0, gap.inferiority_bound)))
    for order in range(2, gap.order + 1):
        bounds = gap.moment_bounds(order=order)
        answers["P(G ≤ 0)"].append((f"{name}, {order} moments", bounds.cdf(0.0)))
        answers["E(G)⁺"].append((f"{name}, {order} moments", bounds.stop_loss(0.0)))
        for alpha in ALPHAS:
            answers[f"tail mean {alpha}"].append((f"{name}, {order} moments", bounds.cvar(alpha)))
            answers[f"quantile {alpha}"].append((f"{name}, {order} moments", bounds.quantile(alpha)))


def of_law(name: str, law: jm.results.GapLaw, answers: Answers) -> None:
    """What a law says; the signs of probabilities that sum to 1 are checked with them."""
    better, tie, worse = law.superiority(), law.tie(), law.inferiority()
    answers["mean"].append((name, law.mean_interval))
    answers["P(G > 0)"].append((name, better))
    answers["P(G = 0)"].append((name, tie))
    answers["P(G < 0)"].append((name, worse))
    answers["P(G ≤ 0)"] += [
        (name, law.cdf(0.0)),
        (f"{name}, 1 − better", jm.Interval(1 - better.upper, 1 - better.lower)),
    ]
    answers["E(G)⁺"].append((name, law.stop_loss(0.0)))
    for alpha in ALPHAS:
        answers[f"tail mean {alpha}"].append((name, law.cvar(alpha)))
        answers[f"quantile {alpha}"].append((name, law.quantile(alpha)))


def all_answers(case: RandomModel) -> Answers:
    """Of the gap between the first two actions of state 0."""
    answers: Answers = defaultdict(list)
    model = build(case)
    two, four = jm.evaluate(model, case.policy), jm.evaluate(model, case.policy, order=4)
    few = jm.evaluate(model, case.policy, jm.Iterate(None, max_steps=30))
    gap, same, rough, back = two.gap(0, 0, 1), four.gap(0, 0, 1), few.gap(0, 0, 1), four.gap(0, 1, 0)
    for name, each in (("order 2", gap), ("order 4", same), ("30 sweeps", rough)):
        of_moments(name, each, answers)
    of_law("a law", gap.law(limits=jm.Limits(seconds=SECONDS)), answers)
    of_law("a coarse law", same.law(tolerance=0.5, limits=jm.Limits(seconds=SECONDS)), answers)
    of_law("a small law", rough.law(limits=jm.Limits(seconds=SECONDS, memory=2**24)), answers)
    signs = two.signs(limits=jm.Limits(seconds=SECONDS))
    answers["P(G > 0)"].append(("signs", jm.Interval(*(float(side[0, 0, 1]) for side in signs.better))))
    answers["P(G = 0)"].append(("signs", jm.Interval(*(float(side[0, 0, 1]) for side in signs.equal))))
    answers["P(G > 0)"].append(("asked for alone", gap.superiority(limits=jm.Limits(seconds=SECONDS))))
    answers["mean"].append(("mirrored", -back.mean_interval))
    answers["variance"].append(("mirrored", back.variance_interval))
    answers["P(G > 0)"].append(("mirrored", back.inferiority(limits=jm.Limits(seconds=SECONDS))))
    answers["P(G = 0)"].append(("mirrored", back.tie(limits=jm.Limits(seconds=SECONDS))))
    answers["P(G < 0)"].append(("mirrored", back.superiority(limits=jm.Limits(seconds=SECONDS))))
    best = two.best_action(0, [0, 1], limits=jm.Limits(seconds=SECONDS))
    if best.is_certified:
        answers["P(G > 0)"].append(("best action", best.alone_intervals[0]))
        answers["P(G = 0)"].append(("best action", best.tie_interval))
    return answers


def check(case: RandomModel) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)  # what is wide must hold all the same
        try:
            answers = all_answers(case)
        except OutOfTimeError:  # the time may have gone into compiling: what is asked again is compiled
            answers = all_answers(case)
    for what, found in answers.items():
        for (name, one), (other_name, other) in itertools.combinations(found, 2):
            assert max(one.lower, other.lower) <= min(one.upper, other.upper), (
                f"{what}: {name} says {one}, {other_name} says {other}"
            )
            assert not any(map(math.isnan, (*one, *other)))


def hostile_ending(seed: int) -> RandomModel:
    return padded(hostile_model(np.random.default_rng(seed)).case, *SHAPE)


def hostile_endless(seed: int) -> RandomModel:
    rng = np.random.default_rng(seed)
    sharing = SHARINGS[seed % 3]
    p = np.stack([hostile_row(rng, 2) for _ in range(3)])
    p = p[np.zeros(3, int)] if sharing == "time" else p
    R, N = rng.choice(hostile_amounts(rng), size=(3, 2, 2)), rng.integers(0, 3, (3, 2, 2))
    pi = np.stack([hostile_row(rng, 2) for _ in range(3)])
    return padded(RandomModel(p, R, N, float(rng.choice([0.3, 0.9, 0.999])), pi, sharing, None), *SHAPE)


@pytest.mark.filterwarnings("ignore:.*replications of .* more seconds")  # where other work is beside this
@pytest.mark.parametrize("make", daily([hostile_ending, hostile_endless]))
def test_no_two_answers_exclude_each_other(make: object) -> None:
    assert callable(make)
    check(make(1))


@pytest.mark.long
@pytest.mark.parametrize("block", range(12))
def test_no_two_answers_exclude_each_other_in_many_models(block: int) -> None:
    ordinary = (padded(case, *SHAPE) for case in cases(block, 2, shapes=((3, 3, 3), (6, 3, 3))))
    hostile = (make(100 * block + seed) for seed in range(2) for make in (hostile_ending, hostile_endless))
    for case in itertools.chain(hostile, (case for case in ordinary if case.available[0, :2].all())):
        check(case)
