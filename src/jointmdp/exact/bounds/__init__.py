"""What moments alone say of any random variable, and marginals alone of any coupling."""
