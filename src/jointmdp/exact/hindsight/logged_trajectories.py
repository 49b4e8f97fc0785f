"""What was seen: states, actions and rewards of one branch, step by step; by hand, or from a CSV file."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, spelled_out
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP

UNSEEN = -1

# Of a CSV file.
COLUMNS = ("episode", "state", "action", "reward", "scenario", "ended")
SEPARATORS = (",", ";", "\t")
YES = ("1", "1.0", "true", "yes")
NOTHING = ("na", "nan", "none", "null")  # what programs write for what is not there
DIGITS = 18  # of the longest number of a state that fits in 64 bits

Row = tuple[int, Mapping[str, str]]  # the number of a line, and its cells by column


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
    """

    states: Sequence[Any]
    actions: Sequence[Any]
    rewards: Sequence[float | None] | None = None
    scenarios: Sequence[Any] | None = None
    ended: bool = False

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
        return f"Trajectory({len(self)} steps from {self.states[0]!r}{', ended' if self.ended else ''})"

    def cut(self, start: int) -> Trajectory:
        """What was seen from step `start` on."""
        start = checks.as_count("start", start, least=0, most=len(self.states) - 1)
        rewards = None if self.rewards is None else self.rewards[start:]
        scenarios = None if self.scenarios is None else self.scenarios[start:]
        return Trajectory(self.states[start:], self.actions[start:], rewards, scenarios, self.ended)

    @classmethod
    def read(cls, path: FilePath, model: JointMDP, *, ended: bool = False) -> list[Trajectory]:
        """The trajectories of a CSV file, in the order of their first rows.

        Args:
            path: a file with a row for each step, in the order of time: what ``state`` was seen, what ``action`` was
                taken there and, where known, the ``reward`` it paid and the ``scenario``. A row without an action is
                the last of its trajectory. Rows of different values of ``episode`` are different trajectories. Empty
                cells were not seen. ``ended`` is 1 or true in the last row of an episode that was over. Other columns
                are ignored.
            model: whose states and actions the file names, by name or number.
            ended: whether all episodes were over after their last action.
        """
        return [_trajectory(model, path, steps, ended) for steps in _episodes(path)]


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
def named_trajectory(number: int, count: int) -> Iterator[None]:
    """Of several trajectories, errors say which."""
    try:
        yield
    except ModelError as error:
        if count == 1:
            raise
        raise ModelError(f"trajectory {number}: {error}") from None


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
    for t, state in enumerate(trajectory.states):
        if not _is_missing(state):
            states[t] = _index(f"state {t} of the trajectory", model.state_index, state)
    if states[0] == UNSEEN:
        raise ModelError("the first state of a trajectory must be known")
    for t, action in enumerate(trajectory.actions):
        if _is_missing(action):
            raise ModelError(f"action {t} of the trajectory is missing; what was done must be known")
        actions[t] = _index(f"action {t} of the trajectory", model.action_index, action)
        if states[t] != UNSEEN:
            model.action_index(int(actions[t]), int(states[t]))
    for t in range(steps):
        reward = None if trajectory.rewards is None else trajectory.rewards[t]
        if not _is_missing(reward):
            rewards[t] = checks.as_number(f"reward {t} of the trajectory", reward)
        scenario = None if trajectory.scenarios is None else trajectory.scenarios[t]
        if not _is_missing(scenario) and isinstance(model, GumbelModel):
            raise ModelError(
                f"scenario {t} of the trajectory is given, but Gumbel noise has no scenarios; leave scenarios out. "
                "For a table that was drawn give JointMDP(model.probabilities, model.rewards, model.successors, …)"
            )
        if not _is_missing(scenario):
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


def _is_missing(value: Any) -> bool:
    """None, NaN, or what pandas puts in their place, which is not even equal to itself."""
    if value is None or isinstance(value, str | tuple | np.ndarray):
        return value is None
    try:
        return bool(value != value)
    except TypeError:
        return True


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
            "goes on there; leave ended=True out, or leave the last state out if it was not an end of the model"
        )


def _episodes(path: FilePath) -> list[list[Row]]:
    """The rows of each episode of a file that hold something."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(SEPARATORS, key=first.count))
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ModelError(f"{path} is no CSV file in UTF-8: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    if not rows:
        raise ModelError(f"{path} is empty; its first line names the columns: {', '.join(COLUMNS)}")
    names = [name.strip().lower() for name in rows[0][1]]
    if missing := [name for name in ("state", "action") if name not in names]:
        have = ", ".join(name for name in names if name) or "none"
        raise ModelError(f"{path} has no column {missing[0]!r}; it has {have}. The columns are {', '.join(COLUMNS)}")
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        places = " and ".join(str(i) for i, name in enumerate(names, 1) if name == twice[0])
        raise ModelError(f"{path} has the column {twice[0]!r} more than once, in places {places}; which one is meant?")
    episodes: dict[str, list[Row]] = {}
    for number, row in rows[1:]:
        if any(cell.strip() for cell in row[len(names) :]):
            raise ModelError(
                f"{path}, line {number} has {len(row)} cells and the first line {len(names)}; is a comma inside a cell?"
            )
        texts = dict(zip(names, row, strict=False))
        cells = {name: spelled_out(texts.get(name, "").strip()) for name in COLUMNS if name in names}
        if any(cells.values()):
            episodes.setdefault(cells.get("episode", ""), []).append((number, cells))
    if not episodes:
        raise ModelError(f"{path} holds no steps")
    return list(episodes.values())


def _trajectory(model: JointMDP, path: FilePath, steps: list[Row], ended: bool) -> Trajectory:
    states = [_named(path, number, "state", cells, model.state_names) for number, cells in steps]
    for number, cells in steps[:-1]:
        if not cells["action"]:
            raise ModelError(f"{path}, line {number}: the action is missing; only a last row has none")
    taken = [(number, cells) for number, cells in steps if cells["action"]]
    actions = [_named(path, number, "action", cells, model.action_names) for number, cells in taken]

    def column(name: str, kind: Callable[[str], Any]) -> list[Any] | None:
        found = [_number(path, number, name, cells.get(name, ""), kind) for number, cells in taken]
        return None if all(each is None for each in found) else found

    over = ended or steps[-1][1].get("ended", "").lower() in YES
    return Trajectory(states, actions, column("reward", float), column("scenario", int), over)


def _named(path: FilePath, line: int, column: str, cells: Mapping[str, str], names: tuple[Any, ...] | None) -> Any:
    """What a cell names: a name as it is or as it prints, else a number; None where it is empty."""
    text = cells[column]
    if not text or (text.lower() in NOTHING and text not in (names or ())):
        return None
    if text in (names or ()):
        return text
    if names is not None:
        for name in names:
            if str(name) == text:
                return name
    if not text.removeprefix("-").isdecimal():
        return text
    if len(text) > DIGITS:
        raise ModelError(f"{path}, line {line}: the {column} is {_short(text)}, which is no name and too long a number")
    return int(text)


def _short(text: str) -> str:
    """A cell as messages show it."""
    return repr(text) if len(text) <= 40 else f"{text[:20]!r}… ({len(text)} characters)"


def _number(path: FilePath, line: int, name: str, text: str, kind: Callable[[str], Any]) -> Any:
    if not text or text.lower() in NOTHING:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ModelError(f"{path}, line {line}: the {name} is {_short(text)}, which is no number") from None
