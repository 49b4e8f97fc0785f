"""Laws of the gaps of a solution, computed when first asked for and kept, finer each time more is wanted.

All gaps whose futures live on the same states share one set of brackets, so the second question is cheaper.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints, float64, on_device
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.law.gap_law import GapLaw, Mixture
from jointmdp.law.pair_brackets import LEAST_CELLS, PairLaws, least_bytes
from jointmdp.model.episodes import policy_kernel, reachable
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments.certificates import Certificate

WORTH_SHARING = 1.5  # brackets on up to so many times the states needed are used rather than made anew
SUM_ROUNDING = 1e-14  # of a sum of probabilities over scenarios, relatively
TIE_ROUNDING = 1e-11  # of the probabilities that two branches never differ or become one

Width = Callable[[GapLaw], float]  # of the interval that is asked for


class Signs(NamedTuple):
    """Bounds on the signs of all gaps of all states, ``[S, A, A]`` each; NaN where an action is not available."""

    better: tuple[Floats, Floats]
    """P(Z(s,a) > Z(s,b)), lower and upper."""
    equal: tuple[Floats, Floats]
    """P(Z(s,a) = Z(s,b)), lower and upper."""

    def __repr__(self) -> str:
        states, actions, _ = self.better[0].shape
        return (
            f"Signs(every two of {actions} actions in {states} states, known to within {self.width:.1e}; "
            "better[0][s, a, b] and better[1][s, a, b] bound P(Z(s,a) > Z(s,b)), equal likewise)"
        )

    @property
    def width(self) -> float:
        """The widest of all intervals."""
        return float(max(np.nanmax(upper - lower) for lower, upper in self))


class Laws:
    """The laws of all gaps of one model under one policy."""

    def __init__(
        self, model: JointMDP, policy: Floats, mean: Floats, certificate: Certificate, horizon: int | None
    ) -> None:
        self.model = model
        self.policy = policy
        self.mean = mean
        self.certificate = certificate
        self.horizon = horizon
        self._kernel = policy_kernel(model, policy)
        self._known: list[PairLaws] = []
        self._stalled: set[tuple[int, int, int, str]] = set()

    def fits(self, state: int, action: int, other: int, memory_limit: int) -> bool:
        """Whether the coarsest grid fits."""
        return least_bytes(len(self._states(state, action, other))) <= memory_limit

    def gap_law(
        self, state: int, action: int, other: int, width: Width, tolerance: float, memory_limit: int, question: str = ""
    ) -> GapLaw:
        """The law of one gap, refined until ``width(law) ≤ tolerance`` or as far as memory and progress allow.

        `question` names what `width` looks at; where refining has stopped helping it, it is not tried again.
        """
        laws = self._laws(self._states(state, action, other), memory_limit)
        name = f"{self.model.action_label(action)} − {self.model.action_label(other)}"
        read = self._reader(laws, state, action, other, f"{name} in {self.model.state_label(state)}")
        asked = (state, action, other, question)
        # What finer grids did not narrow once they will not narrow the next time.
        is_open = laws.stop_loss is None or asked not in self._stalled
        if is_open and laws.refine(lambda: width(read()), tolerance, memory_limit, f"law of {name}"):
            self._stalled.add(asked)
        return read()

    def signs(self, tolerance: float, memory_limit: int) -> Signs:
        """Who beats whom, for every state and every two actions."""
        laws = self._laws(np.arange(self.model.num_states), memory_limit)
        laws.refine(lambda: self._signs(laws).width, tolerance, memory_limit, "signs of all gaps", is_whole=False)
        return self._signs(laws)

    def _states(self, state: int, action: int, other: int) -> Ints:
        """States that the two branches can come to; those of the state's other actions too, if they are few more."""
        possible = self.model.successors[state][self.model.probabilities[state] > 0]
        needed = reachable(self._kernel, possible[:, [action, other]].ravel())
        shared = reachable(self._kernel, possible[:, self.model.available[state]].ravel())
        return shared if len(shared) <= WORTH_SHARING * len(needed) else needed

    def _laws(self, states: Ints, memory_limit: int) -> PairLaws:
        small = [k for k in self._known if len(k.tables.states) <= WORTH_SHARING * len(states)]
        fitting = [k for k in small if np.all(k.tables.place[states] >= 0)]
        if fitting:
            return min(fitting, key=lambda k: len(k.tables.states))
        if (least := least_bytes(len(states))) > memory_limit:
            raise ModelError(
                f"the law lives on pairs of the {len(states):,} states that can be reached; even {LEAST_CELLS} grid "
                f"cells take {least:,} bytes, more than memory_limit allows ({memory_limit:,}); bounds from moments "
                "need no law"
            )
        error = float(np.max(self.certificate.mean_errors[self.model.available]))
        made = PairLaws(self.model, self.policy, self.mean, error, states, self.horizon)
        self._known.append(made)
        return made

    def _mixture(self, laws: PairLaws, state: Ints, action: Ints, other: Ints) -> Mixture:
        """The first steps of gaps given by arrays of one shape; scenarios come last."""
        model, tables = self.model, laws.tables
        w = np.arange(model.num_scenarios)
        s, a, b = state[..., None], action[..., None], other[..., None]
        if model.sharing == "none":
            first, second = (x.ravel() for x in np.meshgrid(w, w, indexing="ij"))
            weights = model.probabilities[s, first] * model.probabilities[s, second]
        else:
            first = second = w
            weights = model.probabilities[s, w]
        shifts = tables.shaped[s, first, a] - tables.shaped[s, second, b]
        places = tables.place
        left, right = places[model.successors[s, first, a]], places[model.successors[s, second, b]]
        return Mixture(weights, np.where(np.abs(shifts) <= tables.resolution, 0.0, shifts), left, right)

    def _reader(self, laws: PairLaws, state: int, action: int, other: int, name: str) -> Callable[[], GapLaw]:
        mix = self._mixture(laws, np.array(state), np.array(action), np.array(other))
        some = mix.weights > 0
        mix = Mixture(mix.weights[some], mix.shifts[some], mix.left[some], mix.right[some])
        g, errors = self.model.discount, self.certificate.mean_errors[state]
        mean = float(self.mean[state, action] - self.mean[state, other])
        error = float(errors[action] + errors[other]) + 4e-16 * abs(mean)
        highest = float(np.max(mix.shifts + g * laws.most[mix.left, mix.right]))
        lowest = float(np.min(mix.shifts - g * laws.most[mix.right, mix.left]))
        merge = [float(np.sum(mix.weights * bound[mix.left, mix.right])) for bound in laws.merging]

        def read() -> GapLaw:
            assert laws.grid is not None
            with float64():
                brackets = laws.brackets(mix.left, mix.right)
            return GapLaw(
                name,
                mean_interval=Interval(mean - error, mean + error),
                support=Interval(lowest, highest).widened(laws.gap_error),
                never_differs=float(_level(mix, laws)),
                merge=Interval(max(0.0, merge[0] - TIE_ROUNDING), min(1.0, merge[1] + TIE_ROUNDING)),
                spacing=laws.grid.spacing,
                cells=laws.cells,
                _mixture=mix,
                _discount=g,
                _brackets=brackets,
                _is_lattice=laws.is_lattice(mix.shifts),
            )

        return read

    def _signs(self, laws: PairLaws) -> Signs:
        """The pathwise bounds of all gaps at 0."""
        assert laws.grid is not None
        assert laws.F is not None
        F_all = laws.F
        exists = self.model.available[:, :, None] & self.model.available[:, None, :]
        index = np.indices(exists.shape)
        mix = self._mixture(laws, *index)
        z, g, error = laws.grid.points, self.model.discount, laws.gap_error

        def at_most(shifts: Floats, left: Ints, right: Ints) -> Floats:
            i = np.searchsorted(z, (error - shifts) / g, side="right") - 1
            with float64():
                F = np.asarray(F_all[on_device(left), on_device(np.maximum(i, 0)), on_device(right)])
            return np.sum(mix.weights * np.where(i >= 0, F, 0.0), axis=-1) + laws.probability_error

        above = np.clip(1 - at_most(mix.shifts, mix.left, mix.right), 0, 1)
        below = np.clip(1 - at_most(-mix.shifts, mix.right, mix.left), 0, 1)
        level = _level(mix, laws)
        is_same = index[1] == index[2]

        def only(values: Floats, of_same: float) -> Floats:
            return np.where(exists, np.where(is_same, of_same, np.clip(values, 0.0, 1.0)), math.nan)

        better = only(above, 0.0), only(1 - below - level, 0.0)
        return Signs(better, (only(level, 1.0), only(1 - above - below, 1.0)))


def _level(mix: Mixture, laws: PairLaws) -> Floats:
    """Lower bounds on the probability of no difference ever; certain where the graph alone says so."""
    is_even = mix.weights * (mix.shifts == 0)
    total = np.sum(is_even * laws.no_difference[mix.left, mix.right], axis=-1)
    certain = np.sum(is_even * laws.is_identical[mix.left, mix.right], axis=-1)
    return np.maximum(certain * (1 - SUM_ROUNDING), total - TIE_ROUNDING)
