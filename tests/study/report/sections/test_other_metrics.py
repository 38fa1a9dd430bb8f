"""Differences in metrics other than the return: a table of each, corrected as a family."""

import pytest

from replaylab.learners.metrics import Metric, MetricsRegistry
from replaylab.study.report.page import Page
from replaylab.study.spec import checks
from tests.study.tiny import pretended, sections


@pytest.fixture(autouse=True)
def their_section():
    with sections("other_metrics"):
        yield


def test_each_metric_has_a_table_of_differences(tmp_path):
    study = pretended(tmp_path, 0.0, seeds=6, metrics=["replay/transitions_replayed", "train/q_mean", "train/loss"])
    page = study.report(figure_files=False).read_text()
    assert ">Other metrics</h3>" in page
    assert "Nothing to compare in train/loss" in page
    rows = (study.folder / "tables" / "differences_train_q_mean.csv").read_text().splitlines()
    assert len(rows) == 3
    differences = study.differences("train/q_mean")
    assert [d.measure for d in differences] == ["final", "area"]
    assert {d.iqm.estimate for d in differences} == {0.0}, "both strategies have the same study-up values"
    assert study.differences("train/loss") == []
    assert [level.runs for level in study.levels("train/q_mean")] == [6] * 4


def test_metrics_with_similar_names_have_separate_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(Page, "curves_of", lambda page, metric: page.curves)
    registry = MetricsRegistry([Metric(name, "Own", "", "custom one") for name in ("own/a", "own_a")])
    monkeypatch.setattr(checks, "REGISTRY", registry)
    study = pretended(tmp_path, 0.0, seeds=6, metrics=["own/a", "own_a"])
    text = study.report(figure_files=False).read_text()
    for metric, key in (("own/a", "differences_own_a"), ("own_a", "differences_own_a_1")):
        assert (study.folder / "tables" / f"{key}.csv").is_file()
        assert text.count(f'id="table-{key}"') == 1
        assert metric in text


def test_runs_without_a_number_are_left_out(tmp_path, monkeypatch):
    study = pretended(tmp_path, 10.0, seeds=6)
    curves = study.curves()
    curves[1].values[2:4] = float("nan")
    monkeypatch.setattr(type(study), "curves", lambda self, metric="": curves)
    assert [d.pairs for d in study.differences("own/metric")] == [4, 4]
    assert [level.runs for level in study.levels("own/metric")] == [6, 4, 6, 4]
