"""The translations of five public notebooks, in examples/originals: each runs from top to bottom.

A text may let the test run less than the notebook does. Its line then ends so: ``EPISODES = 300  # the test runs 30``.
``%matplotlib inline``, which lets Jupyter show figures, is left out: the test has no Jupyter.
"""

import re
import runpy
from pathlib import Path

import pytest

from tests.docs.test_pages import DOCS, run_here

ORIGINALS = sorted((DOCS.parent / "examples" / "originals").glob("*.md"))
NOTEBOOK_OF = runpy.run_path(str(DOCS / "make_notebooks.py"))["notebook_of"]
MAGIC = re.compile(r"^%\w+[^\n]*$", re.MULTILINE)
SMALLER = re.compile(r"^(\w+ = )[^\n]*?  # the test runs ([^\n]+)$", re.MULTILINE)

of_each_original = pytest.mark.parametrize("text", ORIGINALS, ids=lambda text: text.stem)


def as_tested(text: str) -> str:
    """Return a text with the numbers that the test runs, and without Jupyter's commands."""
    return SMALLER.sub(r"\1\2", MAGIC.sub("", text))


def test_each_public_notebook_is_translated():
    names = ["cliff-walking", "comparative-study", "pong", "streaming-memory", "taxi"]
    assert [text.stem for text in ORIGINALS] == names
    page = (DOCS / "start" / "from-your-notebook.md").read_text()
    for name in names:
        assert f"{{download}}`{name}.ipynb <../../examples/originals/{name}.ipynb>`" in page


@of_each_original
def test_the_notebook_is_the_text_s(text: Path):
    assert text.with_suffix(".ipynb").read_text() == NOTEBOOK_OF(text.read_text()), "run `make notebooks`"


@pytest.mark.slow
@of_each_original
def test_an_original_runs(text: Path, tmp_path, monkeypatch):
    run_here(text, as_tested(text.read_text()), tmp_path, monkeypatch)


def test_a_line_states_what_the_test_runs():
    code = "%matplotlib inline\nEPISODES = 300  # the test runs 30\nSEEDS = 5 % 3\n"
    assert as_tested(code) == "\nEPISODES = 30\nSEEDS = 5 % 3\n"
