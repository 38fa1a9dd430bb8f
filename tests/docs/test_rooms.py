"""The documentation's rooms: links and pictures are there, pages are reached, tutorials can be downloaded."""

import json
import re
import runpy

import pytest

from tests.docs.test_pages import DOCS, ROOMS

ROOT = DOCS.parent
PAGES = sorted(path for path in DOCS.rglob("*.md"))
ABOUT = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
ABOUT += [ROOT / folder / "README.md" for folder in ("benchmarks", "cpp", "src/replaylab/study")]
TUTORIALS = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index")
NOTEBOOK_OF = runpy.run_path(str(DOCS / "make_notebooks.py"))["notebook_of"]
LARGEST = 200_000
"""Bytes of a picture."""


def links(text):
    """The targets of a text's links and pictures that lie in this repository, without their anchors."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    matches = re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", prose)
    return [target for target in matches if "://" not in target]


def contents(page):
    """The pages in a page's tables of contents."""
    listed = re.findall(r"^```{toctree}\n(?::[^\n]*\n)*\n?(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(page.parent / f"{entry}.md").resolve() for entries in listed for entry in entries.split()]


def missing(page, text):
    return [target for target in links(text) if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", [*ABOUT, *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not missing(page, page.read_text())


def test_a_link_that_leads_nowhere_is_found():
    text = "[a](index.md#x) ![b](gone.svg)\n```python\n[c](d)\n```\n[e](https://example.org/f)"
    assert missing(DOCS / "index.md", text) == ["gone.svg"]


def test_every_page_is_reached_from_the_first():
    reached, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop()
        reached.add(page)
        left += [child for child in contents(page) if child not in reached]
    assert reached == set(PAGES)


def test_every_room_introduces_its_pages():
    for room in (*ROOMS, "tutorials"):
        index = DOCS / room / "index.md"
        assert set(links(index.read_text())) >= {path.name for path in index.parent.glob("*.md")} - {"index.md"}


def test_pictures_are_small_and_shown():
    shown = "".join(path.read_text() for path in (*ABOUT, *PAGES))
    for picture in (DOCS / "pictures").iterdir():
        assert picture.stat().st_size <= LARGEST
        assert f"pictures/{picture.name}" in shown


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_a_notebook_to_download(page):
    text = page.read_text()
    assert text.startswith("---\nfile_format: mystnb\n")
    assert f"{{download}}`{page.stem}.ipynb <../../examples/notebooks/{page.stem}.ipynb>`" in text
    notebook = (ROOT / f"examples/notebooks/{page.stem}.ipynb").read_text()
    assert notebook == NOTEBOOK_OF(text), "run `make notebooks`"
    code = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    assert len(code) == text.count("```{code-cell}") >= 5
    assert ".md)" not in notebook


def test_there_is_a_tutorial_for_each_earlier_work():
    names = ["blind-cliffwalk", "cliff-walking", "comparative-study", "streaming-memory", "taxi"]
    assert [page.stem for page in TUTORIALS] == names
