"""Gymnasium environments as simulators: bringing a state back, and giving a step its luck."""
