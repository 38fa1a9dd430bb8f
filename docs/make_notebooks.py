"""Write each tutorial as a notebook into examples/notebooks (`make notebooks`); a test checks that they are up to date.

The notebook has the page's code cells, which `make docs` executes, and its text without links to other pages.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
TUTORIALS = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.stem != "index")

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_CODE_CELL = re.compile(r"^```\{code-cell\} ipython3\n((?::[^\n]*\n)*)\n*(.*?)^```$", re.DOTALL | re.MULTILINE)
_DOWNLOAD = re.compile(r"^Download this page.*\n\n?", re.MULTILINE)
_PAGE_LINK = re.compile(r"\[([^]]+)\]\([^)]+\.md[^)]*\)")


def notebook_of(page: str) -> str:
    """Return the notebook of a tutorial's text, as JSON."""
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
    """Write the notebooks of all tutorials."""
    FOLDER.mkdir(exist_ok=True)
    for page in TUTORIALS:
        (FOLDER / f"{page.stem}.ipynb").write_text(notebook_of(page.read_text()))


if __name__ == "__main__":
    write_notebooks()
