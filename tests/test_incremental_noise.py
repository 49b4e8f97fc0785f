"""The noise lemma: sample backups are unbiased at every kind of coordinate, and their second moment is bounded.

By listing every draw on tiny models, so there is nothing statistical about it, except in the tests of the generators
themselves, whose false-alarm rate is stated.
"""

from functools import partial
from itertools import combinations_with_replacement, product

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import oracle_joint
import pytest
import scipy.stats
from oracle import RandomModel, random_model
from oracle_incremental import RULES, draws, shared_draws
from zoo import SHARINGS, STATE_AND_SLOW, build

from jointmdp.exact.bellman import sample_backups, second_moments
from jointmdp.exact.bellman.sample_backups import MeansAndPairs, powers
from jointmdp.exact.bellman.tuple_moments import Tuples
from jointmdp.ground.arrays import float64
from jointmdp.learning import table_walks

ALARM = 1e-4  # false alarms of one chi-square test; there are about 30
XS = [(s, a) for s in range(2) for a in range(2)]

backup = jax.jit(second_moments.moment_backup, static_argnames="sharing")  # one program instead of many


def tiny(seed: int, sharing: str, scale: float = 1.0, discount: float = 0.8) -> RandomModel:
    """Two states, two scenarios, two actions, and a policy that has a choice everywhere."""
    case = random_model(np.random.default_rng(seed), 2, 2, 2, discount=discount, sharing=sharing)
    policy = np.array([[0.3, 0.7], [0.6, 0.4]])
    chances = np.array([[0.35, 0.65], [0.8, 0.2]] if sharing != "time" else [[0.35, 0.65]] * 2)
    successors = np.array([[[0, 1], [1, 1]], [[1, 0], [0, 0]]])  # branches part, meet and stay
    return case._replace(probabilities=chances, policy=policy, successors=successors, rewards=scale * case.rewards)


def number(x: tuple[int, int]) -> int:
    return 2 * x[0] + x[1]


MOST = 256  # draws that there can be; shorter lists are padded with draws of chance 0, so that little is compiled


def listed(case: RandomModel, xs: list[tuple[int, int]], rule: str) -> tuple[np.ndarray, ...]:
    """All draws of a list: chances ``[F]``, rewards ``[F, m]``, numbers of the next coordinates ``[F, m]``."""
    found = list(draws(case, xs, shared_draws(case, xs, rule)))
    chances, rewards = np.zeros(MOST), np.zeros((MOST, len(xs)))
    nexts = np.zeros((MOST, len(xs)), dtype=np.int32)
    chances[: len(found)] = [row[0] for row in found]
    rewards[: len(found)] = [row[1] for row in found]
    nexts[: len(found)] = [[number(x) for x in row[2]] for row in found]
    return chances, rewards, nexts


def candidate(rng: np.random.Generator, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Any candidate moments, of no return and not symmetric."""
    return rng.normal(size=4), rng.normal(size=(len(powers(order)), 4, 4))


@partial(jax.jit, static_argnames=("order", "is_shared"))
def _lists(
    order: int,
    is_shared: bool,
    g: jax.Array,
    mean: jax.Array,
    pair: jax.Array,
    r: jax.Array,
    n: jax.Array,
    same: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    def one(r: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
        later = pair[:, n[:, None], n[None, :]]
        singles = sample_backups.singles_of(order, mean[n], jnp.diagonal(later, axis1=1, axis2=2))
        return sample_backups.targets(order, g, r, singles, later if is_shared else None, same)

    return jax.vmap(one)(r, n)


@partial(jax.jit, static_argnames=("order", "is_shared"))
def _fields(order: int, is_shared: bool, g: jax.Array, M: MeansAndPairs, r: jax.Array, n: jax.Array) -> MeansAndPairs:
    return jax.vmap(lambda r, n: sample_backups.field_targets(order, g, M, r, n, is_shared))(r, n)


def list_targets(case: RandomModel, order: int, mean: np.ndarray, pair: np.ndarray, xs: list, rule: str) -> tuple:
    """Chances ``[F]`` and the library's sample backups of a list for every draw: ``[F, m]`` and ``[F, K, m, m]``."""
    chances, rewards, nexts = listed(case, xs, rule)
    same = np.array([[x == y for y in xs] for x in xs])
    with float64():
        parts = map(jnp.asarray, (case.discount, mean, pair, rewards, nexts, same))
        found = _lists(order, case.sharing != "none", *parts)
    return chances, np.asarray(found[0]), np.asarray(found[1])


def field(case: RandomModel, order: int, mean: np.ndarray, pair: np.ndarray) -> tuple:
    """Chances and the library's sample backups of all coordinates at once for every field of outcomes."""
    chances, rewards, nexts = listed(case, XS, "right")
    with float64():
        M = MeansAndPairs(jnp.asarray(mean), jnp.asarray(pair))
        parts = jnp.asarray(case.discount), M, jnp.asarray(rewards), jnp.asarray(nexts)
        found = _fields(order, case.sharing != "none", *parts)
    return chances, np.asarray(found.mean), np.asarray(found.pair).reshape(MOST, -1, 4, 4)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_a_field_of_outcomes_is_unbiased_at_every_coordinate(sharing: str) -> None:
    """Means, diagonal, same state and distinct states at once, against two forms of T₂ that draw nothing."""
    for seed in range(3):
        case = tiny(seed, sharing)
        mean, pair = candidate(np.random.default_rng(seed), 2)
        chances, means, pairs = field(case, 2, mean, pair)
        assert chances.sum() == pytest.approx(1, abs=1e-12)
        expected = oracle.backup(*case[:6], mean.reshape(2, 2), pair[0].reshape(2, 2, 2, 2))
        np.testing.assert_allclose(chances @ means, expected[0].ravel(), atol=1e-13)
        np.testing.assert_allclose(np.tensordot(chances, pairs[:, 0], 1), expected[1].reshape(4, 4), atol=1e-12)
        with float64():
            M = second_moments.Moments(jnp.asarray(mean.reshape(2, 2)), jnp.asarray(pair[0].reshape(2, 2, 2, 2)))
            backed = backup(second_moments.model_tables(build(case), case.policy), M, sharing)
        np.testing.assert_allclose(np.tensordot(chances, pairs[:, 0], 1), backed.second.reshape(4, 4), atol=1e-12)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("rule", RULES)
def test_lists_are_unbiased_under_the_right_rule_alone(sharing: str, rule: str) -> None:
    """Every list of two coordinates, equal ones included; each wrong rule is caught where it is wrong."""
    case = tiny(1, sharing)
    mean, pair = candidate(np.random.default_rng(5), 2)
    expected = oracle.backup(*case[:6], mean.reshape(2, 2), pair[0].reshape(2, 2, 2, 2))[1].reshape(4, 4)
    off: dict[str, float] = {"diagonal": 0.0, "same state": 0.0, "distinct states": 0.0}
    for x, y in product(XS, XS):
        chances, _, pairs = list_targets(case, 2, mean, pair, [x, y], rule)
        found = float(chances @ pairs[:, 0, 0, 1])
        kind = "diagonal" if x == y else "same state" if x[0] == y[0] else "distinct states"
        off[kind] = max(off[kind], abs(found - expected[number(x), number(y)]))
    wrong = {kind for kind, size in off.items() if size > 1e-12}
    assert wrong == wrong_kinds(sharing, rule)
    assert all(off[kind] > 0.01 for kind in wrong)


def wrong_kinds(sharing: str, rule: str) -> set[str]:
    """Where a rule is wrong."""
    if rule == "independent next actions on the diagonal":
        # Under "none" the backup of an equal pair reads one outcome, so the other is not asked.
        return set() if sharing == "none" else {"diagonal"}
    if rule == "shared noise at distinct states":
        return {"state": {"distinct states"}, "time": set(), "none": {"same state", "distinct states"}}[sharing]
    return {"same state"} if rule == "one next action a state" else set()


@pytest.mark.parametrize("sharing", SHARINGS)
def test_higher_powers_are_unbiased(sharing: str) -> None:
    """Orders 3 and 4 on pairs, against the listed equations of sorted tuples; M as any return would have it."""
    case, order = tiny(2, sharing), 4
    rng = np.random.default_rng(0)
    values = {x: rng.normal() for k in range(1, order + 1) for x in combinations_with_replacement(XS, k)}
    mean = np.array([values[(x,)] for x in XS])
    pair = np.array([[[values[tuple(sorted([x] * i + [y] * j))] for y in XS] for x in XS] for i, j in powers(order)])
    chances, _, pairs = field(case, order, mean, pair)
    for k, (i, j) in enumerate(powers(order)):
        for x, y in product(XS, XS):
            expected = oracle_joint.backup(case, tuple(sorted([x] * i + [y] * j)), values)
            found = chances @ pairs[:, k, number(x), number(y)]
            assert found == pytest.approx(expected, rel=1e-11, abs=1e-11), (i, j, x, y)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_all_tuples_are_unbiased(sharing: str) -> None:
    """Moments on X³: one field of outcomes is a backup of every sorted triple, against the listed equations."""
    case, order = tiny(3, sharing), 3
    tuples = Tuples(np.array([0, 0, 1, 1]), order)
    labels = tuples.labels()
    rng = np.random.default_rng(1)
    flat = np.concatenate([[1.0], rng.normal(size=len(tuples) - 1)])
    names = [tuple(sorted(XS[label] for label in row if label >= 0)) for row in labels]
    values = dict(zip(names[1:], flat[1:], strict=True))
    chances, rewards, nexts = listed(case, XS, "right")
    with float64():
        table, g = sample_backups.links(tuples), jnp.asarray(case.discount)

        def one(r: jax.Array, n: jax.Array) -> jax.Array:
            return sample_backups.tuple_targets(table, g, jnp.asarray(flat), r, n, sharing != "none")

        found = chances @ np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(rewards), jnp.asarray(nexts)))
    assert found[0] == pytest.approx(1)
    expected = [oracle_joint.backup(case, name, values) for name in names[1:]]
    np.testing.assert_allclose(found[1:], expected, rtol=1e-11, atol=1e-11)


def noise_constants(reward_bound: float, discount: float) -> tuple[float, float]:
    """C_0 and C_1 with ``E ω(i)² ≤ C_0 + C_1 ‖M‖_λ²`` for the noise ω = T̂₂M − T₂M at every coordinate i.

    As docs/incremental.md derives them, for ``"state"`` and ``"time"``. Under ``"none"`` the backup of two distinct
    coordinates is a product of two, and no such constants exist: ``E ω² ≤ (R_max + γ ‖M_μ‖∞)⁴`` there.
    """
    weight = 2 * reward_bound / (1 - discount)
    first = 2 * max(reward_bound**2, reward_bound**4)
    return first, 2 * max(discount**2, (2 * discount * reward_bound + discount**2 * weight) ** 2)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_second_moments_respect_the_corrected_constants(sharing: str, scale: float) -> None:
    """E ω² ≤ C_0 + C_1 ‖M‖², at every coordinate, for moments from zero to far beyond any return."""
    for discount in (0.3, 0.9):
        case = tiny(4, sharing, scale, discount)
        bound = float(np.abs(case.rewards).max())
        first, second = noise_constants(bound, discount)
        weight = 2 * bound / (1 - discount)
        for size in (0.0, 1.0, 1000.0):
            mean, pair = candidate(np.random.default_rng(7), 2)
            mean, pair = size * bound * np.sign(mean), size * bound * weight * np.sign(pair)
            norm = max(np.abs(mean).max(), np.abs(pair).max() / weight)
            chances, means, pairs = field(case, 2, mean, pair)
            for targets in (means, pairs[:, 0].reshape(len(chances), -1)):
                noise = targets - chances @ targets
                most = first + second * norm**2
                if sharing == "none" and targets is not means:
                    most = max(most, (bound + discount * np.abs(mean).max()) ** 4)
                assert np.max(chances @ noise**2) <= most


def test_products_under_none_have_no_affine_bound() -> None:
    """Why "none" has a bound of its own: for large M the noise of a product grows like the fourth power."""
    case = tiny(4, "none")
    bound = float(np.abs(case.rewards).max())
    first, second = noise_constants(bound, case.discount)
    mean = 1000 * bound * np.array([1.0, -1.0, -1.0, 1.0])
    chances, _, pairs = field(case, 2, mean, np.zeros((1, 4, 4)))
    noise = pairs[:, 0] - np.tensordot(chances, pairs[:, 0], 1)
    worst = np.max(np.tensordot(chances, noise**2, 1))
    assert first + second * np.abs(mean).max() ** 2 < worst <= (bound + case.discount * np.abs(mean).max()) ** 4


def test_the_constants_of_the_text_do_not_hold_for_large_rewards() -> None:
    """With rewards in [0, 1] they do; the noise of R·R̃ alone, M = 0, exceeds 8 once rewards are a few units."""
    for scale, holds in ((0.6, True), (10.0, False)):
        case = tiny(4, "state", scale)
        chances, _, pairs = field(case, 2, np.zeros(4), np.zeros((1, 4, 4)))
        noise = pairs[:, 0] - np.tensordot(chances, pairs[:, 0], 1)
        assert (np.max(np.tensordot(chances, noise**2, 1)) <= 8) == holds


# -- the generators ----------------------------------------------------------------------------------------------


def test_uniform_numbers_are_those_of_jax() -> None:
    """Bit by bit, for small and large seeds."""
    with float64():
        for seed in (0, 2**40 + 7):
            key = jax.random.fold_in(jax.random.key(seed), 5)
            np.testing.assert_array_equal(
                table_walks.uniforms(key, (3, 7)), jax.random.uniform(key, (3, 7), dtype=jnp.float64)
            )


def p_value(case: RandomModel, xs: list[tuple[int, int]], rule: str, rewards: np.ndarray, nexts: np.ndarray) -> float:
    """Chi-square of drawn outcomes of a list against the listed ones under a rule; impossible ones give 0."""
    law: dict[tuple, float] = {}
    for chance, earned, to in draws(case, xs, shared_draws(case, xs, rule)):
        key = (*np.round(earned, 9), *map(number, to))
        law[key] = law.get(key, 0.0) + chance
    counts = dict.fromkeys(law, 0)
    rows, sizes = np.unique(np.concatenate([np.round(rewards, 9), nexts], axis=1), axis=0, return_counts=True)
    for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
        key = (*row[: len(xs)], *map(int, row[len(xs) :]))
        if key not in counts:
            return 0.0
        counts[key] += size
    expected = np.array(list(law.values())) * len(rewards)
    if len(expected) == 1:
        return 1.0
    return float(scipy.stats.chisquare(np.array(list(counts.values())), expected).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_generators_follow_the_rule_and_no_other(sharing: str) -> None:
    """Draws of lists and of whole fields have the listed law; the laws of wrong rules are rejected."""
    case = tiny(6, sharing)
    count = 20_000
    with float64():
        tables = table_walks.draw_tables(build(case), case.policy, np.full(2, 0.5), 0.1)
        scenario = jax.random.uniform(jax.random.key(3), (count, table_walks.scenario_draws(tables, sharing)))
        action = jax.random.uniform(jax.random.key(5), (count, 4))
        sample = jax.jit(jax.vmap(lambda a, b: table_walks.draw_field(tables, a, b, sharing)))(scenario, action)
        rewards, nexts = np.asarray(sample.rewards), np.asarray(sample.nexts)
    assert p_value(case, XS, "right", rewards, nexts) > ALARM
    for xs in ([XS[0], XS[0]], [XS[0], XS[1]], [XS[1], XS[3]], [XS[2], XS[0], XS[2]]):
        with float64():
            lists = jnp.tile(jnp.asarray([number(x) for x in xs], dtype=jnp.int32), (count, 1))
            numbers = jax.random.uniform(jax.random.key(4), (2, *lists.shape))
            sample = table_walks.draw_lists(tables, numbers[0], numbers[1], lists, sharing)
        drawn = np.asarray(sample.rewards), np.asarray(sample.nexts)
        for rule in RULES:
            p = p_value(case, xs, rule, *drawn)
            is_other = _law(case, xs, rule) != _law(case, xs, "right")
            assert p < 1e-12 if is_other else p > ALARM, (xs, rule, p)


def _law(case: RandomModel, xs: list, rule: str) -> dict:
    law: dict = {}
    for chance, earned, to in draws(case, xs, shared_draws(case, xs, rule)):
        key = (*earned, *to)
        law[key] = law.get(key, 0.0) + chance
    return {key: round(value, 9) for key, value in law.items()}
