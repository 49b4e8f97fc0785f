"""Plots as functions: each takes a result and, if you like, Matplotlib axes, and returns the axes."""

import lazy_loader

# The names stand in the stub beside this file and load on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub("jointmdp", __file__)
