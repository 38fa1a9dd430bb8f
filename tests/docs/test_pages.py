"""Every example in the documentation runs.

The blocks marked ``python``, and code cells, run from top to bottom, in one namespace; those marked ``py`` are only
shown (another library's code).
"""

import doctest
import re
from functools import partialmethod
from inspect import isfunction
from pathlib import Path

import pytest

from replaylab import distributed, learners, replay, research, torch, watch
from replaylab.distributed import replay as remote
from replaylab.study import InProcess, Study
from replaylab.study.execution.local import processes
from tests.study import tiny

DOCS = Path(__file__).parents[2] / "docs"
ROOMS = ("start", "guides", "laboratory", "reference", "explanation")
PAGES = [*sorted(DOCS.glob("*.md")), *(page for room in ROOMS for page in sorted((DOCS / room).rglob("*.md")))]
"""All but the tutorials, which are executed when the documentation is built, and the results."""
PACKAGES = (replay, research, learners, watch, remote, distributed, torch)
"""Packages whose names the reference lists one by one; those of studies have a separate page."""
SAVED = re.compile(r"^Save this as `(.*?)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Files that a page has its reader write."""
BLOCK = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page, text):
    """Run a page's blocks and return their names; doctest prompts are checked for what they print."""
    names = {"__name__": page}
    for match in BLOCK.finditer(text):
        code, line = match[1], text[: match.start(1)].count("\n")
        if ">>> " in code:
            test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
            doctest.DebugRunner().run(test, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * line + code, page, "exec"), names)
    return names


@pytest.fixture
def quick_studies(monkeypatch):
    """Studies run in this process, and their reports have empty figures, and no files of them: others test these."""
    monkeypatch.setattr(processes, "LocalProcesses", lambda workers: InProcess())
    monkeypatch.setattr(Study, "report", partialmethod(Study.report, figure_files=False))
    with tiny.undrawn():
        yield


def without_sbx(text):
    """A page's text without its blocks that import sbx: JAX compiles for longer than the rest of the page takes."""
    return BLOCK.sub(lambda match: "\n" * match[0].count("\n") if "import sbx" in match[0] else match[0], text)


def run_here(page, text, folder, monkeypatch):
    """Write a page's files into a folder, and run its blocks there."""
    monkeypatch.chdir(folder)
    for name, content in SAVED.findall(text):
        Path(name).write_text(content)
    try:
        run(str(page), text)
    except ModuleNotFoundError as error:
        if (error.name or "replaylab").split(".")[0] in ("replaylab", "tests"):
            raise
        pytest.skip(f"needs {error.name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
@pytest.mark.usefixtures("quick_studies")
def test_examples_run(page, tmp_path, monkeypatch):
    run_here(page, without_sbx(page.read_text()), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "import sbx" in page.read_text()], ids=lambda page: page.name
)
def test_examples_with_sbx_run(page, tmp_path, monkeypatch):
    """The buffer under sbx is also tested in tests/integrations/test_sbx.py."""
    run_here(page, page.read_text(), tmp_path, monkeypatch)


@pytest.mark.parametrize("code", ["assert 1 == 2", ">>> 1 + 1\n3", "x = unknown"])
def test_an_example_that_is_wrong_fails(code):
    with pytest.raises((AssertionError, NameError, doctest.DocTestFailure)):
        run("page.md", f"Text.\n\n```python\n{code}\n```\n")


def test_blocks_share_a_namespace():
    run("page.md", "```python\nx = 2\n```\n```python\n>>> x + 1\n3\n>>> y = x\n```\n```python\nassert y == 2\n```\n")


def test_pages_save_under_different_names():
    """A reader follows several in one folder: what one saves, another must not take for its own."""
    saved = re.compile(r"\.save(?:_replay_buffer)?\(\"(.*?)(?:\.pkl)?\"")
    names = [name for page in PAGES for name in sorted({match[1] for match in saved.finditer(page.read_text())})]
    assert "cleanrl-replay" in names
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__])
def test_the_reference_has_every_public_name(package, name):
    value = getattr(package, name)
    kind = "autoclass" if isinstance(value, type) else "autofunction" if isfunction(value) else "autodata"
    reference = "".join(page.read_text() for page in (DOCS / "reference/api").glob("*.md"))
    generated = isinstance(value, type) and issubclass(value, replay.Sampler)  # without a section, by docs/conf.py
    assert generated or re.search(rf"^\.\. {kind}:: {name}(\(\))?$", reference, re.MULTILINE)


@pytest.mark.parametrize("report", sorted((DOCS / "results").rglob("report.html")), ids=lambda file: file.parent.name)
def test_shipped_reports_link_to_what_is_there(report):
    links = re.findall(r'<a[^>]* href="([^"#][^"]*)"', report.read_text())
    assert [link for link in links if not link.startswith("https://") and not (report.parent / link).exists()] == []
