"""All rows."""

from wild import gymnasium_cases, jax_cases, old_api_cases, process_cases

CASES = (*gymnasium_cases.CASES, *old_api_cases.CASES, *jax_cases.CASES, *process_cases.CASES)
