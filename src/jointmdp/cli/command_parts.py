"""What all commands share: failing in one line, an option, and states or actions from text."""

import functools
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from jointmdp.errors import ModelError


def in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input, missing files and missing extras are one line and exit code 1, not a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except (ModelError, ImportError) as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        except OSError as error:
            words = f"{error.filename}: {error.strerror}" if error.filename else f"{error}"
            raise click.ClickException(words) from None

    return wrapped


def complete_model(context: click.Context, parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """The names of built-in models that begin like this; a file if there is none."""
    from jointmdp.envs.registry import MODELS

    found = [CompletionItem(name, help=entry.description) for name, entry in MODELS.items() if name.startswith(text)]
    return found or [CompletionItem(text, type="file")]


def sharing_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--sharing``."""
    kinds = click.Choice(["state", "time", "none"])
    return click.option("--sharing", type=kinds, help=f"Which branches share the noise. [{default}]")


def named_or_numbered(text: str, names: tuple[Any, ...] | None, index: Callable[[Any], Any]) -> Any:
    """`index` of a name, or else of a number; a state called "3" is meant before the state with that index."""
    is_number = text not in (names or ()) and text.removeprefix("-").isdecimal()
    return index(int(text) if is_number else text)
