"""What was seen: states, actions and rewards of one branch, step by step; and the same in the numbers of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.log_tables import is_missing, read_logs
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP

UNSEEN = -1


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One branch as it was seen: ``states[t]``, then ``actions[t]``, which paid ``rewards[t]``, then ``states[t+1]``.

    Args:
        states: by name or index. One more than actions, or as many where the outcome of the last action was not seen.
            None stands for a state that was not seen; the first one must be known.
        actions: by name or index, all of them.
        rewards: one for each action; None for all or for some that were not seen.
        scenarios: where the noise itself was recorded: the number of the scenario of a table, or the noise of a
            simulator; None for all or for some.
        ended: whether the episode was over after the last action: the last state is one where nothing is paid any more.
        episode: what it is called, which comes back in answers and messages.
    """

    states: Sequence[Any]
    actions: Sequence[Any]
    rewards: Sequence[float | None] | None = None
    scenarios: Sequence[Any] | None = None
    ended: bool = False
    episode: Any = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "rewards", "scenarios"):
            given = getattr(self, name)
            if given is None and name in ("rewards", "scenarios"):
                continue
            if isinstance(given, str) or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
                raise ModelError(f"a trajectory's {name} must be a sequence, not {given!r}")
            object.__setattr__(self, name, list(given))
        steps = len(self.actions)
        if not len(self.states):
            raise ModelError("a trajectory has at least one state")
        if len(self.states) not in (steps, steps + 1):
            raise ModelError(
                f"a trajectory with {steps} actions has {steps + 1} states, or {steps} where the last outcome was not "
                f"seen; this one has {len(self.states)}"
            )
        for name in ("rewards", "scenarios"):
            given = getattr(self, name)
            if given is not None and len(given) != steps:
                raise ModelError(f"a trajectory with {steps} actions has {steps} {name}; this one has {len(given)}")

    def __len__(self) -> int:
        """Steps."""
        return len(self.actions)

    def __repr__(self) -> str:
        which = "" if self.episode is None else f"{self.episode!r}: "
        return f"Trajectory({which}{len(self)} steps from {self.states[0]!r}{', ended' if self.ended else ''})"

    def cut(self, start: int) -> Trajectory:
        """What was seen from step `start` on."""
        start = checks.as_count("start", start, least=0, most=len(self.states) - 1)
        rewards = None if self.rewards is None else self.rewards[start:]
        scenarios = None if self.scenarios is None else self.scenarios[start:]
        return Trajectory(self.states[start:], self.actions[start:], rewards, scenarios, self.ended, self.episode)

    @classmethod
    def read(
        cls,
        source: Any,
        model: JointMDP | None = None,
        *,
        ended: bool = False,
        columns: Mapping[str, Any] | None = None,
    ) -> list[Trajectory]:
        """The trajectories of a table, in the order of their first rows.

        Args:
            source: a CSV file, a data frame, or columns by name. With a row for each step: what ``state`` was seen,
                what ``action`` was taken there and, where known, the ``reward`` it paid and the ``scenario``. A row
                without an action is the last of its trajectory. Rows of different values of ``episode`` are different
                trajectories, whatever stands between them. Rows are in the order of time, or are sorted by the column
                ``step``, which then has no gaps. ``ended`` is 1 or true in the last row of an episode that was over.
                Or with a row for each episode, whose columns are ``state_0``, ``action_0``, ``reward_0``, ``state_1``
                and so on. ``next_state`` may say where a step led; it must be the state of the next row. Empty cells
                were not seen. Other columns are ignored.
            model: whose states and actions the table names, by name or number; None to take them as they are.
            ended: whether all episodes were over after their last action.
            columns: what the table calls these columns, ``{"state": "vitals", "action": "treatment"}``, or for rows of
                episodes ``{"state": "vitals_{}"}``; None for a column that is not to be read.
        """
        return [cls(**parts) for parts in read_logs(source, model, columns, ended)]


def given_trajectories(trajectory: Any) -> list[Trajectory]:
    """One or several, as a list."""
    is_one = isinstance(trajectory, Trajectory) or not isinstance(trajectory, Iterable)
    found = [trajectory] if is_one else list(trajectory)
    if not found:
        raise ModelError("no trajectories were given")
    for each in found:
        if not isinstance(each, Trajectory):
            raise ModelError(f"a trajectory is a jointmdp.Trajectory(states, actions, …), not {each!r}")
    return found


@contextlib.contextmanager
def named_trajectory(number: int, count: int, episode: Any = None) -> Iterator[None]:
    """Of several trajectories, errors say which."""
    try:
        yield
    except ModelError as error:
        if count == 1 and episode is None:
            raise
        raise ModelError(f"{called(number, count, episode)}: {error}") from None


def called(number: int, count: int, episode: Any = None) -> str:
    """One of several trajectories, in words."""
    if episode is not None:
        return f"episode {episode}"
    return "the trajectory" if count == 1 else f"trajectory {number}"


class SeenSteps(NamedTuple):
    """A trajectory in the numbers of a model; `UNSEEN` or NaN where something was not seen."""

    states: Ints  # [T+1]
    actions: Ints  # [T]
    rewards: Floats  # [T]
    scenarios: Ints  # [T]
    ended: bool

    def cut(self, start: int) -> SeenSteps:
        """From step `start` on."""
        parts = self.states[start:], self.actions[start:], self.rewards[start:], self.scenarios[start:]
        return SeenSteps(*parts, self.ended)


def seen_steps(model: JointMDP, trajectory: Trajectory, over: Bools) -> SeenSteps:
    """The trajectory by indices; what the model does not know is an error that names the step.

    `over` says which states are ends, ``[S]``.
    """
    steps = len(trajectory)
    states = np.full(steps + 1, UNSEEN)
    actions, scenarios = np.zeros(steps, dtype=np.int64), np.full(steps, UNSEEN)
    rewards = np.full(steps, np.nan)
    _check_meant("the trajectory", "state", model.state_names or (), trajectory.states)
    _check_meant("the trajectory", "action", model.action_names or (), trajectory.actions)
    for t, state in enumerate(trajectory.states):
        if not is_missing(state):
            states[t] = _index(f"state {t} of the trajectory", model.state_index, state)
    if states[0] == UNSEEN:
        raise ModelError("the first state of a trajectory must be known")
    for t, action in enumerate(trajectory.actions):
        if is_missing(action):
            raise ModelError(f"action {t} of the trajectory is missing; what was done must be known")
        actions[t] = _index(f"action {t} of the trajectory", model.action_index, action)
        if states[t] != UNSEEN and not model.available[states[t], actions[t]]:
            label, place = model.action_label(int(actions[t])), model.state_label(int(states[t]))
            raise ModelError(f"action {t} of the trajectory is {label}, which is not available in {place}")
    for t in range(steps):
        reward = None if trajectory.rewards is None else trajectory.rewards[t]
        if not is_missing(reward):
            rewards[t] = checks.as_number(f"reward {t} of the trajectory", reward)
        scenario = None if trajectory.scenarios is None else trajectory.scenarios[t]
        if not is_missing(scenario) and isinstance(model, GumbelModel):
            raise ModelError(
                f"scenario {t} of the trajectory is given, but Gumbel noise has no scenarios; leave scenarios out. "
                "For a table that was drawn give JointMDP(model.probabilities, model.rewards, model.successors, …)"
            )
        if not is_missing(scenario):
            name = f"scenario {t} of the trajectory"
            scenarios[t] = checks.as_count(name, scenario, least=0, most=model.num_scenarios - 1)
    _check_end(model, states, trajectory.ended, over)
    return SeenSteps(states, actions, rewards, scenarios, bool(trajectory.ended))


def until(model: JointMDP, seen: SeenSteps, steps: int, over: Bools) -> SeenSteps:
    """An episode that is over, with steps that pay nothing up to a horizon: then nothing follows its last one."""
    more = steps - len(seen.actions)
    last = int(seen.states[-1])
    if more <= 0 or last == UNSEEN or not over[last]:
        return seen
    idle = int(np.flatnonzero(model.available[last])[0])
    return SeenSteps(
        np.append(seen.states, np.full(more, last)),
        np.append(seen.actions, np.full(more, idle)),
        np.append(seen.rewards, np.full(more, np.nan)),
        np.append(seen.scenarios, np.full(more, UNSEEN)),
        seen.ended,
    )


def _check_meant(what: str, kind: str, names: tuple[Any, ...], values: Sequence[Any]) -> None:
    """Raise where a number is the name of one state or action and the place of another."""
    texts = list(map(str, names))
    places = {i: name for i, name in enumerate(texts) if name != str(i) and str(i) in texts}
    for t, value in enumerate(values if places else ()):
        if isinstance(value, int | np.integer) and int(value) in places:
            raise ModelError(
                f"{kind} {t} of {what} is the number {value}, which may mean the {kind} called '{value}' or the one in "
                f"place {value}, {places[int(value)]!r}; give names as texts, or read the logs with the model: "
                "Trajectory.read(source, model)"
            )


def _index(what: str, index: Any, value: Any) -> int:
    try:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = tuple(value.tolist())  # the name of a state, in an array of names
        return int(index(value.item() if isinstance(value, np.generic) else value))
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from None


def _check_end(model: JointMDP, states: Ints, ended: bool, over: Bools) -> None:
    known = states[states != UNSEEN]
    for t in np.flatnonzero((states[:-1] != UNSEEN) & over[states[:-1]]):
        if np.any((states[t + 1 :] != UNSEEN) & (states[t + 1 :] != states[t])):
            raise ModelError(
                f"the trajectory goes on after step {t}, but {model.state_label(int(states[t]))} is an end: nothing "
                "leaves it and nothing is paid there"
            )
    if ended and states[-1] != UNSEEN and not over[states[-1]]:
        raise ModelError(
            f"the trajectory says that the episode ended in {model.state_label(int(known[-1]))}, but in the model it "
            "goes on there; leave ended=True out if the episode was cut off, or leave the last state out if the model "
            "ends in a state of its own, as those made from Gymnasium do"
        )
