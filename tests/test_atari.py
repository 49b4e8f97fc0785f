"""Atari games: what is restored is what was, noise belongs to actions, and shocks are shared as they say."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from zoo import daily, slow_or_long

import jointmdp as jm

ale_py = pytest.importorskip("ale_py")

from jointmdp_experiments import atari_coins, atari_pairs  # noqa: E402

from jointmdp.simulation.simulators.atari_simulator import FRAMES, AtariState, rom_of  # noqa: E402

pytestmark = pytest.mark.optimised

PAPER = ["Pong", "BattleZone", "Boxing", "Atlantis"]
OTHERS = ["Breakout", "SpaceInvaders", "Seaquest", "Freeway", "Qbert", "MsPacman"]


def pong(**settings: Any) -> jm.AtariSimulator:
    return jm.AtariSimulator("Pong", **settings)


def noises(count: int) -> Iterator[jm.Noise]:
    return (jm.Noise("test", i) for i in range(count))


@pytest.mark.parametrize("game", daily(PAPER))
def test_queries_are_the_game_played_straight_on(game: str) -> None:
    """An emulator of our own that is never restored goes the same way, byte for byte, as a walk of queries."""
    simulator = jm.AtariSimulator(game, no_ops=0)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("frame_skip", 1)
    ale.setInt("random_seed", 0)
    ale.loadROM(rom_of(game))
    minimal, rng = ale.getMinimalActionSet(), np.random.default_rng(0)
    state, taken, others = simulator.reset(), 0, list(range(len(minimal)))
    for noise in noises(40):
        action = int(rng.integers(len(minimal)))
        rng.shuffle(others)
        outcome = simulator.query(state, others, noise)[others.index(action)]
        paid = 0
        for number in noise.fresh()["sticky actions"].random(FRAMES):
            taken = action if number >= 0.25 else taken
            paid += ale.act(minimal[taken])
        assert outcome.reward == np.sign(paid)
        assert (outcome.state.observation == ale.getRAM()).all()
        assert outcome.state.previous == taken
        state = outcome.state


def test_stickiness_is_what_it_says() -> None:
    """1: actions mean nothing. 0: the action before means nothing."""
    free, stuck = pong(stickiness=0.0), pong(stickiness=1.0)
    state = free.walk("uniform", 20)
    for noise in noises(3):
        assert len({stuck.identity(each.state) for each in stuck.query(state, ["right", "left", "fire"], noise)}) == 1
        assert len({free.identity(each.state) for each in free.query(state, ["right", "left"], noise)}) == 2
        one, other = (free.query(state._replace(previous=a), ["left"], noise)[0].state for a in (2, 3))
        assert free.identity(one) == free.identity(other)


def test_the_same_state_has_the_same_name_whatever_ran_before() -> None:
    simulator = pong()
    first = simulator.reset(3)
    later = simulator.walk("uniform", 30, seed=9)
    assert simulator.identity(simulator.reset(3)) == simulator.identity(first) != simulator.identity(later)
    assert simulator.identity(first) != simulator.identity(first._replace(previous=1))


def test_coins_belong_to_actions() -> None:
    """Wherever an action stands in a query; the shared coin is the same for all, and each is fair."""
    simulator = pong(shocks=jm.simulators.RewardShocks(0.0, 1.0, 0.125))
    state, found = simulator.reset(), []
    for noise in noises(400):
        rewards = [each.reward for each in simulator.query(state, [2, 0, 1], noise)]
        again = [each.reward for each in simulator.query(state, [1, 2], noise.fresh())]
        assert [rewards[2], rewards[0]] == again
        found.append(rewards)
        if len(found) == 12:  # the emulator is slow, and what it plays does not matter
            break
    coins = np.array([simulator._coins(noise) for noise in noises(4000)])
    shared = np.sign(np.array(found))
    assert (shared == shared[:, :1]).all()
    assert set(np.abs(found).ravel()) == {0.875, 1.125}
    sure = norm.isf(1e-6) / np.sqrt(4000)
    products = coins.T @ coins / 4000
    assert (np.abs(coins.mean(axis=0)) < sure).all()
    assert (np.abs(products - np.eye(len(products))) < sure).all()


@pytest.mark.slow
def test_shocks_are_shared_in_the_same_state_or_at_the_same_time() -> None:
    """Branches that part at once, coins alone: no gap where time keys them, else two coins for every later step."""
    settings: dict[str, Any] = {"stickiness": 0.0, "discount": 0.5, "no_ops": 0}
    apart, together = (
        pong(shocks=jm.simulators.RewardShocks(0.0, 1.0, 0.0, sharing), **settings) for sharing in ("state", "time")
    )
    state = apart.walk("uniform", 40)
    always = jm.simulate(together, "noop", state, ["right", "left"], num_samples=30, horizon=3, gaps_only=True).gap(
        "right", "left"
    )
    assert always.variance == 0
    count = 150
    found = jm.simulate(apart, "noop", state, ["right", "left"], num_samples=count, horizon=3, gaps_only=True).gap(
        "right", "left"
    )
    exact = 2 * (0.5**2 + 0.5**4)  # first coins are shared
    # A sum of four independent coins ±0.5, ±0.5, ±0.25, ±0.25: fourth moment 3 Var² − 2 Σ a⁴.
    fourth = 3 * exact**2 - 2 * 2 * (0.5**4 + 0.25**4)
    assert abs(found.variance - exact) < norm.isf(5e-7) * np.sqrt((fourth - exact**2) / count)
    assert abs(found.mean) < norm.isf(5e-7) * np.sqrt(exact / count)


def test_frames_are_those_of_their_state() -> None:
    """A stack moves on by one; what another state was asked in between is not seen."""
    simulator = pong(observation="frames")
    state = simulator.walk("uniform", 30)
    far = simulator.walk("uniform", 200)
    (one,) = simulator.query(state, ["left"], jm.Noise("a"))
    simulator.query(far, ["right"], jm.Noise("b"))
    (again,) = simulator.query(state, ["left"], jm.Noise("a"))
    now, before = simulator.observe(one.state), simulator.observe(state)
    assert (now == simulator.observe(again.state)).all()
    assert now.shape == (84, 84, 4)
    assert (now[:, :, :3] == before[:, :, 1:]).all()
    assert (now[:, :, 3] != before[:, :, 3]).any()
    ale = ale_py.ALEInterface()
    ale.loadROM(rom_of("Pong"))
    screen = ale.getScreenGrayscale().astype(float)
    starting = pong(observation="frames", no_ops=0)
    start = starting.observe(starting.reset())[:, :, 0]
    # 210 rows are 2.5 for each row of 84, 160 columns 40/21 for each: means over areas keep the mean of the picture.
    assert abs(start.mean() - screen.mean()) < 0.5
    assert abs(start[:2].mean() - screen[:5].mean()) < 0.5


def test_over_is_over() -> None:
    simulator = pong()
    state = simulator.reset()._replace(is_over=True)
    assert simulator.is_over(state)
    assert simulator.query(state, [0, 1], jm.Noise("x")) == [(0.0, state)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("game", slow_or_long([*PAPER, *OTHERS], 2))
def test_the_auditor_is_content(game: str) -> None:
    found = jm.audit(jm.AtariSimulator(game, shocks="A"))
    assert not found.failures, str(found)
    assert not found.warnings, str(found)


@pytest.mark.slow
def test_names_and_processes() -> None:
    simulator = jm.as_simulator("atari:Pong,stickiness=0.1,shocks=B")
    assert isinstance(simulator, jm.AtariSimulator)
    assert (simulator.stickiness, simulator.shocks.sharing) == (0.1, "time")
    assert simulator.action_names == ("noop", "fire", "right", "left", "rightfire", "leftfire")
    state = simulator.walk("uniform", 10)
    here, there = (
        jm.simulate(
            simulator, "uniform", state, [2, 3], num_samples=4, horizon=3, executor=executor, gaps_only=True
        ).gap(2, 3)
        for executor in ("serial", "processes")
    )
    assert (here.mean, here.variance) == (there.mean, there.variance)


BAD = {
    "unknown game": (lambda: jm.AtariSimulator("Pongg"), "no Atari game 'Pongg'; did you mean Pong?"),
    "no setting": (lambda: jm.as_simulator("atari:Pong,sticky=0.1"), "atari has no setting 'sticky'"),
    "another game": (lambda: pong().query(jm.AtariSimulator("Boxing").reset(), [0], jm.Noise("x")), "state of Boxing"),
    "another view": (lambda: pong().at(pong(observation="frames").reset()), "another observation"),
    "no state": (lambda: pong().at(3), "no state of atari:Pong"),
    "shocks": (lambda: pong(shocks="D"), "shocks is 'D'"),
    "shocks shared": (lambda: pong(shocks=jm.simulators.RewardShocks(1, 1, 1, "none")), "sharing of shocks"),  # type: ignore[arg-type]
    "observation": (lambda: pong(observation="screen"), "observation is 'screen'"),
    "stickiness": (lambda: pong(stickiness=1.5), "stickiness"),
    "action": (lambda: pong().query(pong().reset(), ["jump"], jm.Noise("x")), "jump"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, words = BAD[case]
    with pytest.raises(jm.ModelError, match=words):
        call()


def test_states_are_plain_values() -> None:
    state = pong().reset()
    assert isinstance(state, AtariState)
    assert isinstance(state.memory, bytes)


@pytest.mark.slow
@pytest.mark.parametrize("variant", slow_or_long(["A", "B"], 1))
def test_shocks_added_by_hand_are_those_that_are_drawn(variant: str) -> None:
    steps, coins = 8, dataclasses.replace(atari_coins.VARIANTS[variant], horizon=8)
    plain = jm.AtariSimulator("Boxing", discount=0.95)
    root = plain.walk("uniform", 60, seed=3)
    paths = atari_pairs.pair_paths(plain, "uniform", root, (1, 2), 100, steps)
    shocked = jm.AtariSimulator("Boxing", discount=0.95, shocks=variant)
    drawn = jm.simulate(shocked, "uniform", root, [1, 2], num_samples=300, horizon=steps, seed=1, gaps_only=True).gap(
        1, 2
    )
    found = paths.gap_variance(coins)
    # Half widths of 95 % intervals, of both: twice their sum is more than five standard errors of the difference.
    half, half_mean = ((each.upper - each.lower) / 2 for each in (drawn.variance_interval, drawn.mean_interval))
    assert abs(found.value - drawn.variance) < 2 * (found.error + half)
    assert abs(paths.gap_mean(coins).value - drawn.mean) < 2 * (paths.gap_mean(coins).error + half_mean)
