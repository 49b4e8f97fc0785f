"""Deciding among many: dropping out, going on, several results a run, nothing random, and words for a log."""

import dataclasses
import itertools
import json
import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import binom, multivariate_normal, norm
from test_comparison import alternatives_of, sampler_of

import jointmdp as jm
from benchmarks import selection
from jointmdp.decisions.comparing import sequential
from jointmdp.decisions.comparing.compare import Rules, decide
from jointmdp.decisions.comparing.comparison import Verdict
from jointmdp.decisions.comparing.sequential import closed
from jointmdp.ground import progress

MEANS = (0.0, 0.1, -1.0, -1.2, -2.0, -0.1)


def rows(rng, n):
    return 3 * rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, len(MEANS))) + np.array(MEANS)


def raced(seed=0, **rules):
    found = alternatives_of(sampler_of(rows, seed), [f"option {i}" for i in range(len(MEANS))])
    return decide(found, Rules(**({"indifference": 0.05, "max_replications": 20_000} | rules)), seed=seed)


# -- dropping out --------------------------------------------------------------------------------------------------


def test_hopeless_alternatives_drop_out_and_the_others_stay_as_they_are():
    found, equal = raced(), raced(eliminate=False)
    made = [each.num_replications for each in found.alternatives]
    assert [each.dropped_for is None for each in found.alternatives] == [n == found.num_replications for n in made]
    assert made[2] == made[3] == made[4] == 200
    assert max(made) == found.num_replications > 200
    assert len({each.num_replications for each in equal.alternatives}) == 1
    assert sum(made) < 0.6 * 6 * equal.num_replications
    raw = sampler_of(rows)(0, found.num_replications, "time").returns
    for i, j in itertools.combinations(range(6), 2):
        gap, n = found.gap(f"option {i}", f"option {j}"), min(made[i], made[j])
        assert gap.num_replications == n
        assert gap.gaps == pytest.approx(raw[:n, i] - raw[:n, j], abs=1e-12)
        assert MEANS[i] - MEANS[j] in gap.mean_interval
    assert np.isnan(found.returns[200:, 2]).all()
    assert found.returns[:, 1] == pytest.approx(raw[:, 1])
    text = " ".join(str(found).split())
    assert "and 200 of option 2, option 3 and option 4 in" in text
    assert "of the 200 replications that all are in" in text
    assert found.best == "option 1"
    assert found.figure().axes
    assert json.loads(found.to_json())["alternatives"][2]["num_replications"] == 200


@pytest.mark.slow
def test_dropping_keeps_the_promise():
    """Of 100 races at 95 %, more than 15 with a wrong interval or selection have a probability below 1e-4 each."""
    allowed = binom.isf(1e-4, 100, 0.05)
    missed = wrong = 0
    for seed in range(100):
        found = raced(seed, indifference=0.15)
        pairs = itertools.combinations(MEANS, 2)
        missed += not all(a - b in gap.mean_interval for gap, (a, b) in zip(found.gaps, pairs, strict=True))
        wrong += MEANS[found.best_index] < max(MEANS) - 0.15 or not found.status.is_success
    assert missed <= allowed
    assert wrong <= allowed


def test_a_chain_of_drops_does_not_lead_away_from_the_best():
    """Bounds of differences that follow from others: by brute force over all paths of four alternatives."""
    lower = np.random.default_rng(0).normal(-2, 1, size=(4, 4))
    np.fill_diagonal(lower, 0.0)
    found = closed(lower)
    for i, j in itertools.permutations(range(4), 2):
        middle = [k for k in range(4) if k not in (i, j)]
        paths = [(i, *between, j) for r in range(3) for between in itertools.permutations(middle, r)]
        assert found[i, j] == pytest.approx(max(sum(lower[a, b] for a, b in itertools.pairwise(p)) for p in paths))


def staffing(agents, noise):
    calls, talk = noise["calls"].poisson(30), noise["talk"].exponential(size=60)
    return float(-2.0 * agents - max(0.0, talk[:calls].sum() - 4 * agents))


@pytest.mark.slow
def test_every_engine_makes_fewer_branches_of_the_same_replications():
    """Decisions, a simulator that is asked, and the compiled engine: without dropping out, those that stay agree."""

    def step(state, action, noise):
        return float(0.5 * noise.rng.normal(size=5)[action] - (2, 0.05, 0, 0.05, 2)[action]), state + 1, state > 3

    asked = jm.FunctionSimulator(step, start=0, actions=5)
    model, policy = jm.envs.inventory()
    settings = {"indifference": 0.05, "max_replications": 900}
    for run in (
        lambda **more: jm.compare(staffing, decisions=[4, 7, 8, 9, 30], **settings, **more),
        lambda **more: jm.compare(asked, lambda state: 2, 0, **settings, **more),
    ):
        race, equal = run(), run(eliminate=False)
        assert min(each.num_replications for each in race.alternatives) == 200 < race.num_replications
        n = min(race.num_replications, equal.num_replications)
        stay = [i for i, each in enumerate(race.alternatives) if each.dropped_for is None]
        assert race.returns[:n, stay] == pytest.approx(
            equal.returns[:n, stay], rel=1e-12, abs=1e-12
        )  # but for rounding
    tables = {"indifference": 0.2, "max_replications": 6000}
    race = jm.compare(model, policy, "stock 4", **tables)
    exact = jm.evaluate(model, policy)
    dropped = [each for each in race.alternatives if each.dropped_for is not None]
    assert dropped
    assert race.num_replications > 2048  # beyond the block that is made in any case
    for gap in race.gaps:
        assert exact.gap("stock 4", gap.action, gap.other).mean in gap.mean_interval.widened(
            0.5 * gap.mean_interval.width
        )


def test_procedures_of_the_benchmark():
    """Rinott's constant by simulation of what it is defined by, within five standard errors, and KN of an easy case."""
    assert selection.rinott_constant(2, 10**5, 0.05) == pytest.approx(math.sqrt(2) * norm.isf(0.05), rel=1e-3)
    h, rng = selection.rinott_constant(10, 20, 0.05), np.random.default_rng(0)
    x, y = rng.chisquare(19, size=(100_000, 9)), rng.chisquare(19, size=(100_000, 1))
    right = (rng.normal(size=x.shape) < h / np.sqrt(19 * (1 / x + 1 / y))).all(axis=1)
    # The integral has the nine rivals independent given the best one's variance, as they are here.
    assert right.mean() == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 100_000))
    made = selection.kn(np.array([0.5, 0.0, 0.0]), range(40))
    assert (made.selected == 0).all()
    assert (made.replications >= 3 * selection.FIRST).all()


# -- going on ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_going_on_is_the_same_stream():
    calls = []

    def run(decision, seed):
        calls.append((decision, seed))
        return np.random.default_rng(seed).normal() * (1 + decision / 10) + decision / 50

    found = jm.compare(run, decisions=[0, 1], max_replications=400, indifference=0.0)
    before = len(calls)
    more = found.resume(replications=1000)
    assert len(calls) - before == 2 * (1000 - found.num_replications)  # nothing is sampled twice, nothing is checked
    whole = jm.compare(run, decisions=[0, 1], pilot=1000, max_replications=1000)
    assert (more.returns == whole.returns).all()
    assert more.promised == 0.95  # looks were left over
    assert more.stage.series == 0
    for _ in range(3):
        more = more.resume(replications=2 * more.num_replications)
    assert more.stage.series == 1
    assert more.promised == pytest.approx(1 - 0.05 * 1.5)
    assert "hold together with probability 0.925" in " ".join(str(more).split())
    with pytest.raises(jm.ModelError, match="the next look is after"):
        found.resume(replications=500)
    precise = found.resume(half_width=0.02)
    assert precise.status is Verdict.PRECISE
    assert precise.gaps[0].half_width <= 0.02


def test_levels_of_a_new_series():
    """Eight looks of free growth that all hold with half the error, and no series cheaper than the one before."""
    first = sequential.Stage(200, 400, look=sequential.LOOKS)
    second = first.resumed(400, 10_000, sequential.LOOKS)
    assert (second.series, second.before) == (1, sequential.LOOKS)
    critical = norm.isf(second.error(0.05) / 2)
    assert 2 * sequential.worst_case(critical, 2 * sequential.LOOKS, True) == pytest.approx(0.025, rel=1e-3)
    assert second.error(0.05) < first.error(0.05)
    rng, runs = np.random.default_rng(0), 200_000
    z, missed = rng.normal(size=runs), np.zeros(runs, dtype=bool)
    for _ in range(2 * sequential.LOOKS - 1):  # the sizes that are best for missing
        u = np.clip((z / critical) ** 2, 0, 1 / sequential.LEAST_GROWTH)
        z = np.sqrt(u) * z + np.sqrt(1 - u) * rng.normal(size=runs)
        missed |= np.abs(z) > critical
    assert missed.sum() <= binom.isf(1e-6, runs, 0.025)


@pytest.mark.slow
def test_going_on_with_a_file(tmp_path):
    decisions = [4, 7, 8, 9, 30]
    found = jm.compare(staffing, decisions=decisions, indifference=0.3, seed=3)
    jm.save(found, tmp_path / "found")
    again = jm.load(tmp_path / "found")
    with pytest.raises(jm.ModelError, match="comes from a file, which does not hold the simulator"):
        again.resume()
    settings = {"decisions": decisions, "indifference": 0.05, "seed": 3}
    here, there = found.resume(indifference=0.05), jm.compare(staffing, resume=again, **settings)
    assert there.table() == here.table()
    assert there.num_replications > found.num_replications
    with pytest.raises(jm.ModelError, match="are others than those of the comparison to go on with"):
        jm.compare(staffing, resume=again, **{**settings, "seed": 4})
    with pytest.raises(jm.ModelError, match="the alternatives of the comparison to go on with are"):
        jm.compare(staffing, resume=again, **{**settings, "decisions": [1, 2]})


# -- several results a run -----------------------------------------------------------------------------------------


def shop(stock, noise):
    """Gaps of both results are normal: profit 0.1·d + 0.5·d·a, wait −0.2·d + 0.5·d·(0.6 a + 0.8 b), less is better."""
    a, b = noise["a"].normal(), noise["b"].normal()
    return {"profit": stock * (0.1 + 0.5 * a), "wait": stock * (-0.2 + 0.5 * (0.6 * a + 0.8 * b))}


def test_several_results_against_the_closed_form():
    found = jm.compare(shop, decisions=[0, 1, 2], minimise=["wait"], indifference={"profit": 0.1, "wait": 0.1}, seed=1)
    assert isinstance(found, jm.results.Comparisons)
    assert list(found) == ["profit", "wait"]
    assert 0.1 in found["profit"].gap("1", "0").mean_interval
    assert not found["profit"].minimise
    assert found["wait"].minimise
    assert found["wait"].best == 2
    assert found["profit"].num_replications == found["wait"].num_replications
    trade = found.tradeoff("profit", "wait")
    pair = trade.pairs[2]
    assert (pair.label, pair.other) == ("1", "2")
    # 1 is better than 2 in profit where 0.1 + 0.5 a < 0, and in waiting where −0.2 + 0.5 (0.6 a + 0.8 b) > 0.
    covariance = 0.25 * np.array([[1.0, -0.6], [-0.6, 1.0]])
    truth = multivariate_normal([0.1, 0.2], covariance).cdf([0.0, 0.0])
    assert truth in pair.both_interval
    assert -0.6 in pair.correlation_interval
    assert pair.correlation == pytest.approx(-0.6, abs=0.15)
    assert trade.not_dominated == found.not_dominated
    assert "P(both better)" in str(trade)
    assert json.loads(trade.to_json())["pairs"][0]["label"] == "0"
    text = " ".join(str(found).split())
    assert "wait: 2 is the best: costs on average at least" in text
    assert set(json.loads(found.to_json())["results"]) == {"profit", "wait"}
    assert {row["result"] for row in found.table()} == {"profit", "wait"}


def test_several_results_share_the_error_and_come_back_from_disk(tmp_path):
    found = jm.compare(shop, decisions=[0, 1], minimise="wait", decide_on="wait", indifference=0.1)
    few = {"pilot": found.num_replications, "max_replications": found.num_replications}
    alone = jm.compare(lambda stock, noise: shop(stock, noise)["profit"], decisions=[0, 1], **few)
    assert (alone.returns == found["profit"].returns[: alone.num_replications]).all()
    assert found["profit"].gaps[0].mean_interval.width > alone.gaps[0].mean_interval.width  # two results, two shares
    assert found["wait"].status.is_success
    jm.save(found, tmp_path / "found")
    again = jm.load(tmp_path / "found")
    assert str(again) == str(found)
    assert again["wait"].table() == found["wait"].table()
    assert found.resume(replications=3 * found.num_replications).num_replications == 3 * found.num_replications


class Day(NamedTuple):
    cost: float
    late: int


@dataclasses.dataclass
class Week:
    cost: float


def test_results_in_other_forms_and_mistakes():
    few = {"decisions": [1, 2], "pilot": 30, "max_replications": 30}

    def draw(seed):
        return np.random.default_rng(seed).normal()

    assert list(jm.compare(lambda d, seed: Day(draw(seed), d), **few)) == ["cost", "late"]
    assert list(jm.compare(lambda d, seed: Week(draw(seed) + d), **few)) == ["cost"]
    with pytest.raises(jm.ModelError, match="returned 'b', and 'a' before: every run must return the same results"):
        jm.compare(lambda d, seed: {"a" if d == 1 else "b": draw(seed)}, **few)
    with pytest.raises(jm.ModelError, match="returned 'many' for 'a'; it must return one finite number"):
        jm.compare(lambda d, seed: {"a": "many"}, **few)
    with pytest.raises(jm.ModelError, match="there is no result 'cast'; a run returns 'cost', 'late'"):
        jm.compare(lambda d, seed: Day(draw(seed), d), minimise=["cast"], **few)
    with pytest.raises(jm.ModelError, match="there is no result 'x'; a run returned 'cost'"):
        jm.compare(lambda d, seed: Week(draw(seed)), **few)["x"]


# -- nothing random ------------------------------------------------------------------------------------------------


def test_where_nothing_is_random_it_stops_soon_and_does_not_call_it_certain():
    still = jm.FunctionSimulator(lambda state, action, noise: (3.0 * action, state + 1, state > 1), start=0, actions=3)
    with pytest.warns(jm.errors.NoiseWarning, match="all 20 replications"):
        found = jm.compare(still, lambda state: 0, 0)
    assert found.status is Verdict.CONSTANT
    assert found.num_replications == 20
    assert found.best_label == "action 2"
    text = " ".join(str(found).split())
    assert "Nothing random was seen: all 20 replications, each with a seed of its own, gave exactly the same." in text
    assert "action 2 gives 3 more than action 1." in text
    assert "Another outcome has a probability of at most 14% (95 %)" in text  # 1 − 0.05^(1/20)
    more = found.resume(replications=300)
    assert more.num_replications == 300


@pytest.mark.slow
def test_rare_events_are_not_taken_for_nothing_random():
    """One run in three hundred differs: all of the first twenty agree in nineteen of twenty cases."""

    def rare(decision, seed):
        return decision + 5.0 * (np.random.default_rng(seed).random() < 1 / 300)

    assert min(jm.compare(rare, decisions=[1, 2], seed=seed).num_replications for seed in range(3)) >= 2000


def test_no_negative_more_when_the_time_is_up():
    def run(decision, seed):
        return float(decision) + np.random.default_rng(seed).integers(2) * 1e-3

    found = jm.compare(run, decisions=[1, 8], seconds=1e-9)
    assert found.status is Verdict.TIME
    assert "up to -" not in " ".join(str(found).split())


# -- progress ------------------------------------------------------------------------------------------------------


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.delenv("JOINTMDP_PROGRESS", raising=False)
    told = []
    with progress.Meter("comparing", 1000.0) as meter:
        for second in range(1, 601):
            now[0] = float(second)
            meter.update(second / 1e6, f"{second} of 1,000,000")
            if line := capsys.readouterr().err:
                told.append(second)
                assert line.startswith(f"comparing: {second} of 1,000,000, ")
                left = line.split(", ")[-2]
                assert left == f"{progress.duration(1000 - second)} left"  # the limit, not the estimate of 11 days
        with progress.Meter("inside") as inner:
            now[0] += 100
            inner.update(0.5, "half")
            assert capsys.readouterr().err == ""  # one voice at a time
    assert told[:4] == [10, 20, 30, 45]
    assert max(np.diff(told)) <= 60
    now[0] = 0.0
    with progress.Meter("outside", 8.0), progress.Meter("simulating") as inner:
        now[0] = 30.0
        inner.update(0.05, "step 5 of 100")
    assert "the time is up: what is under way is finished" in capsys.readouterr().err
    monkeypatch.setenv("JOINTMDP_PROGRESS", "0")
    with progress.Meter("comparing") as meter:
        now[0] = 900.0
        meter.update(0.5)
    assert capsys.readouterr().err == ""
