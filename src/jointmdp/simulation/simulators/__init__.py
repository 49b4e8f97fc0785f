"""Simulators: the protocol, noise, and adapters of tables, functions, JAX, gymnax and Gymnasium environments."""
