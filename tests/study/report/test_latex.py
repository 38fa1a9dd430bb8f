"""Tables and methods as LaTeX: the report's numbers, nothing that LaTeX would take for a command."""

import re
import shutil
import subprocess

import pytest

from replaylab.commands.main import main
from replaylab.study.report import methods
from replaylab.study.report.latex import escaped, paragraphs, table
from replaylab.study.report.page import ReportTable
from tests.study.tiny import lose, pretended

ASKED = [{"name": "gain_&_loss", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}]


@pytest.fixture
def exported(tmp_path, capsys):
    found = pretended(tmp_path / "results", -30.0, seeds=6, contrasts=ASKED)
    assert main(["study", "export", str(found.folder), "--out", str(tmp_path / "paper")]) == 0
    printed = capsys.readouterr().out.splitlines()
    names = [line.rpartition("/")[2] for line in printed if not line.startswith("warning: ")]
    assert names == ["levels.tex", "differences.tex", "contrasts.tex", "methods.tex"]
    return tmp_path / "paper"


def test_each_row_has_as_many_cells_as_the_table_columns(exported):
    for name in ("levels", "differences", "contrasts"):
        text = (exported / f"{name}.tex").read_text()
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert len(rows) >= 2
        assert all(len(re.findall(r"(?<!\\)&", row)) == columns - 1 for row in rows)
        assert text.count("\\begin{") == text.count("\\end{")
        assert (exported / "tables" / f"{name}.csv").is_file()


def test_signs_are_written_as_latex_has_them(exported):
    texts = "".join(path.read_text() for path in exported.glob("*.tex"))
    assert r"gain\_\&\_loss" in texts
    assert r"95 \%" in texts
    assert "$-$" in texts
    assert not set(texts) & set("−±×≤≥“”’–·")
    assert "Compared: prioritized vs uniform" in (exported / "methods.tex").read_text()


def test_a_row_is_no_argument_of_what_stands_before_it():
    text = table(ReportTable("odd", "Odd", "α.", ("Strategy", "Final"), [("[2]", "1"), ("*", "2")]))
    assert [line for line in text.splitlines() if line.endswith(r"\\")][1:] == [r"{}[2] & 1 \\", r"{}* & 2 \\"]


def test_greek_and_signs_are_commands(tmp_path):
    greek = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
    text = escaped(greek + "≈→°²√\xa0")
    assert text.isascii()
    assert text.startswith(r"$\alpha$$\beta$$\gamma$")
    assert r"$\omega$$\Gamma$$\Delta$$\Theta$$\Lambda$" in text
    found = pretended(tmp_path, 1.0, seeds=10, interim={"seeds": [10, 20]})
    assert paragraphs(found).isascii()


def test_a_part_of_a_study_is_exported_as_a_part(tmp_path, capsys):
    """As the report does, it warns, and counts what is there; of contrasts without an answer it makes no table."""
    found = pretended(tmp_path / "results", -30.0, seeds=6, chunk_size=3, contrasts=ASKED)
    out = tmp_path / "paper"
    assert main(["study", "export", str(found.folder), "--out", str(out)]) == 0
    (few,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: "))
    assert few.startswith("warning: Only 6 seeds, fewer than 20: ")
    assert (out / "contrasts.tex").is_file()
    lose(found, lambda chunk: chunk.strategy == "prioritized")
    assert main(["study", "export", str(found.folder), "--out", str(out)]) == 0
    reported = capsys.readouterr().out.splitlines()
    incomplete = "Incomplete: 6 of 12 runs are missing. The report is about the others."
    assert reported[0] == f"warning: {incomplete}"
    assert any(line.startswith("warning: gain_&_loss: not answered") for line in reported)
    assert [line.rpartition("/")[2] for line in reported if line.endswith(".tex")] == ["levels.tex", "methods.tex"]
    assert not [name for name in ("contrasts", "differences") if (out / f"{name}.tex").exists()]
    assert not [name for name in ("contrasts", "differences") if (out / "tables" / f"{name}.csv").exists()]
    text = (out / "methods.tex").read_text()
    assert f"Warning: {incomplete}" in text
    assert "Compared: only uniform, on CartPole-v1, with dqn, up to 6 seeds each" in text
    assert "6 of 12 runs: up to 6 seeds each of one strategy" in text


NO_LATEX = "no pdflatex on the PATH; on Debian: apt install texlive-latex-recommended"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason=NO_LATEX)
def test_latex_takes_it(exported):
    inputs = "".join(rf"\input{{{path.name}}}" for path in sorted(exported.glob("*.tex")))
    (exported / "all.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    )
    subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=exported, check=True, capture_output=True)


def test_the_methods_say_how_strategies_differ(tmp_path):
    made = pretended(
        tmp_path,
        0.0,
        environments=["CartPole-v1", "short"],
        env_options={"short": {"id": "CartPole-v1", "max_episode_steps": 50}},
        strategies__three={
            "type": "uniform",
            "transforms": [{"type": "n_step", "steps": 3}],
            "learner": {"batch_size": 16, "optimizer": {"type": "sgd"}},
            "environments": ["short"],
            "budget": {"steps": 600},
        },
    )
    text = " ".join(methods.of(made).run)
    assert "Other budgets, in steps: three 600. Average returns end with the shortest budget of an" in text
    assert "Options of the environments. short: id CartPole-v1, max_episode_steps 50." in text
    assert "uniform: uniform, replace true, stratified false." in text
    assert (
        "three: uniform, replace true, stratified false; transform n_step, steps 3; learner batch_size 16, "
        "optimizer.type sgd; on short." in text
    )
