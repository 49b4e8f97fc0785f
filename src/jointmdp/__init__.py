"""What would the other actions have brought, under the same luck?

``solution = jointmdp.evaluate(model, policy)`` gives the joint moments of the returns of all actions;
``solution.gap(state, action, other)`` compares two of them.
"""

import lazy_loader

# The names stand in `__init__.pyi` and load on first use, so that `jointmdp --help` does not wait for JAX.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__ or name.startswith("__"):
        return _load(name)
    from jointmdp.ground.public_names import advice

    raise AttributeError(f"module 'jointmdp' has no attribute {name!r}{advice(name, __file__)}")
