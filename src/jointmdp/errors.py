"""What can go wrong, and the words that say how far an answer came."""

from jointmdp.ground.errors import (
    ConvergenceError,
    ConvergenceWarning,
    LawStatus,
    LostProcessError,
    ModelError,
    NoiseWarning,
    NotKnownError,
    Status,
)

__all__ = [
    "ConvergenceError",
    "ConvergenceWarning",
    "LawStatus",
    "LostProcessError",
    "ModelError",
    "NoiseWarning",
    "NotKnownError",
    "Status",
]
