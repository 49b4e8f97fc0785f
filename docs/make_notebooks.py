"""Write the tutorials as notebooks, with what the pages say that their code prints."""

import re
from pathlib import Path

import nbformat
from nbformat import v4

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "examples" / "notebooks"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


def notebook(page: Path) -> nbformat.NotebookNode:
    """Words become cells of words, code becomes cells of code, and the text after it what it printed."""
    text, cells, at = page.read_text(encoding="utf-8"), [], 0
    for block in FENCE.finditer(text):
        language, inside = block.groups()
        if language == "python":
            cells.append(v4.new_markdown_cell(_linked(text[at : block.start()])))
            cells.append(v4.new_code_cell(inside.rstrip()))
            at = block.end()
        elif language == "text" and cells and not text[at : block.start()].strip():
            cells[-1].outputs = [v4.new_output("stream", name="stdout", text=inside)]
            at = block.end()
    cells.append(v4.new_markdown_cell(_linked(text[at:])))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the same page makes the same file
    return v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})


def _linked(words: str) -> str:
    """Links of a page in docs/tutorials, as they are from examples/notebooks."""
    return re.sub(r"\]\((?![a-z]+:)([^)#]+)", r"](../../docs/tutorials/\1", words).strip()


def main() -> None:
    """All tutorials."""
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        nbformat.write(notebook(page), NOTEBOOKS / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main()
