"""Gymnasium environments as simulators: restoring a state, and giving a step its noise."""
