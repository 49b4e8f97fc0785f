"""Linear features: values against their formulas written out, independence, and bad input."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from zoo import daily

import jointmdp as jm
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.feature_forms import (
    FeatureRows,
    Features,
    FeatureTable,
    as_feature_rows,
    as_feature_table,
    check_rank,
    dependent_columns,
)
from jointmdp.learning.projected.features import aggregation, fourier, one_hot, polynomial, radial, tiles

NAN, INF = float("nan"), float("inf")


def grid(width: int, height: int, actions: int = 2, **changes: Any) -> jm.JointMDP:
    """A model whose states are the places (x, y) of a grid; where they lead does not matter here."""
    names = list(itertools.product(range(width), range(height)))
    S = len(names)
    arguments: dict[str, Any] = {"state_names": names} | changes
    return jm.JointMDP(np.ones((S, 1)), np.zeros((S, 1, actions)), np.zeros((S, 1, actions)), 0.9, **arguments)


def line(count: int, actions: int = 2, **changes: Any) -> jm.JointMDP:
    """A model of numbered states."""
    return grid(count, 1, actions, **({"state_names": None} | changes))


def wanderer(start: Any, actions: Any = 2, observe: Callable[[Any], Any] | None = None) -> jm.FunctionSimulator:
    """A simulator that stays where it is."""
    return jm.FunctionSimulator(lambda state, a, noise: (0.0, state), start=start, actions=actions, observe=observe)


def rows(table: FeatureTable, model: jm.JointMDP) -> Any:
    """The features of available coordinates, ``[N, K]``."""
    return table.values[model.available]


def named(table: FeatureTable, name: str, action: int = 0) -> Any:
    """One feature of an action, ``[S]``."""
    return table.values[:, action, table.names.index(name)]


# Values


def test_arrays_are_taken_as_they_are() -> None:
    model = limited()
    given = np.arange(18.0).reshape(3, 2, 3)
    given[0, 1] = NAN  # not available there
    table = as_feature_table(given, model)
    expected = np.where(model.available[:, :, None], given, 0.0)
    assert np.array_equal(table.values, expected)
    assert table.names == ("feature 0", "feature 1", "feature 2")
    assert not table.values.flags.writeable
    assert given.flags.writeable
    again = as_feature_table(FeatureTable(given, ("one", "two", "three")), model)
    assert again.names == ("one", "two", "three")
    assert as_feature_table(np.ones((3, 2, 1), dtype=bool), model).values.dtype == np.float64
    assert as_feature_table(np.ones((3, 2, 1)).tolist(), model).values.shape == (3, 2, 1)


def limited() -> jm.JointMDP:
    """Three named states; "jump" exists in "b" alone."""
    available = [[True, False], [True, True], [True, False]]
    return line(3, available=available, state_names=["a", "b", "c"], action_names=["walk", "jump"])


def test_functions_are_asked_once_for_each_available_coordinate() -> None:
    calls = []

    def features(state: str, action: int) -> list[float]:
        calls.append((state, action))
        return [1.0, "abc".index(state), action]

    table = as_feature_table(features, limited())
    assert calls == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]
    assert table.values[1].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert table.values[2].tolist() == [[1, 2, 0], [0, 0, 0]]
    assert as_feature_table(lambda state, action: state + action, line(3)).values[2].tolist() == [[2], [3]]


@pytest.mark.parametrize("kind", [np.float32, np.int64, float, lambda x: np.array([x]), lambda x: np.array(x)])
def test_functions_may_return_any_kind_of_number(kind: Callable[[float], Any]) -> None:
    found = as_feature_rows(lambda observation, action: kind(observation + action), wanderer(np.int64(3)))
    assert found.names == ("feature 0",)
    assert found([1, np.int64(2)], np.array([0, 1])).tolist() == [[1], [3]]
    assert found([], np.zeros(0, dtype=np.int64)).shape == (0, 1)


def test_one_hot_has_a_unit_vector_for_every_available_coordinate() -> None:
    model = limited()
    table = as_feature_table(one_hot(), model)
    assert np.array_equal(rows(table, model), np.eye(4))
    assert table.names == ("a=walk: a", "a=walk: b", "a=jump: b", "a=walk: c")
    assert not table.values[~model.available].any()


def test_groups_of_a_table() -> None:
    model = limited()
    table = as_feature_table(aggregation(["low", "low", "high"]), model)
    assert table.names == ("a=walk: group 'low'", "a=walk: group 'high'", "a=jump: group 'low'")
    assert rows(table, model).tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    same = as_feature_table(aggregation(lambda state: "high" if state == "c" else "low"), model)
    assert np.array_equal(same.values, table.values)
    assert same.names == table.names
    shared = as_feature_table(aggregation(np.array([5, 5, 7]), by_action=False), model)
    assert shared.names == ("group 5", "group 7", "a=jump")
    assert rows(shared, model).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_groups_of_a_simulator_are_those_of_its_table() -> None:
    model = line(7, actions=3)
    rule = aggregation(lambda s: s // 3, num_groups=3)
    table, found = as_feature_table(rule, model), as_feature_rows(rule, jm.simulators.TableSimulator(model))
    assert found.names == table.names
    assert np.array_equal(all_rows(found, 7, 3), table.values)
    halves = as_feature_rows(aggregation(lambda s: s > 3, num_groups=2), jm.simulators.TableSimulator(model))
    assert halves([3, 4], np.array([0, 0]))[:, :2].tolist() == [[1, 0], [0, 1]]


def all_rows(found: FeatureRows, num_states: int, num_actions: int) -> Any:
    """Features of every state number and action, ``[S, A, K]``."""
    places = np.array(list(itertools.product(range(num_states), range(num_actions))))
    return found(places[:, 0].tolist(), places[:, 1]).reshape(num_states, num_actions, -1)


def test_polynomials_are_products_of_powers() -> None:
    model = grid(4, 4)
    table = as_feature_table(polynomial(3), model)
    powers = [(i, j) for i in range(4) for j in range(4) if i + j <= 3]
    assert len(table.names) == 2 * len(powers)

    def name(i: int, j: int) -> str:
        parts = [f"{x}^{p}" if p > 1 else x for x, p in (("x0", i), ("x1", j)) if p]
        return "a=1: " + (" ".join(parts) or "constant")

    for i, j in powers:
        expected = [(x / 3) ** i * (y / 3) ** j for x, y in model.state_names or ()]
        assert named(table, name(i, j), 1) == pytest.approx(expected, abs=1e-15)
        assert not named(table, name(i, j), 0).any()


def test_what_few_places_cannot_tell_apart_is_left_out() -> None:
    """A flag is its own square, and a cubic of three places is a square."""
    table = as_feature_table(polynomial(2, by_action=False), grid(5, 2))
    assert len(table.names) == 5 + 1  # 1, x, x², y, xy and the second action
    whole = table.values.reshape(-1, len(table.names))
    assert np.linalg.matrix_rank(whole) == len(table.names)
    for x_power, y_power in itertools.product(range(3), repeat=2):
        values = np.array([(x / 4) ** x_power * y**y_power for x, y in grid(5, 2).state_names or () for _ in range(2)])
        missed = values - whole @ np.linalg.lstsq(whole, values)[0]
        is_one = x_power + y_power <= 2 or (x_power, y_power) == (1, 2)
        assert (np.abs(missed).max() < 1e-12) == is_one
    assert len(as_feature_table(polynomial(7), line(3)).names) == 2 * 3


@pytest.mark.parametrize("total", [None, 0, 1, 3, 4, 9])
def test_cosines_are_those_of_all_frequencies(total: int | None) -> None:
    model = grid(5, 4)
    table = as_feature_table(fourier(2, max_total=total), model)
    found = {tuple(column) for column in np.round(table.values[:, 0, : len(table.names) // 2].T, 12) + 0.0}
    expected = {
        tuple(round(math.cos(math.pi * (c * x / 4 + e * y / 3)), 12) + 0.0 for x, y in model.state_names or ())
        for c in range(3)
        for e in range(3)
        if total is None or c + e <= total
    }
    assert found == expected
    assert len(table.names) == 2 * len(expected)
    assert table.names[0] == "a=0: constant"
    if total is None:
        assert named(table, "a=0: cos π(x0 + 2 x1)") == pytest.approx(
            [math.cos(math.pi * (x / 4 + 2 * y / 3)) for x, y in model.state_names or ()]
        )


def shift(grid_number: int, dimension: int, tilings: int) -> Fraction:
    """By which part of a tile a grid is shifted: multiples of odd numbers without a divisor in common with tilings."""
    odd = [f for f in range(1, 100, 2) if math.gcd(f, tilings) == 1 and f < max(tilings, 2)]
    return Fraction(grid_number * odd[dimension % len(odd)] % tilings, tilings)


@pytest.mark.parametrize(("tilings", "bins"), [(1, 3), (2, 2), (3, 4), (4, [2, 3]), (6, 3), (8, 2)])
def test_tiles_are_those_of_exact_arithmetic(tilings: int, bins: Any) -> None:
    """Every state lies in one tile of each grid, found with fractions; no feature is another one's tile."""
    size, per_dimension = (13, 9), [bins, bins] if isinstance(bins, int) else bins
    simulator = wanderer((0, 0))
    found = as_feature_rows(tiles(tilings, bins, low=[0, 0], high=[12, 8]), simulator)
    states = list(itertools.product(range(size[0]), range(size[1])))
    values = found(states, np.zeros(len(states), dtype=np.int64))[:, : len(found.names) // 2]
    middle = [
        tuple(int(Fraction(1, 2) * b + shift(t, i, tilings)) for i, b in enumerate(per_dimension))
        for t in range(tilings)
    ]
    for state, row in zip(states, values, strict=True):
        expected = set()
        for t in range(tilings):
            tile = []
            for i, b in enumerate(per_dimension):
                moved = shift(t, i, tilings)
                last = b if moved else b - 1
                tile.append(min(math.floor(Fraction(state[i], size[i] - 1) * b + moved), last))
            if t == 0 or tuple(tile) != middle[t]:
                expected.add(f"a=0: tiling {t}, tile {tuple(tile)}")
        assert {found.names[k] for k in np.flatnonzero(row)} == expected
        assert set(row) <= {0.0, 1.0}
    whole = sum(math.prod(b + (shift(t, i, tilings) > 0) for i, b in enumerate(per_dimension)) for t in range(tilings))
    assert len(found.names) == 2 * (whole - (tilings - 1))


def test_tiles_of_a_table_span_what_all_tiles_span() -> None:
    """What is left out is made up for by the rest, also where states do not tell all tiles apart."""
    model = grid(6, 5, actions=1)
    for tilings, bins in ((1, 3), (3, 2), (4, 4), (8, 3)):
        table = as_feature_table(tiles(tilings, bins), model)
        kept = rows(table, model)
        assert np.linalg.matrix_rank(kept) == kept.shape[1]
        columns = []
        for t in range(tilings):
            places = [
                tuple(math.floor(Fraction(v, n - 1) * bins + shift(t, i, tilings)) for i, (v, n) in enumerate(pair))
                for pair in (((x, 6), (y, 5)) for x, y in model.state_names or ())
            ]
            if t == 0:
                places = [(min(i, bins - 1), min(j, bins - 1)) for i, j in places]
            columns += [[float(place == tile) for place in places] for tile in sorted(set(places))]
        assert np.linalg.matrix_rank(np.array(columns).T) == kept.shape[1]


def test_bumps_around_a_grid_of_centres() -> None:
    model = grid(5, 5, actions=1, state_names=[(10 * x, y) for x in range(5) for y in range(5)])
    table = as_feature_table(radial(3), model)
    assert table.names[:3] == ("a=0: constant", "a=0: bump at (0, 0)", "a=0: bump at (0, 2)")
    assert (named(table, "a=0: constant") == 1).all()
    places = [(x / 4, y / 4) for x in range(5) for y in range(5)]
    for c, e in itertools.product(range(3), repeat=2):
        expected = [math.exp(-((x - c / 2) ** 2 + (y - e / 2) ** 2) / (2 * 0.5**2)) for x, y in places]
        assert named(table, f"a=0: bump at ({20 * c}, {2 * e})") == pytest.approx(expected, rel=1e-13)
    wide = as_feature_table(radial(1, [2.0, 0.25], constant=False), model)
    expected = [math.exp(-0.5 * (((x - 0.5) / 2) ** 2 + ((y - 0.5) / 0.25) ** 2)) for x, y in places]
    assert wide.names == ("a=0: bump at (20, 2)",)
    assert wide.values[:, 0, 0] == pytest.approx(expected, rel=1e-13)


def test_bumps_around_given_centres_in_the_units_of_the_coordinates() -> None:
    model = line(11, actions=1)
    table = as_feature_table(radial([2, 4, 10], constant=False), model)
    width = (0.2 + 0.2 + 0.6) / 3  # the mean distance to the nearest other centre, in a range of 1
    for k, centre in enumerate((2, 4, 10)):
        expected = [math.exp(-0.5 * ((s - centre) / 10 / width) ** 2) for s in range(11)]
        assert table.values[:, 0, k] == pytest.approx(expected, rel=1e-13)


RULES: dict[str, Callable[..., Features]] = {
    "polynomial": lambda **more: polynomial(4, **more),
    "fourier": lambda **more: fourier(3, **more),
    "fourier, few": lambda **more: fourier(4, max_total=4, **more),
    "one tiling": lambda **more: tiles(1, 4, **more),
    "tiles": lambda **more: tiles(4, 3, **more),
    "three tilings": lambda **more: tiles(3, 3, **more),
    "bumps": lambda **more: radial(4, **more),
    "bumps at places": lambda **more: radial([[0, 0], [3, 9], [12, 4], [5, 5]], **more),
}


@pytest.mark.parametrize("by_action", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_features_are_independent_on_a_grid(rule: str, by_action: bool) -> None:
    model = grid(13, 13)
    features = RULES[rule](by_action=by_action)
    table = as_feature_table(features, model)
    found = rows(table, model)
    assert dependent_columns(found, table.names) == []
    assert np.linalg.matrix_rank(found) == found.shape[1] == len(table.names)
    check_rank(found, table.names, "features")


@pytest.mark.parametrize("by_action", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_tables_and_simulators_agree(rule: str, by_action: bool) -> None:
    """The same coordinates and ranges, once as state names and once as observations: the same features."""
    model = grid(13, 11, action_names=["left", "right"])
    places = list(model.state_names or ())
    table = as_feature_table(RULES[rule](by_action=by_action), model)
    features = RULES[rule](by_action=by_action, low=0, high=[12, 10])
    seen = {
        "tuples": (features, wanderer((0, 0), ["left", "right"]), places),
        "arrays": (features, wanderer((0, 0), ["left", "right"]), [np.array(p, dtype=np.float32) for p in places]),
        "numbers": (
            RULES[rule](by_action=by_action, low=0, high=[12, 10], coordinates=lambda s: places[s]),
            jm.simulators.TableSimulator(model),
            list(range(len(places))),
        ),
    }
    for given, simulator, observations in seen.values():
        found = as_feature_rows(given, simulator)
        for a in range(2):
            values = found(observations, np.full(len(places), a))
            assert values.dtype == np.float64
            if "til" in rule:  # which tile is left out may differ: the same span
                both = np.concatenate([values, table.values[:, a]], axis=1)
                assert np.linalg.matrix_rank(both) == np.linalg.matrix_rank(values)
            else:
                assert found.names == table.names
                assert np.abs(values - table.values[:, a]).max() <= 1e-14


def test_where_states_are() -> None:
    """By default names that are numbers, also in text, else numbers of states; or what the user says."""
    expected = np.array([0, 0.25, 1])
    for names in (["0", "1", "4"], [0, 1, 4], ["-1.0", "0e0", " 3 "], [(0,), (1,), (4,)], ["(0, 7)", "(1,7)", "(4,7)"]):
        table = as_feature_table(polynomial(1), line(3, actions=1, state_names=names))
        assert named(table, "a=0: x0").tolist() == expected.tolist()
        assert len(table.names) == 2  # a coordinate in which all states agree is left out
    for names in (None, ["a", "b", "c"], ["stock 0", "stock 1", "stock 4"], ["1-2", "2-3", "3-4"], ["E", "e1", ""]):
        table = as_feature_table(polynomial(1), line(3, actions=1, state_names=names))
        assert named(table, "a=0: x0").tolist() == [0, 0.5, 1]
    model = line(3, actions=1, state_names=["a", "b", "c"])
    for given in ([0, 1, 4], [[0], [1], [4]], np.array([0, 1, 4], dtype=np.int8), {"a": 0, "b": 1, "c": 4}.__getitem__):
        table = as_feature_table(polynomial(1, coordinates=given), model)
        assert named(table, "a=0: x0").tolist() == expected.tolist()
    table = as_feature_table(polynomial(1, coordinates=[0, 1, 4], low=1, high=3), model)
    assert named(table, "a=0: x0").tolist() == [0, 0, 1]  # outside counts as on the edge


@pytest.mark.parametrize(("last", "words"), [("end", "is no number"), ((1,), "has 1 numbers, not 2")])
def test_names_that_are_places_but_not_all(last: Any, words: str) -> None:
    model = line(3, state_names=[(0, 1), (2, 3), last])
    with pytest.raises(ModelError, match=re.escape(f"state 2 ({last}) {words}")):
        as_feature_table(polynomial(1), model)


def test_actions_that_are_not_available_get_no_features() -> None:
    """Copies are fitted to where an action is available, and empty ones are left out."""
    model, _ = jm.envs.inventory(max_stock=20, max_order=7)
    for features in (polynomial(3), fourier(3), tiles(4, 4), tiles(3, 2), radial(4), polynomial(2, by_action=False)):
        table = as_feature_table(features, model)
        assert not table.values[~model.available].any()
        assert dependent_columns(rows(table, model), table.names) == []
    # The most states lie in the middle tile of the second grid, where the second action is not available.
    sides = line(12, available=[[True, not 3 <= s < 9] for s in range(12)])
    table = as_feature_table(tiles(2, 2), sides)
    assert dependent_columns(rows(table, sides), table.names) == []
    assert len([name for name in table.names if name.startswith("a=1")]) == 2
    never = grid(4, 1, actions=3, available=np.tile([False, True, True], (4, 1)))
    table = as_feature_table(polynomial(1, by_action=False), never)
    assert table.names == ("constant", "x0", "a=2")
    assert as_feature_table(polynomial(0), never).names == ("a=1: constant", "a=2: constant")


# Things nobody here wrote


@pytest.mark.parametrize("name", daily(["MountainCar-v0", "Blackjack-v1", "FrozenLake-v1", "Taxi-v4"], 3))
def test_gymnasium_spaces_give_the_range(name: str) -> None:
    simulator = jm.GymnasiumSimulator(name)
    seen = [simulator.observe(simulator.walk("uniform", k, seed=k)) for k in range(12)]
    actions = np.arange(12) % 2
    for features in (polynomial(2), fourier(2), tiles(2, 2), radial(2), polynomial(1, by_action=False)):
        found = as_feature_rows(features, simulator)
        values = found(seen, actions)
        assert values.shape == (12, len(found.names))
        assert np.isfinite(values).all()
    found = as_feature_rows(polynomial(1), simulator)
    first = found(seen, np.zeros(12, dtype=np.int64))[:, 1]
    ends = {"MountainCar-v0": (-1.2, 0.6), "Blackjack-v1": (0, 31), "FrozenLake-v1": (0, 15), "Taxi-v4": (0, 499)}
    low, high = ends[name]
    assert first == pytest.approx([(np.ravel(each)[0] - low) / (high - low) for each in seen], rel=1e-6)


SPACES: dict[str, tuple[Any, Any, list[float]]] = {
    "numbers from -1": (spaces.Discrete(5, start=-1), 2, [0.75]),
    "several numbers": (spaces.MultiDiscrete([3, 5]), np.array([1, 1]), [0.5, 0.25]),
    "bits": (spaces.MultiBinary([2, 1]), np.array([[1], [0]], dtype=np.int8), [1, 0]),
    "a matrix": (spaces.Box(-2, 2, (1, 2)), np.array([[-2, 1]], dtype=np.float32), [0, 0.75]),
    "bytes": (spaces.Box(0, 255, (2,), np.uint8), np.array([51, 255], dtype=np.uint8), [0.2, 1]),
    "parts": (spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 4, (1,))]), (1, np.ones(1, np.float32)), [0.5, 0.25]),
}


class Still(gymnasium.Env[Any, Any]):
    """Shows one observation for ever."""

    def __init__(self, space: Any, shown: Any) -> None:
        self.observation_space, self.action_space, self.shown = space, spaces.Discrete(2), shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.shown, 0.0, False, False, {}


@pytest.mark.parametrize("case", SPACES)
def test_ranges_of_all_kinds_of_spaces(case: str) -> None:
    space, shown, expected = SPACES[case]
    simulator = jm.GymnasiumSimulator(Still(space, shown))
    found = as_feature_rows(polynomial(1, by_action=False), simulator)
    seen = simulator.observe(simulator.reset(0))
    assert found([seen, seen], np.array([0, 1])).tolist() == [[1, *expected, 0], [1, *expected, 1]]


def test_spaces_of_one_value_have_no_range() -> None:
    simulator = jm.GymnasiumSimulator(Still(spaces.Discrete(1), 0))
    with pytest.raises(ModelError, match="no coordinate has room to vary"):
        as_feature_rows(polynomial(1), simulator)
    box = spaces.Box(np.array([0.0, 1.0]), np.array([0.0, 3.0]), dtype=np.float64)
    found = as_feature_rows(polynomial(1), jm.GymnasiumSimulator(Still(box, np.array([0.0, 2.0]))))
    assert found.names[:2] == ("a=0: constant", "a=0: x1")


def test_spaces_without_bounds_ask_for_a_range() -> None:
    simulator = jm.GymnasiumSimulator("CartPole-v1")
    with pytest.raises(ModelError, match=r"CartPole-v1 has no finite bounds in dimension 1 of 4; give low= and high="):
        as_feature_rows(fourier(1), simulator)
    most = np.array([2.4, 3.0, 0.21, 3.0])
    found = as_feature_rows(fourier(1, low=-most, high=most), simulator)
    assert found([simulator.observe(simulator.reset(0))], np.array([1])).shape == (1, 32)
    with pytest.raises(ModelError, match=r"low has 2 numbers for 4 coordinates"):
        as_feature_rows(fourier(1, low=[0, 0], high=1), simulator)


def test_observations_in_parts() -> None:
    """Tuples of numbers and arrays are one vector; dictionaries ask for a function that makes one."""
    parts = (1, np.array([2.0, 3.0]), [np.float32(4)])
    found = as_feature_rows(polynomial(1, low=0, high=10), wanderer(parts))
    assert found([parts], np.array([0])).tolist() == [[1, 0.1, 0.2, 0.3, 0.4, 0, 0, 0, 0, 0]]
    seen = {"x": 3.0, "name": "b"}
    with pytest.raises(ModelError, match=r"is a dictionary \('x', 'name'\).*give coordinates="):
        as_feature_rows(polynomial(1, low=0, high=1), wanderer(seen))
    found = as_feature_rows(polynomial(1, coordinates=lambda s: s["x"], low=0, high=6), wanderer(seen))
    assert found([seen, {"x": 6}], np.array([0, 1])).tolist() == [[1, 0.5, 0, 0], [0, 0, 1, 1]]
    for scalar in (3, 3.0, np.float64(3), np.array(3), np.array([[3]]), True + 2):
        found = as_feature_rows(polynomial(1, low=0, high=6), wanderer(scalar))
        assert found([scalar], np.array([0])).tolist() == [[1, 0.5, 0, 0]]


# Dependent columns


def test_dependent_columns_are_named() -> None:
    rng = np.random.default_rng(1)
    one, x, y, z = np.ones(50), *rng.normal(size=(3, 50))
    columns = {"one": one, "x": 1e200 * x, "nothing": 0 * x, "mixed": 2 * x + 3, "tiny": 1e-200 * y, "twin": 7 * y}
    found = dependent_columns(np.array(list(columns.values())).T, list(columns))
    by_name = {each.name: each.reason for each in found}
    assert by_name.pop("nothing") == "is zero wherever the weighting has weight"
    pairs = {"tiny": "is a multiple of 'twin'", "twin": "is a multiple of 'tiny'"}
    twin = next(name for name in pairs if name in by_name)
    assert by_name.pop(twin) == pairs[twin]
    ((last, reason),) = by_name.items()
    others = {"one", "x", "mixed"} - {last}
    assert reason.startswith("is a combination of ")
    assert all(repr(name) in reason for name in others)
    assert "more" not in reason
    many = np.array([one, x, y, z, x * y, one + x + y + z + x * y]).T
    (only,) = dependent_columns(many, list("abcdef"))
    assert only.reason.endswith(" and 2 more")
    assert only.message == f"{only.name!r} {only.reason}"
    assert list("abcdef")[only.column] == only.name


def test_weights_decide_which_columns_are_dependent() -> None:
    model = line(4, actions=1)
    table = as_feature_table(polynomial(2), model)
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    assert dependent_columns(rows(table, model), table.names) == []
    (found,) = dependent_columns(np.sqrt(weights)[:, None] * rows(table, model), table.names)
    assert found.name in ("a=0: x0", "a=0: x0^2")
    assert "is a multiple of" in found.reason
    assert dependent_columns(np.zeros((0, 2)), ["a", "b"])[1].reason == "is zero wherever the weighting has weight"
    near = np.array([[1.0, 1.0], [0.0, 1e-6]])
    assert dependent_columns(near, ["a", "b"]) == []
    assert len(dependent_columns(near * [[1], [1e-3]], ["a", "b"])) == 1  # 1e-9 of its length is lost in products


def test_what_counts_is_the_part_of_a_column_that_is_left() -> None:
    """Of 1 ± δ, next to 1, a part δ is left, however many rows there are."""
    signs = np.where(np.arange(10_000) % 2, 1.0, -1.0)
    for scale in (1.0, 1e-9, 1e9):
        for part, is_dependent in ((1e-8, True), (2e-8, False)):
            matrix = scale * np.array([np.ones(10_000), 1 + part * signs]).T
            assert bool(dependent_columns(matrix, ["one", "nearly one"])) == is_dependent


def test_the_largest_partners_are_named() -> None:
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(40, 6))
    columns[:, 5] = columns[:, :5] @ [0.01, 9.0, 0.1, 3.0, 1.0]
    columns /= np.linalg.norm(columns, axis=0)
    (found,) = dependent_columns(columns, list("abcdef"))
    others = [k for k in range(6) if k != found.column]
    parts = np.abs(np.linalg.lstsq(columns[:, others], columns[:, found.column])[0])
    shown = ", ".join(repr("abcdef"[others[k]]) for k in np.argsort(-parts)[:3])
    assert found.reason == f"is a combination of {shown} and 2 more"


def test_the_rank_is_that_of_singular_values() -> None:
    rng = np.random.default_rng(5)
    for n, k, rank in ((30, 8, 5), (6, 20, 6), (40, 12, 12), (9, 9, 1)):
        matrix = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, k))
        names = [f"f{i}" for i in range(k)]
        found = dependent_columns(matrix, names)
        assert len(found) == k - np.linalg.matrix_rank(matrix) == k - min(rank, n)
        rest = np.delete(matrix, [each.column for each in found], axis=1)
        assert np.linalg.matrix_rank(rest) == rest.shape[1]


def test_the_check_of_the_rank_names_some_and_advises() -> None:
    names = [f"f{i}" for i in range(9)]
    with pytest.raises(ModelError) as caught:
        check_rank(np.ones((2, 9)), names, "features of the mean")
    text = str(caught.value)
    assert text.startswith("features of the mean: 8 of 9 features depend on the others")
    assert "2 coordinates with weight cannot tell 9 features apart" in text
    assert text.count("is a multiple of") == 5
    assert "and 3 more" in text
    assert "fewer" in text


# Bad input


def bad_array(value: Any, place: tuple[int, ...] = (1, 1, 2)) -> Any:
    array = np.ones((3, 2, 3), dtype=np.asarray(value).dtype)
    array[place] = value
    return array


def lengths(state: Any, action: int) -> list[int]:
    return [1] * (2 + (state == "b" and action == 1))


BAD_TABLES: dict[str, tuple[Any, list[str]]] = {
    "nothing": (None, ["features must be", "None"]),
    "text": ("fourier", ["features must be", "'fourier'"]),
    "a number": (3, ["features must be", "3"]),
    "a dictionary": ({"a": 1}, ["features must be"]),
    "a constructor that was not called": (one_hot, ["features is one_hot itself", "features.one_hot("]),
    "a class": (Features, ["not the class Features"]),
    "no action axis": (np.ones((3, 4)), ["(3, 4)", "action axis missing", "[S, K]"]),
    "no feature axis": (np.ones((3, 2)), ["(3, 2)", "last axis missing", "[S, A, 1]"]),
    "coordinates in one axis": (np.ones((6, 4)), ["(6, 4)", "reshape them to (3, 2, 4)"]),
    "one axis": (np.ones(3), ["(3,)", "[S, A, K]"]),
    "axes in another order": (np.ones((2, 3, 4)), ["(2, 3, 4)", "another order"]),
    "another number of states": (np.ones((4, 2, 1)), ["(4, 2, 1)", "S = 3"]),
    "no features": (np.ones((3, 2, 0)), ["K = 0"]),
    "nan": (bad_array(NAN), ["feature 2", "state 1 (b), jump", "nan"]),
    "infinite": (bad_array(-INF), ["feature 2", "state 1 (b), jump", "inf"]),
    "complex": (bad_array(1j), ["features", "complex"]),
    "objects": (bad_array(None), ["features", "object"]),
    "ragged": ([[[1]], [[1], [1, 2]]], ["features", "numeric array"]),
    "names for others": (FeatureTable(np.ones((3, 2, 3)), ("a", "b")), ["2 names for 3 features"]),
    "a function of different lengths": (lengths, ["returned 3 numbers at state 1 (b), jump", "2 at state 0 (a), walk"]),
    "a function without return": (lambda s, a: None, ["returned None at state 0 (a), walk", "return missing"]),
    "a function that returns a matrix": (lambda s, a: np.eye(2), ["state 0 (a), walk", "2 axes"]),
    "a function that returns text": (lambda s, a: ["x"], ["state 0 (a), walk", "numeric"]),
    "a function that returns nan": (
        lambda s, a: [1, NAN if s == "c" else 2],
        ["feature 1 of state 2 (c), walk", "nan"],
    ),
    "a function that returns nothing": (lambda s, a: [], ["K = 0"]),
    "a function of one argument": (lambda s: [1], ["raised TypeError", "state 0 (a), walk", "('a', 0)"]),
    "a function that takes names for numbers": (lambda s, a: s + 1, ["raised TypeError", "given ('a', 0)"]),
    "nan as a label": (aggregation([0.0, NAN, NAN]), ["group of state 1 (b) is nan"]),
    "too few groups": (aggregation([0, 1]), ["groups has 2 labels for 3 states"]),
    "a label that cannot be looked up": (aggregation([[0], [1], [2]]), ["group of state 0 (a)", "tuple"]),
    "a label outside": (aggregation([0, 1, 2], num_groups=2), ["group of state 2 (c) is 2", "0..1", "count from 0"]),
    "a negative label": (aggregation([0, -1, 1], num_groups=2), ["group of state 1 (b) is -1", "0..1"]),
    "a label that is no number": (aggregation(["x", 0, 1], num_groups=2), ["group of state 0 (a)", "whole number"]),
    "a function of groups without return": (aggregation(lambda s: None), ["returned None at state 0 (a)"]),
    "coordinates of other states": (polynomial(1, coordinates=np.ones((4, 2))), ["(4, 2)", "S = 3"]),
    "coordinates with swapped axes": (polynomial(1, coordinates=np.ones((2, 3))), ["(2, 3)", "another order"]),
    "coordinates nan": (polynomial(1, coordinates=[0, 1, NAN]), ["coordinate 0 of state 2 (c) is nan"]),
    "coordinates of different lengths": (
        polynomial(1, coordinates=lambda s: [1] * (1 + (s == "b"))),
        ["2 coordinates at state 1 (b)", "1 at state 0 (a)"],
    ),
    "coordinates of text": (
        polynomial(1, coordinates=lambda s: s),
        ["gives state 0 (a) is no vector of numbers", "'a'"],
    ),
    "no coordinates": (polynomial(1, coordinates=lambda s: []), ["no coordinates at state 0 (a)"]),
    "all at one place": (polynomial(1, coordinates=[2, 2, 2]), ["same coordinates", "one_hot"]),
    "an empty range": (polynomial(1, low=2, high=2), ["low is 2 and high 2 in dimension 0", "below"]),
    "a range below the default": (polynomial(1, low=5), ["low is 5 and high 2 in dimension 0"]),
    "a range above all states": (polynomial(1, low=5, high=9), ["one side", "from 5 to 9", "from 0 to 2", "units"]),
    "a range too wide": (polynomial(1, coordinates=[-1e308, 0, 1e308]), ["too wide", "dimension 0"]),
    "a range of other dimensions": (fourier(1, low=[0, 0]), ["low has 2 numbers for 1 coordinates"]),
    "bins of other dimensions": (tiles(1, [2, 2]), ["bins has 2 numbers for 1 coordinates"]),
    "centres of other dimensions": (radial([[0, 0], [1, 1]]), ["centres have 2 coordinates", "states have 1"]),
    "the same centre twice": (radial([0, 1, 0]), ["centre 2", "centre 0"]),
    "width of other dimensions": (radial(2, [1, 2]), ["width has 2 numbers for 1 coordinates"]),
    "bumps too narrow to see a state": (radial([0.5], 1e-3, constant=False), ["K = 0"]),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_features_of_a_model(case: str) -> None:
    given, fragments = BAD_TABLES[case]
    with pytest.raises(ModelError) as caught:
        as_feature_table(given, limited())
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def late(observation: Any, action: int) -> list[float]:
    """Good at the start, of another length elsewhere."""
    return [1.0] * (1 + int(observation != 0))


BAD_ROWS: dict[str, tuple[Any, list[str]]] = {
    "nothing": (None, ["features must be", "None"]),
    "an array": (np.ones((3, 2, 1)), ["array", "models in tables", "lambda observation, action"]),
    "a constructor that was not called": (fourier, ["features is fourier itself"]),
    "one_hot": (one_hot(), ["one_hot()", "aggregation", "tiles"]),
    "a function of different lengths": (late, ["2 numbers at observation 5", "1 at the start"]),
    "a function that returns nan": (lambda o, a: [1, NAN if o else 0], ["feature 1 of observation 5, action 1", "nan"]),
    "a function that fails": (lambda o, a: 1 / (o - 5), ["raised ZeroDivisionError at observation 5, action 1"]),
    "a function that returns nothing": (lambda o, a: [], ["K = 0"]),
    "groups in a list": (aggregation([0, 1]), ["list of labels", "observation -> number"]),
    "groups without their number": (aggregation(lambda o: 0), ["num_groups="]),
    "a group outside": (
        aggregation(lambda o: o, num_groups=5),
        ["group of observation 5 is 5", "0..4", "count from 0"],
    ),
    "a group that is no number": (aggregation(lambda o: "a", num_groups=5), ["group of observation 0", "whole number"]),
    "no range": (polynomial(1), ["range of observations", "not known", "low="]),
    "half a range": (polynomial(1, low=0), ["not known", "high="]),
    "no range of coordinates": (polynomial(1, coordinates=lambda o: o), ["what coordinates= gives", "low="]),
    "coordinates in an array": (polynomial(1, coordinates=[[0], [1]]), ["array", "lambda s: table[s]"]),
    "an empty range": (fourier(1, low=1, high=[1]), ["low is 1 and high 1 in dimension 0"]),
    "another length than the first": (
        polynomial(1, coordinates=lambda o: [0] * (1 + o), low=0, high=1),
        ["6 coordinates at observation 5", "1 at the start"],
    ),
    "a coordinate that is infinite": (
        polynomial(1, coordinates=lambda o: INF if o else 0, low=0, high=1),
        ["coordinate 0 of observation 5 is inf"],
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_features_of_a_simulator(case: str) -> None:
    given, fragments = BAD_ROWS[case]
    with pytest.raises(ModelError) as caught:
        as_feature_rows(given, wanderer(0))([0, 5], np.array([0, 1]))
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


BAD_OBSERVATIONS: dict[str, tuple[Any, list[str]]] = {
    "longer": (np.ones(3), ["3 coordinates at observation", "2 at the start"]),
    "nan": (np.array([0, NAN]), ["coordinate 1 of observation", "nan"]),
    "text": ("ab", ["'ab'", "no vector of numbers"]),
    "a dictionary": ({"x": 1}, ["dictionary", "coordinates="]),
    "nothing": (None, ["None", "no vector of numbers"]),
}


@pytest.mark.parametrize("case", BAD_OBSERVATIONS)
def test_bad_observations(case: str) -> None:
    observation, fragments = BAD_OBSERVATIONS[case]
    found = as_feature_rows(polynomial(1, low=0, high=1), wanderer(np.zeros(2)))
    with pytest.raises(ModelError) as caught:
        found([np.zeros(2), observation], np.array([0, 1]))
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)
    with pytest.raises(ModelError, match="give a number for each"):
        found([np.zeros(2)], np.array([0, 1]))
    with pytest.raises(ModelError, match=r"action 0 is 2, outside 0\.\.1"):
        found([np.zeros(2)], np.array([2]))


def test_actions_must_be_numbered() -> None:
    for given in (lambda o, a: [1.0], polynomial(1, low=0, high=1)):
        with pytest.raises(ModelError, match="not numbered"):
            as_feature_rows(given, wanderer(0.0, None))


BAD_SETTINGS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "groups of text": (lambda: aggregation("abc"), ["groups", "'abc'"]),
    "groups in no order": (lambda: aggregation({1, 2, 3}), ["groups", "{1, 2, 3}"]),  # type: ignore[arg-type]
    "groups a number": (lambda: aggregation(3), ["groups", "3"]),  # type: ignore[arg-type]
    "no groups": (lambda: aggregation(lambda s: 0, num_groups=0), ["num_groups is 0"]),
    "by_action in words": (lambda: polynomial(1, "left"), ["by_action", "'left'"]),  # type: ignore[arg-type]
    "degree negative": (lambda: polynomial(-1), ["degree is -1"]),
    "degree fractional": (lambda: polynomial(1.5), ["degree", "1.5"]),  # type: ignore[arg-type]
    "order absurd": (lambda: fourier(10**9), ["order is 1000000000", "at most"]),
    "max_total negative": (lambda: fourier(1, max_total=-1), ["max_total is -1"]),
    "no tilings": (lambda: tiles(0, 2), ["tilings is 0"]),
    "no bins": (lambda: tiles(1, [2, 0]), ["bins is 0"]),
    "bins of text": (lambda: tiles(1, "many"), ["bins", "'many'"]),  # type: ignore[arg-type]
    "no centres": (lambda: radial(0), ["centres is 0"]),
    "centres empty": (lambda: radial(np.zeros((0, 2))), ["centres", "(0, 2)"]),
    "centres nan": (lambda: radial([[0, NAN]]), ["centre 0, dimension 1", "nan"]),
    "width zero": (lambda: radial(2, 0.0), ["width is 0.0", "positive"]),
    "width of text": (lambda: radial(2, "wide"), ["width", "numeric"]),  # type: ignore[arg-type]
    "constant a number": (lambda: radial(2, constant=3), ["constant", "3"]),  # type: ignore[arg-type]
    "low infinite": (lambda: fourier(1, low=-INF), ["low is -inf", "finite"]),
    "low of text": (lambda: fourier(1, low="a"), ["low", "numeric"]),
    "coordinates of text": (lambda: fourier(1, coordinates="x"), ["coordinates", "numeric"]),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings(case: str) -> None:
    make, fragments = BAD_SETTINGS[case]
    with pytest.raises(ModelError) as caught:
        make()
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (fourier(10), "fourier(10) in 8 dimensions would make 214,358,881 features, more than 2,000"),
        (fourier(10, max_total=10), "fourier(10, max_total=10) in 8 dimensions would make 43,758 features"),
        (polynomial(8), "polynomial(8) in 8 dimensions would make 12,870 features"),
        (tiles(8, 10), "tiles(8, 10) in 8 dimensions would make"),
        (radial(50), "radial(50) in 8 dimensions would make more than 10¹² features"),
        (polynomial(4), "a copy for each of 50 actions would make 3,000 features"),
        (aggregation(lambda s: 0, num_groups=10**9), "aggregation would make 1,000,000,000 features"),
    ],
)
def test_absurd_sizes_are_refused_before_they_are_made(features: Features, words: str) -> None:
    places = np.random.default_rng(0).normal(size=(60, 8))
    model = line(60, actions=50, state_names=[tuple(place) for place in places.tolist()])
    with pytest.raises(ModelError) as caught:
        as_feature_table(features, model)
    assert words in str(caught.value)


def test_pixels_are_refused_before_anything_is_made() -> None:
    simulator = wanderer(np.zeros((210, 160), dtype=np.uint8))
    for features in (fourier, polynomial, radial):
        with pytest.raises(ModelError, match="in 33600 dimensions would make"):
            as_feature_rows(features(2, low=0, high=255), simulator)
    with pytest.raises(ModelError, match="aggregation would make 1,000,000,000 features"):
        as_feature_rows(aggregation(lambda o: 0, num_groups=10**9), simulator)
    with pytest.raises(ModelError, match=f"would make {1 + 33_600 + math.comb(33_600, 2):,} features"):
        as_feature_rows(fourier(1, max_total=2, low=0, high=255), simulator)


def test_tables_that_do_not_fit_are_refused() -> None:
    model = line(20_000, actions=8)
    with pytest.raises(ModelError, match=r"1,000 features of 160,000 coordinates, 1\.6e\+08 numbers"):
        as_feature_table(aggregation(lambda s: s % 125), model)
    with pytest.raises(ModelError, match="would make 160,000 features"):
        as_feature_table(one_hot(), model)
