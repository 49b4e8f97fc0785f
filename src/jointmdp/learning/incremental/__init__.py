"""Learning joint moments from samples: incremental JIPE-2 and JIPE-n, for tables and for any simulator."""

import lazy_loader

# The names stand in `__init__.pyi` and load on first use: worker processes that draw samples need no JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
