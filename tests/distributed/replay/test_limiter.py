"""The limiter bounds rows drawn for each step stored: readers and writers wait for each other."""

from contextlib import suppress
from threading import Thread
from time import monotonic, sleep

import numpy as np
import pytest

from replaylab.distributed.replay import Limiter
from replaylab.distributed.replay import writer as writer_module
from replaylab.errors import ConfigError, EmptyBufferError, StorageError
from tests.distributed.replay.conftest import replay, steps
from tests.study.execution.test_study_run import wait_for


def test_bounds_are_those_of_reverb():
    limiter = Limiter(4.0, 100.0)
    for inserted in (50, 80, 300):
        rows = limiter.most_rows(inserted, min_size=50)
        assert 4.0 * (inserted - 50) - rows == -100.0
    for drawn in (0, 400):
        assert 4.0 * (limiter.most_steps(drawn, min_size=50) - 50) - drawn == 100.0


def test_sample_waits_at_the_lower_bound():
    remote = replay(shards=2, limiter=Limiter(2.0, 64.0, timeout=0.1), min_size=20)
    with pytest.raises(EmptyBufferError, match="the limiter allows no batch of 16 rows"):
        remote.sample(16)
    remote.extend(**steps(0, 40))
    for _ in range(6):  # 2·(40 − 20) + 64 = 104 rows
        assert len(remote.sample(16).id) == 16
    begun = monotonic()
    with pytest.raises(EmptyBufferError, match="the limiter allows no batch of 16 rows"):
        remote.sample(16)
    assert monotonic() - begun >= 0.1
    assert remote.drawn == 96
    remote.extend(**steps(40, 4))
    assert len(remote.sample(16).id) == 16
    with pytest.raises(ConfigError, match="`batch_size` must be at most 2·error_buffer"):
        remote.sample(129)


def test_writers_wait_at_the_upper_bound(local):
    remote = replay(shards=2, limiter=Limiter(1.0, 40.0), min_size=10)
    writer, raised = remote.writer(window=2), []

    def write():
        try:
            for k in range(40):
                writer.extend(**steps(4 * k, 4))
        except StorageError as error:
            raised.append(str(error))

    thread = Thread(target=write)
    thread.start()
    wait_for(lambda: sum(client.shard.tally().waiting for client in local.clients) > 0)
    sleep(0.1)
    stored = sum(client.shard.tally().added for client in local.clients)
    assert 50 - 4 <= stored < 50 + 2 * 4  # at most an unroll too many in each shard
    assert thread.is_alive()
    remote.close()
    thread.join(10)
    assert raised == ["the shards of this replay have ended; create it again, or load a snapshot"]


def test_readers_and_writers_keep_the_ratio(local):
    remote = replay(shards=2, limiter=Limiter(4.0, 128.0, timeout=0.01), min_size=20)
    writer, over = remote.writer(window=2), []

    def write():
        for k in range(100):
            writer.extend(**steps(4 * k, 4))
        writer.flush()
        over.append(True)

    thread = Thread(target=write)
    thread.start()
    excess = []
    while not over:
        with suppress(EmptyBufferError):
            remote.sample(16)
        added, drawn = (sum(getattr(c.shard.tally(), name) for c in local.clients) for name in ("added", "drawn"))
        excess.append(4.0 * (added - 20) - drawn)
    thread.join(10)
    assert writer.stored == 400
    assert min(excess) >= -128.0 - 16  # the two sums are not of the same moment
    assert max(excess) <= 128.0 + 4.0 * 2 * 4 + 16


def test_draws_that_shards_lost_do_not_count(local, monkeypatch):
    limiter = Limiter(1.0, 64.0, timeout=0.1)
    remote = replay(shards=2, limiter=limiter, min_size=10)
    monkeypatch.setattr(remote, "_num_batches", lambda rows: 4)
    for k in range(100):
        while remote.inserted < limiter.most_steps(remote.drawn, 10):  # as a writer would
            remote.extend(**steps(8 * k, 8)), remote.refresh()
        remote.sample(8)
        local.clients[0].die()


def test_steps_lost_while_they_wait_are_counted(local, monkeypatch):
    remote = replay(shards=1, limiter=Limiter(1.0, 8.0), min_size=1)
    writer, client = remote.writer(window=2), local.clients[0]
    for k in range(4):
        writer.extend(**steps(5 * k, 5))

    def dies(seconds):
        client.die()
        client.held = not client.held

    monkeypatch.setattr(writer_module.time, "sleep", dies)
    writer.flush()
    assert (writer.stored, writer.lost_steps) == (10, 10)


def test_each_reader_gets_its_share():
    remote = replay(shards=2, limiter=Limiter(2.0, 64.0, timeout=0.02), min_size=20)
    remote.extend(**steps(0, 40))
    rows = []
    for rank in range(2):
        reader = remote.reader(rank, 2)
        with suppress(EmptyBufferError):
            for _ in range(100):
                reader.sample(8)
        rows.append(reader._requested)
    assert rows[0] == 48  # half of 104
    assert sum(rows) <= 104


def test_the_learners_own_steps_do_not_wait():
    remote = replay(shards=2, limiter=Limiter(1.0, 8.0), min_size=1)
    writer = remote.writer()
    for k in range(4):
        writer.extend(**steps(5 * k, 5))  # the last ones wait
    assert (remote.extend(**steps(0, 100)) >= 0).all()
    assert remote.stats().shards[0].waiting == 5
    assert np.isfinite(remote.stats().samples_per_insert)
