"""Features of state-action coordinates, and fixed points projected onto them."""

from jointmdp.projected import features as features

__all__ = ["features"]
