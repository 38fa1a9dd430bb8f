"""What goes wrong with Ray is one line, within seconds; none of these starts Ray."""

import socket
import subprocess
import sys
import threading
import time

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


def test_an_address_of_ray_client():
    with pytest.raises(ConfigError, match=r'^`address` must be "host:port" or "auto", but got \'ray://a:1\'; to begin'):
        RaySession("ray://a:1")


@pytest.mark.parametrize("wrong", [{"cores": -1}, {"cores": 0}, {"cores": 1.5}, {"gpus": -1}, {"gpus": 2.5}])
def test_numbers_of_cores_and_gpus(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"^`{name}` must be "):
        RayExecutor(**wrong)


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
