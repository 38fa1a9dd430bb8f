"""Reports of a running study on its speed and the remaining time."""

from io import StringIO
from itertools import count
from types import SimpleNamespace

import pytest
from rich.console import Console

from replaylab.study.execution import progress
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.plan import plan
from tests.study.tiny import study


@pytest.fixture
def said(tmp_path, monkeypatch):
    """A reporter of a study, its chunks, and what it says; a second passes with each reading of the clock."""
    seconds = count()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    chunks = plan(study(tmp_path).spec)
    console = Console(record=True, width=200, file=StringIO())
    reporter = PlainReporter(console)
    reporter.begin(chunks, [], 1)
    return reporter, chunks, console


def speeds(console):
    lines = console.export_text().splitlines()[1:]
    return [float(line.split(" steps/s")[0].split()[-1].replace(",", "")) for line in lines]


def test_steps_of_an_earlier_run_are_no_speed(said):
    reporter, (chunk, *_), console = said
    begun = chunk.steps // 2
    reporter.progress(chunk, begun)
    reporter.progress(chunk, begun + 8)
    first, second = speeds(console)
    assert first == 0.0
    assert 0.0 < second <= 8 * len(chunk.seeds)


def test_a_chunk_that_is_done_at_once_counts_whole(said):
    reporter, (chunk, *_), console = said
    reporter.finished(chunk, 0.1)
    (speed,) = speeds(console)
    assert speed > chunk.steps * len(chunk.seeds) / 20
