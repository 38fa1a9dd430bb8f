"""Interactions of the page: curves that show their numbers, legends that hide, links that open."""

from replaylab.statistics import curve_band
from tests.study.report.browser.opened import Opened


def _panel(page):
    panel = page.locator("#learning_curves .panels svg").first
    panel.scroll_into_view_if_needed()
    return panel, panel.bounding_box()


def _number(text):
    return float(text.replace("−", "-").replace(",", ""))


def _tooltip(page):
    head, *lines = page.locator("#readout p").all_text_contents()
    texts = {}
    for line in lines:
        name, _, rest = line.partition(": ")
        estimate, _, ends = rest.partition(" (")
        low, _, high = ends.rstrip(")").partition(" to ")
        texts[name] = tuple(map(_number, (estimate, low, high)))
    return head, texts


def _wanted(reported, step):
    """The numbers of a step of the first environment, in full precision."""
    texts = {}
    for curve in reported.curves():
        if curve.environment == "CartPole-v1":
            band = curve_band(curve.values)
            texts[curve.strategy] = tuple(float(side[curve.steps == step][0]) for side in band)
    return texts


def test_who_points_at_a_curve_reads_its_numbers(opened, reported):
    page = opened.page
    panel, box = _panel(page)
    assert page.locator("#readout").is_hidden()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
    head, tooltip = _tooltip(page)
    assert head == "environment steps 200"
    wanted = _wanted(reported, 200)
    assert tooltip.keys() == wanted.keys()
    for name, numbers in tooltip.items():
        assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(numbers, wanted[name], strict=True)), name
    assert panel.locator(".cursor circle").count() == len(tooltip)
    assert page.locator("#readout .near").count() == 1
    page.mouse.move(0, 0)
    assert page.locator("#readout").is_hidden()
    assert panel.locator(".cursor").count() == 0


def test_arrow_keys_walk_along_the_curves(opened):
    page = opened.page
    panel, _ = _panel(page)
    panel.focus()
    steps = []
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        steps.append(_tooltip(page)[0].removeprefix("environment steps "))
    assert steps == ["100", "200", "300", "300", "300", "200"]
    page.keyboard.press("Escape")
    assert page.locator("#readout").is_hidden()


def test_a_click_on_a_legend_hides_a_strategy_in_all_figures(opened):
    page = opened.page
    entry = page.locator("#learning_curves .legend").get_by_role("button", name="none", exact=True)
    series = entry.evaluate("one => one.parentElement.dataset.series")
    drawn = page.locator(f"figure .panels .{series}")
    assert drawn.count() >= 8  # band and line, in two panels, of two figures at least
    assert drawn.first.is_visible()
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    assert not any(line.is_visible() for line in drawn.all())
    _, box = _panel(page)
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
    assert "none" not in _tooltip(page)[1]
    entry.focus()
    page.keyboard.press("Enter")
    assert entry.get_attribute("aria-pressed") == "true"
    assert drawn.first.is_visible()


def test_a_link_of_the_contents_opens_its_part(browser, address):
    page = Opened(browser, address, 1280).page
    assert not page.locator("#table-differences").is_visible()
    page.get_by_role("navigation").get_by_role("link", name="Differences from uniform").click()
    assert page.locator("#table-differences").is_visible()
    assert not page.locator("#table-levels").is_visible()
    page.get_by_role("button", name="Open all").click()
    assert page.locator("#table-levels").is_visible()
    page.get_by_role("button", name="Fold all").click()
    assert not page.locator("#table-differences").is_visible()


def test_every_run_is_there_on_demand(opened):
    runs = opened.page.locator("#every_run .panels").first
    assert not runs.is_visible()
    opened.page.locator("#every_run summary").click()
    assert runs.is_visible()
