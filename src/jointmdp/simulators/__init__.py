"""Simulators: the protocol, its adapters, and pair simulation on any of them."""
