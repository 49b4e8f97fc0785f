"""What can go wrong, and the words that say how far an answer came."""

from jointmdp.ground.public_names import public_names

# The names stand in the stub beside this file and load on first use.
__getattr__, __dir__, __all__ = public_names(__name__, __file__)
