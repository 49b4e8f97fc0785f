"""Files that are written whole or not at all (a temporary file beside them, synced, then renamed), and strict JSON.

In JSON what is infinite or not a number is null, intervals are objects, arrays are lists.
"""

import contextlib
import enum
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any

import numpy as np

from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval

FilePath = str | os.PathLike[str]
# A spreadsheet takes a cell that begins so for a formula, and runs it. Cells of ours that begin with the apostrophe
# before one get another, so that what was written can be told from what was there.
FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def write_file(path: FilePath, fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write `path`, which holds its old content or the new one at every moment."""
    target = path_name(path)
    try:
        _replace(os.path.realpath(target), fill)
    except (OSError, ValueError) as error:  # ValueError: the path holds a null character
        raise ModelError(f"cannot write {target!r}: {cause(error)}") from error


def make_folder(path: FilePath) -> None:
    """A folder of this name, new or as it is."""
    target = path_name(path)
    try:
        os.makedirs(target, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"{target!r} cannot be a folder: {cause(error)}") from error


def write_text(path: FilePath, text: str) -> None:
    """Write a text in UTF-8."""
    write_file(path, lambda file: file.write(text.encode()))


def write_csv(path: FilePath, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Write rows as CSV; `columns` are named where there may be no rows. No cell is a formula to a spreadsheet."""
    names = list(rows[0]) if rows else list(columns)
    lines = [names, *([row[name] for name in names] for row in rows)]
    write_text(path, "".join(",".join(map(_cell, line)) + "\n" for line in lines))


def _cell(value: Any) -> str:
    """A cell, quoted where it must be, with an apostrophe before what a spreadsheet would take for a formula.

    Numbers stay numbers. Python's own writer leaves a carriage return without quotes, which then ends the row.
    """
    text = "" if value is None else str(value)
    if FORMULA.match(text):
        try:
            float(text)
        except ValueError:
            text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def spelled_out(text: str) -> str:
    """A cell of a CSV file without the apostrophe that `write_csv` put before it."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def _replace(target: str, fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write a temporary file beside `target`, then rename it; on any error nothing of it is left."""
    with contextlib.suppress(FileNotFoundError):
        check_regular(target)
        if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError("it is write-protected")  # a rename would not ask
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".jointmdp-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            # A file that exists keeps its permissions; a new one gets those that the umask grants.
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, FileNotFoundError) and error.filename == temporary:  # `fill` may miss files of its own
            raise OSError("its directory does not exist") from None
        raise
    # The rename lasts through a power cut, where directories can be opened at all.
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_regular(path: str) -> None:
    """Raise for directories, pipes and devices: opening some of them would wait for ever."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("it is a directory")
    if not stat.S_ISREG(mode):
        raise OSError("it is not a regular file")


def path_name(path: FilePath) -> str:
    """The path as a string."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ModelError(f"path must be a string or a path, not {path!r}") from None


def cause(error: Exception) -> str:
    """What happened, on one line of moderate length; what is missing by its name."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror and not isinstance(error, FileNotFoundError):
        words = error.strerror
    return re.sub(r"\s+", " ", words)[:120] or type(error).__name__


def to_json(value: Any) -> str:
    """`value` as one JSON text."""
    return json.dumps(strict(value), indent=2, ensure_ascii=False, allow_nan=False)


def strict(value: Any) -> Any:
    """`value` with everything in it that JSON does not know replaced."""
    if isinstance(value, Interval):
        return {name: strict(getattr(value, name)) for name in ("estimate", "lower", "upper")}
    if isinstance(value, dict):
        return {key: strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return strict(value.tolist())
    if isinstance(value, enum.Enum):
        return value.name.lower()
    return None if isinstance(value, float) and not math.isfinite(value) else value


try:
    __version__ = version("jointmdp")
except PackageNotFoundError:
    __version__ = "0+source"  # a source tree that nobody installed
