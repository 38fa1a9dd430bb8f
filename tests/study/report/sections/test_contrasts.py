"""The report's section on contrasts, and the same words on the terminal."""

import csv
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from replaylab.claims.study_findings import contrast_findings
from replaylab.commands.main import main
from replaylab.statistics import Interval
from replaylab.study.report.sections import contrasts
from replaylab.study.report.sections.contrasts import forest
from tests.study.tiny import pretend, study

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
    found = study(tmp_path_factory.mktemp("reported"), seeds=10, population=5, contrasts=CONTRASTS)
    pretend(found, 60.0)
    found.report()
    return found


@pytest.fixture(scope="module")
def page(reported):
    return (reported.folder / "report.html").read_text()


def test_it_is_the_answer_and_asks_in_words(page):
    assert "What came out" not in page
    assert page.index("What the study asked") < page.index("Compared: ")
    assert "What does &lt;choosing&gt; by TD error do?" in page
    assert re.search(r"Higher \(better\): \+4\d(\.\d)? of return \(95 % interval \+", page)
    assert "Equivalent within ±0.5: 0 of return (95 % interval 0 to 0; " in page
    assert "step-down max-T" in page


def test_numbers_are_beside_it(reported):
    with (reported.folder / "tables" / "contrasts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["contrast"], r["verdict"]) for r in rows] == [
        ("choice", "higher"),
        ("updates", "undecided"),
        ("nothing", "equivalent"),
    ]
    told = reported.contrasts().results
    assert [float(r["difference"]) for r in rows] == [f.size.estimate for f in told]
    assert [float(r["p_max_t"]) for r in rows] == [f.p_max_t for f in told]
    with (reported.folder / "figures" / "contrasts_return.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 20
    assert (reported.folder / "figures" / "contrasts_train_updates.svg").stat().st_size > 1000


@pytest.mark.parametrize(("low", "high"), [(-500.0, 60.0), (-float("inf"), float("inf"))])
def test_a_picture_has_the_whole_interval_and_one_without_ends_from_edge_to_edge(reported, low, high):
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


def test_a_study_without_contrasts_says_nothing_of_them(tmp_path):
    plain = study(tmp_path)
    pretend(plain, 60.0)
    assert "What the study asked" not in plain.report().read_text()
    assert not (tmp_path / "tables" / "contrasts.csv").exists()


def test_the_terminal_tells_the_verdicts(reported, capsys):
    assert main(["study", "report", str(reported.folder)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^choice: Higher \(better\): \+4", told, re.MULTILINE)
    assert re.search(r"^updates: Undecided: 0 of train/updates", told, re.MULTILINE)


def test_the_primary_contrast_s_answer_stands_first(tmp_path, page):
    first = CONTRASTS[0] | {"primary": True}
    made = study(tmp_path, seeds=6, population=6, contrasts=[*CONTRASTS[1:2], first])
    pretend(made, 60.0)
    text = made.report(figure_files=False).read_text()
    asked, answer = "<strong>What does &lt;choosing&gt; by TD error do?</strong>", "Higher (better): "
    assert text.index("<h1>") < text.index(asked) < text.index(answer) < text.index("What the study asked")
    assert "the study&#39;s one primary contrast" in text[text.index(answer) : text.index("What the study asked")]
    assert asked not in page  # without a primary one the matrix is the answer


def test_how_they_are_judged_is_what_was_declared_where_the_primary_has_no_answer(tmp_path):
    """Means with simultaneous intervals are not called interquartile means."""
    strategies = {name: {"type": kind} for name, kind in (("uniform", "uniform"), ("prioritized", "prioritized"))}
    made = study(
        tmp_path,
        seeds=6,
        population=6,
        strategies=strategies | {"none": {"type": "online"}},
        contrasts=[*CONTRASTS[:1], CONTRASTS[1] | {"primary": True, "more": {"strategy": "none"}}],
    )
    pretend(made, 60.0)
    for population in made.populations:
        if population.strategy == "none":
            made.file_of(population).unlink()
    text = made.report(figure_files=False).read_text()
    section = text[text.index("Every contrast") :]
    assert "Mean over seeds of the difference within a seed, with its 95 % interval: of the primary" in section
    assert "interquartile mean with its 95 % interval. Grey bands" not in text
    (finding,) = contrast_findings(made, {"choice": ("said", ("higher",))})
    assert "mean of 6 seeds" in str(finding)
    assert "interquartile" not in str(finding)


def test_what_is_only_rounding_is_zero():
    """The mean of differences that cancel, as those of a tape that is dealt to other seeds."""
    size = Interval(-1.1e-19, -0.0008, 0.0008)
    assert contrasts._numbers(SimpleNamespace(size=size)) == ["0", "−0.0008", "+0.0008"]
