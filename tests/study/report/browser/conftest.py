"""One browser, Debian's or your own Chromium through Playwright, and one report for all that look at pages."""

import shutil

import pytest

from tests.study.report.browser.opened import QUIET, WAIT, Opened
from tests.study.tiny import pretended

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""The first takes a quarter less time than the second."""
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="package")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason='pip install "replaylab[browser]"')
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH; on Debian: apt install chromium-headless-shell")
    with playwright.sync_playwright() as library:
        chromium = library.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=WAIT)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def reported(tmp_path_factory):
    """A study of two environments and four strategies, one of them with a long name, and its report."""
    tiny = pretended(
        tmp_path_factory.mktemp("browser"),
        30.0,
        seeds=8,
        chunk_size=8,
        environments=["CartPole-v1", "Acrobot-v1"],
        strategies__none={"type": "online"},
        strategies__prioritized_with_a_long_name_as_a_grid_gives={"type": "prioritized", "alpha": 0.5},
    )
    tiny.report(figure_files=False)
    return tiny


@pytest.fixture(scope="package")
def address(reported):
    return (reported.folder / "report.html").resolve().as_uri()


@pytest.fixture
def opened(browser, address):
    """The report, wide and light, with all its parts open."""
    page_opened = Opened(browser, address, 1280)
    page_opened.page.get_by_role("button", name="Open all").click()
    yield page_opened
    assert page_opened.problems == []
    page_opened.page.context.close()
