"""Whatever somebody else's environment raises, as one error that says whose it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jointmdp.errors import ModelError

WHOSE = (
    "does it do so by itself, without a simulator? If not, its state is not restored as it should be: "
    'try state="replay", or give get_state= and set_state='
)


def named_error(error: Exception, name: str, moment: str) -> ModelError:
    """An error that says which environment it comes from, and what that was doing."""
    if isinstance(error, ModelError):
        return ModelError(f"{name}, {moment}: {error}")
    return ModelError(f"{name} failed in {moment}: {error_text(error)}; {WHOSE}")


@contextmanager
def named_errors(name: str, moment: str) -> Iterator[None]:
    """The same for all errors that are raised inside."""
    try:
        yield
    except Exception as error:
        raise named_error(error, name, moment) from error


def error_text(error: Exception) -> str:
    """An error's kind and message."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns; None if it fails, as copying may in any way that an environment's author left open."""
    try:
        return call()
    except Exception:
        return None
