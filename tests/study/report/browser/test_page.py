"""The report in a real browser: it opens alone, fits, sorts, prints, and can be read by all."""

import pytest

from tests.study.report.browser.opened import Opened


@pytest.mark.parametrize(("width", "scheme"), [(1600, "dark"), (390, "light")])
def test_it_opens_alone_and_fits(browser, address, width, scheme):
    opened = Opened(browser, address, width, color_scheme=scheme)
    opened.page.get_by_role("button", name="Open all").click()
    assert opened.problems == []
    assert opened.requests == [address]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    inside = "figure h3, figcaption, .said, .legend, h1, h2, p"
    right = opened.page.eval_on_selector_all(
        inside, "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
    )
    assert right <= width


def test_every_panel_has_a_unique_name(opened):
    page = opened.page
    panels = page.get_by_role("img").all()
    names = [panel.get_attribute("aria-label") for panel in panels]
    assert len(names) >= 20
    assert len(set(names)) == len(names)
    assert "Final and average return of every run: Acrobot-v1: Final return" in names


def test_panels_stand_beside_each_other_where_there_is_room(browser, address):
    page = Opened(browser, address, 1600).page

    def tops(width):
        page.set_viewport_size({"width": width, "height": 900})
        return page.eval_on_selector_all(
            "#learning_curves .panels svg", "a => a.map(e => e.getBoundingClientRect().top)"
        )

    wide, narrow = tops(1600), tops(390)
    assert wide[0] == wide[1]
    assert narrow[0] < narrow[1]


def _column(page, heading):
    table = page.locator("#table-levels table")
    at = table.locator("th").all_text_contents().index(heading)
    return [
        float(text.replace("−", "-").replace(",", ""))
        for text in table.locator(f"tbody td:nth-child({at + 1})").all_text_contents()
    ]


def test_tables_are_sorted_by_click_and_by_key(opened):
    page = opened.page
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
    assert page.get_by_text("▲ higher").first.is_visible()
    assert not page.locator("#levels").is_visible()
    page.get_by_role("heading", name="Final performance").click()
    assert page.locator("#levels").is_visible()


def test_the_answer_is_on_the_first_screen_and_the_page_is_short(browser, address):
    for width, height, shown in ((1280, 800, ".matrix"), (390, 844, ".said")):
        page = Opened(browser, address, width).page
        lowest = page.eval_on_selector_all(shown, "all => all[0].getBoundingClientRect().bottom")
        assert lowest < height
        assert page.evaluate("document.documentElement.scrollHeight") < 30 * height


def test_printed_parts_are_open_except_every_run(browser, address):
    page = Opened(browser, address, 1280).page
    assert not page.locator("#levels").is_visible()
    page.emulate_media(media="print")
    for part in ("#levels svg", "#differences svg", "#table-levels", "#table-differences"):
        assert page.locator(part).first.bounding_box()["height"] > 50
        assert page.locator(part).first.evaluate("one => one.checkVisibility({ contentVisibilityAuto: true })")
    assert not page.locator("#every_run .panels").first.is_visible()
    assert not page.get_by_role("navigation").is_visible()
    assert page.pdf().count(b"/Type /Page\n") >= 3


def test_a_tool_finds_no_barrier(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason='pip install "replaylab[test]"').Axe()
    violations = [
        violation
        for violation in axe.run(opened.page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert [(violation["id"], violation["nodes"][0]["html"][:200]) for violation in violations] == []


def _contrast(first, other):
    """The contrast ratio of two colours, as "rgb(r, g, b)", by WCAG 2.1."""

    def light(color):
        parts = (int(c) / 255 for c in color[color.index("(") + 1 : -1].split(",")[:3])
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(first), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scheme", "paper"), [("light", 254), ("dark", 21)])
def test_text_and_lines_stand_out(browser, address, scheme, paper):
    page = Opened(browser, address, 1280, color_scheme=scheme).page
    page.get_by_role("button", name="Open all").click()
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
