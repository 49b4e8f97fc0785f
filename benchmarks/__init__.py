"""Measurements behind the claims: ``python -m benchmarks [NAME ...]`` prints ratios taken in one run."""
