"""The report's section on contrasts, and the same words on the terminal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from replaylab.commands.main import main
from replaylab.statistics import Interval
from replaylab.study import Study
from replaylab.study.report import sentences
from replaylab.study.report.sections import contrasts
from replaylab.study.report.sections.contrasts import forest
from replaylab.study.spec.declared_contrasts import PublishedStatement
from tests.study.tiny import csv_rows, lose, page_of, pretended, sections

CONTRASTS = [
    {
        "name": "choice",
        "question": "What does <choosing> by TD error do?",
        "more": {"strategy": "prioritized"},
        "less": {"strategy": "uniform"},
        "equivalence": 10.0,
    },
    {
        "name": "updates",
        "metric": "train/updates",
        "measure": "final",
        "more": {"strategy": "prioritized"},
        "less": {"strategy": "uniform"},
    },
    {"name": "nothing", "of": ["choice", "choice"], "equivalence": 0.5},
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    tiny = pretended(tmp_path_factory.mktemp("reported"), 60.0, seeds=10, chunk_size=5, contrasts=CONTRASTS)
    with sections(drawn=True):
        tiny.report()
    return tiny


@pytest.fixture(scope="module")
def page(reported):
    return (reported.folder / "report.html").read_text()


def test_it_is_the_answer_and_asks_in_words(page):
    answer = '<p class="answer">The average return was higher with prioritized than with uniform.</p>'
    assert page.index("<h1>") < page.index(answer) < page.index("Compared: ") < page.index("What was compared")
    assert page.count(answer) == 1
    assert re.search(r"<p>Prioritized vs uniform: higher, \+4\d in average return \(uncorrected 95 % interval \+", page)
    assert ": equivalent within ±0.5, 0 in average return (90 % interval 0 to 0; " in page
    assert "step-down max-T" in page


def test_numbers_are_beside_it(reported):
    rows = csv_rows(reported.folder / "tables" / "contrasts.csv")
    assert [(r["contrast"], r["verdict"]) for r in rows] == [
        ("choice", "higher"),
        ("updates", "inconclusive"),
        ("nothing", "equivalent"),
    ]
    results = reported.contrasts().results
    assert [float(r["difference"]) for r in rows] == [f.size.estimate for f in results]
    assert [float(r["p_max_t"]) for r in rows] == [f.p_max_t for f in results]
    assert len(csv_rows(reported.folder / "figures" / "contrasts_return.csv")) == 20
    assert (reported.folder / "figures" / "contrasts_train_updates.svg").stat().st_size > 1000


@pytest.mark.parametrize(("low", "high"), [(-500.0, 60.0), (-float("inf"), float("inf"))])
def test_a_picture_shows_intervals_whole_or_from_edge_to_edge(reported, low, high):
    (choice, *_) = reported.contrasts().results
    wide = forest([replace(choice, size=Interval(choice.size.estimate, low, high))])
    (axes,) = wide.groups[0].panels[0].figure.axes
    left, right = axes.get_xlim()
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 2.4]
    if np.isinf(low):
        np.testing.assert_array_equal(bars, [[left, right, np.nan]])
        assert right < 200.0
    else:
        np.testing.assert_array_equal(bars, [[low, high, np.nan]])
        assert left < low


def test_equivalent_stands_beside_the_interval_that_decides_it(reported):
    """The 95 % interval of this contrast leaves the bounds, and the 90 % interval does not."""
    (choice, *_) = reported.contrasts().results
    size, inner = Interval(0.0123, -0.0207, 10.0553), Interval(0.0123, -0.015, 9.0462)
    near = replace(choice, size=size, inner=inner)
    assert near.verdict == "equivalent"
    assert "within ±10, 0 in average return (90 % interval 0 to +9.0; " in contrasts.sentence(near)
    assert contrasts.matrix([near]).rows[0][1][0].interval == "90 %: 0 to +9.0"
    (axes,) = forest([near]).groups[0].panels[0].figure.axes
    (bar,) = (line.get_xdata() for line in axes.lines if line.get_linewidth() == 2.4)
    np.testing.assert_array_equal(bar[:2], inner[1:])


def test_an_interval_beside_an_inconclusive_verdict_is_marked(reported):
    (choice, *_) = reported.contrasts().results
    unsure = replace(choice, size=Interval(30.0, 1.0, 60.0), inner=Interval(30.0, 5.0, 55.0), p_max_t=0.2)
    assert unsure.verdict == "inconclusive"
    assert "(uncorrected 95 % interval +1 to +60; " in contrasts.sentence(unsure)
    assert contrasts.matrix([unsure]).rows[0][1][0].interval == "uncorrected 95 %: +1 to +60"


def test_the_table_has_both_intervals(page):
    shown = page[page.index('<div class="table broad" id="table-contrasts">') :]
    assert re.findall(r'<th scope="col" class="n">([^<]*)</th>', shown)[:6] == [
        *("Difference", "95 %, uncorrected", "p", "p (max-T)", "Margin", "Equivalence interval")
    ]
    assert ">90 %: 0 to 0</td>" in shown


@pytest.mark.usefixtures("no_sections")
def test_a_study_without_contrasts_says_nothing_of_them(tmp_path):
    assert "What was compared" not in page_of(tmp_path, 60.0)
    assert not (tmp_path / "tables" / "contrasts.csv").exists()


@pytest.mark.usefixtures("no_sections")
def test_checks_are_reported_by_environment(tmp_path):
    """The number of updates of prioritized less uniform is 0 in both."""
    check = CONTRASTS[1] | {"name": "check: updates", "check": [-1.0, 1.0]}
    environments = ["CartPole-v1", "Acrobot-v1"]
    scores = {name: {"low": 0.0, "high": 500.0} for name in environments}
    primary = CONTRASTS[0] | {"primary": True, "equivalence": 0.1}
    text = page_of(
        *(tmp_path, 60.0), seeds=6, chunk_size=6, environments=environments, scores=scores, contrasts=[primary, check]
    )
    rows = csv_rows(tmp_path / "tables" / "checks.csv")
    assert [(r["check"], r["environment"], r["verdict"], float(r["most"])) for r in rows] == [
        ("check: updates", place, "passed", 1.0) for place in ("mean", *environments)
    ]
    assert text.index("Every contrast") < text.index("Checks by environment")
    assert "By environment: passed in CartPole-v1 (0) and Acrobot-v1 (0)." in text


@pytest.mark.usefixtures("no_sections")
def test_the_terminal_tells_the_verdicts(reported, tmp_path, capsys):
    assert main(["study", "report", str(reported.folder), "--out", str(tmp_path), "--no-figure-files"]) == 0
    printed = capsys.readouterr().out
    assert re.search(
        r"^The average return was higher with prioritized than with uniform\. Prioritized vs uniform: higher, \+4",
        printed,
        re.MULTILINE,
    )
    assert re.search(r"^updates: Inconclusive: .*: inconclusive, 0 in final updates", printed, re.MULTILINE)


@pytest.mark.usefixtures("no_sections")
def test_the_primary_contrast_s_answer_stands_first(tmp_path):
    first = CONTRASTS[0] | {"primary": True}
    text = page_of(tmp_path, 60.0, seeds=6, chunk_size=6, contrasts=[*CONTRASTS[1:2], first])
    assert '<p class="answer">The average return was higher with prioritized than with uniform.</p>' in text


def test_declared_answers_and_sides_are_the_words(tmp_path):
    declared = {"higher": "Yes, it <gains>.", "lower": "No."}
    first = CONTRASTS[0] | {"sides": ["choosing", "chance"]}
    with sections(drawn=True):
        text = page_of(tmp_path / "study", 60.0, seeds=6, chunk_size=6, contrasts=[first], answers=declared)
    assert '<p class="answer">Yes, it &lt;gains&gt;.</p><p>Choosing vs chance: higher, ' in text
    assert "← chance higher</text>" in text
    assert ">choosing higher →</text>" in text
    with_answer = first | {"answers": {"higher": "Its own."}}
    with sections():
        text = page_of(tmp_path / "own", 60.0, seeds=6, chunk_size=6, contrasts=[with_answer], answers=declared)
    assert '<p class="answer">Its own.</p>' in text


@pytest.mark.usefixtures("no_sections")
def test_the_declared_method_is_shown_without_an_answer(tmp_path):
    """Means with simultaneous intervals are not called interquartile means."""
    strategies = {name: {"type": kind} for name, kind in (("uniform", "uniform"), ("prioritized", "prioritized"))}
    tiny = pretended(
        tmp_path,
        60.0,
        seeds=6,
        chunk_size=6,
        strategies=strategies | {"none": {"type": "online"}},
        contrasts=[*CONTRASTS[:1], CONTRASTS[1] | {"primary": True, "more": {"strategy": "none"}}],
    )
    lose(tiny, lambda chunk: chunk.strategy == "none")
    text = tiny.report(figure_files=False).read_text()
    section = text[text.index("Every contrast") :]
    assert "Mean over seeds of the difference within a seed, with its 95 % interval: of the primary" in section
    assert "interquartile mean with its 95 % interval. Grey bands" not in text


STATEMENT = {"says": "Choosing <helps>", "verdict": ["higher"], "source": "Doe 2016"}


@pytest.mark.usefixtures("no_sections")
def test_published_statement_is_beside_the_verdict(tmp_path, capsys):
    stated = [CONTRASTS[0] | {"published": STATEMENT}, CONTRASTS[2] | {"published": STATEMENT}]
    text = page_of(tmp_path, 60.0, seeds=10, chunk_size=5, contrasts=[*stated[:1], CONTRASTS[1], *stated[1:]])
    assert " 10 seeds). Reproduced: “Choosing &lt;helps&gt;” (Doe 2016).</p>" in text
    assert " 10 seeds). Not reproduced: “Choosing &lt;helps&gt;” (Doe 2016).</li>" in text
    rows = csv_rows(tmp_path / "tables" / "published.csv")
    assert [(r["contrast"], r["published"], r["source"], r["outcome"]) for r in rows] == [
        ("choice", "Choosing <helps>", "Doe 2016", "reproduced"),
        ("nothing", "Choosing <helps>", "Doe 2016", "not reproduced"),
    ]
    results = Study.from_folder(tmp_path).contrasts().results
    shown = [(float(r["difference"]), float(r["low"]), float(r["high"]), r["interval"]) for r in rows]
    assert shown == [(*f.reported.interval, f.reported.label) for f in (results[0], results[2])]
    assert main(["study", "report", str(tmp_path), "--no-figure-files"]) == 0
    assert "Reproduced: “Choosing <helps>” (Doe 2016).\n" in capsys.readouterr().out


@pytest.mark.usefixtures("no_sections")
def test_without_published_statements_there_is_no_table(reported):
    assert not (reported.folder / "tables" / "published.csv").exists()


def test_statement_on_what_a_failed_check_guards_is_contested(reported):
    (choice, *_) = reported.contrasts().results
    published = PublishedStatement(**STATEMENT)
    guarded = replace(choice, contrast=replace(choice.contrast, published=published), failed_checks=("check",))
    assert contrasts.sentence(guarded) == (
        "Not interpretable: the check check failed. Contested: “Choosing <helps>” (Doe 2016)."
    )


def test_what_is_only_rounding_is_zero():
    """The mean of differences that cancel, as those of a tape that is dealt to other seeds."""
    size = Interval(-1.1e-19, -0.0008, 0.0008)
    assert sentences.effect(size) == "0"
    assert sentences.effect_interval(size, 5) == "−0.00080 to +0.00080"
