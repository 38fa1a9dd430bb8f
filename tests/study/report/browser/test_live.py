"""The page of a running study: it fills up, tells of the progress, and is for this machine alone."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from rich.console import Console

from replaylab.errors import ConfigError
from replaylab.study import live
from replaylab.study.execution.progress import PlainReporter
from replaylab.study.live import LivePage
from tests.study.report.browser.opened import WAIT, Opened
from tests.study.tiny import pretended, study

MOVED = "#live progress:not([value='0'])"

STUDY = """
name = "live"
environments = ["CartPole-v1"]
seeds = 2
chunk_size = 1
budget = {{ steps = {steps} }}
evaluation = {{ every = 1000, episodes = 2 }}
learners.dqn = {{ type = "dqn", hidden = [8], batch_size = 8, learning_starts = 20 }}
strategies.uniform = {{ type = "uniform" }}
strategies.prioritized = {{ type = "prioritized" }}
"""


def test_a_port_that_is_used_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^`port` must be free on 127\.0\.0\.1, but {port} is not \(.*--port"):
            LivePage(study(tmp_path), PlainReporter(Console(quiet=True)), port)


def test_it_answers_this_machine_and_no_foreign_name(tmp_path):
    with LivePage(study(tmp_path), PlainReporter(Console(quiet=True)), 0) as shown:
        port = int(shown.address.rstrip("/").rpartition(":")[2])

        def status(path, host):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers={"Host": host})
            return connection.getresponse().status

        assert status("/", f"127.0.0.1:{port}") == 200
        for foreign in ("elsewhere.example", f"elsewhere.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
            assert status("/", foreign) == 403
        assert status("/../study.json", f"localhost:{port}") == 404
        assert shown._server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match=r"."):
        status("/", f"127.0.0.1:{port}")


def test_figures_beside_the_report_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "every_run.svg").write_text("another")
    (tmp_path / "figures").mkdir()
    (tmp_path / "report.html").write_text("r")
    (tmp_path / "figures" / "every_run.svg").write_bytes(b"<svg/>")
    (tmp_path / "secret.svg").write_text("s")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "levels.csv").write_bytes(b"a,b")
    (tmp_path / "figures" / "greedy_play_a-0.webp").write_bytes(b"w")
    with LivePage(study(tmp_path), PlainReporter(Console(quiet=True)), 0) as shown:

        def answer(path):
            connection = http.client.HTTPConnection("127.0.0.1", port_of(shown), timeout=60)
            connection.request("GET", path)
            found = connection.getresponse()
            return found.status, found.headers["Content-Type"], found.read()

        assert answer("/figures/every_run.svg")[0] == 404  # no report yet
        shown.finish(tmp_path / "report.html")
        assert answer("/figures/every_run.svg") == (200, "image/svg+xml", b"<svg/>")
        assert answer("/tables/levels.csv") == (200, "text/csv; charset=utf-8", b"a,b")
        assert answer("/figures/greedy_play_a-0.webp") == (200, "image/webp", b"w")
        assert answer("/report.html")[0] == answer("/tables/../report.html")[0] == answer("/tables/a.exe")[0] == 404
        assert answer("/figures/measures.svg")[0] == answer("/figures/../secret.svg")[0] == 404


def wait_for(happened):
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def port_of(shown):
    return int(shown.address.rstrip("/").rpartition(":")[2])


def test_the_last_report_is_fetched_when_it_is_read_to_its_end(tmp_path):
    report = tmp_path / "report.html"
    report.write_bytes(b"r" * 20_000_000)  # more than the sockets hold
    with LivePage(study(tmp_path), PlainReporter(Console(quiet=True)), 0) as shown:
        shown.finish(report)
        connection = http.client.HTTPConnection("127.0.0.1", port_of(shown), timeout=60)
        connection.request("GET", "/report?1")
        answer = connection.getresponse()
        answer.read(1000)
        assert not shown._fetched_last
        assert len(answer.read()) == 20_000_000 - 1000
        assert int(answer.headers["Content-Length"]) == 20_000_000
        wait_for(lambda: shown._fetched_last)


def test_a_page_that_is_closed_on_the_way_is_passed_over(tmp_path, capsys):
    report = tmp_path / "report.html"
    report.write_bytes(b"r" * 20_000_000)
    with LivePage(study(tmp_path), PlainReporter(Console(quiet=True)), 0) as shown:
        shown.finish(report)
        handled = []
        shutdown_request = shown._server.shutdown_request
        shown._server.shutdown_request = lambda request: (handled.append(1), shutdown_request(request))
        with socket.create_connection(("127.0.0.1", port_of(shown))) as visitor:
            visitor.sendall(f"GET /report?1 HTTP/1.1\r\nHost: 127.0.0.1:{port_of(shown)}\r\n\r\n".encode())
            visitor.recv(10)
        wait_for(lambda: handled)
    assert capsys.readouterr().err == ""


def test_a_report_that_cannot_be_written_is_reported(reported, monkeypatch):
    monkeypatch.setattr(live, "_WRITE_REPORT", "raise SystemExit('no room')")
    with LivePage(reported, PlainReporter(Console(quiet=True)), 0) as shown:
        shown.begin(reported.chunks[1:], reported.chunks[:1], 1)
        wait_for(lambda: shown._state.failed)
        assert shown._state.failed == ("the report could not be written: no room",)


def test_the_process_that_writes_the_report_imports_nothing_from_the_current_folder(tmp_path, monkeypatch):
    found = pretended(tmp_path / "study", 10.0, seeds=2)
    (tmp_path / "queue.py").write_text("raise ImportError('the wrong queue')")
    monkeypatch.chdir(tmp_path)
    process = live._report_process(found.folder, str(tmp_path))
    _, said = process.communicate()
    assert (process.returncode, said) == (0, b"")
    page = (tmp_path / "report.html").read_text()
    assert "Prioritized vs uniform" in page
    assert page.count("<svg") > 5


def test_it_fills_up_as_chunks_end(browser, reported, monkeypatch):
    copied = "import shutil, sys; shutil.copy(f'{sys.argv[1]}/report.html', sys.argv[2])"
    monkeypatch.setattr(live, "_WRITE_REPORT", copied)  # a whole run, below, has it written
    chunks, report = reported.chunks, reported.folder / "report.html"
    with LivePage(reported, PlainReporter(Console(quiet=True)), 0) as shown:
        opened = Opened(browser, shown.address, 1280)
        page = opened.page
        page.get_by_text("No runs are there yet").wait_for()
        shown.begin(chunks, [], 2)
        shown.progress(chunks[0], 150)
        page.locator(MOVED).wait_for()
        assert page.locator(".matrix").count() == 0
        shown.finished(chunks[0], 1.0)
        page.get_by_text("8/64 runs").wait_for()
        page.get_by_role("heading", name="Final performance").click()
        legend = page.locator("#learning_curves .legend")
        legend.get_by_role("button", name="uniform", exact=True).click()
        shown.finished(chunks[1], 1.0)
        page.get_by_text("16/64 runs").wait_for()
        shown.end()
        shown.finish(report)
        page.get_by_text("The study has ended").wait_for()
        page.locator("#table-levels").wait_for()  # what was open stays open, what was hidden hidden
        pressed = legend.get_by_role("button", name="uniform", exact=True).get_attribute("aria-pressed")
        assert pressed == "false"
        assert opened.problems == []
        assert {url.split("/")[2] for url in opened.requests} == {shown.address.split("/")[2]}


@contextmanager
def started(tmp_path, steps):
    """A run of a custom study with its page, and the page's address."""
    (tmp_path / "live.toml").write_text(STUDY.format(steps=steps))
    options = ("live.toml", "--live", "--port", "0", "--workers", "1")
    command = [sys.executable, "-m", "replaylab", "study", "run", *options]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            yield run, re.fullmatch(r"live: (http://127\.0\.0\.1:\d+/)\n", run.stdout.readline())[1]
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_whole_run(browser, tmp_path):
    with started(tmp_path, 3000) as (run, address):
        page = Opened(browser, address, 1280).page
        page.get_by_text("The study has ended").wait_for(timeout=4 * WAIT)
        page.locator(".matrix").first.wait_for()
        _, errors = run.communicate(timeout=600)
    assert (run.returncode, errors) == (0, "")
    assert page.locator("td.better, td.worse, td.inconclusive").count() >= 1


@pytest.mark.slow
def test_an_interrupted_run_ends_its_page(browser, tmp_path):
    with started(tmp_path, 3_000_000) as (run, address):
        page = Opened(browser, address, 1280).page
        page.locator(MOVED).wait_for(timeout=4 * WAIT)
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=120)
        page.get_by_text("The run was stopped").wait_for()
    assert run.returncode == 130
    assert errors.startswith("replaylab: interrupted; ")
    assert errors.count("\n") == 1
