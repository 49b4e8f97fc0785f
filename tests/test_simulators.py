"""The simulator protocol: noise as a value, identity of states, policies in all forms, pairs against the truth."""

import collections
import datetime
import decimal
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from zoo import SHARINGS, STATE_AND_SLOW, daily

import jointmdp as jm
from jointmdp.simulation.montecarlo import simulator_branches
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, decisions_of, first_actions, whole_policies
from jointmdp.simulation.montecarlo.compiled_branches import BlockSampler
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.montecarlo.simulate import simulate
from jointmdp.simulation.montecarlo.simulator_branches import QuerySampler
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.registry import as_simulator, open_named
from jointmdp.simulation.simulators.simulator import as_agent
from jointmdp.simulation.simulators.table_simulator import TableSimulator

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
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        fingerprint(deep)


# -- policies ----------------------------------------------------------------------------------------------------


class Predictor:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return np.array(observation % 2), None


def _table():
    model, _ = jm.envs.inventory(4, 2, 2.0, discount=0.8)
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
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_tables_behind_the_protocol_agree_with_exact_evaluation(sharing, is_batch):
    model, _ = jm.envs.inventory(5, 3, 2.0, discount=0.7, sharing=sharing)
    policy = jm.envs.uniform_policy(model)  # branches part and meet again
    given = policy if is_batch else lambda state: policy[state]  # functions are asked one query at a time
    found = first_actions(TableSimulator(model), given, "stock 1", [0, 3])
    assert isinstance(found.sampler, BlockSampler if is_batch else QuerySampler)
    assert bool(found.remark) is not is_batch  # whoever waits for one replication at a time is told why
    count = 20_000 if is_batch else 2000
    sample = simulate(
        TableSimulator(model), given, "stock 1", [0, "order 3"], num_samples=count, horizon=6, seed=2, gaps_only=True
    ).gap(0, "order 3")
    _check(sample, jm.evaluate(model, policy, horizon=6).gap(1, 0, 3))


def _stock(x, order, demand):
    sold = min(x + order, demand)
    return 5.0 * sold - 2.0 * order - 0.5 * (x + order - sold), x + order - sold


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
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
    sample = simulate(
        simulator, policy, simulator.at(1), [0, 2], num_samples=1500, horizon=5, seed=1, gaps_only=True
    ).gap(0, 2)
    _check(sample, jm.evaluate(model, policy, horizon=5).gap(1, 0, 2))


@pytest.mark.parametrize("is_batch", daily([False, True]))
def test_an_endless_future_is_cut_where_it_no_longer_counts_and_says_so(is_batch):
    """Branches that never become one, and a chain that is longer than what counts: 2⁻¹⁴ < 1e-4."""
    model, policy = jm.envs.coupled_reward_chain(100, discount=0.5, sharing="none")
    given = policy if is_batch else lambda state: policy[state]
    sample = simulate(
        TableSimulator(model), given, 0, [0, 1], num_samples=2000 if is_batch else 500, seed=3, gaps_only=True
    ).gap(0, 1)
    assert 0 < sample.truncation_bound <= 2 * 1e-4 * 2.0
    assert (sample.slack >= sample.truncation_bound).all()
    assert sample.steps < 99
    _check(sample, jm.evaluate(model, policy).gap(0, 0, 1))


def _ruin(fortune, bold, wins):
    """Stakes of 1, or of all that helps; the game ends at 0 or 4 and pays 1 at 4."""
    stake = min(fortune, 4 - fortune) if bold else 1
    after = fortune + stake if wins else fortune - stake
    return float(after == 4), after, after in (0, 4)


def _ruin_table(p, sharing):
    def move(fortune, bold, wins):
        return (0.0, fortune) if fortune in (0, 4) else _ruin(fortune, bold, wins)[:2]

    return jm.from_noise(
        lambda x, a, u: move(x, a, u)[0],
        lambda x, a, u: move(x, a, u)[1],
        [True, False],
        [p, 1 - p],
        num_states=5,
        num_actions=2,
        discount=1.0,
        sharing=sharing,
        action_names=["timid", "bold"],
    )


@pytest.mark.parametrize("is_table", daily([False, True]))
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_episodes_end_by_themselves_without_discount(sharing, is_table):
    """Gambler's ruin with p = 0.4: bold play wins from 1 with p², timid play with (r−1)/(r⁴−1), r = q/p."""
    p = 0.4
    if is_table:
        game = TableSimulator(_ruin_table(p, sharing))
    else:
        actions = {"timid": False, "bold": True}
        game = FunctionSimulator(_ruin, lambda rng: rng.random() < p, start=1, actions=actions, sharing=sharing)
    found = whole_policies(game, {"timid": "timid", "bold": "bold"}, game.at(1), SimulationSettings(seed=4))
    assert isinstance(found.sampler, BlockSampler if is_table else QuerySampler)
    run = found.sampler(0, 3000, sharing)
    r = (1 - p) / p
    for column, chance in enumerate(((r - 1) / (r**4 - 1), p**2)):
        error = math.sqrt(chance * (1 - chance) / 3000)
        assert abs(run.returns[:, column].mean() - chance) <= Z * error
    assert set(np.unique(run.returns)) <= {0.0, 1.0}
    assert not run.left_out.any()
    assert run.gap(0, 1, found.return_bound).truncation_bound == 0


def test_tables_whose_episodes_may_never_end_need_a_discount_or_a_horizon():
    """From the left side of a ring with an exit at the right; the policy may walk to it, or away from it."""
    ring = jm.from_noise(
        lambda x, a, u: float(x == 1),
        lambda x, a, u: 0 if x == 0 or (x == 1 and a == 0) else 1 + x % 2 if a == 0 else x,
        [0],
        [1.0],
        num_states=3,
        num_actions=2,
        discount=1.0,
        state_names=["out", "gate", "hall"],
        action_names=["walk", "stay"],
    )
    leaves, stays, lost = np.array([0, 0, 0]), np.array([1, 1, 1]), np.array([0, 0, 1])
    assert simulate(ring, leaves, "hall", [0, 1], num_samples=10, gaps_only=True).gap(0, 1).gaps.tolist() == [0.0] * 10
    # The first action leads out, and what the policy does elsewhere does not matter.
    assert simulate(ring, lost, "gate", [0, 0], num_samples=10, gaps_only=True).gaps()[0].truncation_bound == 0
    with pytest.raises(jm.ModelError, match="an episode that comes to hall never ends"):
        simulate(ring, lost, "hall", [1, 1], num_samples=10, gaps_only=True).gaps()[0]
    with pytest.raises(jm.ModelError, match="an episode that comes to gate never ends"):
        simulate(ring, stays, "gate", [0, 1], num_samples=10, gaps_only=True).gap(0, 1)
    with pytest.raises(jm.ModelError, match=r"never ends; .* needs a discount below 1, or a horizon"):
        whole_policies(ring, {"leaves": leaves, "stays": stays}, "gate")
    assert (
        simulate(ring, stays, "gate", [0, 1], num_samples=10, horizon=5, gaps_only=True).gap(0, 1).gaps.tolist()
        == [-4.0] * 10
    )
    assert whole_policies(ring, {"leaves": leaves, "stays": stays}, "gate", SimulationSettings(discount=0.5))


def test_without_a_state_replications_begin_by_the_tables_own_law():
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    law = np.array([0.3, 0.2, 0.5, 0, 0, 0])
    exact = jm.evaluate(model, policy, horizon=6)
    run = simulate(TableSimulator(model, start=law), policy, None, [0, 3], num_samples=20_000, horizon=6)
    truth, error = law[:3] @ exact.mean[:3, [0, 3]], run.returns.std(axis=0) / math.sqrt(20_000)
    assert (np.abs(run.mean - truth) <= Z * error).all()
    # A model without a law of its own begins anywhere, also where some orders do not fit.
    run = simulate(model, policy, None, [0, 0], num_samples=20_000, horizon=6)
    assert abs(run.mean[0] - exact.mean[:, 0].mean()) <= Z * run.returns[:, 0].std() / math.sqrt(20_000)
    for given in (policy, lambda state: policy[state]):
        with pytest.raises(jm.ModelError, match="order 3 is not available in stock"):
            simulate(model, given, None, [0, 3], num_samples=50, horizon=6)


@pytest.mark.slow
def test_whole_policies_are_compared_under_the_same_luck():
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    never = np.zeros(6, dtype=int)
    exact = jm.evaluate(model, policy, horizon=5)
    other = jm.evaluate(model, never, horizon=5)
    found = whole_policies(model, {"base stock": policy, "never": never}, 2, SimulationSettings(seed=1, horizon=5))
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
    model, _ = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    simulator = TableSimulator(model, start=[0.3, 0.3, 0.4, 0, 0, 0])
    found = first_actions(simulator, "uniform", None, [0, 1], SimulationSettings(seed=9, horizon=5))
    asked = QuerySampler(simulator, (as_agent("uniform", simulator),) * 2, (0, 1), None, 9, 0.7, 5)
    assert isinstance(found.sampler, BlockSampler)
    for sampler in (asked, found.sampler):
        whole = sampler(0, 7, sharing)
        parts = [sampler(0, 3, sharing), sampler(3, 4, sharing)]
        for name, one, other in zip(whole._fields, whole, Replications.joined(parts), strict=True):
            is_missing = name in ("is_whole", "apart", "followed") or (name == "states" and sampler is asked)
            assert (one is None) == (other is None) == is_missing, name
            np.testing.assert_array_equal(one, other)
    assert found.labels == ("order 0", "order 1")


def test_stopping_when_merged_changes_no_gap():
    model, _ = jm.envs.inventory(5, 3, 2.0, discount=0.9)
    policy = jm.envs.uniform_policy(model)
    simulator = TableSimulator(model)
    gaps = simulate(simulator, policy, 1, [0, 2, 3], num_samples=200, horizon=30, seed=5, gaps_only=True)
    returns = simulate(simulator, policy, 1, [0, 2, 3], num_samples=200, horizon=30, seed=5)
    leads = returns.replications.leads
    for (i, a), (j, b) in itertools.combinations(enumerate([0, 2, 3]), 2):
        np.testing.assert_array_equal(gaps.gap(a, b).gaps, leads[:, i] - leads[:, j])
    assert gaps.gap(0, 2).steps <= returns.steps


@pytest.mark.slow
def test_an_action_against_itself_is_exactly_tied_and_its_branches_are_one_query():
    asked = []

    def step(x, a, u):
        asked.append(a)
        return u, x + u

    walker = FunctionSimulator(step, lambda rng: rng.normal(), start=0.0, actions=2)
    for sharing in SHARINGS:
        walker.sharing = sharing
        asked.clear()
        sample = simulate(walker, "uniform", walker.reset(), [1, 1], num_samples=10, horizon=3, gaps_only=True).gaps()[
            0
        ]
        assert (sample.gaps == 0).all()
        assert sample.mean_interval == (0, 0)
        assert not asked  # their gap is known before the first step
        returns = simulate(walker, "uniform", walker.reset(), [1, 1], num_samples=10, horizon=3)
        assert (returns.gaps()[0].gaps == 0).all()
        assert len(asked) <= (10 + 3) * 3  # the first replication is run three times more, to see whether it can be


def test_actions_without_numbers_are_their_own_names():
    walker = FunctionSimulator(lambda x, a, u: (x, x + a), None, start=0, actions=None)
    found = simulate(walker, lambda x: 0, 0, [3, 0, 2], num_samples=2, horizon=2)
    assert [gap.mean for gap in found.gaps()] == [3, 1, -2]
    assert (found.gap(3, 0).mean, found.gap(3, 2).mean, found.gap("0", "2").mean) == (3, 1, -2)


@pytest.mark.parametrize("wrapped", [jnp.asarray, np.ndarray.tolist])
def test_policies_that_are_tables_of_any_make_run_in_the_compiled_engine(wrapped):
    """An array of JAX cannot say in double precision what probabilities are; those here are powers of 2."""
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    halves = np.where(np.arange(6)[:, None] < 3, [0.25, 0.25, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0])
    for law in (halves, policy.argmax(axis=1)):
        given = {"num_samples": 50, "seed": 1, "horizon": 6}
        found, wanted = (
            simulate(model, form, 1, [0, 3], **given, gaps_only=True).gap(0, 3) for form in (wrapped(law), law)
        )
        np.testing.assert_array_equal(found.gaps, wanted.gaps)


def test_a_simulation_that_never_ends_says_what_to_do(monkeypatch):
    monkeypatch.setattr(simulator_branches, "STEP_LIMIT", 50)
    walker = FunctionSimulator(lambda x, a, u: (0.0, x + a), None, start=0, actions=2)
    with pytest.raises(jm.ModelError, match="has not ended after 50 steps; give a horizon"):
        simulate(walker, 1, walker.reset(), [0, 1], num_samples=2, gaps_only=True).gap(0, 1)


def test_continuous_states_never_meet():
    walker = FunctionSimulator(
        lambda x, a, u: (x, 0.9 * x + a + u), lambda rng: rng.normal(), start=0.0, actions=2, sharing="state"
    )
    found = first_actions(walker, 0, walker.reset(), [0, 1], SimulationSettings(horizon=10))
    run = found.sampler(0, 50, "state")
    assert (run.leaders == [0, 1]).all()  # the policy is the same for both: who met would be one
    assert (run.steps == 10).all()


# -- functions of a decision and a seed ---------------------------------------------------------------------------


def newsvendor(order, seed):
    demand = np.random.default_rng(seed).uniform(0, 10)
    return 3.0 * min(order, demand) - 1.0 * order


def test_decisions_share_their_seed():
    """E[min(q, U)] = q − q²/20 for uniform demand on [0, 10]."""
    found = decisions_of(newsvendor, [4, 6], seed=1)
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
    found = decisions_of(lambda d, seed: seen.append(seed) or 0.0, ["a", "b"])
    found.sampler(0, 20_000, "none")
    assert len(set(seen)) == 40_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"simulator": newsvendor}, "needs the decisions"),
        ({"simulator": newsvendor, "decisions": [1]}, "at least two"),
        ({"simulator": newsvendor, "decisions": [1, 1]}, "the same name"),
        ({"simulator": newsvendor, "decisions": [1, 2], "horizon": 3}, "leave policy, state and so on"),
        ({"simulator": newsvendor, "decisions": [1, 2], "sharing": "state"}, "shows no states"),
        ({"simulator": jm.envs.inventory()[0], "decisions": [1, 2]}, "function run"),
        ({"simulator": jm.envs.inventory()[0]}, "which policy"),
        ({"simulator": 3, "policy": 1}, "is no simulator"),
        ({"simulator": jm.envs.inventory()[0], "policy": 1, "policies": {"a": 1, "b": 2}}, "either policies"),
        ({"simulator": jm.envs.inventory()[0], "policy": 1, "actions": "order 1"}, "sequence of at least one"),
        ({"simulator": jm.envs.inventory()[0], "policy": 1, "actions": [99]}, "unknown action 99"),
        ({"simulator": jm.envs.inventory()[0], "policy": 1, "state": "stock 20", "actions": [7]}, "not available"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, words):
    with pytest.raises(jm.ModelError, match=words):
        jm.compare(**arguments)


def test_an_outcome_that_is_no_number_is_refused():
    found = decisions_of(lambda d, seed: math.nan, [1, 2])
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
