"""Linear features of states and actions: what Projected projects onto."""

import lazy_loader

# The names stand in the stub beside this file and load on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub("jointmdp", __file__)
