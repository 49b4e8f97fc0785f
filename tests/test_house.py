"""The house itself: imports run one way, rooms stay small, and names mean one thing."""

import ast
import re
import types
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import jointmdp as jm

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "jointmdp"
CORE = {"arrays", "checks", "errors", "intervals", "progress", "model", "bellman", "moments", "law", "bounds"}
MOST_ENTRIES = 29
MOST_LINES = 400
MOST_PARAMETERS = 8
# Words of the README's question; in code the field's own terms stand instead.
PRIVATE_WORDS = r"\b(luck|lucky|brought|nought|hence forth|whosoever|amiss|beforehand)\b"
QUESTION = "What would the other actions have brought, under the same luck?"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


@cache  # not when tests are collected: that happens in every worker
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """Modules of this library that a module imports, wherever in it: at the top, in a function, for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "jointmdp")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            if node.module is not None and node.module.split(".")[0] == "jointmdp":
                for alias in node.names:
                    inside = f"{node.module}.{alias.name}"
                    yield inside if inside in modules else node.module


def graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    known = set(trees)
    return {name: set(imported(tree, known)) - {name} for name, tree in trees.items() if name != "jointmdp"}


def room(module: str) -> str:
    """The entry of the package that a module stands in."""
    return module.split(".")[1] if "." in module else module


def by_room(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, others in edges.items():
        found[room(name)] |= {room(other) for other in others} - {room(name)}
    return dict(found)


def circle(edges: dict[str, set[str]]) -> list[str]:
    """A path that leads back to its beginning, or an empty list."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in sorted(edges.get(name, ())):
                if found := visit(other, [*path, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := visit(name, []))), [])


@cache
def edges_of_the_house() -> dict[str, set[str]]:
    return graph(trees())


def test_no_module_imports_in_a_circle() -> None:
    assert circle(edges_of_the_house()) == []


def test_no_room_imports_in_a_circle() -> None:
    assert circle(by_room(edges_of_the_house())) == []


def test_the_core_imports_nothing_above_it() -> None:
    above = {name: sorted(o for o in others if room(o) not in CORE) for name, others in edges_of_the_house().items()}
    assert {name: others for name, others in above.items() if room(name) in CORE and others} == {}


def test_nobody_climbs_to_the_root() -> None:
    assert [name for name, others in edges_of_the_house().items() if "jointmdp" in others] == []


def test_the_graph_sees_every_kind_of_import() -> None:
    """The guards themselves: a circle through a function, a typing import and the root are all found."""
    sources = {
        "jointmdp": "",
        "jointmdp.a": "def f():\n    from jointmdp import b\n",
        "jointmdp.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jointmdp.c import X\n",
        "jointmdp.c": "import jointmdp.a\n",
        "jointmdp.d": "import jointmdp as jm\nfrom jointmdp import __version__\n",
    }
    edges = graph({name: ast.parse(text) for name, text in sources.items()})
    assert circle(edges) == ["jointmdp.a", "jointmdp.b", "jointmdp.c", "jointmdp.a"]
    assert edges["jointmdp.d"] == {"jointmdp"}
    assert circle({"a": {"b"}, "b": set()}) == []


def test_rooms_are_few_and_small() -> None:
    entries = [path.name for path in SOURCE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def parameters(function: ast.FunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_a_function_with_many_parameters_says_why() -> None:
    silent = []
    for name, path in MODULES.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(trees()[name]):
            if isinstance(node, ast.FunctionDef) and parameters(node) > MOST_PARAMETERS:
                head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno])
                if "# many parameters: " not in head:
                    silent.append(f"{name}.{node.name} has {parameters(node)}")
    assert silent == []


def test_one_name_means_one_thing() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, list[str]] = defaultdict(list)
    for name, path in MODULES.items():
        if not path.stem.startswith("__"):
            files[path.stem].append(name)
        for node in trees()[name].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
                is_type = target.id[0].isupper() and not target.id.isupper()
                classes[target.id if is_type else ""].append(name)
    classes.pop("", None)
    assert {stem: names for stem, names in files.items() if len(names) > 1} == {}
    assert {kind: names for kind, names in classes.items() if len(names) > 1} == {}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_words_are_plain(name: str) -> None:
    text = MODULES[name].read_text(encoding="utf-8").replace(QUESTION, "")
    assert re.findall(PRIVATE_WORDS, text, flags=re.IGNORECASE) == []


def test_public_names_are_one_or_two_dots_away() -> None:
    """Documentation never reaches deeper than ``jointmdp.room.name``."""
    deep = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        deep += [f"{page.name}: {found}" for found in re.findall(r"\b(?:jointmdp|jm)(?:\.[a-z_]+){2,}\.\w+", text)]
        deep += [f"{page.name}: {found}" for found in re.findall(r"from jointmdp\.\w+\.[\w.]+ import", text)]
    assert deep == []


def test_every_public_name_loads() -> None:
    assert len(set(jm.__all__)) == len(jm.__all__)
    for name in jm.__all__:
        assert getattr(jm, name) is not None
    for room_name in ("bounds", "executors", "features", "incremental", "plots"):
        assert all(hasattr(getattr(jm, room_name), each) for each in getattr(jm, room_name).__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = jm.no_such_name


def test_no_public_name_is_the_name_of_a_room() -> None:
    """Importing anything from the room would put the room in the place of the function."""
    rooms = {path.stem for path in SOURCE.iterdir()}
    named = {name for name in dir(jm) if not isinstance(getattr(jm, name), types.ModuleType)}
    assert rooms & named == set()
