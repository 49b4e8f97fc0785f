"""Checkpoints of a run whose arrays are sharded over processes: each process has files of its own in one folder.

A file is named for its sweep, its process and the number of processes, and says inside which run it belongs to. It
is sealed, so that damage is noticed. A sweep counts once every process has its file; no process can be more than one
checkpoint ahead of another, so the last two are enough. The folder may lie on a file system that all processes see, or
on a disk of each machine.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from jointmdp.ground import archives
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name

KIND = "sharded evaluation"
NAME = re.compile(r"sweep-(\d+)-process-(\d+)-of-(\d+)\.npz")
KEPT = 2


class ShardFiles:
    """The files of one process."""

    def __init__(self, folder: FilePath, process: int, processes: int) -> None:
        self.folder, self.process, self.processes = path_name(folder), process, processes
        self.last: int | None = None  # sweep that this process has read or written
        self.on_write: Callable[[], None] | None = None
        self._run: Mapping[str, Any] = {}

    def described(self) -> str:
        """What is saved, and where."""
        if self.last is None:
            return f"no sweep was saved in {self.folder!r} yet"
        return f"sweep {self.last} is saved in {self.folder!r}"

    def saved(self, run: Mapping[str, Any]) -> tuple[list[int], list[str]]:
        """The sweeps whose file is there and whole, and what is wrong with others; refuses those of other runs."""
        make_folder(self.folder)
        self._run = run
        found = [(path, NAME.fullmatch(path)) for path in sorted(os.listdir(self.folder))]
        if others := {int(match[3]) for _, match in found if match} - {self.processes}:
            raise ModelError(
                f"the checkpoint {self.folder!r} belongs to a run of {min(others)} processes, and here are "
                f"{self.processes}; start as many, delete it to start anew, or give another folder"
            )
        sweeps, faults = [], []
        for sweep in self._sweeps():
            try:
                page, _ = archives.read(self._path(sweep))
            except ModelError as error:
                faults.append(f"{error}; an earlier sweep is used instead")
                continue
            archives.check_page(self._path(sweep), page, KIND, run)
            sweeps.append(sweep)
        return sweeps, faults

    def read(self, sweep: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `write` was given."""
        (known,), arrays = archives.read_checkpoint(self._path(sweep), KIND, self._run)
        self._keep(sweep)
        return known, arrays

    def write(self, sweep: int, known: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the file of a sweep, whole or not at all, and remove all but the last two."""
        archives.write_checkpoint(self._path(sweep), KIND, self._run, [dict(known)], arrays)
        for old in self._sweeps()[:-KEPT]:
            os.unlink(self._path(old))
        self._keep(sweep)

    def forget_after(self, sweep: int) -> None:
        """Remove the files of later sweeps."""
        for later in self._sweeps():
            if later > sweep:
                os.unlink(self._path(later))

    def _keep(self, sweep: int) -> None:
        self.last = sweep
        if self.on_write is not None:
            self.on_write()

    def _sweeps(self) -> list[int]:
        matches = (NAME.fullmatch(path) for path in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match and int(match[2]) == self.process)

    def _path(self, sweep: int) -> str:
        return os.path.join(self.folder, f"sweep-{sweep:09d}-process-{self.process}-of-{self.processes}.npz")
