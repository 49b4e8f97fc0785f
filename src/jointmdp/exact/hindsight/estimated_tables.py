"""Tables estimated from logs, and what it does to an answer that they are only estimated.

In each state and action the probabilities of outcomes, a reward and a successor each, have a Dirichlet law

    p(·|s,a) ~ Dirichlet(n(s,a,·) + c),        of mean (n + c) / Σ (n + c),

where n counts what was logged and c is the pseudo-count: the prior, of every outcome that is thought possible there. A
state in which nothing was ever done is taken to be over.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.log_tables import is_missing
from jointmdp.exact.hindsight.logged_trajectories import Trajectory, called, given_trajectories
from jointmdp.exact.hindsight.study_of_logs import intervals
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace, aligned
from jointmdp.ground.arrays import Bools, Floats, Ints, summed
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.model.action_laws import laws_from_entries
from jointmdp.model.couplings import MAX_ENTRIES, Coupling
from jointmdp.model.from_mdp import OrdinaryModel, coupled_model, place_of
from jointmdp.model.joint_mdp import JointMDP

OVER = "over"  # where an episode is whose last state was not seen
MANY_OUTCOMES = 50  # from which on most of them seen once are no chance
MOST = 2**20  # states or actions whose names are numbers
FEW = 5  # times that an action was tried, of which a repr warns


class Outcomes(NamedTuple):
    """What may follow each action, sorted by action, successor and reward."""

    owner: Ints  # [N] the law s·A + a
    successors: Ints  # [N]
    rewards: Floats  # [N]
    counts: Floats  # [N] how often it was logged
    prior: Floats  # [N] its pseudo-count


class SpreadRow(NamedTuple):
    """One number over drawn tables."""

    what: str
    mean: float
    std: float
    interval: Interval
    """Sampled: percentiles of the drawn tables."""


@dataclass(frozen=True, eq=False, repr=False)
class TableSpread(ResultFace):
    """What an answer is under tables drawn from what the logs say of them; all of it is sampled."""

    draws: Floats = field(repr=False)  # [D, K]
    names: tuple[str, ...]
    confidence: float

    @property
    def rows(self) -> tuple[SpreadRow, ...]:
        """Mean, standard deviation and interval of each number."""
        ends = intervals(self.draws, self.confidence)
        parts = zip(self.names, self.draws.mean(axis=0).tolist(), self.draws.std(axis=0).tolist(), ends, strict=True)
        return tuple(SpreadRow(*part) for part in parts)

    def table(self) -> list[dict[str, Any]]:
        """One row for each number."""
        return [each._asdict() for each in self.rows]

    def __repr__(self) -> str:
        head = f"TableSpread({len(self.draws):,} drawn tables; sampled, intervals hold {self.confidence:.0%} of them)"
        rows = [[each.what, f"{each.mean:.4g}", f"± {each.std:.2g}", f"{each.interval:.4g}"] for each in self.rows]
        return "\n".join([head, *aligned(rows)])


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedTables(ResultFace):
    """How often each outcome followed each action in some logs, and tables made of that."""

    outcomes: Outcomes = field(repr=False)
    available: Bools = field(repr=False)  # [S, A]
    is_over: Bools = field(repr=False)  # [S] nothing was ever done there
    state_names: tuple[Any, ...] | None
    action_names: tuple[Any, ...] | None
    skipped: int
    """Steps that were left out, because a state of theirs was not seen."""

    @property
    def counts(self) -> Floats:
        """How often each action was taken in each state, ``[S, A]``."""
        found = summed(self.outcomes.owner, self.outcomes.counts, self.available.size)
        return found.reshape(self.available.shape)

    @property
    def behaviour(self) -> Floats:
        """What the logs did, as a policy ``[S, A]``; uniform where they were never."""
        tried = np.where(self.is_over[:, None], 0.0, self.counts)
        total = tried.sum(axis=1, keepdims=True)
        rest = self.available / self.available.sum(axis=1, keepdims=True)
        return np.where(total > 0, tried / np.where(total > 0, total, 1.0), rest)

    def model(
        self,
        discount: float,
        coupling: Coupling = "comonotone",
        sharing: Sharing = "state",
        *,
        draw: int | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> JointMDP:
        """The joint MDP of the mean tables, or of tables drawn from their law.

        Args:
            discount, coupling, sharing, max_entries: as in `jointmdp.from_mdp`.
            draw: the seed of a draw; None for the means.
        """
        o = self.outcomes
        laws = laws_from_entries(o.owner, self._chances(draw), o.rewards, o.successors, self.available, place_of)
        found = OrdinaryModel(laws, self.available, self.state_names, self.action_names)
        is_common = checks.as_sharing(sharing) == "time"
        return coupled_model(found, coupling, is_common, checks.as_count("max_entries", max_entries), discount, sharing)

    @property
    def transitions(self) -> dict[Any, dict[Any, list[tuple[float, Any, float]]]]:
        """The mean tables as `from_mdp` and `jointmdp.bounds` take them: outcomes by state and action."""
        found: dict[Any, dict[Any, list[tuple[float, Any, float]]]] = {}
        for row in self.table():
            outcomes = found.setdefault(row["state"], {}).setdefault(row["action"], [])
            outcomes.append((row["probability"], row["successor"], row["reward"]))
        return found

    def _chances(self, draw: int | None) -> Floats:
        o = self.outcomes
        alpha = o.counts + o.prior
        logs = np.log(alpha)
        if draw is not None:
            rng = np.random.default_rng(checks.as_count("draw", draw, least=0))
            # A gamma variable of shape α is one of shape α + 1 times U^(1/α), which may be too small for a float.
            logs = np.log(rng.standard_gamma(alpha + 1)) + np.log1p(-rng.random(len(alpha))) / alpha
        top = np.full(self.available.size, -np.inf)
        np.maximum.at(top, o.owner, logs)
        weight = np.exp(logs - top[o.owner])
        return np.asarray(weight / summed(o.owner, weight, self.available.size)[o.owner])

    def spread(
        self,
        ask: Callable[[JointMDP], Any],
        discount: float,
        coupling: Coupling = "comonotone",
        sharing: Sharing = "state",
        *,
        draws: int = 20,
        seed: int = 0,
        confidence: float = 0.95,
    ) -> TableSpread:
        """What an answer is under drawn tables, beside what it is under their means; sampled.

        Args:
            ask: what is asked of each model: a function that gives the answers of `jointmdp.hindsight` to many logs, of
                which the counterfactual mean, the gap and the model-based mean are kept; or a number, or a dictionary
                of numbers.
            discount, coupling, sharing: as in `model`.
            draws: how many tables.
            seed: of the first; the others have the seeds after it.
            confidence: how many of the draws an interval holds.
        """
        count, confidence = checks.as_count("draws", draws), checks.as_fraction("confidence", confidence)
        rows: list[dict[str, float]] = []
        with Meter("drawn tables") as meter:
            for i in range(count):
                rows.append(_numbers(ask(self.model(discount, coupling, sharing, draw=seed + i))))
                meter.update((i + 1) / count, f"{i + 1:,} of {count:,} drawn tables")
        names = tuple(rows[0])
        return TableSpread(np.array([[row[name] for name in names] for row in rows]), names, confidence)

    def table(self) -> list[dict[str, Any]]:
        """One row for each outcome of each action: how often it was logged, and its probability with its error."""
        o, A = self.outcomes, self.available.shape[1]
        alpha, mean = o.counts + o.prior, self._chances(None)
        std = np.sqrt(mean * (1 - mean) / (summed(o.owner, alpha, self.available.size)[o.owner] + 1))
        states, actions = (
            [str(i) if names is None else names[i] for i in range(count)]
            for names, count in zip((self.state_names, self.action_names), self.available.shape, strict=True)
        )
        return [
            {
                "state": states[int(o.owner[i]) // A],
                "action": actions[int(o.owner[i]) % A],
                "reward": float(o.rewards[i]),
                "successor": states[int(o.successors[i])],
                "count": float(o.counts[i]),
                "probability": float(mean[i]),
                "std": float(std[i]),
            }
            for i in np.flatnonzero(~self.is_over[o.owner // A]).tolist()
        ]

    def __repr__(self) -> str:
        S, A = self.available.shape
        tried = self.counts[~self.is_over]
        few = int(np.sum((tried > 0) & (tried < FEW)))
        skipped = f"; {self.skipped:,} steps with unseen states left out" if self.skipped else ""
        return (
            f"EstimatedTables({int(tried.sum()):,} steps; {S:,} states, of which {int(self.is_over.sum()):,} are over, "
            f"{A} actions; {int(np.sum(tried > 0)):,} of {tried.size:,} tried, {few:,} fewer than {FEW} times{skipped})"
        )


def _numbers(found: Any) -> dict[str, float]:
    """What one answer says, by name."""
    if hasattr(found, "study"):
        kept = ("counterfactual", "gap", "model-based")
        return {each.what: each.mean for each in found.study(resamples=1).estimates if each.what in kept}
    if isinstance(found, dict):
        return {str(name): checks.as_number(str(name), value) for name, value in found.items()}
    return {"answer": checks.as_number("what ask gives", found)}


def estimate_tables(
    logs: Trajectory | Sequence[Trajectory],
    *,
    pseudo_counts: float = 0.0,
    outcomes: Literal["state", "all"] = "state",
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    never_taken: tuple[Hashable, float] | None = None,
) -> EstimatedTables:
    """Tables of an ordinary MDP from logs: how often which reward and successor followed each action.

    Args:
        logs: of `jointmdp.Trajectory.read` without a model, say, with their rewards.
        pseudo_counts: what is added to the count of each outcome that is thought possible.
        outcomes: which those are: with ``"state"`` what followed any action in the same state, with ``"all"`` what
            followed anything anywhere.
        states, actions: their names, in order; None for those of the logs in order of appearance, or for numbers, which
            then are places. Where other numbers are names, such as ``[1, 2]``, read logs with the model.
        never_taken: the state that an action leads to where it was never taken, and what it pays, such as ``("dead",
            -1)``; None where it is not available there. With pseudo-counts every action is available.
    """
    given = given_trajectories(logs)
    added = checks.as_amount("pseudo_counts", pseudo_counts)
    if outcomes not in ("state", "all"):
        raise ModelError(f'outcomes is {outcomes!r}; it must be "state" or "all"')
    needs_over = any(each.ended and len(each.states) == len(each) for each in given)
    more = ([] if never_taken is None else [never_taken[0]]) + [OVER] * needs_over
    state_of, state_names = _numbered("state", [s for each in given for s in each.states] + more, states)
    action_of, action_names = _numbered("action", [a for each in given for a in each.actions], actions)
    if not action_of:
        raise ModelError("the logs hold no actions")
    S, A = (1 + max(places.values()) for places in (state_of, action_of))  # a place may be known by several names
    done = {action_of[_key(a)] for each in given for a in each.actions}
    if actions is None and (never := sorted(set(range(A)) - done)):
        raise ModelError(
            f"the actions of the logs are the numbers {', '.join(map(str, sorted(done)))}; {never[0]} never occurs: "
            f"say actions=range({A}) where it can be done, else name them, as in 'dose {max(done)}'"
        )
    seen: dict[tuple[int, int, float], int] = {}
    skipped = 0
    for n, each in enumerate(given):
        if each.rewards is None and len(each):
            raise ModelError(f"{called(n, len(given), each.episode)} has no rewards, which tables need")
        known = [None if is_missing(s) else state_of[_key(s)] for s in each.states]
        if len(known) == len(each):
            known.append(state_of[OVER] if each.ended else None)
        for t, action in enumerate(each.actions):
            here, to, paid = known[t], known[t + 1], (each.rewards or [])[t]
            if here is None or to is None:
                skipped += 1
                continue
            if is_missing(paid):
                raise ModelError(f"reward {t} of {called(n, len(given), each.episode)} is missing")
            kind = here * A + action_of[_key(action)], to, checks.as_finite("a reward", paid)
            seen[kind] = seen.get(kind, 0) + 1
    if not seen:
        raise ModelError("the logs hold no step whose outcome was seen")
    is_over = np.ones(S, dtype=bool)
    is_over[[owner // A for owner, _, _ in seen]] = False
    if needs_over and not is_over[state_of[OVER]]:
        raise ModelError(
            f"logs that ended are taken to end in a state {OVER!r}, but something is done in it; rename it"
        )
    _check_ends(given, is_over, state_of)
    prior = dict.fromkeys(seen, added)
    if added:
        once = sum(count == 1 for count in seen.values())
        if 2 * once > len(seen) > MANY_OUTCOMES:
            warnings.warn(
                f"{once:,} of {len(seen):,} outcomes were seen once: rewards that are hardly ever equal are an outcome "
                f"each, and pseudo_counts={added:g} for each of them outweigh what was seen. Round the rewards, or add "
                "nothing",
                UserWarning,
                stacklevel=2,
            )
        by_state: dict[int, dict[tuple[int, float], None]] = {}
        for owner, to, paid in seen:
            by_state.setdefault(0 if outcomes == "all" else owner // A, {})[to, paid] = None
        for s in np.flatnonzero(~is_over).tolist():
            for a in range(A):
                prior |= {(s * A + a, *outcome): added for outcome in by_state[0 if outcomes == "all" else s]}
    entries = [(*key, float(seen.get(key, 0)), prior[key]) for key in prior]
    taken = {key[0] for key in prior}
    exists = np.ones((S, A), dtype=bool)
    for s, a in np.argwhere(exists).tolist():
        if is_over[s]:
            entries.append((s * A + a, s, 0.0, 0.0, 1.0))
        elif s * A + a not in taken:
            exists[s, a] = never_taken is not None
            if never_taken is not None:
                pays = checks.as_finite("what never_taken pays", never_taken[1])
                entries.append((s * A + a, state_of[_key(never_taken[0])], pays, 0.0, 1.0))
    found = Outcomes._make(map(np.array, zip(*sorted(entries), strict=True)))
    return EstimatedTables(found, exists, is_over, state_names, action_names, skipped)


def _numbered(kind: str, values: Sequence[Any], names: Sequence[Any] | None) -> tuple[dict[Any, int], Any]:
    """Numbers by name, and the names; None where the numbers are the names."""
    found = dict.fromkeys(_key(value) for value in values if not is_missing(value))
    if names is not None:
        known = {_key(name): i for i, name in enumerate(names)}
        if len(known) < len(names):
            twice = next(name for i, name in enumerate(names) if known[_key(name)] != i)
            raise ModelError(f"{kind}s names {twice!r} twice")
        texts = {str(name): i for name, i in known.items()}
        if len(texts) == len(known):  # a file of texts and a table of numbers mean the same by a name
            known |= {value: texts[str(value)] for value in found if value not in known and str(value) in texts}
        if unknown := [value for value in found if value not in known and value != OVER]:
            raise ModelError(f"the logs have the {kind} {unknown[0]!r}, which is not among the {kind}s given")
        added = [each for each in found if each not in known]
        is_plain = not added and list(map(_key, names)) == list(range(len(names)))
        return known | {each: len(names) for each in added}, None if is_plain else (*names, *added)
    whole = [value for value in found if type(value) is int]
    if not whole:
        return {value: i for i, value in enumerate(found)}, tuple(found) or None
    rest = [value for value in found if type(value) is not int and value != OVER]
    rest += [value for value in whole if not 0 <= value < MOST]
    if rest:
        raise ModelError(
            f"the {kind}s of the logs are numbers, but there is {rest[0]!r} as well; name all of them: {kind}s=[…]"
        )
    numbers = range(max(whole) + 1)
    if OVER in found:
        return {**{i: i for i in numbers}, OVER: len(numbers)}, (*map(str, numbers), OVER)
    return {i: i for i in numbers}, None


def _key(value: Any) -> Any:
    value = checks.as_fixed(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_ends(logs: Sequence[Trajectory], is_over: Bools, state_of: dict[Any, int]) -> None:
    for n, each in enumerate(logs):
        last = each.states[-1]
        if each.ended and len(each.states) > len(each) and not is_missing(last) and not is_over[state_of[_key(last)]]:
            raise ModelError(
                f"{called(n, len(logs), each.episode)} ended in {last!r}, but in other logs something is done there; "
                "leave out the last state of logs that ended, and they end in a state of their own"
            )
