"""The answer of an evaluation: joint moments, the gap of two actions, which action is best."""
