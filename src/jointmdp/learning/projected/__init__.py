"""Moments as linear functions of features, at the fixed point of a projection."""
