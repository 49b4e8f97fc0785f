"""How commands fail: one line and an exit status, not a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


def in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input, missing files and missing extras are one line and exit code 1."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        from jointmdp.errors import ModelError

        try:
            command(*args, **options)
        except (ModelError, ImportError) as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        except OSError as error:
            raise click.ClickException(
                f"{error.filename}: {error.strerror}" if error.filename else f"{error}"
            ) from None

    return wrapped
