"""The translations of five public notebooks, in examples/originals: each runs from top to bottom.

A text may let the test run less than the notebook does. Its line then ends so: ``EPISODES = 300  # the test runs 30``.
"""

import re
import runpy
from pathlib import Path

import pytest

from tests.docs.test_pages import DOCS, run_here

ORIGINALS = sorted((DOCS.parent / "examples" / "originals").glob("*.md"))
NOTEBOOK_OF = runpy.run_path(str(DOCS / "make_notebooks.py"))["notebook_of"]
SMALLER = re.compile(r"^(\w+ = )[^\n]*?  # the test runs ([^\n]+)$", re.MULTILINE)

of_each_original = pytest.mark.parametrize("text", ORIGINALS, ids=lambda text: text.stem)


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
    run_here(text, SMALLER.sub(r"\1\2", text.read_text()), tmp_path, monkeypatch)


def test_a_line_states_what_the_test_runs():
    assert SMALLER.sub(r"\1\2", "EPISODES = 300  # the test runs 30\nSEEDS = 5\n") == "EPISODES = 30\nSEEDS = 5\n"
