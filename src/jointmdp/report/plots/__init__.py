"""Plots as functions: each takes a result and, if you like, Matplotlib axes, and returns the axes.

They need Matplotlib (the extra ``plots``). docs/gallery.md shows them all.
"""

import lazy_loader

# The names stand in `__init__.pyi` and load on first use: samples that nobody draws need no models.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
