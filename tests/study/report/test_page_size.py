"""The page of a large study stays light: what a panel, a run and a curve may take."""

import re

import pytest

from replaylab.study.report import page as page_of_report
from tests.study.tiny import pretended

STRATEGIES, SEEDS, EVALUATIONS = 6, 20, 40
"""As of writing the page takes 107 kB, and its panels take a sixth less than the bounds."""


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The report of 120 runs of 40 evaluations each: 4,800 points."""
    others = {f"strategies__p{i}": {"type": "prioritized", "alpha": 0.1 * (i + 1)} for i in range(STRATEGIES - 2)}
    tiny = pretended(
        tmp_path_factory.mktemp("large"),
        10.0,
        seeds=SEEDS,
        chunk_size=SEEDS,
        budget__steps=100 * EVALUATIONS,
        **others,
    )
    return tiny.report(figure_files=False)


@pytest.fixture
def page(reported):
    return reported.read_text()


def panels(page, figure):
    body = re.search(rf'<figure id="{figure}"[^>]*>(.*?)</figure>', page, re.DOTALL)[1]
    return re.findall(r"<svg viewBox.*?</svg>", body, re.DOTALL)


@pytest.mark.parametrize(
    ("figure", "bytes_each"),
    [
        ("learning_curves", 3_500),  # 6 strategies with their bands
        ("every_run", 2_700),  # 20 runs
        ("levels", 4_700),  # 6 strategies with 20 dots each
        ("differences", 4_700),
        ("train_q_mean", 3_100),
    ],
)
def test_panels_take_few_bytes(page, figure, bytes_each):
    sizes = [len(panel) for panel in panels(page, figure)]
    assert sizes
    assert max(sizes) <= bytes_each, sizes


@pytest.mark.parametrize("figure_files", [False, True])
def test_a_large_figure_stands_beside_the_page(reported, tmp_path, monkeypatch, undrawn, figure_files):
    assert panels(reported.read_text(), "levels")
    assert not (reported.parent / "figures").exists()
    tiny = pretended(tmp_path, 10.0)
    monkeypatch.setattr(page_of_report, "MOST_ON_PAGE", 0)
    text = tiny.report(figure_files=figure_files).read_text()
    assert '<a href="figures/levels.svg">' in text
    assert not panels(text, "levels")
    assert "<svg" in (tiny.folder / "figures" / "levels.svg").read_text()
    assert (tiny.folder / "figures" / "levels.csv").exists() == figure_files


def test_the_whole_page_is_light(page):
    assert len(page.encode()) < 117_000
