"""Simulators beyond the usual ones, and what is recorded from them."""

import lazy_loader

# The names stand in the stub beside this file and load on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub("jointmdp", __file__)
