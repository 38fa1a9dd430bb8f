"""What goes wrong with Ray is one line, within seconds; none of these starts Ray."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from replaylab.commands import main as cli
from replaylab.distributed import ray_session
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.studies import RayExecutor
from replaylab.errors import ConfigError, MissingExtraError


@pytest.fixture
def silent():
    """The port of a server that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_nobody_answers(silent, monkeypatch):
    monkeypatch.setattr(ray_session, "SECONDS_TO_ANSWER", 0.2)
    began = time.monotonic()
    assert not ray_session._answers("127.0.0.1", silent)
    assert not ray_session._answers("127.0.0.1", 1)
    assert not ray_session._answers("127.0.0.1", 99_999)
    assert time.monotonic() - began < 5.0


def test_an_answer_of_something_else():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        told = []
        client = threading.Thread(target=lambda: told.append(ray_session._answers(*server.getsockname())))
        client.start()
        connection, _ = server.accept()
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        client.join()
        connection.close()
    assert told == [False]


@pytest.mark.parametrize("address", ["here", "10.0.0.1", "", ":", "host:port"])
def test_what_is_no_address(address):
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r'^`address` must be "host:port" or "auto", but got '):
        RayExecutor(address)


@pytest.mark.parametrize(
    ("asked", "joined", "same"),
    [
        ("10.0.0.99:6379", "10.0.0.7:6379", False),
        ("10.0.0.7:6380", "10.0.0.7:6379", False),
        ("10.0.0.7:6379", "10.0.0.7:6379", True),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("127.0.0.1:6379", "10.0.0.7:6379", False),
        ("127.0.0.1:6379", "192.0.2.3:6379", True),
        ("[::1]:6379", "192.0.2.3:6379", True),
        ("head:6379", "10.0.0.7:6379", True),
        ("unknown:6379", "10.0.0.7:6379", False),
    ],
)
def test_another_cluster_than_the_one_that_is_joined(monkeypatch, asked, joined, same):
    """This machine is 192.0.2.3, and `head` is 10.0.0.7."""
    ray = pytest.importorskip("ray")
    names = {"localhost": "127.0.0.1", "head": "10.0.0.7"}

    def resolved(host, _):
        number = names.get(host, host)
        if number.strip("0123456789.:"):
            raise socket.gaierror(host)
        return [(0, 0, 0, "", (number, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(ray_session, "_is_here", lambda number: number in ("127.0.0.1", "::1", "192.0.2.3"))
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=joined))
    refused = rf"which this process is connected to, {joined}, but got '{re.escape(asked)}'"
    with contextlib.nullcontext() if same else pytest.raises(ConfigError, match=refused):
        RaySession(asked).open()


def test_addresses_of_this_machine():
    assert ray_session._numbers("localhost") & {"127.0.0.1", "::1"}
    assert ray_session._numbers("no such host") == ray_session._numbers("x" * 70) == set()
    assert [ray_session._is_here(one) for one in ("127.0.0.1", "203.0.113.9", "2001:db8::9")] == [True, False, False]


def test_an_address_of_ray_client():
    with pytest.raises(ConfigError, match=r'^`address` must be "host:port" or "auto", but got \'ray://a:1\'; to begin'):
        RaySession("ray://a:1")


@pytest.mark.parametrize("wrong", [{"cores": -1}, {"cores": 0}, {"cores": 1.5}, {"gpus": -1}, {"gpus": 2.5}])
def test_numbers_of_cores_and_gpus(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"^`{name}` must be "):
        RayExecutor(**wrong)


@pytest.mark.parametrize("given", [None, "5"])
def test_workers_of_ones_own_ray_do_not_stand_behind(given, monkeypatch):
    name = "RAY_worker_niceness"
    monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv(name, given)
    with ray_session._not_behind():
        assert os.environ[name] == (given or "0")
    assert os.environ.get(name) == given


def test_ray_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(ray_session, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'which is not installed. Run: pip install "replaylab\[ray\]"$'):
        RayExecutor()
    assert cli.main(["study", "run", "quick", "--executor", "ray"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_versions_that_differ_are_one_line():
    error = RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1\n    Python: 3.12.0\n")
    told = RaySession("a:1")._refusal(error)
    assert told.startswith("The cluster at a:1 has other versions of Ray or Python than this process: Version mismatch")
    assert "\n" not in told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--executor", "local", "--address", "auto"], "--address needs --executor ray, but got --executor local"),
        (["--executor", "in-process", "--cores", "1"], "--cores needs --executor ray, but got --executor in-process"),
        (["--gpus", "1"], "--gpus needs --executor ray, but got --executor local"),
        (["--executor", "ray", "--cores", "-1"], "`cores` must be positive and finite, but got -1.0"),
        (["--executor", "ray", "--workers", "0"], "`workers` must be at least 1, but got 0"),
    ],
)
def test_options_of_the_command_line(options, sentence, capsys):
    assert cli.main(["study", "run", "quick", *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


def test_an_executor_that_there_is_not(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["study", "run", "quick", "--executor", "spark"])
    assert left.value.code == 2
    assert "in-process" in capsys.readouterr().err


def test_nothing_imports_ray_before_it_is_used():
    code = (
        "import sys, replaylab, replaylab.distributed.ray_session as here; here.RaySession(); "
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
