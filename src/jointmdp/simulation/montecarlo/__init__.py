"""Simulation of pairs of branches with standard errors: the judge of everything that is computed."""
