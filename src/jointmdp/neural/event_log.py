"""A log that TensorBoard reads, where a folder for it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jointmdp.files.atomic_write import FilePath, path_name


class EventLog:
    """``with EventLog(folder) as events: events.add({"step": 100, "mean_loss": 0.3})``; nothing without a folder."""

    def __init__(self, folder: FilePath | None) -> None:
        self._writer: Any = None
        if folder is None:
            return
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "log= needs tensorboardX, which is not installed: pip install 'jointmdp[neural]'"
            ) from error
        self._writer = SummaryWriter(path_name(folder))

    def add(self, row: Mapping[str, Any]) -> None:
        """One row at its step; ``mean_loss`` is drawn as ``mean/loss``."""
        if self._writer is not None:
            for name, value in row.items():
                if name != "step":
                    self._writer.add_scalar(name.replace("_", "/", 1), value, row["step"])

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()
