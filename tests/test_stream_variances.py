"""Which stream of noise makes the variance of a sampled gap, against closed forms."""

import json
import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import jointmdp as jm
from benchmarks import stream_shares
from jointmdp.ground.errors import NoiseWarning

rng = np.random.default_rng


def split(run: Any, **settings: Any) -> Any:
    """Of the gap between the decisions 2 and 1."""
    found = jm.compare(run, decisions=[1, 2], pilot=60, max_replications=60)
    return found.variance_by_stream(2, 1, **{"replications": 400, **settings})


def shares(found: Any) -> dict[str, float]:
    return {row["stream"]: row["share"] for row in found.table()}


def additive(decision: int, noise: jm.Noise) -> float:
    calls, talk = noise["calls"].normal(), noise["talk", 1].normal()
    return decision * (2 * calls + talk) + float(noise["weather"].normal())


def product(decision: int, noise: jm.Noise) -> float:
    calls, talk = noise["calls"].normal(), noise["talk", 3].normal()
    return decision * float(2 * calls + talk + 0.6 * calls * talk)


@pytest.mark.slow
def test_the_parts_of_a_closed_form() -> None:
    found = split(product, replications=2000)
    truth = {"calls": 4 / 5.36, "talk": 1 / 5.36, "both": 0.36 / 5.36}
    assert found.names == ("calls", "talk", "both")
    for row in found.table():
        low, high = row["share_interval"]
        assert low <= truth[row["stream"]] <= high
        assert high - low < 0.12
    assert sum(np.asarray(found)) == pytest.approx(found.total)
    assert found.total == pytest.approx(5.36, rel=0.2)
    of_calls = found.totals[0]
    assert of_calls is not None
    assert of_calls.lower <= truth["calls"] + truth["both"] <= of_calls.upper


def test_what_does_not_act_together_is_exactly_nothing() -> None:
    found = split(additive)
    assert shares(found)["weather"] == 0  # drawn from, alike by both decisions
    assert abs(found.values[3:]).max() < 1e-12 * found.total
    assert found.names[3:] == ("calls and talk", "calls and weather", "talk and weather", "all three")


def test_the_answer_shows_itself(tmp_path: Path) -> None:
    found = split(product)
    text = str(found)
    assert "2 − 1: where a variance of" in text
    assert "both" in text
    assert json.loads(found.to_json())[0]["stream"] == "calls"
    assert [*found.to_pandas().columns[:5]] == ["stream", "variance", "share", "share_lower", "share_upper"]
    found.figure().savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_one_stream_is_all_of_it() -> None:
    found = split(lambda decision, noise: decision * noise.rng.normal())
    assert found.names == ("noise.rng",)
    assert found.shares == ((1.0, 1.0),)
    assert "100%" in str(found)


def test_nothing_random_and_a_gap_without_variance() -> None:
    with pytest.warns(NoiseWarning, match="Noise never mattered"):
        found = split(lambda decision, noise: float(decision))
    assert found.names == ()
    assert str(found) == "2 − 1: no stream of noise was drawn from"
    found = split(lambda decision, noise: decision + noise["calls"].normal())
    assert "The gap never varied in 400 replications" in str(found)
    assert np.isnan(found.shares[0].estimate)


@pytest.mark.slow
def test_noise_that_is_not_followed_is_named() -> None:
    def run(decision: int, seed: int) -> float:
        return decision * float(rng(seed).normal() + 2 * np.cos(seed * 1.7))

    found = split(run, replications=600)
    assert found.names[-1] == "not followed"
    assert shares(found)["not followed"] == pytest.approx(2 / 3, abs=0.1)
    assert "the seed used as a number" in str(found)
    found = split(lambda decision, seed: decision * np.cos(seed * 1.7))
    assert found.names == ("not followed",)


def test_a_stream_of_one_decision_and_one_that_comes_late() -> None:
    def run(decision: int, noise: jm.Noise) -> float:
        total = noise["calls"].normal()
        if decision == 2:
            total += noise["own"].normal()
        return decision * float(total + (noise["rare"].normal() if noise["calls"].random() < 0.004 else 0.0))

    found = split(run, replications=1500)
    assert "Only 2 draws from own." in found.notes
    assert found.names[:2] == ("calls", "own")
    assert any(note.startswith("First drawn from later, and not told apart: rare") for note in found.notes) or (
        "rare" in found.names
    )


@pytest.mark.slow
def test_generators_of_a_run_are_called_by_their_names_and_lines() -> None:
    def run(decision: int, seed: int) -> float:
        arrivals = rng([seed, 1])
        service, other = rng([seed, 2]), rng([seed, 3])
        fixed = rng(7)  # an instance, not noise
        return decision * float(2 * arrivals.normal() + service.normal() + fixed.normal()) + other.normal()

    found = split(run, replications=300)
    names = [name.split(" (")[0] for name in found.names[:3]]
    assert names == ["arrivals", "service", "other"]
    assert found.names[0].startswith("arrivals (test_stream_variances.py:")
    assert list(shares(found).values())[:2] == pytest.approx([0.8, 0.2], abs=0.1)


@pytest.mark.slow
def test_generators_made_in_one_place_and_those_that_others_seed() -> None:
    def run(decision: int, seed: int) -> float:
        made = [rng(child) for child in np.random.SeedSequence(seed).spawn(2)]
        random.seed(seed)
        inner = rng(random.getrandbits(32))
        return decision * float(2 * made[0].normal() + made[1].normal() + random.gauss(0, 1) + 2 * inner.normal())

    found = split(run, replications=300)
    assert len(found.names) == 7  # three sources, three pairs, all three
    assert list(shares(found).values())[:3] == pytest.approx([0.5, 0.4, 0.1], abs=0.12)
    assert any("seeds inner" in note for note in found.notes)


@pytest.mark.slow
def test_children_of_a_generator_are_streams_of_their_own() -> None:
    def run(decision: int, seed: int) -> float:
        parent = rng(seed)
        one, other = parent.spawn(2)
        return decision * float(parent.normal() + one.normal() + other.normal())

    found = split(run, replications=300)
    assert len(found.names) == 7
    assert list(shares(found).values())[:3] == pytest.approx([1 / 3] * 3, abs=0.1)


@pytest.mark.slow
def test_many_streams_and_little_time() -> None:
    def many(decision: int, noise: jm.Noise) -> float:
        return decision * float(sum((k + 1) * noise[f"s{k}"].normal() for k in range(12)))

    found = split(many, replications=100)
    assert found.names[:8] == (*(f"s{k}" for k in range(5, 12)), "5 others")
    assert any("8 streams at most are told apart; counted as one" in note for note in found.notes)
    found = split(many, replications=100_000, seconds=0.05)
    assert found.num_replications >= 30
    assert any("for more there is no time" in note.lower() for note in found.notes)
    assert any(note.startswith("The time was up after") for note in found.notes)


@pytest.mark.slow
def test_a_simulator_with_samplers_of_noise_and_a_random_policy() -> None:
    def day(stock: int, order: int, noise: dict[str, float]) -> tuple[float, int]:
        sold = min(stock + order, int(noise["demand"]))
        return 10 * sold - noise["price"] * order, stock + order - sold

    draws = {"demand": lambda rng: int(rng.poisson(4)), "price": lambda rng: rng.uniform(3, 5)}
    shop = jm.FunctionSimulator(day, draws, start=4, actions={"order 0": 0, "order 4": 4}, discount=0.5)
    found = jm.compare(shop, lambda stock: [0.5, 0.5], 4, pilot=40, max_replications=40)
    parts = found.variance_by_stream("order 4", "order 0", replications=60)
    assert parts.names[:3] == ("demand", "price", "the policy")


class Mill(gymnasium.Env[np.ndarray, int]):
    """Wind from the environment's own generator, breakdowns from another, luck from `random`."""

    action_space: Any = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-100, 100, (1,), np.float64)

    def __init__(self) -> None:
        self.breaks, self.plain = rng(0), random.Random(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.day = 0
        return np.zeros(1), {}

    def step(self, action: int) -> Any:
        self.day += 1
        paid = (1 + action) * (2 * self.np_random.normal() + self.breaks.normal() + self.plain.gauss(0, 1))
        return np.array([float(self.day)]), float(paid), self.day == 2, False, {}


@pytest.mark.slow
def test_a_gymnasium_environment_by_its_generators() -> None:
    found = jm.compare(Mill(), 0, None, [0, 1], pilot=40, max_replications=40)
    parts = found.variance_by_stream(1, 0, replications=250)
    first = shares(parts)
    assert {name: first[name] for name in ("np_random", "breaks", "plain")} == pytest.approx(
        {"np_random": 4 / 6, "breaks": 1 / 6, "plain": 1 / 6}, abs=0.12
    )


@pytest.mark.slow
def test_workers_give_the_same() -> None:
    here, there = split(product, replications=60), split(product, replications=60, executor="processes:2")
    assert np.array_equal(np.asarray(here), np.asarray(there))


def test_results_of_a_run_have_parts_of_their_own() -> None:
    def run(decision: int, noise: jm.Noise) -> dict[str, float]:
        calls, talk = noise["calls"].normal(), noise["talk"].normal()
        return {"cost": float(decision * calls), "wait": float(decision * talk)}

    found: Any = jm.compare(run, decisions=[1, 2], minimise=["wait"], pilot=60, max_replications=60)
    assert shares(found["cost"].variance_by_stream(1, 2, replications=60)) == {"calls": 1, "talk": 0, "both": 0}
    of_wait = found["wait"].variance_by_stream(1, 2, replications=60)
    assert shares(of_wait) == {"talk": 1, "calls": 0, "both": 0}
    assert str(of_wait).startswith("cost of 2 − cost of 1")


def test_what_cannot_be_split_says_why(tmp_path: Path) -> None:
    model, policy = jm.envs.inventory()
    found = jm.compare(model, policy, "stock 4", ["order 0", "order 4"], max_replications=300)
    with pytest.raises(jm.NotKnownError, match="variance_by_step"):
        found.variance_by_stream("order 0", "order 4")
    with pytest.raises(jm.ModelError, match="compared with itself"):
        found.variance_by_stream("order 0", "order 0")
    jm.save(found, tmp_path / "found.npz")
    with pytest.raises(jm.ModelError, match="comes from a file"):
        jm.load(tmp_path / "found.npz").variance_by_stream("order 0", "order 4")  # type: ignore[union-attr]
    with pytest.raises(jm.ModelError, match="replications"):
        split(product, replications=3)


def test_redrawn_noise_is_an_address() -> None:
    from jointmdp.simulation.simulators.noise import Redraw

    noise = jm.Noise("run", 3)
    moved = noise.redrawn(Redraw(frozenset({"calls"})))
    kept = jm.Noise.at(moved.address)
    for each in (moved, kept, moved.fresh()):
        assert each["talk", 2].random() == jm.Noise("run", 3)["talk", 2].random()
        assert each["calls", 1].random() != jm.Noise("run", 3)["calls", 1].random()
        assert (each.seed, each.uniform) == (noise.seed, noise.uniform)
    rest = noise.redrawn(Redraw(frozenset({"calls"}), is_rest=True))
    assert rest["calls"].random() == jm.Noise("run", 3)["calls"].random()
    assert rest.seed != noise.seed


@pytest.mark.slow
@pytest.mark.parametrize("case", stream_shares.CASES, ids=lambda case: case.name)
def test_intervals_hold_their_shares(case: stream_shares.Case) -> None:
    held, _, _ = stream_shares.coverage(case, 300, 400)
    assert held.min() > 0.90  # 400 runs at 0.95 have a standard deviation of 0.011
