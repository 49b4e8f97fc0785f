"""What moments alone say of any random variable."""

from jointmdp.bounds.cantelli import cantelli
from jointmdp.bounds.moment_bounds import MomentBounds

__all__ = ["MomentBounds", "cantelli"]
