"""This process's connection to Ray: a Ray of its own on this machine, a cluster by its address, or one that is there.

Ray is imported when a connection is opened, and not before. What goes wrong there is one `ConfigError` of one line:
Ray itself waits for minutes where nobody answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from replaylab.errors import ConfigError, MissingExtraError

SECONDS_TO_ANSWER = 5.0
"""How long a cluster may take to answer at its address."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of gRPC says first (RFC 9113, 3.4): the preface, and settings that change nothing."""

_SETTINGS = 4
"""The type of the frame that a server of gRPC answers with."""


def check_installed() -> None:
    """Raise where Ray cannot be imported.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtraError('This needs Ray, which is not installed. Run: pip install "replaylab[ray]"')


class RaySession:
    """A connection to Ray, opened once and closed by whoever opened it.

    Where this process is connected already, by ``ray.init`` or by another session, that connection is used and left
    open at `close`. Otherwise, without an address, Ray is started on this machine: it listens on the loopback address
    alone, has no dashboard, prints no logs of its workers, ends with `close` or with this process however that ends,
    and never joins a cluster that somebody left running.

    Args:
        address: ``"host:port"`` of a cluster, ``"auto"`` for the one that runs on this machine; None: one's own.
        cores: What a Ray of one's own may give away; None: one for each core of this machine.
        object_store_bytes: Memory that a Ray of one's own keeps results in; None: Ray's own choice.
    """

    def __init__(
        self, address: str | None = None, *, cores: float | None = None, object_store_bytes: int | None = None
    ) -> None:
        check_installed()
        check_address(address)
        self.address = address
        self._cores = cores
        self._object_store_bytes = object_store_bytes
        self._opened = False

    @property
    def owned(self) -> bool:
        """Whether this session has opened the connection, and so will close it."""
        return self._opened

    def open(self) -> None:
        """Connect, unless this process is connected.

        Raises:
            ConfigError: no cluster answers at the address within seconds, it has another version of Ray or Python, this
                process is connected to another one, or Ray cannot be started.
        """
        import ray

        if ray.is_initialized():
            self._check_same()
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self.address is None:
                with _on_loopback(), _not_behind():
                    ray.init(
                        "local",
                        num_cpus=self._cores,  # type: ignore[arg-type]  # a whole number, if it is given
                        include_dashboard=False,
                        object_store_memory=self._object_store_bytes,
                        **quiet,
                    )
            else:
                place = _found(self.address)
                with _on_loopback() if place.rpartition(":")[0] in _LOOPBACK else contextlib.nullcontext():
                    ray.init(place, **quiet)
        except Exception as error:  # Ray's own kinds, and plain ones
            ray.shutdown()
            raise ConfigError(self._refusal(error)) from error
        self._opened = True

    def close(self) -> None:
        """Disconnect, and stop a Ray of one's own, where this session had opened it."""
        if self._opened:
            import ray

            self._opened = False
            ray.shutdown()

    def _check_same(self) -> None:
        import ray

        here = ray.get_runtime_context().gcs_address
        if self.address in (None, "auto", here) or _same(str(self.address), here):
            return
        raise ConfigError(
            f"`address` must be that of the cluster which this process is connected to, {here}, but got "
            f"{self.address!r}; leave it out, or call ray.shutdown() before"
        )

    def _refusal(self, error: Exception) -> str:
        words = " ".join(str(error).split())
        if "Version mismatch" in words:
            return f"The cluster at {self.address} has other versions of Ray or Python than this process: {words}"
        if self.address is None:
            return f"Ray cannot be started on this machine: {words}"
        return words if isinstance(error, _NobodyError) else f"The cluster at {self.address} cannot be joined: {words}"


def check_address(address: str | None) -> None:
    """Raise where this is no address of a cluster.

    Raises:
        ConfigError: it is none.
    """
    if address in (None, "auto"):
        return
    host, _, port = str(address).rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f'`address` must be "host:port" or "auto", but got {address!r}')
    if "://" in host:
        raise ConfigError(
            f'`address` must be "host:port" or "auto", but got {address!r}; to begin from a machine outside of the '
            f"cluster, hand the command to it: ray job submit --address http://HOST:8265 -- COMMAND"
        )


class _NobodyError(ConnectionError):
    """No cluster answers."""


def _found(address: str) -> str:
    """Return the host and port where a cluster answers.

    Raises:
        _NobodyError: none does.
    """
    from ray._private import services  # Ray has no other way to tell what "auto" stands for, without joining it

    mend = "start one with `ray start --head`, or leave the address out to use this machine alone"
    if address == "auto":
        try:
            found = services.canonicalize_bootstrap_address("auto")
        except ConnectionError:
            found = None
        if found is None:
            raise _NobodyError(f"No Ray cluster runs on this machine, as address 'auto' asks for; {mend}")
    else:
        found = address
    host, _, port = found.rpartition(":")
    own = services.get_node_ip_address()  # type: ignore[no-untyped-call]
    hosts = [own, host] if host in _LOOPBACK else [host, "127.0.0.1"] if host == own else [host]
    for one in hosts:
        if _answers(one.strip("[]"), int(port)):
            return f"{one}:{port}"
    raise _NobodyError(f"No Ray cluster answered at {found} within {SECONDS_TO_ANSWER:.0f} seconds; {mend}")


def _answers(host: str, port: int) -> bool:
    """Whether a server of gRPC listens there; Ray's own client would wait for a quarter of an hour."""
    try:
        with socket.create_connection((host, port), SECONDS_TO_ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):  # encrypted, so nothing can be read
                return True
            connection.settimeout(SECONDS_TO_ANSWER)
            connection.sendall(_HELLO)
            frame = connection.recv(9)
    except (OSError, OverflowError):
        return False
    return len(frame) > 3 and frame[3] == _SETTINGS


def _same(one: str, other: str) -> bool:
    """Whether two addresses are of one cluster: the same port of one machine, whatever it is called."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return False
    first, second = _numbers(host), _numbers(other_host)
    return bool(first & second) or (any(map(_is_here, first)) and any(map(_is_here, second)))


def _numbers(host: str) -> set[str]:
    """Return the numerical addresses of a host, none where it has none."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        return set()


def _is_here(number: str) -> bool:
    """Whether a numerical address is one of this machine's own, which alone can be listened at."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in number else socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((number, 0))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _not_behind() -> Iterator[None]:
    """Have Ray's workers run at this process's own priority, unless the environment says at which.

    Ray starts them with a niceness of 15, behind its own services and whatever else runs on the machine.
    """
    name = "RAY_worker_niceness"
    given = os.environ.get(name)
    os.environ.setdefault(name, "0")
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Have Ray take the loopback address for this machine's own, as it does on macOS and Windows."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
