"""What moments alone say of any random variable, and marginals alone of any coupling."""

from jointmdp.exact.bounds.moment_bounds import MomentBounds, cantelli
from jointmdp.exact.hindsight.all_couplings import hindsight_bounds
from jointmdp.exact.hindsight.best_worst_case import best_worst_case

__all__ = ["MomentBounds", "best_worst_case", "cantelli", "hindsight_bounds"]
