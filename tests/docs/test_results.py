"""The published results are light enough to be opened on a phone, and to be kept in the repository."""

from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
MOST = 2_000_000
"""Bytes of one file."""


def too_large(folder):
    return [str(file) for file in sorted(folder.rglob("*")) if file.is_file() and file.stat().st_size > MOST]


def test_no_file_of_the_results_is_larger_than_two_megabytes():
    assert list(RESULTS.rglob("report.html"))
    assert too_large(RESULTS) == []


@pytest.mark.parametrize(("size", "found"), [(MOST, 0), (MOST + 1, 1)])
def test_a_larger_one_would_be_found(size, found, tmp_path):
    (tmp_path / "report.html").write_bytes(b" " * size)
    assert len(too_large(tmp_path)) == found
