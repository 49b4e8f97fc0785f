"""Ready-made models with their policies, and models and policies out of other packages."""

import lazy_loader

# The names stand in the stub beside this file and load on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub("jointmdp", __file__)
