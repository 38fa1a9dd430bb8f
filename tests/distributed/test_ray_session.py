"""Errors of Ray are one line, within seconds; none of these tests starts Ray."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from replaylab.commands import main as cli
from replaylab.distributed import ray_session
from replaylab.distributed.ray_session import HeadWatch, RaySession
from replaylab.distributed.studies import RayExecutor
from replaylab.errors import ConfigError, MissingExtraError, StorageError


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_port = silent.getsockname()[1]
        began = time.monotonic()
        for address in (f"127.0.0.1:{silent_port}", "127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"):
            assert not ray_session._answers(address, 0.2)
        assert time.monotonic() - began < 5.0


def test_a_dead_head_node_is_reported_where_it_is_waited_for(monkeypatch):
    """By everything that waits for Ray, until the head node answers again."""
    ray = pytest.importorskip("ray")
    from replaylab.distributed.replay.calls import RayPending, start
    from replaylab.distributed.training.loop import Learning

    answers, now = [False], [0.0]
    monkeypatch.setattr(ray_session, "_answers", lambda *_: answers[0])
    monkeypatch.setattr(ray_session, "monotonic", lambda: now[0])
    monkeypatch.setattr(ray_session, "sleep", lambda seconds: now.append(now.pop() + seconds))
    monkeypatch.setattr(ray_session, "joined_address", lambda: "10.0.0.7:6379")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for name in ("address", "dead", "_failures", "_answered_at", "_checked_at"):
        monkeypatch.setattr(HeadWatch, name, getattr(HeadWatch, name))  # to have them back
    HeadWatch.begin()
    HeadWatch.check()  # it may only be slow
    now[0] = 60.0
    HeadWatch.check()  # this process may have been suspended
    dead = r"^The head node of the Ray cluster, 10\.0\.0\.7:6379, has not answered"
    waiting = (
        lambda: start("run/0", print),
        RayPending(None).result,
        lambda: Learning._check_actors(None),
        lambda: RayExecutor().wait(None),
    )
    for call in waiting:
        with pytest.raises(StorageError, match=dead):
            call()
    answers[0], now[0] = True, 90.0
    HeadWatch.check()
    assert not HeadWatch.dead


HEADLESS = """
import os, signal, sys, time
from replaylab import Field
from replaylab.distributed.replay import RemoteReplay
from replaylab.errors import StorageError
from tests.distributed.processes import descendants

with RemoteReplay(100, {"x": Field()}, shards=1, seed=0) as replay:
    replay.add(x=1.0)
    (head,) = [pid for pid, line in descendants().items() if "gcs_server" in line]
    os.kill(head, signal.SIGKILL)
    killed_at = time.monotonic()
    try:
        while time.monotonic() - killed_at < 60:
            replay.sample(1)
    except StorageError as error:
        print(time.monotonic() - killed_at, error)
"""


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_a_killed_head_is_reported_within_15_seconds():
    pytest.importorskip("ray")
    ended = subprocess.run([sys.executable, "-c", HEADLESS], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    seconds, _, reported = ended.stdout.partition(" ")
    assert float(seconds) < 15
    assert reported.startswith("The head node of the Ray cluster")


@pytest.fixture
def failing(monkeypatch):
    """Options that `ray.init` was called with, which fails once it has set a handler of SIGTERM."""
    ray = pytest.importorskip("ray")
    received = {}

    def init(*_, **options):
        received.update(options)
        signal.signal(signal.SIGTERM, lambda *_: None)
        raise OSError("no room")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    return received


def test_the_callers_handler_and_environment_have_precedence(failing, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "5")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConfigError, match="no room"):
        RaySession().open()
    assert signal.getsignal(signal.SIGTERM) is before
    assert failing["_system_config"] == {}


@pytest.mark.parametrize("address", ["here", "", ":", "host:port", "ray://a:1"])
def test_what_is_no_address(address):
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r'^`address` must be "host:port" or "auto", but got .* ray job submit'):
        RayExecutor(address)


@pytest.mark.parametrize(
    ("asked", "joined", "same"),
    [
        ("10.0.0.99:6379", "10.0.0.7:6379", False),
        ("10.0.0.7:6380", "10.0.0.7:6379", False),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("127.0.0.1:6379", "10.0.0.7:6379", False),
        ("[::1]:6379", "192.0.2.3:6379", True),
        ("head:6379", "10.0.0.7:6379", True),
        ("no such host:6379", "10.0.0.7:6379", False),
        (f"{'x' * 70}:6379", "10.0.0.7:6379", False),
    ],
)
def test_another_cluster_than_the_one_that_is_joined(monkeypatch, asked, joined, same):
    """This machine is 192.0.2.3, and `head` is 10.0.0.7."""
    ray = pytest.importorskip("ray")
    resolve = socket.gethostbyname
    monkeypatch.setattr(socket, "gethostbyname", lambda host: resolve("10.0.0.7" if host == "head" else host))
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "192.0.2.3")
    monkeypatch.setattr(HeadWatch, "begin", lambda: None)  # no such cluster exists
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=joined))
    refused = rf"which this process is connected to, {joined}, but got '{re.escape(asked)}'"
    with contextlib.nullcontext() if same else pytest.raises(ConfigError, match=refused):
        RaySession(asked).open()


@pytest.mark.no_sanitizer
def test_a_separate_ray_uses_loopback_and_this_process_priority(ray_here, capsys):
    from ray._private.worker import print_to_stdstream

    print_to_stdstream({"lines": ["node dead"], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    assert "node dead" not in capsys.readouterr().out
    assert ray_session._answers(ray_here.get_runtime_context().gcs_address, 5.0)
    assert ray_here.get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert ray_here.get(ray_here.remote(num_cpus=0)(lambda: os.nice(0)).remote()) == os.nice(0)


def test_ray_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(ray_session, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'which is not installed. Run: pip install "replaylab\[ray\]"$'):
        RayExecutor()
    assert cli.main(["study", "run", "quick", "--executor", "ray"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--executor", "local", "--address", "auto"], "--address needs --executor ray, but got --executor local"),
        (["--executor", "in-process", "--cores", "1"], "--cores needs --executor ray, but got --executor in-process"),
        (["--executor", "ray", "--cores", "1.5"], "`cores` must be at most 1, or a whole number up to 1,000,000"),
    ],
)
def test_options_of_the_command_line(options, sentence, capsys):
    assert cli.main(["study", "run", "quick", *options]) == 2
    reported = capsys.readouterr().err
    assert sentence in reported
    assert reported.count("\n") == 1


def test_nothing_imports_ray_before_it_is_used():
    code = (
        "import sys, replaylab, replaylab.distributed.ray_session as here; here.RaySession(); "
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
