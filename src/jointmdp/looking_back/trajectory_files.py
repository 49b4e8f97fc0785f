"""Trajectories from a CSV file: one row a step, with the columns state, action, reward, scenario and episode."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jointmdp.errors import ModelError
from jointmdp.files.atomic_write import FilePath
from jointmdp.looking_back.trajectory import Trajectory
from jointmdp.model.joint_mdp import JointMDP

COLUMNS = ("episode", "state", "action", "reward", "scenario", "ended")
SEPARATORS = (",", ";", "\t")
YES = ("1", "1.0", "true", "yes")
NOTHING = ("na", "nan", "none", "null")  # what programs write for what is not there


def read_trajectories(model: JointMDP, path: FilePath, *, ended: bool = False) -> list[Trajectory]:
    """The trajectories of a CSV file, in the order of their first rows.

    Args:
        model: whose states and actions the file names, by name or number.
        path: a file with a row for each step, in the order of time: what ``state`` was seen, what ``action`` was taken
            there and, where known, the ``reward`` it paid and the ``scenario``. A row without an action is the last of
            its trajectory. Rows of different values of ``episode`` are different trajectories. Empty cells were not
            seen. ``ended`` is 1 or true in the last row of an episode that was over. Other columns are ignored.
        ended: whether all episodes were over after their last action.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(SEPARATORS, key=first.count))
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ModelError(f"{path} is no CSV file in UTF-8: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    names = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    if missing := [name for name in ("state", "action") if name not in names]:
        have = ", ".join(name for name in names if name) or "none"
        raise ModelError(f"{path} has no column {missing[0]!r}; it has {have}. The columns are {', '.join(COLUMNS)}")
    episodes: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for number, row in enumerate(rows, 2):
        cells = {name: (row.get(names[name]) or "").strip() for name in COLUMNS if name in names}
        if any(cells.values()):
            episodes.setdefault(cells.get("episode", ""), []).append((number, cells))
    if not episodes:
        raise ModelError(f"{path} holds no steps")
    return [_trajectory(model, path, steps, ended) for steps in episodes.values()]


def _trajectory(
    model: JointMDP, path: FilePath, steps: Sequence[tuple[int, Mapping[str, str]]], ended: bool
) -> Trajectory:
    states = [_named(cells["state"], model.state_names) for _, cells in steps]
    for number, cells in steps[:-1]:
        if not cells["action"]:
            raise ModelError(f"{path}, line {number}: the action is missing; only a last row has none")
    taken = [(number, cells) for number, cells in steps if cells["action"]]
    actions = [_named(cells["action"], model.action_names) for _, cells in taken]

    def column(name: str, kind: Callable[[str], Any]) -> list[Any] | None:
        found = [_number(path, number, name, cells.get(name, ""), kind) for number, cells in taken]
        return None if all(each is None for each in found) else found

    over = ended or steps[-1][1].get("ended", "").lower() in YES
    return Trajectory(states, actions, column("reward", float), column("scenario", int), over)


def _named(text: str, names: tuple[Any, ...] | None) -> Any:
    """What a cell names: a name as it is or as it prints, else a number; None where it is empty."""
    if not text or (text.lower() in NOTHING and text not in (names or ())):
        return None
    if text in (names or ()):
        return text
    if names is not None:
        for name in names:
            if str(name) == text:
                return name
    return int(text) if text.removeprefix("-").isdecimal() else text


def _number(path: FilePath, line: int, name: str, text: str, kind: Callable[[str], Any]) -> Any:
    if not text or text.lower() in NOTHING:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ModelError(f"{path}, line {line}: the {name} is {text!r}, which is no number") from None
