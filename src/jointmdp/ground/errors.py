"""What goes wrong, as types: bad input, a solve that did not reach its tolerance, noise that is odd."""

import enum
import warnings


class ModelError(ValueError):
    """A model, policy, state, action or setting that does not make sense; the message names the place."""


class NotKnownError(ModelError):
    """Asked of a kind of result that does not know it, or not within its limits; the message names one that does."""


class ConvergenceWarning(UserWarning):
    """A method stopped before its tolerance was met; the solution's status says why."""


class NoiseWarning(UserWarning):
    """Something is odd about the noise of a simulation; the message says what it means for the answer."""


class ConvergenceError(RuntimeError):
    """Raised instead of the warning when a method is asked to (``throw=True``)."""


class LostProcessError(RuntimeError):
    """Another process of a distributed run is gone; the message says what is saved and how to go on."""


class Status(enum.Enum):
    """How a solve ended; the value is the sentence a person reads."""

    CONVERGED = "the certified error is within the tolerance"
    STEP_LIMIT = "stopped at the step limit before the certified error met the tolerance"
    STAGNATED = "the residual is at the rounding floor of float64 and the tolerance lies below it"
    COMPLETED = "every requested step was taken"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self in (Status.CONVERGED, Status.COMPLETED)


class LawStatus(enum.Enum):
    """How far a law was refined; the value is the sentence a person reads."""

    REACHED = "as narrow as was asked for"
    LIMIT = "a finer law would pass a limit: of memory, of time, or of points"
    STAGNATED = "finer laws hardly narrow the answer any more"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self is LawStatus.REACHED


def report_missed(status: Status, bounds: str, throw: bool) -> None:
    """Raise or warn, in the name of the caller's caller, where a method did not reach its tolerance."""
    if status.is_success:
        return
    message = f"{status.value} ({bounds})"
    if throw:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
