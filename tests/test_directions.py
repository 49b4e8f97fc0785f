"""One meaning of better, and one meaning of a number: whatever is asked, wherever it is asked."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground import checks

# A machine is good or worn, the load light (0.7) or heavy; it is run or repaired. Costs, [state, scenario, action].
COSTS = np.array([[[0.0, 3.0], [1.0, 3.0]], [[1.0, 4.0], [9.0, 4.0]]])
SUCCESSORS = [[[0, 0], [1, 0]], [[1, 0], [1, 0]]]
CHANCES = (0.7, 0.3)
STEPS, DISCOUNT = 3, 0.9


def machine(rewards: np.ndarray) -> jm.JointMDP:
    names = {"state_names": ["good", "worn"], "action_names": ["run", "repair"]}
    return jm.JointMDP([CHANCES, CHANCES], rewards, SUCCESSORS, DISCOUNT, sharing="time", **names)


def savings() -> list[tuple[float, float]]:
    """What repairing a worn machine saves over running it, in each future of three days, with its probability."""
    found = []
    for loads in itertools.product((0, 1), repeat=STEPS):
        totals = []
        for action in (0, 1):
            state, total = 1, 0.0
            for t, load in enumerate(loads):
                chosen = action if t == 0 else state  # a good machine runs, a worn one is repaired
                total += DISCOUNT**t * COSTS[state, load, chosen]
                state = SUCCESSORS[state][load][chosen]
            totals.append(total)
        found.append((totals[0] - totals[1], float(np.prod([CHANCES[load] for load in loads]))))
    return found


def test_costs_are_computed_as_enumeration_says() -> None:
    """Mean, P(better), quantile and worst cases of what repairing saves, against a list of all eight futures."""
    law = sorted(savings())
    gap = jm.evaluate(machine(COSTS), [0, 1], horizon=STEPS, minimise=True).gap("worn", "repair", "run")
    values, chances = np.array(law).T
    assert gap.mean == pytest.approx(values @ chances, abs=1e-12)
    assert gap.mean > 0
    assert chances[values > 0].sum() in gap.superiority(tolerance=1e-6).widened(1e-12)
    assert chances[values < 0].sum() in gap.inferiority(tolerance=1e-6).widened(1e-12)
    level = 0.1
    weights = np.diff(np.minimum(np.cumsum(chances), level), prepend=0.0)
    assert values @ weights / level in gap.cvar(level, tolerance=1e-6).widened(1e-9)
    assert values[np.searchsorted(np.cumsum(chances), level)] in gap.quantile(level, tolerance=1e-6).widened(1e-9)
    assert repr(gap).startswith(f"Gap(repair costs {gap.mean:.6g} ± {gap.std:.6g} less than run in worn")


def test_costs_are_rewards_with_the_other_sign() -> None:
    costs = jm.evaluate(machine(COSTS), [0, 1], minimise=True)
    gains = jm.evaluate(machine(-COSTS), [0, 1])
    assert (costs.mean == -gains.mean).all()
    for pair in itertools.permutations(("run", "repair")):
        cost, gain = costs.gap("worn", *pair), gains.gap("worn", *pair)
        assert cost.mean == pytest.approx(gain.mean, abs=1e-12)
        assert cost.superiority() == pytest.approx(gain.superiority(), abs=1e-9)
        assert cost.cvar(0.05) == pytest.approx(gain.cvar(0.05), abs=1e-9)
    assert costs.signs().better[0] == pytest.approx(gains.signs().better[0], abs=1e-9, nan_ok=True)
    best, other = (each.best_action("worn") for each in (costs, gains))
    assert best.probability == pytest.approx(other.probability, abs=1e-9)
    assert "costs least" in str(best)
    cheapest, richest = jm.optimal_policy(machine(COSTS), minimise=True), jm.optimal_policy(machine(-COSTS))
    assert (cheapest.actions == richest.actions).all()
    assert cheapest.values == pytest.approx(-richest.values)
    policies = {"run": [0, 0], "repair": [0, 1]}
    whole = jm.evaluate(machine(COSTS), policies, minimise=True).gap("repair", "run", "worn")
    assert whole.mean == pytest.approx(jm.evaluate(machine(-COSTS), policies).gap("repair", "run", "worn").mean)


def test_samples_of_costs_agree_with_what_is_computed() -> None:
    how = {"num_samples": 4_000, "seed": 1, "horizon": STEPS}
    sample = jm.simulate(machine(COSTS), [0, 1], "worn", ["run", "repair"], minimise=True, **how)
    gains = jm.simulate(machine(-COSTS), [0, 1], "worn", ["run", "repair"], **how)
    gap = sample.gap("repair", "run")
    truth = sum(value * chance for value, chance in savings())
    assert abs(gap.mean - truth) < 5 * gap.std / np.sqrt(4_000)  # missed once in a million seeds
    assert (gap.gaps == gains.gap("repair", "run").gaps).all()
    assert sample.best_action().probability == gains.best_action().probability
    assert (sample.mean > 0).all()


def test_exports_carry_the_direction(tmp_path: Path) -> None:
    coin = lambda q, seed: q + np.random.default_rng(seed).integers(2)  # noqa: E731
    found = jm.compare(coin, decisions=[1, 5], minimise=True, max_replications=200)
    solution = jm.evaluate(machine(COSTS), [0, 1], minimise=True)
    sample = jm.simulate(machine(COSTS), [0, 1], "worn", num_samples=50, minimise=True)
    gap = solution.gap("worn", "run", "repair")
    for answer in (found, solution, sample, gap, sample.gap(0, 1), sample.best_action()):
        assert {row["direction"] for row in answer.table()} == {"lower is better"}
        answer.to_csv(tmp_path / "table.csv")
        with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
            assert {row["direction"] for row in csv.DictReader(file)} == {"lower is better"}
    assert json.loads(found.to_json())["direction"] == "lower is better"
    for saved in (found, solution, sample, sample.gap(0, 1)):
        jm.save(saved, tmp_path / "saved")
        assert jm.load(tmp_path / "saved").direction == "lower is better"
    assert jm.evaluate(machine(COSTS), [0, 1]).table()[0]["direction"] == "higher is better"


def test_other_spellings_are_told_ours() -> None:
    for door, args in ((jm.compare, (print,)), (jm.evaluate, (0, 0)), (jm.simulate, (0, 0)), (jm.optimal_policy, (0,))):
        with pytest.raises(TypeError, match=rf"{door.__name__}\(\) has no argument minimize=; did you mean minimise="):
            door(*args, minimize=True)  # type: ignore[operator]
    for name in ("minimize", "minimise"):
        with pytest.raises(
            TypeError, match=rf"learn\(\) has no argument {name}=; it takes returns: .* rewards = -costs"
        ):
            jm.learn(0, 0, **{name: True})  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=rf"audit\(\) has no argument {name}=; no check asks what is better"):
            jm.audit(print, **{name: True})


def test_numbers_are_what_things_are_called() -> None:
    assert checks.as_called("decision", 120, ("100", "120"), (100, 120)) == 1
    assert checks.as_called("decision", 1, ("1", "0"), (1, 0)) == 0  # values win
    assert checks.as_called("decision", "0", ("1", "0"), (1, 0)) == 1
    assert checks.as_called("decision", 1, ("0", "1"), ("0", "1")) == 1  # both readings agree
    assert checks.as_called("decision", np.int64(100), ("a", "100"), ("a", "100")) == 1
    assert checks.as_called("action", 1, ("left", "right"), range(2)) == 1
    with pytest.raises(jm.ModelError, match=r"0 is none of the decisions 100, 120; number 0 of the list, from 0, is"):
        checks.as_called("decision", 0, ("100", "120"), (100, 120))
    for values in (("1", "0"), range(2)):
        with pytest.raises(jm.ModelError, match="1 could be the decision that is called '1', or number 1 of the list"):
            checks.as_called("decision", 1, ("1", "0"), values)
    with pytest.raises(jm.ModelError, match="1 is none of the decisions True, False"):
        checks.as_called("decision", 1, ("True", "False"), (True, False))


def test_a_listed_number_is_an_action_everywhere() -> None:
    """Orders of 4, 0 and 8: a policy, the first actions and the gaps all mean the order, not its place."""

    def step(stock: float, order: int, demand: float) -> tuple[float, float]:
        return order - demand, stock

    orders = jm.FunctionSimulator(step, lambda rng: rng.random(), start=0.0, actions=[4, 0, 8], discount=0.5)
    sample = jm.simulate(orders, lambda stock: 8, None, [8, 4], num_samples=5, horizon=2)
    assert sample.gap(8, 4).gaps == pytest.approx([4.0] * 5)
    assert sample.returns.mean(axis=0) == pytest.approx(sample.gap(8, 4).mean + sample.mean[1] - np.array([0, 4.0]))
    found = jm.compare(orders, 0, None, [8, 4], max_replications=100, horizon=1)
    assert found.gap(8, 4).mean == -found.gap(4, 8).mean == pytest.approx(4.0)
    assert found.gap("8", "4").mean == found.gap(8, 4).mean
    with pytest.raises(jm.ModelError, match="1 is none of the actions 4, 0, 8; number 1 of the list"):
        jm.simulate(orders, 1, None, [8, 4], num_samples=5, horizon=2)


def test_questions_at_the_wrong_door_are_sent_on() -> None:
    model, policy = jm.envs.inventory(max_stock=4, max_order=2)
    with pytest.raises(jm.ModelError, match=r"Incremental\(…\) learns from samples: learn\("):
        jm.evaluate(model, policy, jm.Incremental())
    with pytest.raises(jm.ModelError, match=r"Solve\(…\) solves equations of tables: evaluate\("):
        jm.learn(model, policy, jm.Solve())
    with pytest.raises(jm.ModelError, match=r"table of 5 states is a simulator: simulate"):
        jm.evaluate(jm.as_simulator(model), policy)
    by_state = {f"stock {s}": "order 1" for s in range(4)}
    with pytest.raises(jm.ModelError, match=r"'stok 4' is not \(did you mean 'stock 4'\?\)"):
        jm.evaluate(model, by_state | {"stok 4": "order 0"})
    with pytest.raises(jm.ModelError, match="'stok 0' is no state of the model; did you mean 'stock 0'"):
        jm.evaluate(model, {f"stok {s}": "order 1" for s in range(5)})


@pytest.mark.slow
def test_two_copies_of_a_policy_differ_ever_more_rarely() -> None:
    """Under a discount the end is open; what was seen bounds how often they differ by more than that."""
    model, policy = jm.envs.inventory(max_stock=4, max_order=2)
    chances = []
    for n in (200, 2_000):
        found = jm.compare(
            model,
            policies={"one": np.array(policy), "two": np.array(policy)},
            state=0,
            max_replications=n,
            half_width=1e-9,
        )
        text = " ".join(str(found).split())
        chances.append(float(text.partition("with a probability of at most ")[2].split()[0].rstrip(".")))
    assert chances[1] < chances[0] / 5 < 0.02
