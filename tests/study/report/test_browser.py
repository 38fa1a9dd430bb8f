"""The report in a real browser: Debian's, or your own, Chromium through Playwright."""

import shutil

import pytest

from tests.study.tiny import pretend, study

playwright = pytest.importorskip("playwright.sync_api", reason='pip install "replaylab[browser]"')

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH; on Debian: apt install chromium")

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WAIT = 120_000
"""Milliseconds; a busy machine starts a browser slowly."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    found = study(
        tmp_path_factory.mktemp("browser"),
        seeds=8,
        population=8,
        environments=["CartPole-v1", "Acrobot-v1"],
        strategies__none={"type": "online"},
        strategies__prioritized_with_a_long_name_as_a_grid_gives={"type": "prioritized", "alpha": 0.5},
    )
    pretend(found, 30.0)
    return found.report().resolve().as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as one:
        chromium = one.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=WAIT)
        yield chromium
        chromium.close()


class Opened:
    """A page, with what it complained of and asked for."""

    def __init__(self, browser, address, width, **settings):
        self.page = browser.new_context(viewport={"width": width, "height": 900}, **settings).new_page()
        self.page.set_default_timeout(WAIT)
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_alone_and_fits(browser, address, width, scheme):
    opened = Opened(browser, address, width, color_scheme=scheme)
    assert opened.problems == []
    assert opened.requests == [address]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    inside = "figure h3, figcaption, .answer, .legend, h1, h2, p"
    right = opened.page.eval_on_selector_all(
        inside, "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
    )
    assert right <= width


def test_every_panel_has_a_name_of_its_own(browser, address):
    page = Opened(browser, address, 1280).page
    panels = page.get_by_role("img").all()
    names = [panel.get_attribute("aria-label") for panel in panels]
    assert len(names) > 20
    assert len(set(names)) == len(names)
    assert "Level of every run: Acrobot-v1: Final level" in names


def test_panels_stand_beside_each_other_where_there_is_room(browser, address):
    def tops(width):
        page = Opened(browser, address, width).page
        return page.eval_on_selector_all(
            "#learning_curves .panels svg", "a => a.map(e => e.getBoundingClientRect().top)"
        )

    wide, narrow = tops(1280), tops(390)
    assert wide[0] == wide[1]
    assert narrow[0] < narrow[1]


def _column(page, heading):
    table = page.locator("#table-levels table")
    at = table.locator("th").all_text_contents().index(heading)
    return [
        float(text.replace("−", "-").replace(",", ""))
        for text in table.locator(f"tbody td:nth-child({at + 1})").all_text_contents()
    ]


def test_tables_are_sorted_by_click_and_by_key(browser, address):
    page = Opened(browser, address, 1280).page
    as_written = _column(page, "Final")
    assert as_written != sorted(as_written)
    head = page.locator("#table-levels th", has_text="Final")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert _column(page, "Final") == sorted(as_written)
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert _column(page, "Final") == sorted(as_written, reverse=True)
    other = page.locator("#table-levels th", has_text="Strategy")
    other.get_by_role("button").focus()
    page.keyboard.press("Space")
    assert (head.get_attribute("aria-sort"), other.get_attribute("aria-sort")) == (None, "ascending")
    names = page.locator("#table-levels tbody td:nth-child(2)").all_text_contents()
    assert names == sorted(names)


def test_without_scripts_it_is_all_there(browser, address):
    page = Opened(browser, address, 1280, java_script_enabled=False).page
    assert page.locator("#table-levels tbody tr").count() == 8
    assert page.get_by_role("button").count() == 0
    assert page.get_by_text("What came out").is_visible()


def _contrast(one, other):
    """The contrast ratio of two colours, as "rgb(r, g, b)", by WCAG 2.1."""

    def light(color):
        parts = (int(c) / 255 for c in color[color.index("(") + 1 : -1].split(",")[:3])
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scheme", "paper"), [("light", 254), ("dark", 21)])
def test_text_and_lines_stand_out(browser, address, scheme, paper):
    page = Opened(browser, address, 1280, color_scheme=scheme).page
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background.startswith(f"rgb({paper}, ")
    fill = "all => [...new Set(all.map(e => getComputedStyle(e).fill))]"
    texts = page.eval_on_selector_all("figure .panels text", fill)
    assert len(texts) >= 2
    assert min(_contrast(text, background) for text in texts) >= 4.5
    assert _contrast(page.evaluate("getComputedStyle(document.body).color"), background) >= 7
    stroke = "all => [...new Set(all.map(e => getComputedStyle(e).stroke))]"
    lines = page.eval_on_selector_all("figure .legend path", stroke)
    assert len(lines) == 5  # four strategies, and the grey of environments
    assert min(_contrast(line, background) for line in lines) >= 3
