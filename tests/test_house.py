"""The house itself: imports run one way, files are few and of a size, names are few, a question crosses few rooms."""

import ast
import importlib
import re
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import jointmdp as jm
from jointmdp.ground.answers import upstairs

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "jointmdp"
# From the ground up; a floor imports those before it. Decisions and learning do not know each other.
FLOORS = ("ground", "model", "exact", "simulation", "decisions", "learning", "show")
SUBMODULES = ("bounds", "envs", "errors", "executors", "features", "plots", "results", "simulators")
# What answers ask of higher floors, by name (`ground.answers.upstairs`).
DOORS = {
    ("decisions.comparing.compare", "resumed"),
    ("plots", "plot"),
    ("show.plots.result_plots", "comparison"),
    ("show.plots.result_plots", "review"),
    ("show.report.report_page", "write_comparison"),
    ("show.report.report_page", "write_solution"),
    ("show.report.report_page", "write_study"),
    ("simulation.montecarlo.best_action", "best_of"),
    ("simulation.montecarlo.simulate", "simulate"),
}
MOST_FILES = 200
MOST_LINES = 700
MOST_NAMES = 36
MOST_ROOMS, MOST_CROSSED = 7, 25  # that `evaluate().gap().superiority()` passes through
MOST_PARAMETERS = 8
# Words of the README's question; in code the field's own terms stand instead.
PRIVATE_WORDS = r"\b(luck|lucky|brought|nought|hence forth|whosoever|amiss|beforehand)\b"
QUESTION = "What would the other actions have brought, under the same luck?"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
ROOMS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


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


def floor(module: str) -> str:
    """The entry of the package that a module stands in."""
    return module.split(".")[1] if "." in module else module


def room(module: str) -> str:
    """A folder of a floor, such as ``exact.law``; what stands on a floor itself is a room with it."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if ".".join(["jointmdp", *parts[:2]]) in ROOMS else parts[0]


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


@pytest.mark.slow
def test_no_module_imports_in_a_circle() -> None:
    assert circle(edges_of_the_house()) == []


@pytest.mark.slow
def test_no_room_imports_in_a_circle() -> None:
    """Files that stand on a floor itself, such as `learning.learn`, are front doors: above the rooms of their floor."""
    rooms = {name: others for name, others in edges_of_the_house().items() if "." in room(name)}
    assert circle(by_room(rooms)) == []


def test_imports_run_from_floor_to_floor() -> None:
    """Downwards only, wherever in a module an import stands; what is public at the top is above all floors."""
    wrong = []
    for name, others in edges_of_the_house().items():
        above = FLOORS[FLOORS.index(floor(name)) + 1 :] if floor(name) in FLOORS else ()
        beside = ("decisions",) if floor(name) == "learning" else ()
        reached = {floor(other) for other in others} & {*above, *beside, *(SUBMODULES if floor(name) in FLOORS else ())}
        wrong += [f"{name} imports {each}" for each in sorted(reached)]
    assert wrong == []


def test_the_doors_upwards_are_these() -> None:
    found = set()
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "upstairs":
                module, wanted = node.args
                assert isinstance(module, ast.Constant), name
                found.add((module.value, wanted.value if isinstance(wanted, ast.Constant) else wanted.id))
    assert found == DOORS
    for module, wanted in DOORS - {("plots", "plot")}:
        assert callable(upstairs(module, wanted))


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


def test_files_are_few_and_of_a_size() -> None:
    entries = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert entries == {*FLOORS, *SUBMODULES}
    assert len(MODULES) <= MOST_FILES
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


def test_public_names_are_few_and_load() -> None:
    names = [name for name in jm.__all__ if not isinstance(getattr(jm, name), types.ModuleType) and name[0] != "_"]
    assert len(set(names)) == len(names) <= MOST_NAMES
    assert {name for name in jm.__all__ if isinstance(getattr(jm, name), types.ModuleType)} == set(SUBMODULES)
    for name in SUBMODULES:
        submodule = importlib.import_module(f"jointmdp.{name}")
        assert submodule is getattr(jm, name)
        assert all(getattr(submodule, each) is not None for each in submodule.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = jm.no_such_name


def test_no_public_name_is_the_name_of_a_room() -> None:
    """Importing anything from the room would put the room in the place of the function."""
    rooms = {path.stem for path in SOURCE.iterdir()}
    named = {name for name in dir(jm) if not isinstance(getattr(jm, name), types.ModuleType)}
    assert rooms & named == set()


def crossed(ask: Callable[[], object]) -> set[str]:
    """Modules of the library whose functions run while a question is answered."""
    files: set[str] = set()
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return {name for name, path in MODULES.items() if str(path) in files}


def test_a_question_crosses_few_rooms() -> None:
    model, policy = jm.envs.shared_successors()

    def ask() -> object:
        return jm.evaluate(model, policy).gap(0, 0, 1).superiority()

    ask()  # what is imported and compiled is no part of the way
    modules = crossed(ask)
    assert "jointmdp.exact.solution.evaluate" in modules
    assert len({room(name) for name in modules if name not in ROOMS}) <= MOST_ROOMS, sorted(modules)
    assert len(modules) <= MOST_CROSSED, sorted(modules)


@pytest.mark.slow
def test_submodules_keep_their_names_to_themselves() -> None:
    """`jm.plots.save` is another function than `jm.save`, whichever is used first."""
    code = """
import jointmdp as jm
modules = [getattr(jm, name) for name in %r]
found = [getattr(module, name) for module in modules for name in module.__all__]
print(len(found), sorted(name for name in set(vars(jm)) - set(jm.__all__) if not name.startswith("_")))
print(jm.plots.save.__module__, jm.save.__module__)
"""
    done = subprocess.run([sys.executable, "-c", code % (SUBMODULES,)], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    count, _, names = first.partition(" ")
    assert int(count) > 60
    assert set(ast.literal_eval(names)) <= {*FLOORS, "lazy_loader"}
    assert second == "jointmdp.show.plots.style jointmdp.show.saving"
    with pytest.raises(AttributeError, match=r"'jointmdp.plots' has no attribute 'nothing'"):
        jm.plots.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_that_is_elsewhere_is_found() -> None:
    with pytest.raises(AttributeError, match=r"it is jointmdp\.simulators\.TableSimulator"):
        _ = jm.TableSimulator
    with pytest.raises(AttributeError, match=r"did you mean jointmdp\.evaluate\?"):
        _ = jm.evalute
    with pytest.raises(AttributeError, match=r"no attribute 'wholly_unknown'$"):
        _ = jm.wholly_unknown
