"""The results pages' numbers are those of the tables, and the tables' those of the published rows.

`make results` runs all of it. The second half takes a few seconds a study, and is `slow`.
"""

import pytest

from replaylab.study import Study
from tests.docs.published_numbers import RESULTS, TABLES, differing, entries, is_rounded, opened, problems, read_table

NUMBERS = sorted(RESULTS.rglob("numbers.toml"))
ROWS = sorted(RESULTS.rglob("rows.parquet"))
PUBLISHED = [(file.parent, name) for file in ROWS for name in TABLES if (file.parent / f"tables/{name}.csv").is_file()]
MOST = 10_000_000
"""Bytes of all published rows together."""


@pytest.mark.parametrize("file", NUMBERS, ids=lambda file: file.parent.name)
def test_the_pages_numbers_are_those_of_the_tables(file):
    wrong = []
    for entry in entries(file):
        rows = read_table((file.parent / "tables" / f"{entry['table']}.csv").read_text())
        wrong += problems(entry, (RESULTS / entry["page"]).read_text(), rows)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "table"), PUBLISHED, ids=[f"{folder.name}-{table}" for folder, table in PUBLISHED])
def test_the_tables_are_those_of_the_rows(folder, table, tmp_path):
    published = (folder / "tables" / f"{table}.csv").read_text()
    wrong = differing(published, opened(folder).table(table, tmp_path))
    assert not wrong, f"the table {table} of {folder} differs from the rows beside it:\n" + "\n".join(wrong[:20])


def test_published_rows_are_small():
    assert ROWS
    assert sum(file.stat().st_size for file in ROWS) < MOST


@pytest.mark.parametrize("file", ROWS, ids=lambda file: file.parent.name)
def test_the_rows_of_a_complete_study_have_tables(file):
    study = Study.from_folder(file.parent)
    complete = sum(len(chunk.seeds) for chunk in study.present) == study.spec.runs
    assert not complete or file.parent in {folder for folder, _ in PUBLISHED}


ENTRY = {
    "text": "| D | {} ({} to {}), {} |",
    "table": "contrasts",
    "rows": [{"contrast": "D"}],
    "columns": ["difference", "low", "high", "verdict"],
}
ROW = {"contrast": "D", "difference": "-0.0594", "low": "-0.07075", "high": "1234.5", "verdict": "lower"}


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("\n| **D** | **−0.059** (−0.071\nto 1,234), lower |\n", None),
        ("| D | −0.06 (−.0708 to +1235), lower |", None),
        ("| D | −0.058 (−0.071 to 1234), lower |", "has −0.058, its table -0.0594"),
        ("| D | 0.059 (−0.071 to 1234), lower |", "has 0.059"),
        ("| D | −0.059 (−0.071 to 1,236), lower |", "has 1,236"),
        ("| D | −0.059 (−0.071 to 1234), higher |", "has higher, its table lower"),
        ("| D | −0.059 [−0.071 to 1234], lower |", "is 0 times on the page"),
        ("| D | −0.059 (−0.071 to 1234), lower |" * 2, "is 2 times on the page"),
    ],
)
def test_other_numbers_on_a_page_are_found(page, wrong):
    reported = problems(ENTRY, page, [ROW])
    assert (reported == []) if wrong is None else (len(reported) == 1 and wrong in reported[0])


def test_a_negated_number_and_a_section():
    entry = ENTRY | {"text": "by {}", "columns": ["difference"], "times": -1, "section": "## Second"}
    page = "\n## First\nby 7\n\n## Second\nby 0.059 of score\n\n### Third\nby 8\n"
    assert problems(entry, page, [ROW]) == []
    assert "has 7, its table 0.0594" in problems(entry | {"section": "## First"}, page, [ROW])[0]


def test_numbers_are_rounded_not_cut():
    for printed, value in (("0.07", 0.0651), ("+.377", 0.37728), ("−412", -411.8)):
        assert is_rounded(printed, value)
    for printed, value in (("0.07", 0.0649), ("−411", -411.8)):
        assert not is_rounded(printed, value)


def test_other_numbers_in_a_table_are_found():
    published = "name,value\na,1.0\nb,2.0\n"
    assert differing(published, "name,value\na,1.0000000000001\nb,2\n") == []
    assert differing(published, "name,value\na,1.0\nb,2.1\n") == ["['b', '2.0'] value: 2.0, recomputed 2.1"]
    assert differing(published, "name,value\na,1.0\nc,2.0\n") == ["['b', '2.0'] name: b, recomputed c"]
    for other in ("name,value\na,1.0\n", "name,p\na,1.0\nb,2.0\n"):
        assert differing(published, other)
