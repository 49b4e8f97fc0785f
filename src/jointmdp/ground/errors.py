"""What goes wrong, as types: bad input, a solve that did not reach its tolerance, noise that is odd."""


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
