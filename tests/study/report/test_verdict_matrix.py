"""The answer at a glance: the matrix says what the table of differences says, in word, sign and class."""

import csv
import re

import pytest

from tests.study.tiny import pretend, study

CELL = re.compile(r'<td class="(\w+)"><b>(\S) (\w+)</b>(\S+) <span class="note">([^<]*)</span></td>')
WORDS = {"higher": ("better", "▲"), "lower": ("worse", "▼"), "no difference shown": ("undecided", "○")}


def cells(page):
    """Return every cell of the two matrices: class, sign, word, effect, interval."""
    return CELL.findall(page)


@pytest.fixture
def two(tmp_path):
    return study(
        tmp_path,
        environments=["CartPole-v1", "Acrobot-v1"],
        seeds=10,
        population=5,
        strategies__recency={"type": "recency"},
    )


@pytest.mark.parametrize(("gain", "word"), [(30.0, "better"), (-30.0, "worse"), (0.0, "undecided")])
def test_each_cell_says_what_the_table_says(two, gain, word):
    pretend(two, gain)
    page = two.report().read_text()
    with (two.folder / "tables" / "differences.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = cells(page)
    assert len(found) == len(rows) == 8
    assert {cell[2] for cell in found} == {word}
    assert all(WORDS[row["verdict"]][0] == word for row in rows)
    for kind, sign, said, effect, interval in found:
        assert kind == said
        assert sign == dict(WORDS.values())[said]
        low, high = (float(end.replace("−", "-")) for end in interval.split(" to "))
        assert low <= float(effect.replace("−", "-")) <= high


def test_what_was_declared_not_to_matter_is_equivalent(tmp_path):
    found = study(
        tmp_path, environments=["CartPole-v1", "Acrobot-v1"], seeds=10, population=5, equivalence={"CartPole-v1": 10.0}
    )
    pretend(found, 0.0)
    page = found.report().read_text()
    assert [cell[:3] for cell in cells(page)] == [
        ("equivalent", "≈", "equivalent"),
        ("undecided", "○", "undecided"),
    ] * 2
    assert "within what was declared not to matter (CartPole-v1 ±10)" in page
    assert "2 comparisons: 1 equivalent, 1 undecided." in page
    with (found.folder / "tables" / "differences.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["verdict"], row["bound"]) for row in rows] == [("equivalent", "10.0"), ("no difference shown", "")] * 2
    assert all(-10 < float(r["equivalence_low"]) < float(r["equivalence_high"]) < 10 for r in rows[::2])


def test_rows_are_strategies_and_columns_environments(two):
    pretend(two, 30.0)
    page = two.report().read_text()
    first = page[page.index('<table class="matrix">') :]
    first = first[: first.index("</table>")]
    assert re.findall(r'<th scope="col">([^<]*)</th>', first) == ["Strategy", "CartPole-v1", "Acrobot-v1"]
    assert re.findall(r"</span>(\w+)</th>", first) == ["prioritized", "recency"]
    assert page.index("Against uniform, by the average over training") < page.index("What came out")


def test_what_was_not_run_is_an_empty_cell(two):
    pretend(two, 30.0)
    for population in two.populations:
        if (population.environment, population.strategy) == ("Acrobot-v1", "recency"):
            two.file_of(population).unlink()
    page = two.report().read_text()
    assert len(cells(page)) == 6
    assert page.count("<td></td>") == 2


def test_declared_questions_come_before_it(tmp_path):
    asked = [{"name": "gain", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}]
    found = study(tmp_path, seeds=6, contrasts=asked)
    pretend(found, 30.0)
    page = found.report().read_text()
    assert page.index("What the study asked") < page.index("Against uniform, by the average over training")


def test_a_baseline_alone_has_none(tmp_path):
    found = study(tmp_path, strategies={"uniform": {"type": "uniform"}})
    pretend(found, 0.0)
    assert '<table class="matrix">' not in found.report().read_text()
