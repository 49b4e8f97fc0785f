"""Bytes on disk: written whole or not at all, and read without trust; and the version that files record."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("jointmdp")
except PackageNotFoundError:
    __version__ = "0+source"  # a source tree that nobody installed
