"""The report while a study runs: it is written again, loaded again by browsers, and never in the study's way."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from rich.console import Console

from replaylab.commands import main as cli
from replaylab.study import live
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.execution.reporter import Reporter
from replaylab.study.live import LivePage
from replaylab.study.report.report import write_report
from tests.study.tiny import command, lose, pretended, sections, study

TAG = '<meta http-equiv="refresh" content="30">'
NO_ROWS = "No runs have ended yet."
RUNNING = "Written while the study was running."


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """A file with a line for each address that the browser was asked to open."""
    script, addresses = tmp_path / "browser.sh", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\necho "$1" >> {addresses}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    return addresses


class Notes(PlainReporter):
    """A silent reporter that remembers its notes."""

    def __init__(self):
        super().__init__(Console(quiet=True))
        self.notes = []

    def note(self, line):
        self.notes.append(line)


def wait_for(happened):
    until = time.monotonic() + 100
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def text_of(file):
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def test_page_without_rows_says_that_none_are_there(tmp_path):
    unfinished = study(tmp_path)
    page = text_of(write_report(unfinished, tmp_path, refresh=30))
    assert TAG in page
    assert NO_ROWS in page
    assert "A &lt;tiny&gt; study &amp; its" in page
    assert RUNNING not in page
    assert page.count("<header>") == page.count("</header>") == 1


def test_page_of_unfinished_study_is_refreshed_and_not_recorded(tmp_path):
    unfinished = pretended(tmp_path, 30.0)
    lose(unfinished, lambda chunk: chunk.strategy == "prioritized")
    with sections():
        page = text_of(write_report(unfinished, tmp_path, refresh=30))
        assert not (tmp_path / "reports.json").exists()
        assert all(part in page for part in (TAG, RUNNING, "Incomplete: 4 of 8 runs are missing."))
        final = text_of(unfinished.report())
    assert not any(part in final for part in ('http-equiv="refresh"', RUNNING, NO_ROWS))
    assert (tmp_path / "reports.json").exists()


def test_live_page_is_written_opened_once_and_put_to_rest(tmp_path, opened, monkeypatch):
    """The current folder does not hide the modules that the writing process needs."""
    (tmp_path / "queue.py").write_text("raise ImportError('the wrong queue')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "SECONDS", 1)
    running = pretended(tmp_path / "study", 30.0)
    rows = {running.file_of(chunk): running.file_of(chunk).read_bytes() for chunk in running.chunks}
    lose(running, lambda _: True)
    page, notes = running.folder / "report.html", Notes()
    with LivePage(running.folder, notes) as reporter:
        assert isinstance(reporter, Reporter)
        reporter.begin(running.chunks, [], 1)
        wait_for(lambda: NO_ROWS in text_of(page))
        for file, content in rows.items():
            file.write_bytes(content)
        wait_for(lambda: RUNNING in text_of(page))
        reporter.end()
        assert 'http-equiv="refresh"' in text_of(page), "the last report will follow"
    assert 'http-equiv="refresh"' not in text_of(page)
    wait_for(opened.is_file)
    assert opened.read_text().splitlines() == [page.as_uri()]
    assert notes.notes == [f"live report: {page}"]


def test_live_report_that_fails_is_noted_once(tmp_path, monkeypatch):
    attempts = tmp_path / "attempts"
    monkeypatch.setattr(live, "_WRITE", f"open({str(attempts)!r}, 'a').write('x'); raise SystemExit('no room')")
    monkeypatch.setattr(live, "SECONDS", 0)
    unfinished, notes = study(tmp_path), Notes()
    with LivePage(unfinished.folder, notes) as reporter:
        reporter.begin(unfinished.chunks, [], 1)
        wait_for(lambda: len(text_of(attempts)) >= 3)
        reporter.end()
    assert notes.notes[1:] == ["The live report cannot be written; the study continues. no room"]


def test_end_of_run_kills_report_under_way(tmp_path, monkeypatch):
    began = tmp_path / "began"
    monkeypatch.setattr(live, "_WRITE", f"import time; open({str(began)!r}, 'w'); time.sleep(600)")
    unfinished = study(tmp_path)
    with LivePage(unfinished.folder, Notes()) as reporter:
        reporter.begin(unfinished.chunks, [], 1)
        wait_for(began.is_file)
        ended = time.monotonic()
        reporter.end()
        assert time.monotonic() - ended < 60


def test_refused_run_leaves_page_of_another_one(tmp_path):
    (tmp_path / "report.html").write_text(f"{TAG}\n")
    with pytest.raises(ZeroDivisionError), LivePage(tmp_path, Notes()):
        raise ZeroDivisionError
    assert text_of(tmp_path / "report.html") == f"{TAG}\n"


def test_live_without_report_is_refused(tmp_path, capsys):
    assert cli.main(command(tmp_path, "--live", "--no-report")) == 2
    assert "--live shows the report; leave out --no-report" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@contextmanager
def started(folder, steps):
    """A run with a live page of two seeds, one after the other, and the page."""
    arguments = command(folder, "--live", "--workers", "1")
    file = folder / "study.toml"
    short = file.read_text().replace("steps = 60", f"steps = {steps}").replace("every = 30", f"every = {steps // 2}")
    file.write_text(short.replace("chunk_size = 3", "chunk_size = 1"))
    with subprocess.Popen(
        [sys.executable, "-m", "replaylab", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            yield run, folder / "out" / "report.html"
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.slow
def test_run_with_live_page_ends_with_the_report(tmp_path, opened):
    with started(tmp_path, 20_000) as (run, page):
        wait_for(lambda: TAG in text_of(page))
        printed, errors = run.communicate(timeout=300)
    assert (run.returncode, errors) == (0, "")
    assert f"live report: {page}" in printed
    assert "2 runs" in text_of(page)
    assert not any(part in text_of(page) for part in ('http-equiv="refresh"', RUNNING, NO_ROWS))
    assert opened.read_text().splitlines() == [page.as_uri()]


@pytest.mark.slow
def test_interrupted_run_leaves_page_without_refresh(tmp_path, opened):
    with started(tmp_path, 3_000_000) as (run, page):
        wait_for(opened.is_file)
        assert TAG in text_of(page)
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 130
    assert errors.startswith("replaylab: interrupted; ")
    assert errors.count("\n") == 1
    assert NO_ROWS in text_of(page)
    assert 'http-equiv="refresh"' not in text_of(page)
