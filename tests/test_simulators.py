"""The simulator protocol: noise as a value, identity of states, policies in all forms, pairs against the truth."""

import collections
import datetime
import decimal
import itertools
import math

import numpy as np
import pytest
import scipy.stats

import jointmdp as jm
from jointmdp.envs.registry import as_simulator, open_named
from jointmdp.montecarlo import query_engine
from jointmdp.montecarlo.simulate import alternatives, simulate_gap, simulate_gaps, simulate_returns
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.function_simulator import FunctionSimulator
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.table_simulator import TableSimulator

SHARINGS = ("state", "time", "none")
Z = 4.5  # standard errors; two-sided false-alarm rate 7e-6 a comparison where the normal law holds


# -- noise -------------------------------------------------------------------------------------------------------


def test_the_same_noise_gives_the_same_numbers_however_often_it_is_asked():
    noise = Noise("noise", 3, 1)
    first = noise.rng.random(5), noise["demand"].random(5), noise.uniform, noise.seed
    again = noise.fresh()
    second = again.rng.random(5), again["demand"].random(5), again.uniform, again.seed
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], Noise("noise", 3, 2).rng.random(5))
    assert Noise(1, 23).address != Noise(12, 3).address
    assert Noise(np.int64(1), 23).address == Noise(1, 23).address


def test_a_stream_that_draws_more_does_not_shift_another():
    one, other = Noise(0), Noise(0)
    one["arrivals"].random(100)
    assert one["service"].random() == other["service"].random()
    assert one.draws == {"arrivals": 100, "service": 1}


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9])
def test_words_are_counted(count):
    noise = Noise(5)
    noise.rng.integers(0, 2**63, size=count)
    assert noise.draws == {"main": count}


def test_uniforms_are_uniform_and_uncorrelated():
    values = np.array([[Noise("u", i, j).uniform for j in range(2)] for i in range(5000)])
    assert scipy.stats.kstest(values.ravel(), "uniform").pvalue > 1e-5
    assert abs(np.corrcoef(values.T)[0, 1]) < Z / math.sqrt(5000)


def test_noise_is_a_jax_key():
    import jax

    one, other, third = Noise(1).key, Noise(1).key, Noise(2).key
    assert (jax.random.key_data(one) == jax.random.key_data(other)).all()
    assert (jax.random.key_data(one) != jax.random.key_data(third)).any()


# -- identity ----------------------------------------------------------------------------------------------------


class Thing:
    def __init__(self, **held):
        self.__dict__.update(held)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Named(list):
    def __init__(self, items, name):
        super().__init__(items)
        self.name = name


PAIRS = [
    (1, True),
    (1, 1.0),
    (math.sin, math.cos),
    ("1", 1),
    ([1, 2], (1, 2)),
    ([1, [2]], [[1], 2]),
    (np.zeros(2), np.zeros((2, 1))),
    (np.zeros(2), np.zeros(2, dtype=np.float32)),
    ({"a": 1}, {"a": 2}),
    ({1, 2}, {1, 3}),
    (Thing(x=1), Thing(y=1)),
    (Slotted(1), Slotted(2)),
    (collections.deque([1]), collections.deque([2])),
    (decimal.Decimal(1), decimal.Decimal(2)),
    (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    (Thing(a=Thing(b=[1])), Thing(a=Thing(b=[2]))),
    (Named([1], "a"), Named([1], "b")),
    (Named([1], "a"), Named([2], "a")),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_things_that_differ_have_other_fingerprints(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_things_that_hold_the_same_have_one_fingerprint():
    shared = np.arange(3)
    one = Thing(a={"x": 1, "y": 2}, b=[shared, shared], rng=np.random.default_rng(1), f=math.sin)
    other = Thing(b=[np.arange(3), np.arange(3)], a={"y": 2, "x": 1}, rng=np.random.default_rng(2), f=math.sin)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint({3, 1, 2}) == fingerprint({2, 3, 1})
    assert fingerprint((5, 0.0, np.zeros(2))) == fingerprint((np.int64(5), -0.0, -np.zeros(2)))
    one.last, other.last = 1, 2
    assert fingerprint(one, frozenset({"last"})) == fingerprint(other, frozenset({"last"}))


def test_cycles_end_and_what_cannot_be_hashed_says_so():
    loop = [1]
    loop.append(loop)
    assert fingerprint(loop) == fingerprint(loop)
    with pytest.raises(ValueError, match="give an identity function"):
        fingerprint([memoryview(b"1")])
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        fingerprint(deep)


# -- policies ----------------------------------------------------------------------------------------------------


class Predictor:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return np.array(observation % 2), None


def _table():
    model, _ = jm.inventory(4, 2, 2.0, discount=0.8)
    return TableSimulator(model)


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        (lambda seen: [0.2, 0.5, 0.3], [0.2, 0.5, 0.3]),
        (lambda seen, rng: int(rng.random() < 0.4), [0.6, 0.4, 0]),
        (lambda seen: 2, [0, 0, 1]),
        (np.tile([0.1, 0.9, 0.0], (5, 1)), [0.1, 0.9, 0]),
        ([1, 1, 1, 1, 0], [0, 1, 0]),
        (Predictor(), [1, 0, 0]),
        ("order 2", [0, 0, 1]),
        (1, [0, 1, 0]),
        ("uniform", [1 / 3] * 3),
    ],
)
def test_every_form_of_a_policy_draws_its_law(policy, law):
    choose = as_agent(policy, _table())
    counts = np.bincount([choose(2, Noise(i)) for i in range(3000)], minlength=3)
    law = np.array(law)
    assert (counts[law == 0] == 0).all()
    if law.max() < 1:
        assert scipy.stats.chisquare(counts[law > 0], 3000 * law[law > 0]).pvalue > 1e-5


def test_the_uniform_policy_keeps_to_what_is_available():
    choose = as_agent("uniform", _table())
    assert {choose(3, Noise(i)) for i in range(50)} == {0, 1}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda seen: [0.2, 0.5], "2 probabilities for the 3 actions"),
        (lambda seen: [1.0, 2.0, 3.0], "values or logits"),
        (lambda seen: [-0.5, 1.0, 0.5], "no probabilities"),
        (lambda seen: 7, "action 7"),
        (np.eye(3)[:2], "2 rows"),
    ],
)
def test_bad_policies_say_what_they_gave(policy, words):
    choose = as_agent(policy, _table())
    with pytest.raises(jm.ModelError, match=words):
        choose(2, Noise(0))


@pytest.mark.parametrize("policy", [None, "best", object(), {"a": 1}, [[1, 2], [3]]])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(jm.ModelError, match="the policy is"):
        as_agent(policy, _table())


def test_an_array_needs_state_numbers():
    walker = FunctionSimulator(lambda x, a, u: (0.0, x + u), lambda rng: rng.normal(), start=0.5, actions=2)
    with pytest.raises(jm.ModelError, match="no state numbers"):
        as_agent(np.full((3, 2), 0.5), walker)(walker.reset(), Noise(0))


# -- pair simulation against exact evaluation --------------------------------------------------------------------


def _check(sample, gap):
    assert abs(sample.mean - gap.mean) <= Z * sample.mean_standard_error + sample.truncation_bound
    assert abs(sample.variance - gap.variance) <= Z * sample.variance_standard_error


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_tables_behind_the_protocol_agree_with_exact_evaluation(sharing, is_batch):
    model, _ = jm.inventory(5, 3, 2.0, discount=0.7, sharing=sharing)
    policy = jm.uniform_policy(model)  # branches part and meet again
    given = policy if is_batch else lambda state: policy[state]  # functions are asked one query at a time
    sampler = alternatives(TableSimulator(model), given, "stock 1", [0, 3]).sampler
    assert isinstance(sampler, query_engine.Rollout) is not is_batch
    count = 20_000 if is_batch else 2000
    sample = simulate_gap(TableSimulator(model), given, "stock 1", 0, "order 3", num_samples=count, horizon=6, seed=2)
    _check(sample, jm.evaluate(model, policy, horizon=6).gap(1, 0, 3))


def _stock(x, order, demand):
    sold = min(x + order, demand)
    return 5.0 * sold - 2.0 * order - 0.5 * (x + order - sold), x + order - sold


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_plain_function_agrees_with_its_exact_model(sharing):
    chances = [0.3, 0.3, 0.2, 0.2]
    step = lambda x, a, u: _stock(x, min(a, 4 - x), u)  # noqa: E731
    model = jm.from_noise(
        lambda x, a, u: step(x, a, u)[0],
        lambda x, a, u: step(x, a, u)[1],
        range(4),
        chances,
        num_states=5,
        num_actions=3,
        discount=0.9,
        sharing=sharing,
    )
    policy = np.array([[0.1, 0.3, 0.6], [0.2, 0.4, 0.4], [0.5, 0.3, 0.2], [0.8, 0.1, 0.1], [1.0, 0.0, 0.0]])
    simulator = FunctionSimulator(
        step, lambda rng: int(rng.choice(4, p=chances)), start=0, actions=3, discount=0.9, sharing=sharing
    )
    sample = simulate_gap(simulator, policy, simulator.at(1), 0, 2, num_samples=1500, horizon=5, seed=1)
    _check(sample, jm.evaluate(model, policy, horizon=5).gap(1, 0, 2))


def test_an_endless_future_is_cut_where_it_no_longer_counts_and_says_so():
    model, policy = jm.coupled_reward_chain(6, discount=0.5)
    simulator = TableSimulator(model)
    sample = simulate_gap(simulator, policy, 0, 0, 1, num_samples=2000, seed=3)
    assert 0 < sample.truncation_bound <= 2 * 1e-4 * 2.0
    _check(sample, jm.evaluate(model, policy).gap(0, 0, 1))


def _ruin(fortune, bold, wins):
    """Stakes of 1, or of all that helps; the game ends at 0 or 4 and pays 1 at 4."""
    stake = min(fortune, 4 - fortune) if bold else 1
    after = fortune + stake if wins else fortune - stake
    return float(after == 4), after, after in (0, 4)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_episodes_end_by_themselves_without_discount(sharing):
    """Gambler's ruin with p = 0.4: bold play wins from 1 with p², timid play with (r−1)/(r⁴−1), r = q/p."""
    p = 0.4
    game = FunctionSimulator(
        _ruin, lambda rng: rng.random() < p, start=1, actions={"timid": False, "bold": True}, sharing=sharing
    )
    found = alternatives(game, policies={"timid": "timid", "bold": "bold"}, state=game.at(1), seed=4)
    run = found.sampler(0, 3000, sharing)
    r = (1 - p) / p
    for column, chance in enumerate(((r - 1) / (r**4 - 1), p**2)):
        error = math.sqrt(chance * (1 - chance) / 3000)
        assert abs(run.returns[:, column].mean() - chance) <= Z * error
    assert set(np.unique(run.returns)) <= {0.0, 1.0}
    assert found.truncation_bound(run) == 0


def test_whole_policies_are_compared_under_the_same_luck():
    model, policy = jm.inventory(5, 3, 2.0, discount=0.7)
    never = np.zeros(6, dtype=int)
    exact = jm.evaluate(model, policy, horizon=5)
    other = jm.evaluate(model, never, horizon=5)
    found = alternatives(model, policies={"base stock": policy, "never": never}, state=2, horizon=5, seed=1)
    run = found.sampler(0, 2000, "time")
    truth = exact.mean[2, policy[2].argmax()] - other.mean[2, 0]
    gap = run.returns[:, 0] - run.returns[:, 1]
    assert abs(gap.mean() - truth) <= Z * gap.std() / math.sqrt(2000)
    # Demand is what one policy lives on and what the other pays for: shared luck sets them apart here.
    assert np.corrcoef(run.returns.T)[0, 1] < -0.3
    apart = found.sampler(0, 2000, "none")
    assert abs(np.corrcoef(apart.returns.T)[0, 1]) <= Z / math.sqrt(2000)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_replication_depends_on_its_number_alone(sharing):
    model, _ = jm.inventory(5, 3, 2.0, discount=0.7)
    simulator = TableSimulator(model, start=[0.3, 0.3, 0.4, 0, 0, 0])
    found = alternatives(simulator, "uniform", None, [0, 1], horizon=5, seed=9)
    sampler = query_engine.Rollout(simulator, (as_agent("uniform", simulator),) * 2, (0, 1), None, 9, 0.7, 5)
    whole = sampler(0, 7, sharing)
    parts = [sampler(0, 3, sharing), sampler(3, 4, sharing)]
    for k in range(4):
        np.testing.assert_array_equal(whole[k], np.concatenate([part[k] for part in parts]))
    assert found.labels == ("order 0", "order 1")


def test_stopping_when_merged_changes_no_gap():
    model, _ = jm.inventory(5, 3, 2.0, discount=0.9)
    policy = jm.uniform_policy(model)
    simulator = TableSimulator(model)
    gaps = simulate_gaps(simulator, policy, 1, [0, 2, 3], num_samples=200, horizon=30, seed=5)
    returns = simulate_returns(simulator, policy, 1, [0, 2, 3], num_samples=200, horizon=30, seed=5)
    for i, j in itertools.combinations(range(3), 2):
        np.testing.assert_array_equal(gaps[i, j].gaps, returns.leads[:, i] - returns.leads[:, j])
    assert gaps[0, 1].steps <= returns.steps


def test_an_action_against_itself_is_exactly_tied_and_its_branches_are_one_query():
    asked = []

    def step(x, a, u):
        asked.append(a)
        return u, x + u

    walker = FunctionSimulator(step, lambda rng: rng.normal(), start=0.0, actions=2)
    for sharing in SHARINGS:
        walker.sharing = sharing
        asked.clear()
        sample = simulate_gap(walker, "uniform", walker.reset(), 1, 1, num_samples=10, horizon=3)
        assert (sample.gaps == 0).all()
        assert len(asked) <= 10 * 3


def test_a_simulation_that_never_ends_says_what_to_do(monkeypatch):
    monkeypatch.setattr(query_engine, "STEP_LIMIT", 50)
    walker = FunctionSimulator(lambda x, a, u: (0.0, x + a), None, start=0, actions=2)
    with pytest.raises(jm.ModelError, match="has not ended after 50 steps; give a horizon"):
        simulate_gap(walker, 1, walker.reset(), 0, 1, num_samples=2)


def test_continuous_states_never_meet():
    walker = FunctionSimulator(
        lambda x, a, u: (x, 0.9 * x + a + u), lambda rng: rng.normal(), start=0.0, actions=2, sharing="state"
    )
    run = alternatives(walker, 0, walker.reset(), [0, 1], horizon=10).sampler(0, 50, "state")
    assert run.meetings.sum() == 0
    assert (run.steps == 10).all()


# -- functions of a decision and a seed ---------------------------------------------------------------------------


def newsvendor(order, seed):
    demand = np.random.default_rng(seed).uniform(0, 10)
    return 3.0 * min(order, demand) - 1.0 * order


def test_decisions_share_their_seed():
    """E[min(q, U)] = q − q²/20 for uniform demand on [0, 10]."""
    found = alternatives(newsvendor, decisions=[4, 6], seed=1)
    run = found.sampler(0, 4000, "time")
    profit = [3 * (q - q * q / 20) - q for q in (4, 6)]
    gap = run.returns[:, 0] - run.returns[:, 1]
    assert abs(gap.mean() - (profit[0] - profit[1])) <= Z * gap.std() / math.sqrt(4000)
    apart = found.sampler(0, 4000, "none").returns
    assert abs(np.corrcoef(apart.T)[0, 1]) <= Z / math.sqrt(4000)
    assert np.corrcoef(run.returns.T)[0, 1] > 0.5
    np.testing.assert_array_equal(run.returns[10:20], found.sampler(10, 10, "time").returns)


def test_no_seed_is_used_twice():
    seen = []
    found = alternatives(lambda d, seed: seen.append(seed) or 0.0, decisions=["a", "b"])
    found.sampler(0, 20_000, "none")
    assert len(set(seen)) == 40_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": newsvendor}, "needs the decisions"),
        ({"source": newsvendor, "decisions": [1]}, "at least two"),
        ({"source": newsvendor, "decisions": [1, 1]}, "the same name"),
        ({"source": newsvendor, "decisions": [1, 2], "horizon": 3}, "leave policy, state and so on"),
        ({"source": newsvendor, "decisions": [1, 2], "sharing": "state"}, "shows no states"),
        ({"source": jm.inventory()[0], "decisions": [1, 2]}, "function run"),
        ({"source": jm.inventory()[0]}, "which policy"),
        ({"source": 3, "policy": 1}, "is no simulator"),
        ({"source": jm.inventory()[0], "policy": 1, "policies": {"a": 1, "b": 2}}, "either policies"),
        ({"source": jm.inventory()[0], "policy": 1, "actions": "order 1"}, "sequence of at least one"),
        ({"source": jm.inventory()[0], "policy": 1, "actions": [99]}, "unknown action 99"),
        ({"source": jm.inventory()[0], "policy": 1, "state": "stock 20", "actions": [7]}, "not available"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, words):
    with pytest.raises(jm.ModelError, match=words):
        alternatives(**arguments)


def test_an_outcome_that_is_no_number_is_refused():
    found = alternatives(lambda d, seed: math.nan, decisions=[1, 2])
    with pytest.raises(jm.ModelError, match="one finite number"):
        found.sampler(0, 1, "time")


# -- names -------------------------------------------------------------------------------------------------------


def test_simulators_by_name():
    simulator, policy = open_named("inventory:max_stock=6,max_order=3")
    assert isinstance(simulator, TableSimulator)
    assert policy.shape == (7, 4)
    assert as_simulator(simulator) is simulator
    with pytest.raises(jm.ModelError, match="unknown simulator"):
        open_named("no-such-thing")
    with pytest.raises(jm.ModelError, match="is not a setting"):
        open_named("gymnasium:FrozenLake-v1,map_name")
