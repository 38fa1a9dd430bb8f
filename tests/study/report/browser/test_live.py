"""The page of a running study: it fills up, tells of the progress, and is for this machine alone."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from replaylab.errors import ConfigError
from replaylab.study.execution.progress import Silent
from replaylab.study.live import LivePage
from tests.study.report.browser.opened import WAIT, Opened
from tests.study.tiny import pretend, study

STUDY = """
name = "live"
environments = ["CartPole-v1"]
seeds = 2
population = 1
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
            LivePage(study(tmp_path), Silent(), port)


def test_it_answers_this_machine_and_no_foreign_name(tmp_path):
    with LivePage(study(tmp_path), Silent(), 0) as live:
        port = int(live.address.rstrip("/").rpartition(":")[2])

        def status(path, host):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers={"Host": host})
            return connection.getresponse().status

        assert status("/", f"127.0.0.1:{port}") == 200
        assert status("/", "elsewhere.example") == 403
        assert status("/../study.json", f"localhost:{port}") == 404
        assert live._server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match=r"."):
        status("/", f"127.0.0.1:{port}")


def test_it_fills_up_as_populations_end(browser, tmp_path):
    found = study(tmp_path, seeds=4)
    pretend(found, 10.0)
    populations = found.populations
    with LivePage(found, Silent(), 0) as live:
        opened = Opened(browser, live.address, 1280)
        page = opened.page
        page.get_by_text("No runs are there yet").wait_for()
        live.begin(populations, [], 2)
        live.progress(populations[0], 150)
        page.wait_for_function("document.querySelector('#live progress').value > 0")
        live.finished(populations[0], 1.0)
        page.get_by_text("2/8 runs").wait_for()
        page.get_by_role("heading", name="How high they came").click()
        live.finished(populations[1], 1.0)
        page.locator(".matrix").first.wait_for()
        last = found.report(figure_files=False)
        live.end()
        live.finish(last)
        page.get_by_text("The study has ended").wait_for()
        page.locator("#table-levels").wait_for()  # what was open stays open
        assert opened.problems == []
        assert {url.split("/")[2] for url in opened.requests} == {live.address.split("/")[2]}


def started(tmp_path, steps):
    (tmp_path / "live.toml").write_text(STUDY.format(steps=steps))
    command = [
        sys.executable,
        "-m",
        "replaylab",
        "study",
        "run",
        "live.toml",
        "--live",
        "--port",
        "0",
        "--workers",
        "1",
    ]
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    line = run.stdout.readline()
    return run, re.fullmatch(r"live: (http://127\.0\.0\.1:\d+/)\n", line)[1]


@pytest.mark.slow
def test_a_whole_run(browser, tmp_path):
    run, address = started(tmp_path, 3000)
    page = Opened(browser, address, 1280).page
    page.get_by_text("The study has ended").wait_for(timeout=4 * WAIT)
    page.locator(".matrix").first.wait_for()
    _, errors = run.communicate(timeout=600)
    assert (run.returncode, errors) == (0, "")
    assert page.locator("td.better, td.worse, td.undecided").count() >= 1


@pytest.mark.slow
def test_an_interrupted_run_ends_its_page(browser, tmp_path):
    run, address = started(tmp_path, 3_000_000)
    page = Opened(browser, address, 1280).page
    page.wait_for_function("document.querySelector('#live progress').value > 0", timeout=4 * WAIT)
    time.sleep(1)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130
    assert errors == "replaylab: interrupted; the same command continues from here.\n"
    page.get_by_text("The run was stopped").wait_for()
