"""Tables and methods as LaTeX: the report's numbers, nothing that LaTeX would take for a command."""

import re
import shutil
import subprocess

import pytest

from replaylab.commands.main import main
from replaylab.study.report import methods
from replaylab.study.report.latex import escaped, paragraphs, table
from replaylab.study.report.page import ReportTable
from tests.study.tiny import pretend, study

ASKED = [{"name": "gain_&_loss", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}}]


@pytest.fixture
def exported(tmp_path, capsys):
    found = study(tmp_path / "results", seeds=6, contrasts=ASKED)
    pretend(found, -30.0)
    assert main(["study", "export", str(found.folder), "--out", str(tmp_path / "paper")]) == 0
    names = [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]
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
    assert "Compared: prioritized with uniform" in (exported / "methods.tex").read_text()


def test_a_row_is_no_argument_of_what_stands_before_it():
    text = table(ReportTable("odd", "Odd", "α.", ("Strategy", "Final"), [("[2]", "1"), ("*", "2")]))
    assert [line for line in text.splitlines() if line.endswith(r"\\")][1:] == [r"{}[2] & 1 \\", r"{}* & 2 \\"]


def test_greek_and_signs_are_commands(tmp_path):
    greek = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
    text = escaped(greek + "≈→°²√\xa0")
    assert text.isascii()
    assert text.startswith(r"$\alpha$$\beta$$\gamma$")
    assert r"$\omega$$\Gamma$$\Delta$$\Theta$$\Lambda$" in text
    found = study(tmp_path, seeds=10, looks={"seeds": [10, 20]})
    pretend(found, 1.0)
    assert paragraphs(found).isascii()


def test_a_part_of_a_study_is_exported_as_a_part(tmp_path, capsys):
    """As the report does, it warns, and counts what is there; of contrasts without an answer it makes no table."""
    found = study(tmp_path / "results", seeds=6, population=3, contrasts=ASKED)
    pretend(found, -30.0)
    out = tmp_path / "paper"
    assert main(["study", "export", str(found.folder), "--out", str(out)]) == 0
    assert "warning: " not in capsys.readouterr().out
    assert (out / "contrasts.tex").is_file()
    for population in found.populations:
        if population.strategy == "prioritized":
            found.file_of(population).unlink()
    assert main(["study", "export", str(found.folder), "--out", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    incomplete = "Incomplete: 6 of 12 runs are missing. What follows is about those that are there."
    assert told[0] == f"warning: {incomplete}"
    assert any(line.startswith("warning: gain_&_loss: not answered") for line in told)
    assert [line.rpartition("/")[2] for line in told if line.endswith(".tex")] == ["levels.tex", "methods.tex"]
    assert not [name for name in ("contrasts", "differences") if (out / f"{name}.tex").exists()]
    assert not [name for name in ("contrasts", "differences") if (out / "tables" / f"{name}.csv").exists()]
    text = (out / "methods.tex").read_text()
    assert f"Warning: {incomplete}" in text
    assert "Compared: uniform alone, on CartPole-v1, with dqn, up to 6 seeds each" in text
    assert "6 of 12 runs: up to 6 seeds each of one strategy" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on the PATH")
def test_latex_takes_it(exported):
    inputs = "".join(rf"\input{{{path.name}}}" for path in sorted(exported.glob("*.tex")))
    (exported / "all.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    )
    subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=exported, check=True, capture_output=True)


def test_the_methods_say_how_strategies_differ(tmp_path):
    made = study(
        tmp_path,
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
    pretend(made, 0.0)
    text = " ".join(methods.of(made).run)
    assert "Other budgets, in steps: three 600. Averages over training end with the shortest budget of an" in text
    assert "Options of the environments. short: id CartPole-v1, max_episode_steps 50." in text
    assert "uniform: uniform, replace true." in text
    assert (
        "three: uniform, replace true; transform n_step, steps 3; learner batch_size 16, "
        "optimizer.type sgd; on short." in text
    )
