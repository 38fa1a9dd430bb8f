"""The study in Python: what the command line can do, and its numbers."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, MissingExtraError, SpecError
from replaylab.study import InProcess, Study
from replaylab.study.execution import progress
from replaylab.study.execution.progress import LiveReporter, PlainReporter, reporter_in_python
from replaylab.study.results import opening
from tests.study.tiny import lose, pretend, pretended, study


@pytest.fixture(scope="module")
def higher(tmp_path_factory) -> Study:
    """A study with made-up results: prioritized is 20 above uniform."""
    return pretended(tmp_path_factory.mktemp("made"), 20.0, seeds=10)


def test_a_query_finds_the_rows_in_the_table_results(higher):
    counts = higher.query(
        "select strategy, count(distinct seed) as seeds from results where metric = 'eval/mean_reward' "
        "group by strategy order by strategy"
    )
    assert counts.fetchall() == [("prioritized", 10), ("uniform", 10)]


def test_curves_levels_differences_and_answers(higher):
    curves = higher.curves()
    assert [(c.strategy, c.values.shape) for c in curves] == [("uniform", (10, 3)), ("prioritized", (10, 3))]
    assert {(level.strategy, level.measure) for level in higher.levels()} == {
        (s, m) for s in ("uniform", "prioritized") for m in ("final", "area")
    }
    final = next(d for d in higher.differences() if d.measure == "final")
    assert abs(final.iqm.estimate - 20.0) < 2.0
    answer = higher.answers()[0]
    assert answer.startswith("The average return was higher with prioritized than with uniform.")


def test_a_frame(higher):
    pandas = pytest.importorskip("pandas")
    frame = higher.frame("eval/mean_reward")
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["environment", "learner", "strategy", "seed", "step", "metric", "value"]
    assert len(frame) == 2 * 10 * 3
    assert len(higher.frame()) == len(higher.results())


@pytest.mark.parametrize("ask", ["frame", "curves", "levels", "differences"])
def test_a_metric_that_was_not_recorded(higher, ask):
    if ask == "frame":
        pytest.importorskip("pandas")
    with pytest.raises(ConfigError, match=r"got 'eval/mean_rewrd'; did you mean `eval/mean_reward`\? Recorded: eval/"):
        getattr(higher, ask)("eval/mean_rewrd")
    with pytest.raises(ConfigError, match=r"^`metric` must be a recorded metric, but got \"it's not there\""):
        getattr(higher, ask)("it's not there")
    assert (
        len(getattr(higher, ask)("replay/sampling_evenness")) == 0
    )  # one of the library's, which these runs did not record


def test_a_frame_without_pandas_says_how_to_get_it(higher, monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError,
        match=r"^`frame` needs pandas, which is not installed\. Run: pip install \"replaylab\[pandas\]\"",
    ):
        higher.frame()


@pytest.mark.parametrize("ask", ["results", "frame", "curves", "levels", "differences", "answers"])
def test_all_methods_raise_without_results(ask, tmp_path):
    if ask == "frame":
        pytest.importorskip("pandas")
    with pytest.raises(SpecError, match="holds no results of these settings yet"):
        getattr(study(tmp_path), ask)()


def test_a_notebook_shows_state_answers_and_the_report(higher, no_sections):
    html = higher._repr_html_()
    assert "<strong>A &lt;tiny&gt; study &amp; its &quot;quotes&quot;</strong>" in html
    assert "20 of 20 runs are there; 300 environment steps each" in html
    assert "higher with prioritized than with uniform" in html
    assert "href" not in html
    higher.report(figure_files=False)
    assert f'<a href="{higher.folder.as_posix()}/report.html">Report</a>' in higher._repr_html_()


def test_a_notebook_shows_a_study_not_run_or_without_baseline(tmp_path):
    new = study(tmp_path)
    assert "0 of 8 runs are there" in new._repr_html_()
    assert not list(tmp_path.iterdir())
    pretend(new, 20.0)
    lose(new, lambda chunk: chunk.strategy == "uniform")
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "x.txt").write_text("why")
    html = new._repr_html_()
    assert "4 of 8 runs are there; 1 chunk failed, see " in html


def test_who_shows_the_progress(monkeypatch):
    from rich.console import Console

    assert reporter_in_python(None)._console.quiet
    assert reporter_in_python(False)._console.quiet
    assert type(reporter_in_python(True)) is PlainReporter
    assert not reporter_in_python(True)._console.quiet
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    assert type(reporter_in_python(True)) is LiveReporter
    monkeypatch.undo()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert type(reporter_in_python(None)) is PlainReporter
    assert reporter_in_python(False)._console.quiet


def test_plain_lines_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 1e6)  # no lines in between, however slow the machine is
    strategies = {"uniform": {"type": "uniform"}}
    small = study(tmp_path, seeds=1, budget__steps=100, evaluation__every=50, strategies=strategies)
    assert small.run(executor=InProcess(), show=True).complete
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["checking 1 cell", "1 run to do, 100 environment steps, 1 worker."]
    assert lines[-1].startswith("finished CartPole-v1 · dqn · uniform · seed 0 in ")
    assert np.isfinite(small.query("select avg(value) from results where metric = 'eval/mean_reward'").fetchall()[0][0])
