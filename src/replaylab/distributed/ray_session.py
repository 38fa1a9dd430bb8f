"""This process's connection to Ray: a Ray started on this machine, a cluster by its address, or one that is there.

Ray is imported when a connection is opened, and not before. What goes wrong there is one `ConfigError` of one line.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import platform
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Thread, current_thread, main_thread
from time import monotonic, sleep
from typing import Any

import replaylab
from replaylab.arguments import NOT_NEGATIVE, InvalidArgument
from replaylab.errors import ConfigError, StorageError
from replaylab.extras import missing_extra

SECONDS_TO_ANSWER = 5.0
"""Seconds that a cluster may take to answer at its address."""

SECONDS_WITHOUT_HEAD = 8.0
"""Seconds for which an unreachable head node does not count as dead. Ray itself aborts the process after a minute."""

SECONDS_TO_SHUT_DOWN = 10.0
"""Seconds that `RaySession.close` waits for Ray once the head node is dead."""

SECONDS_BETWEEN_CHECKS = 1.0
"""Seconds between two connections of `HeadWatch` to the head node, each of which takes at most twice as long."""

_MOST = 1_000_000
"""Cores or GPUs of one task, at most."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HeadWatch:
    """Checks whether the head node of the cluster that this process has joined is alive, once a second at most.

    Once it is dead, Ray's calls block, and after a minute Ray aborts the process.

    Attributes:
        address: ``"host:port"`` of the head node; empty: this process has joined no cluster.
        dead: Whether it was dead at the last check.
    """

    address, dead = "", False
    _failures, _answered_at, _checked_at = 0, -math.inf, -math.inf

    @classmethod
    def begin(cls) -> None:
        """Watch the cluster that this process is connected to."""
        cls.address, cls.dead, cls._failures, cls._answered_at = joined_address(), False, 0, monotonic()

    @classmethod
    def check(cls) -> None:
        """Raise `StorageError` if the head node is dead."""
        if cls.address and monotonic() - cls._checked_at > SECONDS_BETWEEN_CHECKS:
            cls.answers()
        if cls.dead:
            raise StorageError(
                f"The head node of the Ray cluster, {cls.address}, has not answered for {SECONDS_WITHOUT_HEAD:.0f} "
                "seconds, and the cluster ends with it; start a cluster, and continue from what was saved"
            )

    @classmethod
    def wait(cls) -> None:
        """Wait until the head node answers, before a call of Ray that would block without it; raise as `check`."""
        while cls.address and not cls.answers():
            cls.check()
            sleep(SECONDS_BETWEEN_CHECKS)

    @classmethod
    def answers(cls) -> bool:
        """Whether the head node answers now."""
        cls._failures = 0 if _answers(cls.address, SECONDS_BETWEEN_CHECKS) else cls._failures + 1
        cls._checked_at = monotonic()
        if not cls._failures:
            cls._answered_at = cls._checked_at
        # this process may have been suspended, so that time alone proves nothing
        cls.dead = cls._failures >= 3 and cls._checked_at - cls._answered_at > SECONDS_WITHOUT_HEAD
        return not cls._failures


def check_version(asking: str) -> None:
    """Raise `ConfigError` if this machine has another version of replaylab than the one that asks."""
    if asking != replaylab.__version__:
        raise ConfigError(
            f"Node {platform.node()} of the Ray cluster has replaylab {replaylab.__version__}, but {asking} asks it "
            f"for work; install that version there, and run the same command again"
        )


def import_path() -> list[str]:
    """Return the folders in which this process looks for modules, for `extend_import_path` in another process."""
    return [str(Path(folder).absolute()) for folder in sys.path]


def extend_import_path(folders: Sequence[str]) -> None:
    """Look for modules also in those folders of another process that this machine has, after its own folders.

    So modules in a folder that all machines share are found. Ray's own ``runtime_env`` sends others.
    """
    sys.path += [folder for folder in folders if folder not in sys.path and Path(folder).exists()]


def lacking(words: str) -> str | None:
    """Return what to say of an error in these words, if it is that a machine has no replaylab at all."""
    if not re.search(r"No module named 'replaylab['.]", words):
        return None
    return (
        f"Every node of the Ray cluster needs replaylab {replaylab.__version__}, but one cannot import it; install it "
        f"there, and run the same command again"
    )


def ray_share(value: Any) -> float:
    """Return a number of cores or GPUs that Ray accepts: at most 1, or a whole number."""
    share = NOT_NEGATIVE(value)
    if share > _MOST or (share > 1.0 and share != int(share)):
        raise InvalidArgument(f"at most 1, or a whole number up to {_MOST:,}")
    return share


class RaySession:
    """A connection to Ray, opened once and closed by whoever opened it.

    If this process is already connected, by ``ray.init`` or by another session, that connection is used and left open
    at `close`. Otherwise, without an address, Ray is started on this machine. It listens only on the loopback address,
    has no dashboard, prints no logs of its workers, and ends with `close` or with this process, however that ends.

    Args:
        address: ``"host:port"`` of a cluster, ``"auto"`` for the one that runs on this machine; None: a new Ray.
        cores: Cores that a Ray started here has for tasks; None: those of this machine.
        object_store_bytes: Memory that a Ray started here keeps results in; None: Ray's own choice.

    Attributes:
        owned: Whether this session has opened the connection, and so will close it.

    Raises:
        ConfigError: The address is invalid.
        MissingExtraError: Ray is not installed.
    """

    def __init__(
        self, address: str | None = None, *, cores: float | None = None, object_store_bytes: int | None = None
    ) -> None:
        if find_spec("ray") is None:
            raise missing_extra("This", "Ray", "ray")
        check_address(address)
        self.address, self._cores, self._object_store_bytes = address, cores, object_store_bytes
        self.owned = False

    def open(self) -> None:
        """Connect, unless this process is connected.

        Raises:
            ConfigError: No cluster answers at the address, it has another version of Ray or Python, this process is
                connected to another one, or Ray cannot be started.
        """
        import ray

        if ray.is_initialized():
            self._check_same()
            HeadWatch.begin()
            return
        address = None if self.address is None else _reachable(self.address)
        on_sigterm = signal.getsignal(signal.SIGTERM)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                # otherwise Ray starts workers with a niceness of 15, so other programs would go first
                niceness = {} if "RAY_worker_niceness" in os.environ else {"worker_niceness": 0}
                with _on_loopback():
                    ray.init(
                        "local",
                        num_cpus=self._cores,  # type: ignore[arg-type]  # a whole number, if it is given
                        include_dashboard=False,
                        object_store_memory=self._object_store_bytes,
                        _system_config=niceness,
                        **quiet,
                    )
            else:
                with _on_loopback() if address.rpartition(":")[0] in _LOOPBACK else contextlib.nullcontext():
                    ray.init(address, **quiet)
        except Exception as error:  # Ray's own kinds, and plain ones
            ray.shutdown()
            raise ConfigError(self._refusal(error)) from error
        finally:
            if on_sigterm is not None and current_thread() is main_thread():
                signal.signal(signal.SIGTERM, on_sigterm)  # Ray's prints a dump and aborts after three seconds
        ray._private.worker._worker_logs_enabled = False  # log_to_driver=False still prints dumps of dead nodes
        self.owned = True
        HeadWatch.begin()

    def close(self) -> None:
        """Disconnect, and stop a Ray that this session had started."""
        if self.owned:
            import ray

            self.owned = False
            is_dead, HeadWatch.address, HeadWatch.dead = HeadWatch.dead, "", False
            if is_dead:  # unreachable, so this might block for ever
                atexit.unregister(ray.shutdown)
                ending = Thread(target=ray.shutdown, daemon=True)
                ending.start()
                ending.join(SECONDS_TO_SHUT_DOWN)
            else:
                ray.shutdown()
            ray._private.worker._worker_logs_enabled = True  # not before: a shutdown prints the dumps that it held back

    def _check_same(self) -> None:
        joined = joined_address()
        if self.address in (None, "auto") or _numerical(str(self.address)) == _numerical(joined):
            return
        raise ConfigError(
            f"`address` must be that of the cluster which this process is connected to, {joined}, but got "
            f"{self.address!r}; leave it out, or call ray.shutdown() before"
        )

    def _refusal(self, error: Exception) -> str:
        words = " ".join(str(error).split())
        if "Version mismatch" in words:
            return f"The cluster at {self.address} has other versions of Ray or Python than this process: {words}"
        if self.address is None:
            return f"Ray cannot be started on this machine: {words}"
        return f"The cluster at {self.address} cannot be joined: {words}"


def check_address(address: str | None) -> None:
    """Raise `ConfigError` unless this is the address of a cluster, "auto" or None."""
    if address in (None, "auto"):
        return
    host, _, port = str(address).rpartition(":")
    if not host or not port.isdigit() or "://" in host:
        raise ConfigError(
            f'`address` must be "host:port" or "auto", but got {address!r}; to begin from a machine outside of the '
            f"cluster, hand the command to it: ray job submit --address http://HOST:8265 -- COMMAND"
        )


def joined_address() -> str:
    """Return ``"host:port"`` of the cluster that this process is connected to."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def _reachable(address: str) -> str:
    """Return the host and port at which the head node of a cluster answers.

    Raises:
        ConfigError: There is none.
    """
    from ray._private import services  # Ray has no public function that resolves "auto" without joining the cluster
    from ray.util import get_node_ip_address

    fix = "start one with `ray start --head`, or leave the address out to use only this machine"
    try:
        head = services.canonicalize_bootstrap_address("auto") if address == "auto" else address
    except ConnectionError:
        head = None
    if head is None:
        raise ConfigError(f"No Ray cluster runs on this machine, as address 'auto' asks for; {fix}")
    host, _, port = head.rpartition(":")
    machine = get_node_ip_address()  # type: ignore[no-untyped-call]
    hosts = [machine, host] if host in _LOOPBACK else [host, "127.0.0.1"] if host == machine else [host]
    for candidate in hosts:
        if _answers(f"{candidate}:{port}", SECONDS_TO_ANSWER):
            return f"{candidate}:{port}"
    raise ConfigError(f"No Ray cluster answered at {head} within {SECONDS_TO_ANSWER:.0f} seconds; {fix}")


def _answers(address: str, seconds: float) -> bool:
    """Whether a server at ``"host:port"`` accepts a connection and sends a first byte, as gRPC does without a request.

    Without the byte, a process that is frozen or about to end would pass, and so would the dashboard of Ray. Ray itself
    would wait for 14 minutes.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as connection:
            encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")  # the client begins
            return encrypted or bool(connection.recv(1))
    except (OSError, OverflowError):
        return False


def _numerical(address: str) -> tuple[str, str]:
    """Return host and port of an address, the host as a number if it has one; that of this machine is not loopback."""
    from ray.util import get_node_ip_address

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if host in _LOOPBACK:
        return str(get_node_ip_address()), port  # type: ignore[no-untyped-call]
    with contextlib.suppress(OSError, UnicodeError):
        host = socket.gethostbyname(host)
    return host, port


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray use the loopback address, as it does on macOS and Windows.

    Ray reads its environment variable for this once, when it is imported. ``_node_ip_address`` is not enough: Ray
    replaces 127.0.0.1 by the machine's address in the network, and listens on all interfaces at any other address.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
