"""The answer at a glance: the matrix says what the table of differences says, in word, sign and class."""

import re
from functools import cache

import pytest

from tests.study.tiny import csv_rows, lose, page_of, pretended, sections

CELL = re.compile(
    r'<td class="(\w+)"(?: data-of="[^"]+")?><b>(\S) ([^<]+)</b>(\S+) <span class="note">([^<]*)</span></td>'
)
KINDS = {"higher": ("better", "▲"), "lower": ("worse", "▼"), "inconclusive": ("inconclusive", "○")}


def cells(page):
    """Return every cell of the two matrices: class, sign, word, effect, interval."""
    return CELL.findall(page)


@pytest.fixture(autouse=True)
def differences_alone():
    with sections("differences"):
        yield


def two(folder, gain):
    """Return a study of two environments and three strategies."""
    changes = {"environments": ["CartPole-v1", "Acrobot-v1"], "strategies__recency": {"type": "recency"}}
    return pretended(folder, gain, seeds=10, chunk_size=10, **changes)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The study with a gain, and its page; each is written once."""

    @cache
    def of(gain):
        of_two = two(tmp_path_factory.mktemp("two"), gain)
        return of_two, of_two.report(figure_files=False).read_text()

    return of


@pytest.mark.parametrize(("gain", "word"), [(30.0, "higher"), (-30.0, "lower"), (0.0, "inconclusive")])
def test_each_cell_says_what_the_table_says(reported, gain, word):
    of_two, page = reported(gain)
    rows = csv_rows(of_two.folder / "tables" / "differences.csv")
    shown = cells(page)
    assert len(shown) == len(rows) == 8
    assert {cell[2] for cell in shown} == {word}
    assert all(row["verdict"] == word for row in rows)
    for kind, sign, said, effect, interval in shown:
        assert (kind, sign) == KINDS[said]
        assert interval.startswith("uncorrected 95 %: ")
        low, high = (float(end.replace("−", "-")) for end in interval.removeprefix("uncorrected 95 %: ").split(" to "))
        assert low <= float(effect.replace("−", "-")) <= high


def test_what_was_declared_not_to_matter_is_equivalent(tmp_path):
    tiny = pretended(
        tmp_path,
        0.0,
        environments=["CartPole-v1", "Acrobot-v1"],
        seeds=10,
        chunk_size=5,
        equivalence={"CartPole-v1": 10.0},
    )
    page = tiny.report(figure_files=False).read_text()
    assert [cell[:3] for cell in cells(page)] == [
        ("equivalent", "≈", "equivalent within ±10"),
        ("inconclusive", "○", "inconclusive"),
    ] * 2
    assert "within the declared margin (CartPole-v1 ±10)" in page
    assert [cell[4].split(":")[0] for cell in cells(page)] == ["90 %", "uncorrected 95 %"] * 2
    assert '<th scope="col" class="n">Equivalence interval</th>' in page
    assert "2 comparisons: 1 equivalent, 1 inconclusive." in page
    rows = csv_rows(tiny.folder / "tables" / "differences.csv")
    assert [(row["verdict"], row["bound"]) for row in rows] == [("equivalent", "10.0"), ("inconclusive", "")] * 2
    assert all(-10 < float(r["equivalence_low"]) < float(r["equivalence_high"]) < 10 for r in rows[::2])


def test_rows_are_comparisons_and_columns_environments(reported):
    _, page = reported(30.0)
    first = page[page.index('<table class="matrix">') :]
    first = first[: first.index("</table>")]
    assert re.findall(r'<th scope="col">([^<]*)</th>', first) == ["Comparison", "CartPole-v1", "Acrobot-v1"]
    assert re.findall(r"</span>([\w ]+)</th>", first) == ["prioritized vs uniform", "recency vs uniform"]
    assert page.index("<h2>Average return</h2>") < page.index("<h2>Summary</h2>")


def test_rows_are_environments_if_these_are_more(tmp_path):
    environments = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0"]
    page = page_of(tmp_path, 30.0, seeds=6, environments=environments)
    first = page[page.index('<table class="matrix">') :]
    first = first[: first.index("</table>")]
    assert "Environment</th>" in first
    assert re.findall(r'<th scope="row">([^<]*)</th>', first) == environments


def test_what_was_not_run_is_an_empty_cell(tmp_path):
    of_two = two(tmp_path, 30.0)
    lose(of_two, lambda chunk: (chunk.environment, chunk.strategy) == ("Acrobot-v1", "recency"))
    page = of_two.report(figure_files=False).read_text()
    assert len(cells(page)) == 6
    assert page.count("<td></td>") == 2


def test_declared_questions_come_before_it(tmp_path):
    asked = [{"name": "gain", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}]
    page = page_of(tmp_path, 30.0, seeds=6, contrasts=asked)
    assert page.index("<h2>What was compared</h2>") < page.index("<h2>Average return</h2>")


def test_a_baseline_alone_has_none(tmp_path):
    tiny = pretended(tmp_path, 0.0, strategies={"uniform": {"type": "uniform"}})
    assert '<table class="matrix">' not in tiny.report(figure_files=False).read_text()
