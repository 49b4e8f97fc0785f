"""Solvers and certificates of the equations: second moments, higher orders, joint moments."""
