"""Logs as tables: what each episode was, from rows of steps or of episodes.

A table is a CSV file, a data frame, or columns by name; with a row for each step, or a row for each episode. Of a data
frame nothing is asked but ``columns`` and ``frame[name]``. Cells become names or numbers of the model's states and
actions, each kind of cell once; whatever is wrong is an error that names the row and the column.
"""

from __future__ import annotations

import csv
import math
import os
import re
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, spelled_out
from jointmdp.model.joint_mdp import JointMDP

COLUMNS = ("episode", "state", "action", "reward", "scenario", "ended", "step", "next_state")
BY_STEP = ("state", "action", "reward", "scenario")  # of which a row for a whole episode has one column for each step
SEPARATORS = (",", ";", "\t")
YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
NOTHING = ("na", "nan", "none", "null", "<na>", "nat")  # what programs write for what is not there
WHOLE = re.compile(r"-?\d+(?:\.0*)?")
AT_ONCE = 2**8  # rows of a file: more would be looked at again and again by the collector of garbage
PLAIN = {type(None), str, int}
DIGITS = 18  # of the longest number of a state that fits in 64 bits
SHOWN = 12  # columns that a message lists

Where = Callable[[int, str], str]  # a row by its number and one of our columns, in words


class Table(NamedTuple):
    """Columns as they are given, and how their rows are called."""

    title: str
    names: list[Any]
    columns: Mapping[Any, Sequence[Any]]
    row: Callable[[int], str]


class Steps(NamedTuple):
    """The rows of steps by our columns, in the order given; and where each stands."""

    cells: Mapping[str, Sequence[Any]]
    where: Where


def is_missing(value: Any) -> bool:
    """None, NaN, or what pandas puts in their place, which is not even equal to itself."""
    if type(value) in PLAIN or isinstance(value, str | tuple | np.ndarray):
        return value is None
    try:
        return bool(value != value)
    except TypeError:
        return True


def read_logs(
    source: Any, model: JointMDP | None, columns: Mapping[str, Any] | None, ended: bool
) -> Iterator[dict[str, Any]]:
    """What each episode was, in the order of first rows, as arguments of a `Trajectory`."""
    steps = _steps(_table(source), columns or {})
    cells, where = steps
    state = _Names("state", None, None) if model is None else _Names("state", model.state_names, model.state_index)
    action = _Names("action", None, None) if model is None else _Names("action", model.action_names, model.action_index)
    for episode, rows in _episodes(steps):
        states = [state(cells["state"][i], i, where) for i in rows]
        if "next_state" in cells:
            states = _continued(
                states, [state(cells["next_state"][i], i, where, "next_state") for i in rows], rows, where
            )
        actions = [action(cells["action"][i], i, where) for i in rows]
        if states[0] is None:
            raise ModelError(f"{where(rows[0], 'state')} is missing; the first one of an episode must be known")
        if None in actions[:-1]:
            raise ModelError(f"{where(rows[actions.index(None)], 'action')} is missing; only a last row has none")
        taken = rows[: len(rows) - (actions[-1] is None)]
        if (
            len(taken) < len(rows)
            and "reward" in cells
            and _number("reward", cells["reward"][rows[-1]], rows[-1], where)
        ):
            raise ModelError(
                f"{where(rows[-1], 'reward')} is given, but no action: a row holds a state, what was done and what "
                "that paid. Is the action missing, or do rewards stand one row too late?"
            )
        states = states[: max(len(rows), len(taken) + 1)]
        reward, scenario = (_numbers(name, steps, taken) for name in ("reward", "scenario"))
        over = _is_over(steps, rows, len(taken)) or ended
        yield {
            "states": states,
            "actions": actions[: len(taken)],
            "rewards": reward,
            "scenarios": scenario,
            "ended": over,
            "episode": episode,
        }


def _table(source: Any) -> Table:
    if not hasattr(source, "columns") and not isinstance(source, Mapping):
        return _file(source)
    if any(name in COLUMNS for name in getattr(getattr(source, "index", None), "names", None) or ()):
        source = source.reset_index()
    names = list(source if isinstance(source, Mapping) else source.columns)
    title = "the table" if isinstance(source, Mapping) else "the data frame"
    if twice := [name for name in names if names.count(name) > 1]:
        raise ModelError(f"{title} has the column {twice[0]!r} more than once; which one is meant?")
    found = {name: source[name] for name in names}
    lengths = {len(each) for each in found.values()}
    if len(lengths) > 1:
        raise ModelError(f"the columns of {title} have {' or '.join(map(str, sorted(lengths)))} rows; one is too short")
    return Table(title, names, found, lambda i: f"row {i}")


class _Cells(dict[str, str | None]):
    """Cells of a CSV file without what stands around them, each text once; None where nothing is left."""

    def __missing__(self, cell: str) -> str | None:
        found = self[cell] = spelled_out(cell.strip()) or None
        return found


class _Numbers(dict[str, Any]):
    """Texts that are finite numbers, each once; others as they are."""

    def __missing__(self, text: str) -> Any:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        self[text] = found if math.isfinite(found) else text
        return self[text]


def _file(path: FilePath) -> Table:
    """A CSV file, by columns; equal cells are kept once, since there may be millions."""
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"logs are a CSV file, a data frame or columns by name, not {type(path).__name__}")
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(SEPARATORS, key=first.count))
            names = [name.strip() for name in next(reader, [])]
            if not names:
                raise ModelError(f"{path} is empty; its first line names the columns: {', '.join(COLUMNS)}")
            texts = [name.lower() for name in names]
            if twice := [name for name in COLUMNS if texts.count(name) > 1]:
                places = " and ".join(str(i) for i, name in enumerate(texts, 1) if name == twice[0])
                raise ModelError(
                    f"{path} has the column {twice[0]!r} more than once, in places {places}; which one is meant?"
                )
            columns: list[list[Any]] = [[] for _ in names]
            lines: list[int] = []
            cells, width = _Cells(), len(names)
            while block := [(reader.line_num, row) for row in islice(reader, AT_ONCE)]:
                for line, row in block:
                    if len(row) > width and any(cell.strip() for cell in row[width:]):
                        raise ModelError(
                            f"{path}, line {line} has {len(row)} cells and the first line {width}; is a comma inside a "
                            "cell?"
                        )
                    lines.append(line)
                    row[width:] = []
                    row += [""] * (width - len(row))
                for column, values in zip(columns, zip(*(row for _, row in block), strict=True), strict=True):
                    column.extend(map(cells.__getitem__, values))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ModelError(f"{path} is no CSV file in UTF-8: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    return Table(str(path), names, dict(zip(names, columns, strict=True)), lambda i: f"{path}, line {lines[i]}")


def _steps(table: Table, given: Mapping[str, Any]) -> Steps:
    """The columns that are ours, in rows of steps."""
    if unknown := [name for name in given if name not in COLUMNS]:
        raise ModelError(f"columns names {unknown[0]!r}; what can be named is {', '.join(COLUMNS)}")
    plain = {name.strip().lower() if isinstance(name, str) else name: name for name in table.names}
    theirs = {name: plain.get(name) for name in COLUMNS} | dict(given)
    wide = {name: times for name in BY_STEP if (times := _by_step(table, name, theirs[name], plain))}
    is_wide = "state" in wide and theirs["state"] not in table.names
    have = ", ".join(str(name) for name in table.names[:SHOWN] if str(name)) + ", …" * (len(table.names) > SHOWN)
    for name in COLUMNS:
        wanted = theirs[name]
        lacks = wanted is None and name in ("state", "action")
        if (lacks or (wanted is not None and wanted not in table.names)) and not (is_wide and name in wide):
            raise ModelError(
                f"{table.title} has no column {wanted or name!r}; it has {have or 'none'}. The columns are "
                f"{', '.join(COLUMNS)}, or other names by columns={{'state': …}}"
            )
    cells = {name: _listed(table.columns[theirs[name]]) for name in COLUMNS if theirs[name] in table.names}
    for name in {"reward", "step"} & set(cells):
        numbers = _Numbers()
        cells[name] = [numbers[value] if type(value) is str else value for value in cells[name]]
    count = len(next(iter(table.columns.values())))
    if is_wide:
        return _melted(table, cells, wide, theirs, count)
    others = [column for name, column in cells.items() if name != "state"]
    kept = [
        i
        for i, state in enumerate(cells["state"])
        if not is_missing(state) or not all(is_missing(each[i]) for each in others)
    ]
    if not kept:
        raise ModelError(f"{table.title} holds no steps")
    if len(kept) < count:
        cells = {name: [column[i] for i in kept] for name, column in cells.items()}
    return Steps(cells, lambda i, name: f"{table.row(kept[i])}: the {theirs[name]}")


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return found


def _by_step(table: Table, name: str, theirs: Any, plain: Mapping[Any, Any]) -> dict[int, Any]:
    """The columns of one kind that stand for one step each, by step; ``"state_{}"`` says how they are called."""
    if isinstance(theirs, str) and "{}" in theirs and theirs not in table.names:
        before, _, after = theirs.partition("{}")
        pattern = re.compile(re.escape(before.lower()) + r"(\d+)" + re.escape(after.lower()))
    elif theirs is None:
        pattern = re.compile(rf"{name}[ _.]?(\d+)")
    else:
        return {}
    found = {
        int(hit[1]): real for text, real in plain.items() if isinstance(text, str) and (hit := pattern.fullmatch(text))
    }
    if found and (lost := set(range(min(found), max(found))) - set(found)):
        raise ModelError(
            f"{table.title} has a column {name} for steps {min(found)} and {max(found)}, but none for {min(lost)}"
        )
    return found


def _melted(
    table: Table,
    cells: Mapping[str, Sequence[Any]],
    wide: dict[str, dict[int, Any]],
    theirs: Mapping[str, Any],
    count: int,
) -> Steps:
    """Rows of episodes as rows of steps; an episode ends with its last cell that holds something."""
    first = min(wide["state"])
    if wide.get("action") and min(wide["action"]) != first:
        raise ModelError(f"{table.title} begins with state {first} but with action {min(wide['action'])}")
    times = range(first, 1 + max(max(each) for each in wide.values()))
    columns = {name: {t: _listed(table.columns[real]) for t, real in each.items()} for name, each in wide.items()}
    found: dict[str, list[Any]] = {name: [] for name in {**cells, **wide, "episode": None}}
    rows: dict[Any, int] = {}
    for i, episode in enumerate(cells.get("episode", ())):
        if not is_missing(episode) and isinstance(episode, Hashable) and rows.setdefault(episode, i) != i:
            raise ModelError(
                f"{table.row(i)}: the {theirs['episode']} {_short(episode)} has a row already "
                f"({table.row(rows[episode])}); where columns are steps a row is a whole episode"
            )
    place: list[tuple[int, int]] = []
    for i in range(count):
        steps = [{name: each[t][i] if t in each else None for name, each in columns.items()} for t in times]
        filled = [t for t, step in enumerate(steps) if not all(map(is_missing, step.values()))]
        for t in range(filled[-1] + 1 if filled else 0):
            is_last = t == filled[-1]
            for name, column in found.items():
                if name in wide:
                    column.append(steps[t][name])
                elif name == "episode":
                    column.append(cells["episode"][i] if name in cells else i)
                else:
                    column.append(cells[name][i] if is_last else None)
            place.append((i, first + t))
    if not place:
        raise ModelError(f"{table.title} holds no steps")
    found.pop("step", None)

    def where(k: int, name: str) -> str:
        i, t = place[k]
        return f"{table.row(i)}: the {wide[name].get(t, f'{name} of step {t}') if name in wide else theirs[name]}"

    return Steps(dict(found), where)


def _episodes(steps: Steps) -> Iterator[tuple[Any, list[int]]]:
    """The rows of each episode in the order of time, in the order of first rows."""
    cells, where = steps
    count = len(cells["state"])
    groups: dict[Any, list[int]] = {}
    if "episode" not in cells or all(map(is_missing, cells["episode"])):
        groups[None] = list(range(count))
    else:
        kinds: dict[tuple[type, Any], Any] = {}
        texts: dict[str, Any] = {}
        for i, value in enumerate(cells["episode"]):
            kind = type(value), value
            if not isinstance(value, Hashable):
                raise ModelError(f"{where(i, 'episode')} is {_short(value)}, which is no name")
            if kind in kinds:
                groups[kinds[kind]].append(i)
                continue
            if is_missing(value):
                raise ModelError(f"{where(i, 'episode')} is missing; which episode does the row belong to?")
            plain = int(value) if isinstance(value, float) and value.is_integer() else value
            text = str(plain)
            text = text.partition(".")[0] if WHOLE.fullmatch(text) else text
            first = texts.setdefault(text, plain)
            if type(first) is not type(plain) or first != plain:
                raise ModelError(f"{where(i, 'episode')} is {value!r}, and {first!r} in other rows; is it one episode?")
            kinds[kind] = text
            groups.setdefault(text, []).append(i)
        groups = {texts[text]: rows for text, rows in groups.items()}
    if "step" not in cells:
        yield from groups.items()
        return
    begins: dict[float, list[Any]] = {}
    for episode, rows in groups.items():
        found = _in_time(steps, rows)
        begins.setdefault(float(cells["step"][found[0]]), []).append(episode)
        yield episode, found
    if len(begins) > 1:
        usual, rare = (choose(begins, key=lambda step: len(begins[step])) for choose in (max, min))
        warnings.warn(
            f"episode {begins[rare][0]} begins with step {rare:g}, episode {begins[usual][0]} with {usual:g}; the "
            "first step of each is its step 0 here. Is a row missing?",
            UserWarning,
            stacklevel=4,
        )


def _in_time(steps: Steps, rows: list[int]) -> list[int]:
    """Sorted by the column of steps, which has no gaps and no step twice."""
    cells, where = steps
    times: dict[int, float] = {}
    for i in rows:
        time = cells["step"][i]
        if type(time) is not int and not (type(time) is float and time.is_integer()):
            time = _number("step", time, i, where)
            if time is None:
                raise ModelError(
                    f"{where(i, 'step')} is missing; columns={{'step': None}} takes rows in the order given"
                )
            if not time.is_integer():
                raise ModelError(f"{where(i, 'step')} is {time:g}, which is no whole number")
        times[i] = time
    found = sorted(rows, key=lambda i: times[i])
    for before, after in pairwise(found):
        if times[after] != times[before] + 1:
            wrong = "is there twice" if times[after] == times[before] else f"comes after {times[before]:g}, with a gap"
            raise ModelError(
                f"{where(after, 'step')} {times[after]:g} {wrong} (beside {where(before, 'step')} {times[before]:g}); "
                "every step has one row, whose state may be empty"
            )
    return found


def _continued(states: list[Any], after: list[Any], rows: list[int], where: Where) -> list[Any]:
    """States with those that are told as the next ones, which are the same where both are."""
    for k, told in enumerate(after):
        if told is None:
            continue
        if k + 1 == len(states):
            states.append(told)
        elif states[k + 1] is None:
            states[k + 1] = told
        elif states[k + 1] != told:
            raise ModelError(
                f"{where(rows[k], 'next_state')} is {_short(told)}, but {where(rows[k + 1], 'state')} is "
                f"{_short(states[k + 1])}; are they two episodes, or is a row missing?"
            )
    return states


class _Names:
    """Cells of states or actions as what the model calls them, each kind of cell looked up once."""

    def __init__(self, kind: str, names: tuple[Any, ...] | None, index: Callable[[Any], int] | None) -> None:
        self.kind, self.index = kind, index
        self.texts: dict[str, Any] = {}
        for name in names or ():
            self.texts.setdefault(str(name), name)
        self.texts |= {name: name for name in names or () if isinstance(name, str)}
        self.known: dict[tuple[type, Any], Any] = {}

    def __call__(self, value: Any, row: int, where: Where, column: str = "") -> Any:
        """None where the cell is empty; `column` where it is another one than that of this kind."""
        if isinstance(value, np.ndarray | list):
            value = checks.as_fixed(value)
        try:
            return self.known[type(value), value]
        except (KeyError, TypeError):
            if is_missing(value):
                return None
            if not isinstance(value, Hashable):
                raise ModelError(f"{where(row, column or self.kind)} is {_short(value)}, which is no name") from None
            found = self.known[type(value), value] = self._found(value, lambda: where(row, column or self.kind))
            return found

    def _found(self, value: Any, where: Callable[[], str]) -> Any:
        if isinstance(value, str):
            value = self._of_text(value, where)
        if is_missing(value):
            return None
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float):
            if not value.is_integer():
                raise ModelError(f"{where()} is {value:g}, which is no {self.kind}")
            value = int(value)
        if type(value) is int and str(value) in self.texts:  # a cell is a name before it is a place
            return self.texts[str(value)]
        if self.index is not None:
            try:
                self.index(value)
            except ModelError as error:
                raise ModelError(f"{where()} is {_short(value)}: {error}") from None
        return value

    def _of_text(self, text: str, where: Callable[[], str]) -> Any:
        """A name as it is or as it prints, else a number."""
        text = text.strip()
        if text in self.texts:
            return self.texts[text]
        if text.lower() in NOTHING and self.index is None:
            raise ModelError(
                f"{where()} is {_short(text)}: a name, or nothing? Leave the cell empty where nothing is meant, else "
                "call it otherwise, or give the model with its names"
            )
        if not text or text.lower() in NOTHING:
            return None
        if not WHOLE.fullmatch(text):
            return text
        if len(text) > DIGITS:
            raise ModelError(f"{where()} is {_short(text)}, which is no name and too long a number")
        return int(text.partition(".")[0])


def _short(value: Any) -> str:
    """A cell as messages show it."""
    text = repr(value)
    return text if len(text) <= 42 else f"{text[:21]}{text[:1]}… ({len(str(value))} characters)"


def _number(name: str, value: Any, row: int, where: Where) -> float | None:
    if is_missing(value) or (isinstance(value, str) and (not value.strip() or value.lower() in NOTHING)):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or isinstance(value, bool | np.bool_):
        raise ModelError(f"{where(row, name)} is {_short(value)}, which is no number")
    return found


def _numbers(name: str, steps: Steps, rows: Sequence[int]) -> list[Any] | None:
    """Rewards as numbers; the noise of a step as it is, or as a whole number. None where nothing was seen."""
    if name not in steps.cells:
        return None
    column, found = steps.cells[name], list[Any]()
    for i in rows:
        value = column[i]
        if type(value) is float and math.isfinite(value) and name == "reward":
            found.append(value)
            continue
        if name == "reward" or isinstance(value, str | float):
            number = _number(name, value, i, steps.where)
            if name == "scenario" and number is not None:
                if number != int(number):
                    raise ModelError(f"{steps.where(i, name)} is {number:g}, which is no number of a scenario")
                number = int(number)
            value = number
        found.append(None if is_missing(value) else value)
    return None if all(each is None for each in found) else found


def _is_over(steps: Steps, rows: Sequence[int], taken: int) -> bool:
    """Whether the row of the last action, or the one after it, says that the episode was over."""
    if "ended" not in steps.cells:
        return False
    flags = []
    for i in rows:
        value = steps.cells["ended"][i]
        text = "" if is_missing(value) else str(value).strip().lower()
        if text and text not in (*YES, *NO, *NOTHING):
            raise ModelError(f"{steps.where(i, 'ended')} is {_short(value)}; give 1 or 0, true or false")
        flags.append(text in YES)
    early = [k for k in range(max(taken - 1, 0)) if flags[k]]
    if early:
        i, after = rows[early[0]], rows[early[0] + 1]
        raise ModelError(
            f"{steps.where(i, 'ended')} says that the episode was over, but it goes on in another row "
            f"({steps.where(after, 'state')} is {_short(steps.cells['state'][after])}); is an episode number missing?"
        )
    return any(flags)
