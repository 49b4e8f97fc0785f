"""Noise that is not shared is refused with its cause, odd noise is a warning, and errors name their place."""

import os
import random
import sys
import time
import types
import warnings

import cloudpickle
import jax
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.decisions.comparing.compare import Rules, decide
from jointmdp.decisions.comparing.comparison import Verdict
from jointmdp.ground.progress import duration
from jointmdp.simulation.montecarlo.alternatives import Alternatives, SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.simulator import Outcome, Simulator

# Workers then need not import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SHORT = {"horizon": 4, "pilot": 30, "max_replications": 30}
OWN = np.random.default_rng(0)


def walker(reward=lambda x, a, u: u + a, after=lambda x, a, u: x + u, **settings):
    """A random walk that pays what `reward` says."""

    def step(x, a, u):
        return reward(x, a, u), after(x, a, u)

    return FunctionSimulator(
        step, lambda rng: rng.normal(), **({"start": 0.0, "actions": {"stay": 0, "go": 1}, "name": "walk"} | settings)
    )


def asked(simulator, policy=0, **settings):
    return jm.compare(simulator, policy, simulator.reset(), **(SHORT | settings))


# -- refused -------------------------------------------------------------------------------------------------------


def test_a_generator_without_a_seed_is_named_before_those_that_have_one():
    def run(decision, seed):
        np.random.seed(seed)  # noqa: NPY002
        return np.random.normal() + np.random.default_rng().normal() + decision  # noqa: NPY002

    named = r"Likely cause: default_rng\(\), made at test_noise_checks.py:\d+.* has no seed that the noise could set"
    with pytest.raises(jm.ModelError, match=named):
        jm.compare(run, decisions=[1, 2], pilot=30, max_replications=30)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda x, a, u: np.random.default_rng().normal(), "a step gave something else .* default_rng"),
        (lambda x, a, u: OWN.normal() + a, "a step gave something else .* a generator without a seed"),
        (lambda x, a, u: time.perf_counter(), "a step gave something else .* the clock"),
        (
            lambda x, a, u: np.random.normal(),  # noqa: NPY002
            "a step gave .* a step draws from numpy.random, the generator of the whole program",
        ),
        (
            lambda x, a, u: random.random(),
            "a step gave .* a step draws from random, the generator of the whole program",
        ),
    ],
    ids=["unseeded", "module level", "clock", "numpy.random", "random"],
)
def test_a_step_with_noise_of_its_own_is_refused(reward, message):
    with pytest.raises(jm.ModelError, match=f"no noise is shared here: {message}"):
        asked(walker(reward))
    with pytest.raises(jm.ModelError, match="no noise is shared here"):
        jm.simulate(walker(reward), 0, 0.0, [0, 1], num_samples=10, horizon=4, gaps_only=True).gap(0, 1)


class Guessing:
    """A policy whose predictions are drawn, and cannot be asked not to be."""

    def predict(self, observation):
        return int(OWN.integers(2)), None


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Guessing(), "the policy gave something else .* a stochastic predict takes deterministic=True"),
        (lambda x: int(random.random() < 0.5), "the policy draws from random, the generator .* draw from that rng"),
    ],
    ids=["predict", "random"],
)
def test_a_policy_with_noise_of_its_own_is_refused(policy, message):
    with pytest.raises(jm.ModelError, match=message):
        asked(walker(), policy, horizon=20)
    with pytest.raises(jm.ModelError, match=message):
        jm.compare(walker(), policies={"drawn": policy, "stay": 0}, **SHORT | {"horizon": 20})


def test_torch_is_a_global_generator_where_it_is_loaded(monkeypatch):
    state = np.zeros(1)
    stand_in = types.SimpleNamespace(
        default_generator=types.SimpleNamespace(
            get_state=lambda: types.SimpleNamespace(numpy=state.copy),
            set_state=lambda kept: state.fill(kept.numpy()[0]),
            manual_seed=state.fill,
        ),
        Generator=type("Generator", (), {}),
    )
    monkeypatch.setitem(sys.modules, "torch", stand_in)

    def policy(x):
        state[0] += 1
        return 0.618 * state[0] % 1 < 0.5

    with pytest.raises(jm.ModelError, match="the policy draws from torch, the generator of the whole program"):
        asked(walker(), lambda x: int(policy(x)), horizon=20)


class Rolling(Simulator):
    """Seeds a generator of its own when it starts, and draws on from it: one stream, and no noise in common."""

    name, action_names = "rolling", ("a", "b")

    def start(self, noise):
        self.rng = np.random.default_rng(noise.seed)
        return 0

    def step(self, state, action, noise):
        return Outcome(self.rng.normal(), state + 1)


def test_alternatives_that_draw_on_from_each_other_are_refused():
    with pytest.raises(jm.ModelError, match="alternatives do not see the same noise: step 0 of replication 0"):
        jm.compare(Rolling(), "a", **SHORT)


def test_a_step_that_changes_its_state_is_refused():
    def after(x, a, u):
        x.append(u)
        return x

    with pytest.raises(jm.ModelError, match=r"the state to begin in gave something else .* must return a new state"):
        asked(walker(lambda x, a, u: len(x), after, start=[]))


def test_a_start_of_its_own_is_refused():
    fickle = walker(lambda x, a, u: x, start=lambda rng: OWN.normal())
    with pytest.raises(jm.ModelError, match="the start gave something else when step 0 of replication 0"):
        jm.compare(fickle, 0, **SHORT)


def test_what_depends_on_the_process_is_refused():
    with pytest.raises(jm.ModelError, match=r"walk depends on the process.* the number of the process"):
        asked(walker(lambda x, a, u: u + os.getpid()))


@pytest.mark.slow
def test_a_worker_that_gives_something_else_is_refused():
    here = walker(lambda x, a, u: u + os.getppid())
    assert asked(here).num_replications == 30
    with pytest.raises(jm.ModelError, match="in a worker: something differs between processes"):
        asked(here, executor="processes:1")


def fixed(decision, seed):
    return decision + np.random.default_rng(7).normal()


def unseeded(decision, seed):
    return decision + np.random.default_rng().normal()


def seeds_another(decision, seed):
    """Global generators are seeded, and what is drawn comes from one that is not."""
    random.seed(seed)
    return decision + random.random() + OWN.normal()


def seeds_one_of_two(decision, seed):
    random.seed(seed)
    return decision + random.random() + np.random.normal()  # noqa: NPY002


def seeds_but_for_two(decision, seed):
    """Decision 2 goes on where its neighbours stopped, which seed and draw alike."""
    if decision != 2:
        random.seed(seed)
    return decision + random.random()


def healthy(decision, seed):
    return decision + np.random.default_rng(seed).normal()


def test_functions_of_a_seed():
    few = {"decisions": [1, 2], "pilot": 30, "max_replications": 30}
    with pytest.raises(jm.ModelError, match=r"run\(decision, seed\) gave something else .*default_rng\(seed\)"):
        jm.compare(unseeded, **few)
    with pytest.raises(jm.ModelError, match="Likely cause: all its randomness must come from its seed"):
        jm.compare(seeds_another, **few)
    with pytest.raises(jm.ModelError, match=r"Likely cause: it draws from numpy\.random, [^;]*numpy\.random$"):
        jm.compare(seeds_one_of_two, **few)
    before = random.getstate()
    with pytest.raises(jm.ModelError, match="Likely cause: it draws from random, "):
        jm.compare(seeds_but_for_two, **few | {"decisions": [1, 2, 3]})
    assert random.getstate() == before
    with pytest.warns(
        jm.errors.NoiseWarning, match="all 30 replications of fixed gave the same.*does run use its seed"
    ):
        found = jm.compare(fixed, **few)
    assert "Careful: Noise never mattered" in str(found)
    assert not jm.compare(healthy, **few).warnings


# -- warned about --------------------------------------------------------------------------------------------------


def test_noise_that_never_matters_is_a_warning_in_the_answer():
    with pytest.warns(jm.errors.NoiseWarning, match="Noise never mattered: all 30 replications of walk gave the same"):
        found = asked(walker(lambda x, a, u: 1.0 + a, lambda x, a, u: x))
    assert found.warnings[0].startswith("Noise never mattered")
    assert found.warnings[0] in found.to_json()


@pytest.mark.slow
def test_the_same_in_jax():
    few = {"pilot": 30, "max_replications": 30, "horizon": 5}

    def step(key, x, a):
        return x * float(np.random.default_rng(0).random()) - 0.1 * a, 0.9 * x  # the mistake

    with pytest.warns(jm.errors.NoiseWarning, match="Noise never mattered: all 30 replications of .* gave the same"):
        jm.compare(jm.JaxSimulator(step, 40.0, actions=2, discount=0.9), 0, **few)
    rare = jm.JaxSimulator(lambda key, x, a: (0.0, x + jax.random.normal(key)), 0.0, actions=2, discount=0.9)
    assert not jm.compare(rare, 0, **few).warnings  # nothing was paid yet, but states differ


def test_a_key_that_is_kept_is_refused_in_jax():
    def step(key, state, action):
        x, own = state
        own, now = jax.random.split(own)
        return 0.1 * x + jax.random.normal(now) - 0.3 * action, (0.9 * x, own)

    with pytest.warns(UserWarning, match="ignores the key"):
        simulator = jm.JaxSimulator(step, (1.0, jax.random.PRNGKey(0)), actions=2, discount=0.9)
    with pytest.raises(jm.ModelError, match="one and the same future"):
        jm.simulate(simulator, 0, None, [0, 1], gaps_only=True).gap(0, 1)
    with pytest.raises(jm.ModelError, match="one and the same future"):
        jm.compare(simulator, 0)


def test_noise_that_has_not_paid_yet_is_alive():
    assert not asked(walker(lambda x, a, u: 0.0), pilot=100, max_replications=100).warnings


@pytest.mark.parametrize("is_fixed", [True, False])
def test_frozen_noise_is_refused_where_nothing_else_differs(is_fixed):
    simulator = walker(lambda x, a, u: 1.0 if is_fixed else u)
    simulator.frozen_noise = "a generator in a closure is copied with the state"
    if is_fixed:
        with pytest.raises(
            jm.ModelError, match=r"noise of walk is frozen: a generator in a closure .* one and the same"
        ):
            asked(simulator)
    else:
        with pytest.warns(
            jm.errors.NoiseWarning, match="Some of the noise of walk is frozen: a generator in a closure"
        ):
            asked(simulator)


def test_what_has_no_effect_is_a_warning():
    clock = walker(observe=lambda x: (x, time.perf_counter()))
    with pytest.warns(jm.errors.NoiseWarning, match="no reward and no action changed. Is there a clock"):
        asked(clock)

    def shuffles(x, a, u):
        random.random()
        return u + a

    with pytest.warns(jm.errors.NoiseWarning, match="A step draws from random, .* Nothing came of it"):
        found = asked(walker(shuffles))
    assert len(found.warnings) == 1


def test_rounding_is_no_difference():
    calls = []

    def reward(x, a, u):
        calls.append(u)
        return (u + a) * (1 + 1e-15 * (len(calls) % 3))

    assert not asked(walker(reward)).warnings


# -- errors --------------------------------------------------------------------------------------------------------


def fails(kind=ZeroDivisionError):
    def reward(x, a, u):
        if a and x > 0:
            raise kind("by design")
        return u

    return walker(reward, lambda x, a, u: x + 1)


def test_errors_of_users_code_name_the_place():
    with pytest.raises(
        jm.ModelError, match=r"a step of walk raised ZeroDivisionError in step 2 of replication 0 \(stay\): by design"
    ) as caught:
        asked(fails(), lambda x: int(x > 1))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    once = walker(lambda x, a, u: 1 / 0 if a else u)
    with pytest.raises(jm.ModelError, match=r"a step of walk raised .* in step 0 of replication 0 \(go\): division"):
        asked(once)
    with pytest.raises(jm.ModelError, match=r"the policy in a state of walk raised KeyError in step 1 .* \(stay\)"):
        asked(walker(), lambda x: {}[x])
    with pytest.raises(jm.ModelError, match="the start of walk raised IndexError in step 0 of replication 0"):
        jm.compare(walker(start=lambda rng: [][0]), 0, actions=[0, 1], **SHORT)
    with pytest.raises(jm.ModelError, match=r"broken\(2, \d+\) raised ZeroDivisionError in replication 0: division"):
        jm.compare(broken, decisions=[1, 2])
    with pytest.raises(KeyboardInterrupt):
        asked(fails(KeyboardInterrupt), lambda x: int(x > 1))


def broken(decision, seed):
    return 1 / (decision - 2)


# -- what is asked for ---------------------------------------------------------------------------------------------


class Counting(FunctionSimulator):
    """Counts how often it is asked which state this is."""

    asked = 0

    def identity(self, state):
        self.asked += 1
        return super().identity(state)


def counting(after, **settings):
    return Counting(lambda x, a, u: (u + a, after(x, a, u)), lambda rng: rng.normal(), start=0.0, actions=2, **settings)


@pytest.mark.parametrize(("sharing", "expected"), [("time", 0), ("none", 0), ("state", 2 * 3 * 5)])
def test_identities_are_asked_where_they_matter(sharing, expected):
    apart = counting(lambda x, a, u: x + u + a)
    first_actions(apart, 0, 0.0, [0, 1], SimulationSettings(horizon=3)).sampler(0, 5, sharing)
    assert apart.asked == expected


@pytest.mark.parametrize("observe", [None, lambda x: 0, lambda x: (i for i in range(3))])
def test_branches_that_look_the_same_are_asked_whether_they_are(observe):
    """They are from the first step on: one query a step, and the same numbers as under "state"."""
    together = counting(lambda x, a, u: x + u, observe=observe)
    made = first_actions(together, 0, 0.0, [0, 1], SimulationSettings(horizon=3)).sampler(0, 5, "time")
    assert together.asked == 2 * 5
    assert (made.leaders == 0).all()
    apart = counting(lambda x, a, u: x + u + a, observe=lambda x: 0)
    made = first_actions(apart, 0, 0.0, [0, 1], SimulationSettings(horizon=3)).sampler(0, 5, "time")
    assert (made.leaders == [0, 1]).all()


# -- the time limit ------------------------------------------------------------------------------------------------


def slow(decision, seed):
    time.sleep(0.001)
    return decision + np.random.default_rng(seed).normal()


@pytest.mark.slow
def test_a_time_limit_stops_it_and_says_so():
    found = jm.compare(slow, decisions=[1.0, 1.001], seconds=0.2, pilot=10_000)
    assert found.status is Verdict.TIME
    assert not found.status.is_success
    assert 2 <= found.num_replications < 10_000
    assert found.num_replications == len(found.gaps[0].gaps)
    assert f"Undecided when the time was up, after {found.num_replications:,} replications" in str(found)
    assert "Allow more time" in " ".join(str(found).split())
    never = jm.compare(slow, decisions=[1.0, 1.001], seconds=1e-9)
    assert never.num_replications == 2
    with pytest.raises(jm.ModelError, match="seconds is 0"):
        jm.compare(slow, decisions=[1, 2], seconds=0)


def test_which_of_the_replications_made_in_time_are_looked_at():
    """A look needs half as many more as the last one; with known bounds it must be on the ladder."""
    assert Rules().size_in_time(7, 0) == 7
    assert Rules().size_in_time(299, 200) == 200
    assert Rules().size_in_time(300, 200) == 300
    assert Rules(bounds=jm.Interval(0, 1)).size_in_time(300, 200) == 200


def test_the_last_look_stands_where_the_time_is_up_soon_after_it(monkeypatch):
    """A clock that jumps after 210 replications: the look at 200 is reported, and all that was sampled after is not."""
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    now, made = [0.0], [0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sampler(first, count, sharing):
        now[0] += 1e-3
        made[0] = first + count
        now[0] += 1e3 * (made[0] > 210)
        part, none = rows[first : first + count], np.zeros(count, int)
        apart = np.broadcast_to(np.arange(2), part.shape)
        return Replications(part, part - part[:, :1], 0 * part, none, apart, np.zeros(count))

    found = Alternatives(sampler, ("a", "b"), "options", "time", ("time",), None)
    late = decide(found, Rules(seconds=100, indifference=0.0, max_replications=900))
    assert made[0] > 210
    assert (late.status, late.num_replications) == (Verdict.TIME, 200)
    assert len(late.gaps[0].gaps) == 200


def test_durations_in_words():
    assert [duration(s) for s in (3.4, 99, 100, 3600, 9000)] == ["3 s", "99 s", "2 min", "60 min", "2.5 h"]


@pytest.mark.slow
def test_healthy_simulators_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cart, policy = jm.envs.gusty_cartpole(max_steps=20)
        assert not jm.compare(cart, policy, cart.walk(policy, 3), pilot=100, max_replications=100).warnings
        assert not asked(walker(), lambda x, rng: int(rng.integers(2))).warnings
        assert not asked(walker(), "uniform").warnings


def test_a_function_that_seeds_a_global_generator_with_its_seed_is_fine() -> None:
    """Many simulation packages have no other way; warnings are errors here."""

    def run(decision: float, seed: int) -> float:
        np.random.seed(seed)  # noqa: NPY002
        return decision + np.random.random()  # noqa: NPY002

    assert jm.compare(run, decisions=[1.0, 2.0]).warnings == ()
