"""Write each tutorial, and each translation of a public notebook, as a notebook (`make notebooks`).

Tutorials go into examples/notebooks, the texts of examples/originals beside themselves. A notebook has the text's code
cells, and its words without links to other pages. `make docs` executes the tutorials, a slow test the originals; tests
check that the notebooks are up to date.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.stem != "index")
ORIGINALS = sorted((ROOT / "examples" / "originals").glob("*.md"))
NOTEBOOKS = {page: ROOT / "examples" / "notebooks" / f"{page.stem}.ipynb" for page in TUTORIALS}
NOTEBOOKS |= {text: text.with_suffix(".ipynb") for text in ORIGINALS}
"""Where the notebook of each text is written."""

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_CODE_CELL = re.compile(r"^```\{code-cell\} ipython3\n((?::[^\n]*\n)*)\n*(.*?)^```$", re.DOTALL | re.MULTILINE)
_DOWNLOAD = re.compile(r"^Download this page.*\n\n?", re.MULTILINE)
_PAGE_LINK = re.compile(r"\[([^]]+)\]\([^)]+\.md[^)]*\)")


def notebook_of(page: str) -> str:
    """Return the notebook of a text, as JSON."""
    parts = _CODE_CELL.split(_DOWNLOAD.sub("", _FRONT_MATTER.sub("", page)))
    cells = []
    for text, code in zip(parts[::3], [*parts[2::3], None], strict=True):
        words = _PAGE_LINK.sub(r"\1", text).strip()
        if words:
            cells.append({"cell_type": "markdown", "metadata": {}, "source": words.splitlines(keepends=True)})
        if code is not None:
            lines = code.rstrip().splitlines(keepends=True)
            cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def write_notebooks() -> None:
    """Write the notebooks of all texts."""
    for page, notebook in NOTEBOOKS.items():
        notebook.parent.mkdir(exist_ok=True)
        notebook.write_text(notebook_of(page.read_text()))


if __name__ == "__main__":
    write_notebooks()
