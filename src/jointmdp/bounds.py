"""What moments alone say of any random variable, and marginals alone of any coupling."""

from jointmdp.exact.bounds.moment_bounds import MomentBounds, cantelli
from jointmdp.exact.hindsight.all_couplings import hindsight_bounds

__all__ = ["MomentBounds", "cantelli", "hindsight_bounds"]
