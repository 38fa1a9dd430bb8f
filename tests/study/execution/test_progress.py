"""Reporters of a running study: runs, speed and remaining time, and no silence for long."""

import re
import time
from io import StringIO
from itertools import count, pairwise
from types import SimpleNamespace

import pytest
from rich.console import Console

from replaylab.study.execution import progress
from replaylab.study.execution.progress import LiveReporter, PlainReporter, Tally, showing
from replaylab.study.execution.reporter import Failure
from replaylab.study.plan import plan
from tests.study.tiny import study


@pytest.fixture
def chunks(tmp_path):
    """Four chunks of two seeds and 300 steps."""
    return plan(study(tmp_path).spec)


@pytest.fixture
def tally(chunks, monkeypatch):
    """A tally of the chunks, none of which is done; a second passes with each reading of the clock."""
    seconds = count()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    begun = Tally()
    begun.begin(chunks, [])
    return begun


def test_steps_of_an_earlier_run_are_no_speed(tally, chunks):
    chunk, *_ = chunks
    begun = chunk.steps // 2
    tally.reached(chunk, begun)
    assert tally.speed == 0.0
    tally.reached(chunk, begun + 8)
    assert 0.0 < tally.speed <= 8 * len(chunk.seeds)


def test_a_chunk_that_is_done_at_once_counts_whole(tally, chunks):
    tally.finished(chunks[0])
    assert tally.speed > chunks[0].steps * len(chunks[0].seeds) / 20


def test_runs_are_counted_by_their_state(tally, chunks):
    first, second, third, _ = chunks
    assert str(tally).startswith("0 of 8 runs done, 0 steps/s")
    tally.reached(first, 150)
    tally.reached(second, 1)
    assert str(tally).startswith("0 of 8 runs done, 4 in training, ")
    tally.finished(first)
    tally.failed(second)
    tally.reached(third, 299)
    assert str(tally).startswith("2 of 8 runs done, 2 failed, 2 in training, ")


def test_the_share_counts_runs_of_earlier_calls(chunks):
    tally = Tally()
    tally.begin(chunks[2:], chunks[:2])
    assert (tally.share, str(tally).partition(",")[0]) == (0.5, "4 of 8 runs done")
    tally.finished(chunks[2])
    assert tally.share == 0.75


def test_the_share_never_falls_and_ends_at_1(tally, chunks):
    shares = [tally.share]
    for chunk in chunks:
        for step in (100, 200):
            tally.reached(chunk, step)
            shares.append(tally.share)
        tally.split(chunk)
        shares.append(tally.share)
        if chunk is chunks[-1]:
            tally.failed(chunk)
        else:
            tally.finished(chunk)
        shares.append(tally.share)
    assert all(a <= b for a, b in pairwise(shares))
    assert shares[-1] == 1.0


def lines_of(reporter_kind, act, silent_seconds, monkeypatch, **options):
    """Return the output of a reporter on which a function acts, with another limit of silence."""
    monkeypatch.setattr(progress, "_SILENT_SECONDS", silent_seconds)
    console = Console(file=StringIO(), width=100, **options)
    act(reporter_kind(console))
    return console.file.getvalue()


def test_plain_lines_go_on_while_nothing_happens(chunks, monkeypatch):
    expected = [
        "checking 2 cells",
        r"checking 2 cells, \d+ s",
        r"checked 1 of 2 cells, \d+ s",
        "8 runs to do, 2,400 environment steps, 1 worker.",
        r"  \d%  0 of 8 runs done, .*steps/s.*",
        "writing the report",
        r"writing the report, \d+ s",
    ]

    def wait_for(reporter, line):
        deadline = time.monotonic() + 60.0
        while not re.search(f"^{line}$", reporter._console.file.getvalue(), re.MULTILINE):
            assert time.monotonic() < deadline, f"no line {line!r}"
            time.sleep(0.005)

    def act(reporter):
        reporter.activity("checking 2 cells")
        wait_for(reporter, expected[1])
        reporter.activity("checked 1 of 2 cells")
        wait_for(reporter, expected[2])
        reporter.begin(chunks, [], 1)
        reporter.progress(chunks[0], 30)
        wait_for(reporter, expected[4])
        reporter.end()
        with showing(reporter, "writing the report"):
            wait_for(reporter, expected[6])
        time.sleep(0.1)

    printed = lines_of(PlainReporter, act, 0.03, monkeypatch).splitlines()
    kinds = [next(i for i, line in enumerate(expected) if re.fullmatch(line, shown)) for shown in printed]
    assert kinds == sorted(kinds)
    assert set(kinds) == set(range(len(expected)))


def test_plain_lines_are_not_repeated_at_once(chunks, monkeypatch):
    def act(reporter):
        reporter.begin(chunks, [], 1)
        for step in range(300):
            reporter.progress(chunks[0], step)
        reporter.end()

    assert lines_of(PlainReporter, act, 5.0, monkeypatch).count("\n") == 1


def test_a_study_stops_when_nobody_reads_its_lines(chunks, monkeypatch):
    class Closed(StringIO):
        def write(self, text):
            raise SystemExit(1)  # as Rich does

    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.01)
    console = Console(file=StringIO())
    reporter = PlainReporter(console)
    reporter.begin(chunks, [], 1)
    console.file = Closed()
    reporter._pulse.join(10.0)
    with pytest.raises(BrokenPipeError):
        reporter.progress(chunks[0], 1)
    reporter.end()


def bars_of(text):
    """Return the columns in which bars begin, and in which their percentages end."""
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", text))
    return {(match.start(), len(line)) for line in lines if (match := re.search("[━╸╺].* %", line))}


def test_bars_stay_where_they_are(chunks, monkeypatch):
    """Whatever the names and numbers beside them."""
    long_name = chunks[1].model_copy(update={"environment": "E" * 90})

    def act(reporter):
        reporter.activity("checking 2 cells")
        reporter.begin(chunks, [], 1)
        for chunk in (chunks[0], long_name):
            for step in (1, 299):
                reporter.progress(chunk, step)
                reporter._display.refresh()
            reporter.finished(chunk, 1.0)
            reporter._display.refresh()
        reporter.failed(Failure(chunks[2], "why"))
        reporter.end()

    printed = lines_of(LiveReporter, act, 5.0, monkeypatch, force_terminal=True, color_system=None)
    assert len(bars_of(printed)) == 1
    assert "4 of 8 runs done, 2 failed, " in printed
    assert "…" in printed


def test_an_activity_leaves_nothing_on_a_terminal(monkeypatch):
    def act(reporter):
        with showing(reporter, "writing the report"):
            reporter._display.refresh()

    printed = lines_of(LiveReporter, act, 5.0, monkeypatch, force_terminal=True, color_system=None)
    assert "writing the report, 0 s" in printed
    assert printed.endswith("\x1b[1A\x1b[2K")
