"""Names that a user gives: shown as they are, wherever they are shown, and never read as a language."""

import csv
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import escape
from rich.console import Console

from replaylab.commands import main as cli
from replaylab.errors import SpecError
from replaylab.plotting import palette, svg
from replaylab.statistics import Interval
from replaylab.study import Spec
from replaylab.study.execution.progress import LiveReporter
from replaylab.study.execution.reporter import Failure
from replaylab.study.report import figures, report
from replaylab.study.report.page import keys_of
from tests.study.tiny import pretended, study, table

ODD = [
    "a $x_{y$ b",
    "$\\frac{1}{0}$",
    "[bold]x[/red] [/]",
    "<script>alert(1)</script> & \"q\" 'r'",
    "{0} %s {task.x} {{ y }} {% z %}",
    f'id="x" {palette.BASELINE[0]} d="1.23456" font-family: x; url(#x)',
    '=1+1,"a";b',
    "回放 π ∆ 🙂 é",
    "-->]]>",
    "~/../*?[a]",
]


def test_contrasts_of_any_name_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "SECTIONS", ())  # no contrast's name is in them
    sides = {"more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}
    contrasts = [{"name": name, "question": name, **sides} for name in ODD]
    pretended(tmp_path, 5.0, contrasts=contrasts, title=ODD[3], question="\n".join(ODD))
    assert cli.main(["study", "report", str(tmp_path)]) == 0
    reported = capsys.readouterr()
    assert reported.err == ""
    assert all(f"\n{name}: " in reported.out for name in ODD[1:]), "the answer stands first, without the name"
    drawn = ElementTree.parse(tmp_path / "figures" / "contrasts_return.svg")
    assert set(ODD[:3]) <= {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert all(escape(name) in page for name in ODD)
    with (tmp_path / "tables" / "contrasts.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == ODD


@pytest.mark.parametrize("name", ODD)
def test_a_name_on_a_page_keeps_its_letters(name):
    row = figures.Row(name[:30], palette.BASELINE[0], Interval(0.5, 0.0, 1.0), np.array([0.5, 0.6]))
    with svg.style():
        (panel,) = figures.dots([("", [figures.Dots(name[:30], [row])])], "").groups[0].panels
        inside = svg.on_page(panel.body, panel.size, name)
    texts = [text.text for text in ElementTree.fromstring(inside.replace("xlink:", "")).iter("text")]
    assert texts.count(name[:30]) == 2


@pytest.mark.parametrize("letter", ["\n", "\0", "\x1b", "\x7f", "\x9b", "\u2028", "\uffff"])
@pytest.mark.parametrize("place", ["contrast", "environment", "title", "label"])
def test_control_characters_are_refused(letter, place):
    name = f"a{letter}b"
    contrast = {"name": name, "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}
    changes = {
        "contrast": {"contrasts": [contrast]},
        "environment": {"environments": [name]},
        "title": {"title": name},
        "label": {"strategies__uniform": {"type": "uniform", "factors": {"f": name}}},
    }[place]
    if place == "title" and letter == "\n":
        assert Spec.from_table(table(**changes)).title == name
        return
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ODD)
def test_the_live_display_shows_any_name(name, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    shown = LiveReporter(console)
    (chunk, *_) = (p.model_copy(update={"environment": name}) for p in study(tmp_path).chunks)
    shown.begin([chunk], [], 1)
    shown.progress(chunk, 5)
    shown.split(chunk)
    shown.progress(chunk, 5)
    shown.failed(Failure(chunk, f"{name}\n{name}"))
    shown.end()
    assert name in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_similar_names_have_separate_files():
    assert keys_of("contrasts", ["q_mean_1", "q_mean", "q/mean", "q mean", "score", "π", "x" * 300]) == [
        "contrasts_q_mean_1",
        "contrasts_q_mean",
        "contrasts_q_mean_2",
        "contrasts_q_mean_3",
        "contrasts_score",
        "contrasts__",
        f"contrasts_{'x' * 80}",
    ]
