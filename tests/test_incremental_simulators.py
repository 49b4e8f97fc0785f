"""Learning from simulators whose states are discovered on the way, here and by workers elsewhere."""

import itertools
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from test_incremental import check_all, exact
from zoo import SHARINGS, build, random_model, slow_or_long

import jointmdp as jm
from jointmdp.learning.estimates import Replicas
from jointmdp.learning.incremental.learned import LearnedStates
from jointmdp.learning.incremental.learners import SimulatorLearner
from jointmdp.learning.learn import learn
from jointmdp.learning.walks import STEPS_AHEAD, ListWalks, WalkTask, state_key
from jointmdp.simulation.executors import Processes, Serial
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

CHOICES = ["pairs", "trajectory", "uniform"]
# Lists of the same shape share what was compiled; those along trajectories are longer.
MOSTLY = ["pairs", *(pytest.param(choice, marks=pytest.mark.slow) for choice in ("trajectory", "uniform"))]
SHAPE = jm.Incremental(batch=9, replicas=2)


def bits(state: object) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def held_values(learned: LearnedStates, model: jm.JointMDP) -> tuple[Replicas, np.ndarray]:
    """Means of all discovered coordinates of a table's simulator, and their numbers in the table."""
    discovered = learned.discovered
    numbers, keys = discovered.coordinates, discovered.states
    simulator = TableSimulator(model)
    where = {keys[state_key(simulator, s)]: s for s in range(model.num_states) if state_key(simulator, s) in keys}
    found = [(numbers[s, a], where[s] * model.num_actions + a) for s, a in numbers]
    places = np.array([place for place, _ in found])
    return learned._moments.mean[places], np.array([x for _, x in found])


def held_pairs(learned: LearnedStates, model: jm.JointMDP) -> tuple[Replicas, np.ndarray]:
    """Second moments of all pairs that were updated in every replica, and the pairs' numbers in the table."""
    _, x = held_values(learned, model)
    discovered = learned.discovered
    number = dict(zip(discovered.coordinates.values(), x, strict=True))
    pairs = discovered.seen_pairs().tolist()
    places = np.array([discovered.place(*pair) for pair in pairs])
    seen = (learned._visits[1][:, places] > 0).all(axis=0)
    return learned._moments.pair[0, places[seen]], np.array([(number[x], number[y]) for x, y in pairs])[seen]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "sharing"),
    [
        pytest.param(*each, marks=[pytest.mark.long] * (i not in (0, 8)))  # `CHOICES` also go through other tests
        for i, each in enumerate(itertools.product(CHOICES, SHARINGS))
    ],
)
def test_a_simulator_is_learned_like_its_table(choice: str, sharing: str) -> None:
    """A random table behind the protocol: means, second moments of all pairs, and gaps within their intervals."""
    case = random_model(np.random.default_rng(12), 3, 3, 2, discount=0.4, sharing=sharing)
    case = case._replace(policy=np.full((3, 2), 0.5))
    model = build(case)
    steps = 6 * STEPS_AHEAD if choice == "trajectory" else 12 * STEPS_AHEAD
    options = jm.Incremental(coordinates=choice, batch=4, replicas=8)
    learned = learn(TableSimulator(model), case.policy, options, steps=steps)
    assert type(learned) is jm.results.LearnedStates
    assert learned.num_states == 3
    assert learned.steps == steps
    mean, second = exact(model, case.policy)
    values, x = held_values(learned, model)
    assert sorted(x) == list(range(6))
    check_all(values, mean[x])
    values, pairs = held_pairs(learned, model)
    assert len({tuple(sorted(pair)) for pair in pairs}) == 6 + 15  # all of them: diagonal, same state, distinct states
    check_all(values, second[pairs[:, 0], pairs[:, 1]])
    solution = jm.evaluate(model, case.policy)
    gap, truth = learned.gap(0, 0, 1), solution.gap(0, 0, 1)
    most = 8.5  # intervals of 8 replicas: Student's t with 7 degrees of freedom goes beyond once in 1e7
    assert abs(gap.mean - truth.mean) < most * gap.mean_error
    assert abs(gap.variance - truth.variance) < most * gap.variance_error
    assert gap.variance_error < 0.5 * (truth.variance + 1)
    same = learned.gap(0, 1, 1)
    assert (same.variance, same.variance_error) == (0.0, 0.0)
    for found, expected in (
        (learned.mean_at(0, 1), solution.mean[0, 1]),
        (learned.second_moment_at(0, 0, 1), solution.second_moment[0, 0, 1]),
        (learned.covariance_at(0, 1, 1), solution.covariance[0, 1, 1]),
    ):
        assert abs(found.value - expected) < most * found.error


def scenario_teller(sharing: str) -> jm.JointMDP:
    """Three states whose rewards tell the scenario, one of a hundred; actions lead everywhere."""
    scenarios = np.broadcast_to(np.arange(100.0)[None, :, None], (3, 100, 2))
    successors = np.random.default_rng(0).integers(0, 3, size=(3, 100, 2))
    return jm.JointMDP(np.full((3, 100), 0.01), scenarios, successors, 0.9, sharing=sharing)


@pytest.mark.parametrize("sharing", ["state", "time", "none"])
@pytest.mark.parametrize("choice", CHOICES)
def test_noise_is_shared_as_the_model_says(choice: str, sharing: str) -> None:
    """Two coordinates of one list had the same scenario where they share it, and by chance, once in 100, elsewhere."""
    simulator = TableSimulator(scenario_teller(sharing))
    walks = ListWalks(simulator, "uniform", choice, seed=4, restart=0.3)
    states = {state_key(simulator, s): s for s in range(3)}
    steps, _ = walks(WalkTask(range(600), range(3), [[None] * walks.walkers] * 3))
    m = walks.length
    kinds: dict[str, list[bool]] = {"coordinate": [], "state": [], "elsewhere": []}
    followers: dict[str, list[bool]] = {"coordinate": [], "distinct": []}
    names = np.reshape([states[key] for key in steps.keys.ravel().tolist()], steps.keys.shape)
    x = 2 * names[:, :, :m] + steps.actions[:, :, :m]
    for t, lane in np.ndindex(600, 3):
        for p in range(m):
            for q in range(p):
                one, two = x[t, lane, p], x[t, lane, q]
                kind = "coordinate" if one == two else "state" if one // 2 == two // 2 else "elsewhere"
                kinds[kind].append(steps.rewards[t, lane, p] == steps.rewards[t, lane, q])
                action, other = steps.actions[t, lane, m + p], steps.actions[t, lane, m + q]
                followers["coordinate" if one == two else "distinct"].append(action == other)
    if choice == "pairs":  # walkers move by draws of their own: the next list is not where this one's draws led
        nexts = 2 * names[:, :, m:] + steps.actions[:, :, m:]
        assert np.mean(x[1:] == nexts[:-1]) < 0.3  # one of 6 by chance
    shared = {"coordinate"} | ({"state"} if sharing != "none" else set())
    shared |= {"elsewhere"} if sharing == "time" else set()
    for kind, agreed in kinds.items():
        assert len(agreed) >= 90, kind
        if kind in shared:
            assert all(agreed)
        else:
            # Independent draws agree with 0.01: beyond 12 of 100, or 12 %, less than once in 1e8 (binomial).
            assert np.mean(agreed) < 0.12
    assert all(followers["coordinate"])
    apart = followers["distinct"]
    assert abs(np.mean(apart) - 0.5) < 6 * 0.5 / np.sqrt(len(apart) / m**2)  # lists repeat one draw at most m² times


@pytest.mark.slow
@pytest.mark.parametrize("choice", slow_or_long(CHOICES, 1))
def test_bits_do_not_depend_on_portions_workers_or_rests(choice: str, tmp_path: Path) -> None:
    """By hand, at once, by two processes, and continued between two multiples of `STEPS_AHEAD`."""
    model, policy = jm.envs.coupled_reward_chain(4, discount=0.7)
    options = replace(SHAPE, coordinates=choice, seed=3)
    saved = replace(options, checkpoint=tmp_path / "run")
    steps = 2 * STEPS_AHEAD + 6

    def learner(options: jm.Incremental = options) -> SimulatorLearner:
        return SimulatorLearner(TableSimulator(model), policy, options)

    whole = learner()
    straight = whole.advance(whole.init(), steps)
    assert int(straight.step) == steps

    by_hand = learner()
    state = by_hand.init()
    for n in range(3):
        sample = by_hand.draw(state)
        assert bits(by_hand.draw(state)) == bits(sample)  # drawing again changes nothing
        state, info = by_hand.step(state, sample)
        assert info.step == n + 1
        assert info.updated >= 2 * 2
    drawn = by_hand.draw(state)
    assert by_hand.answer(state).steps == 3
    for portion in (1, STEPS_AHEAD, 1, 2, steps - STEPS_AHEAD - 7):
        state = by_hand.advance(state, portion)
    assert drawn.coordinates.shape == (2, 9, by_hand.walks.length)
    assert bits(state) == bits(straight)
    assert by_hand.discovered == whole.discovered

    for until in (1, STEPS_AHEAD - 1, STEPS_AHEAD + 5, steps):
        learn(TableSimulator(model), policy, saved, steps=until)
    resumed, _ = learner(saved).resume()
    assert bits(resumed) == bits(straight)

    with Processes(2) as workers:
        elsewhere = learner()
        elsewhere.executor = workers
        assert bits(elsewhere.advance(elsewhere.init(), steps)) == bits(straight)
        assert elsewhere.discovered == whole.discovered


@pytest.mark.parametrize("choice", ["pairs", pytest.param("trajectory", marks=pytest.mark.slow)])
def test_walkers_go_on_beyond_the_steps_drawn_at_once(choice: str) -> None:
    """A line of 100 states from left to right, never begun again: all of them are found."""
    simulator = FunctionSimulator(
        lambda place, action, _: (1.0, min(place + 1, 99)),
        lambda rng: 0,
        start=0,
        actions=1,
        discount=0.9,
        reward_bounds=(0, 1),
    )
    options = replace(SHAPE, restart=0.0, coordinates=choice)
    assert learn(simulator, 0, options, steps=100).num_states == 100


@pytest.mark.parametrize("choice", MOSTLY)
def test_states_with_a_coarse_identity_are_taken_up_again(choice: str, tmp_path: Path) -> None:
    """Snapshots differ within one identity: what goes on is the snapshot of the walker, not that of the state."""
    simulator = FunctionSimulator(
        lambda place, action, push: (float(np.clip(place, -1, 1)), 0.9 * place + (action - 0.5) * 0.1 + push),
        lambda rng: rng.normal(0, 0.2),
        start=0.1,
        actions=2,
        discount=0.8,
        reward_bounds=(-1, 1),
        identity=lambda place: round(place),
    )
    options = replace(SHAPE, coordinates=choice, seed=1)
    saved = replace(options, checkpoint=tmp_path / "run")
    straight = learn(simulator, "uniform", options, steps=STEPS_AHEAD + 20)
    for until in (STEPS_AHEAD // 2, STEPS_AHEAD + 3, STEPS_AHEAD + 20):
        found = learn(simulator, "uniform", saved, steps=until)
    assert found.discovered == straight.discovered
    np.testing.assert_array_equal(found._moments.pair.values, straight._moments.pair.values)
    np.testing.assert_array_equal(found._moments.mean.bias_bound, straight._moments.mean.bias_bound)


@pytest.mark.parametrize("sharing", ["time", "state", "none"])
def test_states_that_are_made_again_are_the_ones_that_were_found(sharing: str) -> None:
    """Random starts and a coarse identity: what came of one start cannot be made again from another."""
    simulator = FunctionSimulator(
        lambda place, action, push: (0.0, place + action + push),
        lambda rng: rng.random(),
        start=lambda rng: rng.uniform(0, 10),
        actions=2,
        discount=0.5,
        sharing=sharing,
        reward_bounds=(0, 1),
        identity=lambda place: round(place) // 3,
    )
    learner = SimulatorLearner(simulator, "uniform", replace(SHAPE, coordinates="uniform"))
    learner.advance(learner.init(), STEPS_AHEAD + 1)
    places = learner.walks.known
    assert len(places) > 8
    assert [state_key(simulator, place.state) for place in places] == [place.key for place in places]


def stall(state: tuple[int, int], action: int | str, rain: bool) -> tuple[float, tuple[int, int], bool]:
    """A market stall for three days, in town (0) or on the coast (1); moving costs 1."""
    (day, place), moves = state, int(action in (1, "move"))
    earned = (-1.0 if rain else 3.0 + place) if place else (0.0 if rain else 3.0)
    return earned - moves, (day + 1, place ^ moves), day == 2


@pytest.mark.slow
def test_states_are_discovered_and_episodes_end() -> None:
    """Known answer: three days, one coin a day, and what is over pays nothing."""
    simulator = FunctionSimulator(
        stall,
        lambda rng: rng.random() < 0.4,
        start=(0, 0),
        actions=["stay", "move"],
        discount=0.9,
        reward_bounds=(-2, 4),
    )
    learned = learn(simulator, "stay", jm.Incremental(batch=4), steps=4 * STEPS_AHEAD)
    assert learned.num_states == 5  # two places on the second and third day, and one on the first
    start = simulator.at((0, 0))
    town, coast = 0.6 * 3.0, 0.6 * 4.0 - 0.4
    stay = town * (1 + 0.9 + 0.81)
    move = town - 1 + coast * (0.9 + 0.81)
    for action, truth in (("stay", stay), ("move", move)):
        found = learned.mean_at(start, action)
        assert abs(found.value - truth) < 8.5 * found.error
        assert found.error < 0.5
    # One coin for both: the gap of a day is 1 in the sun and −1 in the rain.
    gap = learned.gap(start, "move", "stay")
    assert (gap.action, gap.other) == ("move", "stay")
    assert abs(gap.variance - (0.81 + 0.81**2) * 4 * 0.24) < 8.5 * gap.variance_error
    assert {row.kind for row in learned.visits} == {"mean", "diagonal", "same state", "distinct states"}
    assert "5 states discovered" in repr(learned)
    with pytest.raises(jm.ModelError, match="has not been visited"):
        learned.mean_at(simulator.at((7, 7)), "stay")
    with pytest.raises(jm.ModelError, match="has not been visited"):
        learned.mean_at(simulator.at((2, 1)), "move")  # the policy stays from the second day on


def test_simulators_that_cannot_be_learned_are_refused() -> None:
    def simulator(**changes: object) -> FunctionSimulator:
        settings = {"start": (0, 0), "actions": 2, "discount": 0.9, "reward_bounds": (-2, 4), **changes}
        return FunctionSimulator(stall, lambda rng: rng.random() < 0.4, **settings)

    few = jm.Incremental(batch=8, replicas=4)
    for changes, options, words in (
        ({"reward_bounds": None}, {}, "give reward_bound="),
        ({"discount": 1.0}, {}, "is 1"),
        ({"actions": None}, {}, "not numbered"),
        ({}, {"coordinates": "sweep"}, "discovered on the way"),
        ({}, {"start": 3}, "leave start out"),
        ({"reward_bounds": (0, 1)}, {}, "above its bound 1"),
        ({}, {"memory_limit": 1000.0}, "coarser identity"),
    ):
        with pytest.raises(jm.ModelError, match=words):
            learn(simulator(**changes), "uniform", replace(few, **options), steps=STEPS_AHEAD)
    with pytest.raises(jm.ModelError, match="must be a JointMDP"):
        learn(simulator(), "uniform", replace(few, joint=True))
    with pytest.raises(jm.ModelError, match="method must be"):
        learn(simulator(), "uniform", {"batch": 8})
    bounded = jm.Incremental(batch=1, replicas=2, reward_bound=4)
    assert learn(simulator(reward_bounds=None), 0, bounded, steps=1).num_states > 1


def test_tables_are_not_sent_to_workers() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match="executor is for simulators"):
        learn(model, policy, steps=2, executor="processes")
    assert learn(model, policy, steps=2, executor="serial").steps == 2
    assert learn(model, policy, steps=2, executor=Serial()).steps == 2


def test_a_learner_goes_one_way() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    learner = SimulatorLearner(TableSimulator(model), policy, SHAPE)
    first = learner.init()
    learner.advance(first, 2)
    with pytest.raises(jm.ModelError, match="samples can be drawn for step 2 only"):
        learner.draw(first)


def test_an_error_of_nothing_is_not_zero() -> None:
    """Before every replica has updated some coordinate nothing is known, and no tolerance is reached."""

    def step(state, action, noise):
        return 1.0, state + 1

    simulator = jm.FunctionSimulator(step, start=lambda rng: float(rng.random()), actions=2, discount=0.5)
    options = jm.Incremental(replicas=3, batch=1, reward_bound=1.0)
    found = jm.learn(simulator, 0, options, steps=3, tolerance=1e-3)
    assert found.error == np.inf
    assert found.steps == 3
