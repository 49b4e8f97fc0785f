"""What travels between processes: functions and values as bytes, and the settings of JAX that decide their numbers.

The side of the worker: a function comes once, then one task after the other; each is answered with bytes.

Ray's workers call `answer`. Those of `processes` run `main`: frames come in by standard input and go out by standard
output, while what the user's function prints goes nowhere. When the input ends, the caller is gone, and so is the
worker: nothing is left running, not even after a ``kill -9`` of the caller.
"""

import enum
import faulthandler
import io
import os
import pickle
import queue
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.ground.arrays import float64
from jointmdp.ground.errors import ModelError

JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_matmul_precision",
    "jax_platforms",
)

JaxSettings = dict[str, Any]
loads = pickle.loads


def dumps(value: Any, what: str) -> bytes:
    """`value` as bytes; closures and functions of ``__main__`` travel by value. Errors speak of it as `what`."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception as error:  # objects refuse with whatever their authors thought of
        raise ModelError(
            f"{what} cannot be sent to another process: {error}; does it hold an open file, a lock, a generator or a "
            'window? make that inside the function, or use executor="serial"'
        ) from error
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle, with arrays of JAX that keep their precision.

    JAX rebuilds an array in the precision that it is set to at that moment: float64 would silently become float32.
    """

    def reducer_override(self, value: Any) -> Any:
        jax = sys.modules.get("jax")
        # A random key holds an ordinary array of integers, which comes by here again.
        if jax is None or not isinstance(value, jax.Array) or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return super().reducer_override(value)
        return _rebuilt, value.__reduce__()[:2]


def _rebuilt(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with float64():
        return function(*arguments)


def jax_settings() -> JaxSettings:
    """The settings that the caller's JAX has now, contexts such as ``jax.enable_x64`` included."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return {name: _plain(getattr(config, name)) for name in JAX_SETTINGS if hasattr(config, name)}


def apply_jax_settings(settings: JaxSettings) -> None:
    """Give this process the caller's settings, whether JAX is here already or will be imported later."""
    jax = sys.modules.get("jax")
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name.upper(), None)
        else:
            os.environ[name.upper()] = str(int(value) if isinstance(value, bool) else value)
        if jax is not None and _plain(getattr(jax.config, name)) != value:
            jax.config.update(name, value)


def _plain(value: Any) -> Any:
    """A setting as its word: sent as JAX's own type it would import JAX in every worker."""
    return value.value if isinstance(value, enum.Enum) else value


KEPT = 4  # functions that a worker remembers: a caller that maps in rounds comes back with the same one
WARNINGS = 20  # of one task, at most, that reach the caller
GRACE = 1.0  # seconds that a worker without a caller may take to end by itself
MISSING = b""  # the frame that asks for the function
Heard = tuple[Any, Any, str, int]  # a warning: message, category, file name, line number


class Call(NamedTuple):
    """What a task is a task of."""

    token: bytes  # a hash of the function's bytes
    settings: JaxSettings


class Reply(NamedTuple):
    """How a task ended: with a result, or with an error and the text of its traceback."""

    result: Any
    error: BaseException | None
    trace: str
    heard: tuple[Heard, ...]


class TaskError(RuntimeError):
    """An error of the user's function that cannot itself be sent; the message is what it said."""


_functions: dict[bytes, Callable[[Any], Any]] = {}


def answer(call: Call, task: bytes, fetch: Callable[[], bytes]) -> bytes:
    """The reply to a task; `fetch` gets the function where this process does not have it yet."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # which ones are shown is decided where they are heard

        def heard() -> tuple[Heard, ...]:
            return tuple((w.message, w.category, w.filename, w.lineno) for w in caught[:WARNINGS])

        try:
            apply_jax_settings(call.settings)
            result = _function(call.token, fetch)(loads(task))
            return dumps(Reply(result, None, "", heard()), "the result")
        except BaseException as error:
            if not isinstance(error, Exception):
                _functions.clear()  # an interrupt may have left a simulator in the middle of something
            trace = "".join(traceback.format_exception(error))
            try:
                data = dumps(Reply(None, error, trace, heard()), "the error")
                loads(data)  # an exception with arguments of its own often goes out and does not come back
            except Exception:
                stand_in = TaskError(f"{type(error).__qualname__}: {error}")
                data = dumps(Reply(None, stand_in, trace, ()), "the error")
            return data


def _function(token: bytes, fetch: Callable[[], bytes]) -> Callable[[Any], Any]:
    if token not in _functions:
        data = fetch()
        try:
            found = loads(data)
        except Exception as error:
            error.add_note("the function could not be rebuilt in the worker; are the same packages installed there?")
            raise
        while len(_functions) >= KEPT:
            _functions.pop(next(iter(_functions)))
        _functions[token] = found
    return _functions[token]


def read_frame(stream: IO[bytes]) -> bytes:
    """The next frame; `EOFError` where there is none."""
    head = stream.read(8)
    data = stream.read(size := int.from_bytes(head, "little"))
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return data


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Send one frame."""
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def main() -> None:
    """Answer tasks until the caller is gone."""
    source, sink = (os.fdopen(os.dup(fd), mode) for fd, mode in ((0, "rb"), (1, "wb")))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nowhere, fd)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    faulthandler.enable(file=2)  # the caller keeps what comes there, and shows it when a worker crashes
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(source, inbox), daemon=True).start()

    def fetch() -> bytes:
        write_frame(sink, MISSING)
        if (data := inbox.get()) is None:
            raise SystemExit
        return data

    for frame in iter(inbox.get, None):
        call, task = loads(frame)
        write_frame(sink, answer(call, task, fetch))


def _listen(source: IO[bytes], inbox: queue.SimpleQueue[bytes | None]) -> None:
    try:
        while True:
            inbox.put(read_frame(source))
    except (EOFError, OSError):
        inbox.put(None)
        time.sleep(GRACE)
        os._exit(1)  # a task is still running, for nobody
