"""Docs that cannot rot: their code runs, prints what they say it prints, and their links lead somewhere."""

import contextlib
import inspect
import io
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from copy import deepcopy
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import jointmdp as jm
from jointmdp.show.cli import main

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
PAGES = [README, *sorted(DOCS.glob("*.md")), *TUTORIALS]
LONG = {
    f"{name}.md"
    for name in (
        "bounds",
        "comparing",
        "couplings",
        "environments",
        "executors",
        "gallery",
        "incremental",
        "jax",
        "large-models",
        "laws",
        "models",
        "neural",
        "projected",
        "several-hosts",
        "sharing",
        "signs",
        "simulators",
        "tour",
    )
}
# They compute for longer than they compile; and in one, what a number is rounded to hangs on its last bit.
COMPUTING = {"laws.md", "neural.md", "tour.md", "jax.md"}
MARKS = {"slow": LONG, "optimised": COMPUTING}
MARKED = {
    page: pytest.param(page, marks=[getattr(pytest.mark, mark) for mark, names in MARKS.items() if page.name in names])
    for page in PAGES
}
NOTEBOOKS = ROOT / "examples" / "notebooks"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OPTIONAL = {"jumanji", "navix", "pgx"}  # recipes for packages that are not installed are skipped
AGENTS = "stable_baselines3"  # of one tutorial
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int  # of its first line in the page


def blocks(text: str) -> list[Block]:
    return [Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in FENCE.finditer(text)]


def run(page: str, text: str) -> None:
    """Run the Python blocks of a page in one namespace; a text block right after one is what it prints."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = blocks(text)
    for i, block in enumerate(found):
        if block.language != "python" or any(find_spec(name) is None for name in OPTIONAL & imported(block.text)):
            continue
        # Empty lines in front make a traceback point into the page.
        code = compile("\n" * (block.line - 1) + block.text, page, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        after = found[i + 1] if i + 1 < len(found) else None
        if after is not None and after.language == "text":
            assert printed.getvalue() == after.text, f"{page}, line {block.line} prints something else"
        else:
            assert not printed.getvalue(), f"{page}, line {block.line} prints something that the page does not show"


def imported(code: str) -> set[str]:
    """The packages that a block imports, ``import name`` at the beginning of a line."""
    return set(re.findall(r"^import (\w+)", code, re.MULTILINE))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def broken_links(folder: Path, text: str) -> list[str]:
    """Relative links to files that do not exist."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(text))
    files = [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:", target)]
    return [file for file in files if file and not (folder / file).exists()]


def undocumented(name: str, thing: object) -> list[str]:
    """What is public in a function or class and says nothing about itself."""
    missing = [] if is_documented(name, thing) else [name]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            is_code = inspect.isfunction(value) or hasattr(value, "__get__")  # methods, properties, class methods
            if is_code and not member.startswith("_") and not is_field(thing, member):
                missing += [] if is_documented(member, getattr(value, "__func__", value)) else [f"{name}.{member}"]
    return missing


def is_field(owner: type, member: str) -> bool:
    """Whether a member only holds data, such as the accessors of a named tuple."""
    return member in (*getattr(owner, "_fields", ()), *getattr(owner, "__slots__", ()))


def is_documented(name: str, thing: object) -> bool:
    # Dataclasses and named tuples that say nothing get their signature as docstring, and subclasses their parent's.
    text = getattr(thing, "__doc__", None) or ""
    return bool(text.strip()) and not text.startswith(f"{name}(")


@pytest.mark.filterwarnings("ignore:Pairing ")  # saves little in some of these, as their answers say
@pytest.mark.parametrize("page", [MARKED[page] for page in PAGES if page not in TUTORIALS], ids=name_of)
def test_code_runs_and_prints_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some pages write files
    run(page.name, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_notebooks_are_the_tutorials(page: Path) -> None:
    import nbformat

    place = spec_from_file_location("make_notebooks", DOCS / "make_notebooks.py")
    assert place is not None
    assert place.loader is not None
    maker = module_from_spec(place)
    place.loader.exec_module(maker)
    kept = nbformat.read(NOTEBOOKS / f"{page.stem}.ipynb", as_version=4)
    assert kept == maker.notebook(page), "run: python docs/make_notebooks.py"


@pytest.mark.slow
@pytest.mark.parametrize("page", [MARKED[page] for page in TUTORIALS], ids=name_of)
def test_tutorials_run_as_notebooks_and_print_what_they_show(page: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    if AGENTS in page.read_text(encoding="utf-8") and find_spec(AGENTS) is None:
        pytest.skip(f"{page.name} needs {AGENTS}; `make test-agents` runs it")
    shown = nbformat.read(NOTEBOOKS / f"{page.stem}.ipynb", as_version=4)
    done = NotebookClient(deepcopy(shown), timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(shown.cells, done.cells, strict=True):
        if before.cell_type == "code":
            assert stdout(after) == stdout(before), before.source


def stdout(cell: Any) -> str:
    return "".join(each.text for each in cell.outputs if each.output_type == "stream" and each.name == "stdout")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
    if "processes" in example.read_text(encoding="utf-8"):  # they import it
        command = [sys.executable, str(example)]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert found.returncode == 0, found.stderr
        assert len(found.stdout.splitlines()) >= 2
        return
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        if example.stem.startswith("broken"):  # which `compare` says of it
            warnings.simplefilter("ignore", jm.errors.NoiseWarning)
        runpy.run_path(str(example), run_name="__main__")  # here, where JAX has been imported
    assert len(capsys.readouterr().out.splitlines()) >= 2


def test_every_example_is_in_the_list_of_examples() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"({path.name})" not in text] == []
    assert broken_links(ROOT / "examples", text) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page.parent, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page: Path) -> None:
    for file, test in re.findall(r"`(tests/\w+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{page.name} names {file}::{test}"


def test_every_page_is_in_the_index() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {line for block in blocks(text.replace("```{toctree}", "```toctree")) for line in block.text.splitlines()}
    missing = [name for page in PAGES[1:] if (name := name_of(page).removesuffix(".md")) not in listed]
    assert missing == ["index"]


def test_the_first_screen_of_the_readme() -> None:
    """The question, one picture, two commands and the first code, within 40 lines."""
    screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:40])
    assert "What would the other actions have brought, under the same luck?" in screen
    assert "![" in screen
    first, code, printed = blocks(screen)
    assert (first.language, code.language, printed.language) == ("sh", "python", "text")
    assert len(first.text.splitlines()) == 2


def test_every_public_name_is_in_the_reference() -> None:
    """Names of `jm` and of its submodules; three of these stand there as a whole."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    whole = {"plots", "features", "executors"}
    submodules = {name for name in jm.__all__ if isinstance(getattr(jm, name), ModuleType)}
    wanted = [*whole, *({*jm.__all__} - submodules - {"__version__"})]
    wanted += [f"{room}.{name}" for room in submodules - whole for name in getattr(jm, room).__all__]
    wanted = [name.removeprefix("errors.") if hasattr(jm, name.removeprefix("errors.")) else name for name in wanted]
    assert [name for name in wanted if not re.search(rf":: jointmdp\.{re.escape(name)}$", text, re.MULTILINE)] == []


def test_first_commands_are_targets_of_the_makefile() -> None:
    first = blocks(README.read_text(encoding="utf-8"))[0]
    assert first.language == "sh"
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = [line.split() for line in first.text.splitlines()]
    assert commands
    for command in commands:
        assert command[0] == "make"
        assert set(command[1:]) <= set(targets)


@pytest.mark.slow
def test_the_tour_shows_the_demonstration(tmp_path: Path) -> None:
    shown = blocks((DOCS / "tour.md").read_text(encoding="utf-8"))[:2]
    assert ["demo"] in readme_commands()
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0
    for table in shown:
        assert table.language == "text"
        assert table.text in result.output
    for words in ("How much to order today?", "Order 4.", "certified"):
        assert words in result.output
    assert (tmp_path / "how-much-to-order.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_says_how_to_reproduce() -> None:
    assert ["reproduce", "tabular"] in readme_commands()  # which test_experiments.py runs
    assert ["reproduce", "projected"] in readme_commands()  # and test_projected_figures.py


def readme_commands() -> list[list[str]]:
    pages = [page.read_text(encoding="utf-8") for page in (README, DOCS / "command-line.md")]
    found = [block.text for page in pages for block in blocks(page) if block.language == "sh"]
    return [shlex.split(line)[1:] for text in found for line in text.splitlines() if line.startswith("jointmdp ")]


SLOW_COMMANDS = ("report", "audit")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(each, marks=pytest.mark.slow if each[0] in SLOW_COMMANDS else ())
        for each in readme_commands()
        if each[0] not in ("demo", "reproduce")
    ],
    ids=" ".join,
)
def test_commands_of_the_readme(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("state,action\nstock 4,order 4\nstock 0,\n", encoding="utf-8")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert len(result.output) + sum(path.stat().st_size for path in tmp_path.iterdir()) > 200


def test_public_names_are_documented() -> None:
    things = {name: getattr(jm, name) for name in jm.__all__ if name != "__version__"}
    for room in [room for room in things.values() if isinstance(room, ModuleType)]:
        things |= {name: getattr(room, name) for name in room.__all__}
    missing = [place for name, thing in things.items() for place in undocumented(name, thing)]
    assert missing == []


# -- the guards themselves -------------------------------------------------------------------------------------


def test_wrong_output_is_noticed() -> None:
    run("page", "```python\nx = 1\nprint(x)\n```\n\n```text\n1\n```\n")
    with pytest.raises(AssertionError, match="line 2 prints something else"):
        run("page", "```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="does not show"):
        run("page", "```python\nprint(1)\n```\n")
    with pytest.raises(NameError):
        run("page", "```python\nprint(y)\n```\n")


def test_broken_links_are_noticed() -> None:
    text = "[good](README.md#top), [bad](docs/missing.md), [elsewhere](https://example.org), `[code](no.md)`"
    assert broken_links(ROOT, text) == ["docs/missing.md"]


def test_missing_docstrings_are_noticed() -> None:
    class Silent(NamedTuple):
        x: int

        def method(self) -> None: ...

        @property
        def doubled(self) -> int:
            return 2 * self.x

        @classmethod
        def make(cls) -> None: ...

        def told(self) -> None:
            """Says so."""

    assert undocumented("Silent", Silent) == ["Silent", "Silent.method", "Silent.doubled", "Silent.make"]
