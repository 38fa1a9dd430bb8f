"""The published results are small enough to open and to track; their studies can be run and reported again."""

import re
import subprocess
from pathlib import Path

import pytest

from replaylab.study import Spec, Study, catalog
from replaylab.study.results.folder import PUBLISHED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RECORDS = sorted(RESULTS.rglob("study.toml"))
"""Studies of our own research, which do not ship."""
MOST = 2_000_000
"""Bytes of one file that is not `rows.parquet`."""
MOST_ROWS = 3_000_000
"""Bytes of one `rows.parquet`."""
MOST_TRACKED = 10_000_000
"""Bytes of all published rows, and of all other files below docs/."""
MOST_REPORTS = 4


def tracked():
    listed = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    files = [file for name in listed if (file := ROOT / name).is_file()]
    return files or pytest.skip("not a checkout")


def too_large(folder):
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return [str(file) for file in files if file.stat().st_size > (MOST_ROWS if file.name == PUBLISHED else MOST)]


def test_no_file_of_the_results_is_too_large():
    assert list(RESULTS.rglob("report.html"))
    assert too_large(RESULTS) == []


@pytest.mark.parametrize(
    ("name", "size", "is_found"),
    [("report.html", MOST, 0), ("report.html", MOST + 1, 1), (PUBLISHED, MOST_ROWS, 0), (PUBLISHED, MOST_ROWS + 1, 1)],
)
def test_a_larger_one_would_be_found(name, size, is_found, tmp_path):
    (tmp_path / name).write_bytes(b" " * size)
    assert len(too_large(tmp_path)) == is_found


def test_tracked_documentation_is_small():
    for rows in (True, False):
        assert sum(file.stat().st_size for file in tracked() if (file.name == PUBLISHED) == rows) < MOST_TRACKED
    assert sum(file.name == "report.html" for file in tracked()) <= MOST_REPORTS


def test_every_figure_is_linked():
    """On a page, or from a report that is tracked."""
    pages = "".join(file.read_text() for file in tracked() if file.suffix in (".md", ".html"))
    figures = [file for file in tracked() if file.is_relative_to(RESULTS) and file.suffix in (".svg", ".webp", ".png")]
    assert [str(file) for file in figures if f"{file.parent.name}/{file.name}" not in pages] == []


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.parent.relative_to(RESULTS).as_posix())
def test_records_of_research_are_run_by_path_and_do_not_ship(file):
    name = "-".join(file.parent.relative_to(RESULTS).parts)
    assert Spec.from_toml(catalog.find(file)).name == name
    assert name not in catalog.shipped()


def test_the_page_lists_shipped_and_other_studies():
    table = re.findall(r"^\| \[`(\S+)`\]\(\S+\)( ★)? \|", (RESULTS / "index.md").read_text(), re.M)
    assert len(table) == 24
    for name, ships in table:
        assert bool(ships) == (name in catalog.shipped())
        assert ships or (RESULTS / name / "study.toml") in RECORDS


@pytest.mark.parametrize("rows", sorted(RESULTS.rglob("rows.parquet")), ids=lambda file: file.parent.name)
def test_published_rows_are_those_of_their_study(rows):
    record = rows.parent / "study.toml"
    spec = Spec.from_toml(record if record.is_file() else catalog.find(rows.parent.name))
    published = Study.from_folder(rows.parent)
    assert (published.spec.name, published.spec.title) == (spec.name, spec.title)
    assert all(published.record(f"timing/{chunk.id}") for chunk in published.present)
