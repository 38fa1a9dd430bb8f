"""The section of traced episodes."""

import csv

import pytest

from tests.study.tiny import page_of, run_here, sections


def test_the_first_the_middle_and_the_last_trace_of_one_seed(tmp_path):
    tiny = run_here(tmp_path / "results", logging={"every": 100, "trace_every": 2}, seeds=2)
    with sections("traces"):
        page = tiny.report(tmp_path / "page").read_text()
    assert ">Traced episodes</h3>" in page
    rows = list(csv.DictReader((tmp_path / "page" / "figures" / "traces.csv").read_text().splitlines()))
    spec = tiny.spec
    assert {row["seed"] for row in rows} == {str(min(spec.seeds))}
    for strategy in spec.strategies:
        of_strategy = [row for row in rows if row["strategy"] == strategy]
        assert len({row["at"] for row in of_strategy}) == 3
        last = [row for row in of_strategy if row["at"] == of_strategy[-1]["at"]]
        assert [int(row["step"]) for row in last] == list(range(len(last)))
        assert float(last[-1]["return"]) == pytest.approx(1.0), "CartPole's last reward"


def test_without_traces_there_is_no_section(tmp_path):
    with sections("traces"):
        assert "Traced episodes" not in page_of(tmp_path, 1.0)
