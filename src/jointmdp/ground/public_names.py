"""Public names that load on first use, from the stub beside a module: one list for people, type checkers and imports.

`lazy_loader` does this for a package. It keeps what it has loaded in that package, so that a module of names beside
others, `jointmdp.plots` for example, would put its own `save` in the place of `jointmdp.save`.
"""

import ast
import difflib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def public_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a module that stands in the package itself."""
    package = module.rpartition(".")[0]
    places = {name: f"{package}.{source}" for name, source in _imports(Path(file).with_suffix(".pyi")).items()}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(places[name]), name)
        vars(sys.modules[module])[name] = found  # the next use is as quick as any other
        return found

    return load, lambda: sorted(places), sorted(places)


def _imports(stub: Path) -> dict[str, str | None]:
    """What a stub imports, and from where."""
    nodes = ast.parse(stub.read_text(encoding="utf-8")).body
    return {alias.name: node.module for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def advice(name: str, file: str) -> str:
    """Where a public name stands, or what was meant, for whoever looks for it in the package `file` itself."""
    known: dict[str, str] = {}
    for stub in sorted(Path(file).parent.glob("*.pyi")):
        prefix = "" if stub.stem == "__init__" else f"{stub.stem}."
        known |= {each: f"jointmdp.{prefix}{each}" for each in _imports(stub)}
    if name in known:
        return f"; it is {known[name]}"
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {known[near[0]]}?" if near else ""
