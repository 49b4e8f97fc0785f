"""A model whose actions share Gumbel noise: the laws of its actions, and tables when something asks for them.

Two branches are a pair, so `evaluate` and hindsight ask for laws of pairs alone (`gumbel_pair_law`). Whatever asks for
the joint law of more actions, or for scenarios, gets tables when it first asks. Under ``sharing="state"`` those of a
state with two actions are exact, all others are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, counted_once, expand
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import NoiseWarning
from jointmdp.model.action_laws import ActionLaws, numbered_laws
from jointmdp.model.couplings import GumbelMax, coupled_tables
from jointmdp.model.gumbel_pair_law import laws_given, relative_error
from jointmdp.model.joint_mdp import JointMDP, MarginalMDP
from jointmdp.model.tables import as_available, terminal_states

AT_ONCE = 2**18  # numbers of laws that are sorted at once
TABLES = ("probabilities", "rewards", "successors")


OF_DRAWS = (
    "the scenarios of this Gumbel-max model are drawn: means hold, but how gaps vary, their laws and all intervals are "
    "those of the table that came of it, not of Gumbel-max; exact are hindsight and evaluate(model, policy), by its "
    "default method and where pairs of states are few enough to be listed (states=[…], from_start)"
)


def warn_of_draws(model: JointMDP) -> None:
    """Say that what is asked of tables is asked of draws, in the name of the caller's caller."""
    if isinstance(model, GumbelModel) and not model.has_exact_tables:
        warnings.warn(OF_DRAWS, NoiseWarning, stacklevel=3)


class Outcomes(NamedTuple):
    """The laws of all actions, one after the other, by the numbers of outcomes; equal outcomes have equal numbers."""

    starts: Ints  # [S·A + 1]
    numbers: Ints  # [N]
    probabilities: Floats  # [N] all positive
    rewards: Floats  # [N]
    successors: Ints  # [N]

    @classmethod
    def of(cls, laws: ActionLaws) -> Outcomes:
        """Numbered over all states, so that the noise of an outcome is known wherever it is met."""
        found = numbered_laws([laws.of_state(s) for s in range(laws.num_states)])
        sizes = np.array([len(each.numbers) for each in found])
        places = np.concatenate([each.places for each in found]) + np.repeat(laws.starts[:-1], sizes)
        numbers, chances = (np.concatenate(each) for each in list(zip(*found, strict=True))[:2])
        starts = np.append(0, np.cumsum(sizes))
        return cls(starts, numbers, chances, laws.rewards[places], laws.successors[places])

    @property
    def width(self) -> int:
        """Outcomes of the longest law."""
        return int(np.diff(self.starts).max())

    def rows(self, laws: Ints) -> tuple[Floats, Floats, Ints]:
        """Chances, rewards and successors of some laws, ``[K, n]``; filled up with chances of 0."""
        places = self.starts[laws][:, None] + np.arange(int(np.diff(self.starts)[laws].max(initial=1)))
        is_in = places < self.starts[laws + 1][:, None]
        places = np.where(is_in, places, 0)
        return np.where(is_in, self.probabilities[places], 0.0), self.rewards[places], self.successors[places]

    def alone(self, states: Ints, rows: Floats) -> tuple[Ints, Floats, Floats, Ints]:
        """Of branches in these states that take actions by `rows`: who gets what, how likely, paid what, and where."""
        i, action = np.nonzero(rows)
        owner, place = expand(self.starts, states[i] * rows.shape[1] + action)
        who, weight = i[owner], self.probabilities[place] * rows[i, action][owner]
        first, total = counted_once((who, self.successors[place], self.rewards[place]), weight)
        return who[first], total, self.rewards[place[first]], self.successors[place[first]]

    def given(self, seen: Ints, outcome: Ints, other: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """What the laws `other` get, given that the laws `seen` got an `outcome` by its place in the law; ``[M]`` each.

        For each outcome that is possible: which question it answers, where it stands here, its probability, and how far
        that is off at most.
        """
        parts = []
        known, row = np.unique(seen, return_inverse=True)
        dense = np.zeros((len(known), int(self.numbers.max()) + 1))
        owner, place = expand(self.starts, known)
        dense[owner, self.numbers[place]] = self.probabilities[place]
        got = self.numbers[self.starts[seen] + outcome]
        sizes = np.diff(self.starts)[other]
        order = np.argsort(sizes, kind="stable")  # rows of a block are about equally long
        ends = np.cumsum(sizes[order])
        for block in np.split(order, np.flatnonzero(np.diff(ends // AT_ONCE)) + 1):
            if not len(block):
                continue
            width = int(sizes[block].max())
            is_in = np.arange(width) < sizes[block, None]
            places = np.where(is_in, self.starts[other[block]][:, None] + np.arange(width), 0)
            numbers = self.numbers[places]
            q = np.where(is_in, self.probabilities[places], 0.0)
            p = np.where(is_in, dense[row[block][:, None], numbers], 0.0)
            is_seen = is_in & (numbers == got[block, None])
            column = np.where(is_seen.any(axis=1), np.argmax(is_seen, axis=1), -1)
            weights, meet = q, np.flatnonzero(p.any(axis=1))  # others have no outcome in common
            if len(meet):
                weights = q.copy()
                weights[meet] = laws_given(p[meet], q[meet], column[meet])
            i, j = np.nonzero(weights)
            weight = weights[i, j]
            off = relative_error(width + self.width) * (weight + q[i, j])
            parts.append((block[i], places[i, j], weight, off))
        if not parts:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, np.zeros(0), np.zeros(0)
        which, places, weight, off = (np.concatenate(column) for column in zip(*parts, strict=True))
        return which, places, weight, off


class GumbelModel(JointMDP):
    """A joint MDP whose actions share a Gumbel noise of each outcome: the laws of its actions, and tables when asked.

    Pairs of actions are known in closed form (`outcomes`). The tables are drawn when something first reads them.
    """

    def __init__(  # many parameters: those of a JointMDP with laws in place of tables, and how tables are drawn
        self,
        laws: ActionLaws,
        coupling: GumbelMax,
        discount: float,
        sharing: Sharing = "state",
        *,
        has_common_grid: bool,
        max_entries: int,
        available: ArrayLike | None = None,
        state_names: Sequence[Any] | None = None,
        action_names: Sequence[Any] | None = None,
    ) -> None:
        checks.as_count("draws", coupling.draws)
        checks.as_count("seed", coupling.seed, 0)
        self.laws, self.coupling = laws, coupling
        self.has_common_grid, self.max_entries = has_common_grid, max_entries
        self.available = as_available(available, laws.num_states, laws.num_actions)
        self.available.flags.writeable = False
        self.discount = checks.as_discount(discount, may_be_zero=True)
        self.sharing: Sharing = checks.as_sharing(sharing)
        self.state_names = checks.as_names("state", state_names, laws.num_states)
        self.action_names = checks.as_names("action", action_names, laws.num_actions)

    def __getattr__(self, name: str) -> Any:
        """The tables, drawn when they are first read."""
        if name not in TABLES or "laws" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self.sharing == "none":  # nobody sees which outcomes stand in one row
            self.keep(self.alone)
        else:
            drawn = coupled_tables(self.laws, self.coupling, self.has_common_grid, self.max_entries)
            self.keep(JointMDP(*drawn, self.discount, self.sharing, available=self.available))
        return self.__dict__[name]

    def keep(self, tables: JointMDP) -> None:
        """Take tables that were drawn before."""
        self.__dict__.update({name: getattr(tables, name) for name in TABLES})

    @property
    def is_drawn(self) -> bool:
        """Whether the tables are there."""
        return "probabilities" in self.__dict__

    @property
    def has_exact_tables(self) -> bool:
        """Whether nothing of the tables is drawn: two actions at most in a state, which has scenarios of its own."""
        few = not self.has_common_grid and bool(np.all(self.available.sum(axis=1) <= 2))
        return few or self.sharing == "none"

    @property
    def num_states(self) -> int:
        """S."""
        return self.laws.num_states

    @property
    def num_actions(self) -> int:
        """A."""
        return self.laws.num_actions

    @cached_property
    def outcomes(self) -> Outcomes:
        """The laws by numbers of outcomes."""
        return Outcomes.of(self.laws)

    @cached_property
    def alone(self) -> JointMDP:
        """Tables for one branch by itself, or for two without noise in common; nothing of them is drawn."""
        tables = coupled_tables(self.laws, "comonotone", False, self.max_entries)
        names: dict[str, Any] = {"state_names": self.state_names, "action_names": self.action_names}
        return JointMDP(*tables, self.discount, "none", available=self.available, **names)

    def marginal_mdp(self) -> MarginalMDP:
        """The ordinary MDP that each action sees by itself."""
        return self.alone.marginal_mdp()

    @cached_property
    def reward_bound(self) -> float:
        """R_max, the largest ``|R|`` among outcomes that can happen."""
        return float(np.max(np.abs(self.outcomes.rewards), initial=0.0))

    def _with(self, **changes: Any) -> GumbelModel:
        kept = ("laws", "coupling", "discount", "sharing", "has_common_grid", "max_entries", "available")
        parts = {name: getattr(self, name) for name in (*kept, "state_names", "action_names")}
        found = GumbelModel(**{**parts, **changes})
        is_alike = found.has_common_grid == self.has_common_grid and found.laws is self.laws
        if self.is_drawn and is_alike and (found.sharing == "none") == (self.sharing == "none"):
            found.keep(self)
        return found

    def with_sharing(self, sharing: Sharing) -> JointMDP:
        """The same laws with another kind of sharing."""
        return self._with(sharing=sharing, has_common_grid=self.has_common_grid or sharing == "time")

    def with_discount(self, discount: float) -> JointMDP:
        """The same laws with another discount."""
        return self._with(discount=discount)

    def with_opposite_rewards(self) -> JointMDP:
        """The same laws with rewards for costs, or costs for rewards: every return changes its sign."""
        return self._with(laws=self.laws._replace(rewards=-self.laws.rewards))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GumbelModel):
            return super().__eq__(other)
        names = ("coupling", "discount", "sharing", "has_common_grid", "state_names", "action_names")
        if any(getattr(self, name) != getattr(other, name) for name in names):
            return False
        parts: Any = zip((*self.laws, self.available), (*other.laws, other.available), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in parts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def sizes(self) -> str:
        """How many states and actions there are, in words."""
        counts = ((self.num_states, "state"), (self.num_actions, "action"))
        return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts) + ", Gumbel noise"


def ends_of(model: JointMDP) -> Bools:
    """States where nothing is paid any more, ``[S]``."""
    if not isinstance(model, GumbelModel):
        return terminal_states(model)
    laws = model.outcomes
    state = np.repeat(np.arange(len(laws.starts) - 1), np.diff(laws.starts)) // model.num_actions
    goes_on = (laws.successors != state) | (laws.rewards != 0)
    return np.bincount(state[goes_on], minlength=model.num_states) == 0
