"""Runs whose network diverged are named, in the report and on the terminal; the others' results are there."""

from io import StringIO

import pytest
from rich.console import Console

from replaylab.commands import main as cli
from replaylab.study.execution.local.in_process import InProcess
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.report import caveats
from tests.study.tiny import sections, study

REPORTED = (
    "The networks of 4 runs diverged (losses that are infinite, or no numbers): prioritized on CartPole-v1 with dqn "
    "(seeds 0, 1, 2 and 3). Their returns are counted as they were;"
)
SHORT = {"budget__steps": 100, "evaluation": {"every": 50, "episodes": 1}}


def test_a_strategy_that_diverged(tmp_path, capsys):
    learner = {"loss": "squared", "learning_rate": 1e30}
    prioritized = {"type": "prioritized", "learner": learner}
    tiny = study(tmp_path, chunk_size=4, strategies__prioritized=prioritized, **SHORT)
    console = Console(width=200, record=True, file=StringIO())
    with pytest.warns(RuntimeWarning, match=r"^seeds 0, 1, 2, 3 diverged: `train/loss` is "):
        tiny.run(executor=InProcess(), reporter=PlainReporter(console))
    (line,) = [text for text in console.export_text().splitlines() if "DIVERGED" in text]
    assert line == "DIVERGED CartPole-v1 · dqn · prioritized · 4 seeds from 0: seeds 0, 1, 2, 3"
    with sections("learner_internals", "learning_curves", "levels", drawn=True):
        assert REPORTED in tiny.report(figure_files=False).read_text()
    with sections("replay_measures", "differences", "effect_sizes"):
        assert cli.main(["study", "report", str(tmp_path), "--no-figure-files"]) == 0
    assert REPORTED in capsys.readouterr().out


def test_without_one_nothing_is_said(tmp_path):
    tiny = study(tmp_path, **SHORT)
    tiny.run(executor=InProcess())
    assert caveats.diverged(tiny.results(), tiny.curves()) is None
