"""The report of an interim analysis states its level; one that is outside the plan warns."""

import pytest

from replaylab.learners.metrics.registry import Metric, MetricsRegistry
from replaylab.study.report import earlier_reports
from replaylab.study.report.page import Page
from replaylab.study.spec import cells
from tests.study.tiny import pretended, sections, study

PLAN = {"seeds": [10, 20, 40]}


@pytest.fixture(autouse=True)
def their_sections():
    with sections("interim_analyses", "other_metrics"):
        yield


def made_with(tmp_path, seeds, gain=0.0, **changes):
    return pretended(tmp_path / "results", gain, seeds=seeds, chunk_size=10, **changes)


def test_interim_analyses_say_nothing_and_the_report_has_level_and_intervals(tmp_path):
    first = made_with(tmp_path, 10, gain=30.0, interim=PLAN)
    page = first.report(figure_files=False).read_text()
    assert "Interim analysis 1 of 3, with 10 of at most 40 seeds." in page
    assert "outside the planned interim analyses" not in page
    assert first.record("reports")["planned"] == [{"seeds": [10, 20, 40], "spending": "obrien_fleming"}]
    intervals = (first.folder / "tables" / "repeated_intervals.csv").read_text().splitlines()
    assert all(row.endswith(",-inf,inf") for row in intervals[1:]), "10 runs cannot tell 99.99 % from 99.9 %"
    assert "−∞ to +∞" in page
    second = made_with(tmp_path, 20, gain=30.0, interim=PLAN)
    page = second.report(figure_files=False).read_text()
    assert "Interim analysis 2 of 3, with 20 of at most 40 seeds." in page
    assert "outside the planned interim analyses" not in page
    assert "Reported before" not in page
    intervals = (second.folder / "tables" / "repeated_intervals.csv").read_text().splitlines()
    assert intervals[0] == "what,measure,estimate,low,high"
    final = next(d for d in second.differences() if d.measure == "final")
    low, high = map(float, next(row for row in intervals if ",final," in row).split(",")[-2:])
    assert low < final.iqm.low < final.iqm.high < high


def test_reports_before_the_plan_and_between_the_planned_ones_are_reported(tmp_path):
    made = made_with(tmp_path, 10)
    earlier_reports.note(made, range(10))
    planned = made_with(tmp_path, 20, interim=PLAN)
    assert "outside the planned interim analyses (10, 20, 40 seeds), with 10 seeds" in earlier_reports.warning(
        planned, range(20)
    )
    other = study(tmp_path / "other", seeds=20, interim=PLAN)
    assert earlier_reports.warning(other, range(13)).startswith(
        "Not a planned interim analysis: there are results of 13 of its 20"
    )
    other.folder.mkdir()
    earlier_reports.note(other, range(13))
    assert "with 13 seeds" in earlier_reports.warning(other, range(20))


@pytest.mark.parametrize("plan", [{"seeds": [20, 40]}, PLAN | {"spending": "pocock"}])
def test_a_plan_that_was_changed_after_a_report_is_reported(tmp_path, plan):
    first = study(tmp_path, seeds=10, interim=PLAN)
    earlier_reports.note(first, range(10))
    assert earlier_reports.warning(study(tmp_path, seeds=20, interim=PLAN), range(20)) is None
    changed = earlier_reports.warning(study(tmp_path, seeds=20, interim=plan), range(20))
    assert changed.startswith("Reported outside the planned interim analyses")


def test_other_seeds_in_place_of_the_first_are_reported(tmp_path):
    earlier_reports.note(study(tmp_path, seeds=10, interim=PLAN), range(10))
    others = list(range(5, 25))
    assert "with 10 seeds" in earlier_reports.warning(study(tmp_path, seeds=others, interim=PLAN), others)


def test_differences_of_any_metric_have_a_table_of_their_own(tmp_path):
    made = made_with(tmp_path, 6, metrics=["replay/transitions_replayed", "train/q_mean", "train/loss"])
    page = made.report(figure_files=False).read_text()
    assert ">Other metrics</h3>" in page
    assert "Nothing to compare in train/loss" in page
    rows = (made.folder / "tables" / "differences_train_q_mean.csv").read_text().splitlines()
    assert len(rows) == 3
    found = made.differences("train/q_mean")
    assert [d.measure for d in found] == ["final", "area"]
    assert {d.iqm.estimate for d in found} == {0.0}, "both strategies have the same made-up values"
    assert made.differences("train/loss") == []
    assert [level.runs for level in made.levels("train/q_mean")] == [6] * 4


def test_metrics_of_names_alike_have_tables_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(Page, "curves_of", lambda page, metric: page.curves)
    own = MetricsRegistry([Metric(name, "Own", "", "custom one") for name in ("own/a", "own_a")])
    monkeypatch.setattr(cells, "REGISTRY", own)
    made = made_with(tmp_path, 6, metrics=["own/a", "own_a"])
    text = made.report(figure_files=False).read_text()
    for metric, key in (("own/a", "differences_own_a"), ("own_a", "differences_own_a_1")):
        assert (made.folder / "tables" / f"{key}.csv").is_file()
        assert text.count(f'id="table-{key}"') == 1
        assert metric in text


def test_runs_without_a_number_are_left_out_of_a_metrics_differences(tmp_path, monkeypatch):
    made = made_with(tmp_path, 6, gain=10.0)
    curves = made.curves()
    curves[1].values[2:4] = float("nan")
    monkeypatch.setattr(type(made), "curves", lambda self, metric="": curves)
    assert [d.pairs for d in made.differences("own/metric")] == [4, 4]
    assert [level.runs for level in made.levels("own/metric")] == [6, 4, 6, 4]
