"""The version of this library, as files record it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("jointmdp")
except PackageNotFoundError:
    __version__ = "0+source"  # a source tree that nobody installed
