"""``--distributed``: every process runs the same command, and they solve one model together."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from jointmdp.ground import lost_processes
from jointmdp.ground.errors import LostProcessError, ModelError

if TYPE_CHECKING:
    from jointmdp.exact.moments.column_blocks import Sharded

LAUNCHERS = "Slurm, Open MPI, TPU and Kubernetes are recognised"
HEARTBEAT = 100  # seconds without a sign of life after which a process counts as gone; JAX's own default


@dataclass
class Joined:
    """What the options say of the processes."""

    distributed: bool
    coordinator: str | None
    processes: int | None
    process: int | None
    checkpoint: str | None
    checkpoint_seconds: float
    is_first: bool = True

    def method(self) -> Sharded | None:
        """How the processes solve; None for the default method of one."""
        if not self.distributed:
            return None
        from jointmdp.exact.moments.column_blocks import Sharded

        return Sharded(checkpoint=self.checkpoint, checkpoint_seconds=self.checkpoint_seconds)


def process_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of several processes, which the command gets as one `Joined`."""

    @functools.wraps(command)
    def wrapped(**options: Any) -> None:
        names = ("distributed", "coordinator", "processes", "process", "checkpoint", "checkpoint_seconds")
        command(processes=Joined(**{name: options.pop(name) for name in names}), **options)

    options = (
        click.option(
            "--distributed", is_flag=True, help="One of several processes that solve together; see several-hosts.md."
        ),
        click.option("--coordinator", metavar="HOST:PORT", help="Where process 0 is met. [as the launcher says]"),
        click.option("--processes", type=click.IntRange(1), help="How many there are. [as the launcher says]"),
        click.option("--process", type=click.IntRange(0), help="Which one this is, from 0. [as the launcher says]"),
        click.option("--checkpoint", type=click.Path(), help="A folder to save the run in and to go on from."),
        click.option("--checkpoint-seconds", default=300.0, show_default=True, help="Seconds between two savings."),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


@contextlib.contextmanager
def joined(options: Joined) -> Iterator[None]:
    """Joins the other processes, and leaves them at the end; without ``--distributed``, nothing.

    A process that cannot go on ends at once: at Python's ordinary end JAX would wait for the others, and these for it.
    """
    if not options.distributed:
        told = {"coordinator": options.coordinator, "processes": options.processes, "process": options.process}
        odd = [name for name, value in {**told, "checkpoint": options.checkpoint}.items() if value is not None]
        if odd:
            raise ModelError(f"--{odd[0]} is for --distributed")
        yield
        return
    import jax

    with _quiet_output():
        _initialize(options)
        options.is_first = jax.process_index() == 0
        try:
            yield
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]
        except ModelError:  # all processes have it, or none
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]
            raise
        except LostProcessError:
            _end()
        except BaseException:
            click.echo(traceback.format_exc(), err=True)
            _end()


def _initialize(options: Joined) -> None:
    import jax

    settings: dict[str, Any] = {"jax_cpu_collectives_implementation": "gloo"}
    if hasattr(jax.config, "jax_enable_preemption_service"):
        settings["jax_enable_preemption_service"] = False  # it would keep SIGTERM from ending the process
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    # JAX ends the program where the others do not come.
    words = lost_processes.LastWords(
        "Error: the other processes of the distributed run did not come; start all of them, with the same "
        "--coordinator and --processes, each with a --process of its own"
    )
    try:
        jax.distributed.initialize(
            options.coordinator, options.processes, options.process, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ModelError(
            f"the processes cannot be joined ({error}). {LAUNCHERS}; elsewhere give --coordinator HOST:PORT, "
            "--processes N and --process I, or the variables JOINTMDP_EVALUATE_COORDINATOR and so on"
        ) from None
    finally:
        words.tell("")
        words.speak()


def _end() -> None:
    lost_processes.speak()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    """Inside, what libraries print on standard output goes to standard error: standard output is for the answer."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
