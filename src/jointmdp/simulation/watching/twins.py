"""Twins: what stands in for functions and classes wherever modules hold them, for as long as anybody watches.

A twin does what the plain one does for everybody but the thread (to be exact, the context) that watches, so that nobody
else notices. What was replaced is put back when the last watcher leaves, however that ends.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Twins:
    """Pairs of a plain function or class and its twin, and who is watching.

    Modules in `spared` packages keep the plain ones, but for those named in `others`. What classes hold is given as
    `attributes`: holder, name, plain and twin.
    """

    def __init__(
        self,
        pairs: Callable[[], Iterable[tuple[Any, Any]]],
        spared: tuple[str, ...] = ("jointmdp",),
        others: tuple[str, ...] = (),
        attributes: tuple[tuple[Any, str, Any, Any], ...] = (),
    ) -> None:
        self._pairs, self._spared, self._others, self._attributes = pairs, spared, others, attributes
        self._lock, self._watchers = threading.RLock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._watchers:
                self._replace({id(plain): twin for plain, twin in self._pairs()})
                for holder, name, _, twin in self._attributes:
                    setattr(holder, name, twin)
            self._watchers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._watchers -= 1
            if not self._watchers:
                self._replace({id(twin): plain for plain, twin in self._pairs()})
                for holder, name, plain, _ in self._attributes:
                    setattr(holder, name, plain)

    def _replace(self, others: Mapping[int, Any]) -> None:
        """Wherever a module holds one of these: users import them by name, too."""
        for name, module in list(sys.modules.items()):
            if module is not None and (name.partition(".")[0] not in self._spared or name in self._others):
                held = getattr(module, "__dict__", {})
                for key, value in list(held.items()):
                    if id(value) in others:
                        held[key] = others[id(value)]


class Disguise(type):
    """Of a class that stands in for its base: what is an instance of that one is an instance of this one."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__mro__[1]) if "is_twin" in vars(cls) else super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__mro__[1]) if "is_twin" in vars(cls) else super().__subclasscheck__(kind)
