"""What would the other actions have brought, under the same luck?

``solution = jointmdp.evaluate(model, policy)`` gives the joint moments of the returns of all actions;
``solution.gap(state, action, other)`` compares two of them.
"""

import lazy_loader

# The names stand in `__init__.pyi` and load on first use, so that `jointmdp --help` does not wait for JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
