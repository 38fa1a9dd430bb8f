"""What a running study says of its speed and of the time that is left."""

from io import StringIO
from itertools import count
from types import SimpleNamespace

import pytest
from rich.console import Console

from replaylab.study.execution import progress
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.plan.populations import plan
from tests.study.tiny import study


@pytest.fixture
def said(tmp_path, monkeypatch):
    """A reporter of a study, its populations, and what it says; a second passes with each look at the clock."""
    seconds = count()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    populations = plan(study(tmp_path).spec)
    console = Console(record=True, width=200, file=StringIO())
    reporter = PlainReporter(console)
    reporter.begin(populations, [], 1)
    return reporter, populations, console


def speeds(console):
    lines = console.export_text().splitlines()[1:]
    return [float(line.split(" steps/s")[0].split()[-1].replace(",", "")) for line in lines]


def test_steps_of_an_earlier_run_are_no_speed(said):
    reporter, (population, *_), console = said
    begun = population.steps // 2
    reporter.progress(population, begun)
    reporter.progress(population, begun + 8)
    first, second = speeds(console)
    assert first == 0.0
    assert 0.0 < second <= 8 * len(population.seeds)


def test_a_population_that_is_done_at_once_counts_whole(said):
    reporter, (population, *_), console = said
    reporter.finished(population, 0.1)
    (speed,) = speeds(console)
    assert speed > population.steps * len(population.seeds) / 20
