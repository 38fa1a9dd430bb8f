"""When a shard counts as lost that neither answers nor is dead; Ray's clock is this file's."""

import pickle

import pytest

from replaylab.distributed.replay.shards.packing import packed
from replaylab.distributed.replay.shards.transport import ShardLost
from replaylab.errors import ConfigError, StorageError

ray = pytest.importorskip("ray")
from replaylab.distributed.replay.shards.ray_transport import PATIENCE, RayClient, RayTransport  # noqa: E402 - it is Ray's

NEVER = float("inf")


class Actor:
    """Answers each call so many seconds after the one before; it is its own method, and can be sent."""

    def __init__(self, *takes):
        self.takes, self.at = list(takes), 0.0
        self.handle = self

    def remote(self, _message, *_parcel):
        self.at += self.takes.pop(0)
        return self.at


@pytest.fixture(autouse=True)
def _connected(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed, in a list; a reference is the second at which its answer is there."""
    now = [0.0]

    def get(reference, timeout=None):
        if timeout is not None and reference > now[0] + timeout:
            now[0] += timeout
            raise ray.exceptions.GetTimeoutError("no answer")
        assert reference < NEVER, "waits for ever"
        now[0] = max(now[0], reference)
        return packed(reference)

    def wait(references, num_returns, timeout, fetch_local):
        assert (num_returns, timeout, fetch_local) == (len(references), 0, False)
        return [one for one in references if one <= now[0]], [one for one in references if one > now[0]]

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", wait)
    return now


@pytest.mark.parametrize("seconds", [1, PATIENCE + 1, 2 * PATIENCE - 1, 10 * PATIENCE])
@pytest.mark.parametrize("long", ["save", "begin"])
def test_a_shard_that_is_saved_for_long_is_not_lost(clock, long, seconds, caplog):
    client = RayClient(1, 4, Actor(seconds, 2, 2), PATIENCE)
    saving = client.call(long, "folder")
    assert [client.call("tally").result(), client.call("draw", 3).result()] == [seconds + 2, seconds + 4]
    assert saving.result() == seconds
    reported = "shard 1 (epoch 4), which is being saved or made, has not answered for 120 s"
    assert {one.getMessage() for one in caplog.records} == ({reported} if seconds + 2 > PATIENCE else set())


def test_a_save_that_another_thread_asks_for_meanwhile_is_waited_for(clock, monkeypatch):
    client = RayClient(0, 0, Actor(1, 2, 3 * PATIENCE, 1), PATIENCE)
    client.call("save", "folder")
    wait, asked = ray.wait, []

    def meanwhile(*arguments, **options):
        if not asked:
            asked.append(1)
            client.call("save", "folder")
        return wait(*arguments, **options)

    clock[0] = 1.0  # the first save is over
    monkeypatch.setattr(ray, "wait", meanwhile)
    client.call("tally")
    assert client.call("draw", 3).result() == 3 * PATIENCE + 4


def test_a_shard_that_hangs_is_lost(clock):
    client = RayClient(0, 0, Actor(1, NEVER), PATIENCE)
    assert client.call("save", "folder").result() == 1
    with pytest.raises(ShardLost, match="no answer"):
        client.call("tally").result()
    assert clock == [1 + PATIENCE]


def test_a_shard_that_hangs_after_it_was_saved_is_lost(clock):
    client = RayClient(0, 0, Actor(PATIENCE * 1.5, NEVER), PATIENCE)
    client.call("save", "folder")
    with pytest.raises(ShardLost, match="no answer"):
        client.call("tally").result()
    assert clock == [3 * PATIENCE]


def test_writers_elsewhere_wait_until_the_learner_has_judged(clock):
    """They do not know what it has asked for."""
    elsewhere = pickle.loads(pickle.dumps(RayClient(0, 0, Actor(5 * PATIENCE), PATIENCE)))
    assert elsewhere.call("add").result() == 5 * PATIENCE


LOSSES = [
    ray.exceptions.OutOfMemoryError("ended by the memory monitor"),
    ray.exceptions.LocalRayletDiedError(),
    ray.exceptions.WorkerCrashedError(),
    ray.exceptions.ActorDiedError(),
]


@pytest.mark.parametrize("error", LOSSES, ids=lambda one: type(one).__name__)
def test_a_shard_that_ray_has_ended_is_lost(monkeypatch, error):
    monkeypatch.setattr(ray, "get", raising(error))
    with pytest.raises(ShardLost):
        RayClient(0, 0, Actor(1), PATIENCE).call("tally").result()


def raising(error):
    def get(*_arguments, **_options):
        raise error

    return get


def test_what_else_ray_says_is_an_error_of_this_library(monkeypatch):
    monkeypatch.setattr(ray, "get", raising(ray.exceptions.ObjectStoreFullError("no room")))
    with pytest.raises(StorageError, match=r"Ray has no answer of actor 3 \(life 2\): no room"):
        RayClient(3, 2, Actor(1), PATIENCE, "actor").call("tally").result()


def test_an_error_tells_where_it_was_raised(monkeypatch):
    elsewhere = ray.exceptions.RayTaskError("step", "File mine.py, line 3, in step", ZeroDivisionError("by zero"))
    monkeypatch.setattr(ray, "get", raising(elsewhere.as_instanceof_cause()))  # as Ray raises it
    with pytest.raises(ZeroDivisionError, match="by zero") as reported:
        RayClient(0, 0, Actor(1), PATIENCE).call("step").result()
    assert "File mine.py, line 3, in step" in reported.value.__notes__[0]


def test_a_node_without_this_library_is_reported_in_one_line(monkeypatch):
    words = "The actor failed to import: ModuleNotFoundError: No module named 'replaylab'"
    monkeypatch.setattr(
        ray, "get", raising(ray.exceptions.RayTaskError("begin", words, RuntimeError(words)).as_instanceof_cause())
    )
    with pytest.raises(
        ConfigError, match=r"^Every node of the Ray cluster needs replaylab \S+, but one cannot import it"
    ):
        RayClient(0, 0, Actor(1), PATIENCE).call("begin").result()


def test_there_is_one_client_of_a_shard_where_it_was_started(monkeypatch):
    transport = RayTransport("mine", None)
    started = transport._started[1] = RayClient(1, 4, None, PATIENCE)
    monkeypatch.setattr(
        ray.util, "list_named_actors", lambda all_namespaces: [{"name": "mine/1/4", "namespace": "replaylab"}]
    )
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: name)
    assert transport.newest(1, 3) is started
    assert transport.newest(1, 4) is None
    assert pickle.loads(pickle.dumps(transport)).newest(1, 3) == RayClient(1, 4, "mine/1/4")
