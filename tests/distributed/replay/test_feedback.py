"""Feedback reaches the right steps; feedback for what is not stored any more changes nothing, and is counted."""

import numpy as np
import pytest

from replaylab.distributed.replay.ids import MOST_EPOCHS, MOST_SHARDS, global_ids, own_ids, shard_of
from replaylab.errors import ConfigError, DtypeError, IdError, PriorityError, ShapeError
from replaylab.replay import Uniform
from tests.distributed.replay.conftest import replay, spread


def test_ids_are_taken_apart_as_they_were_put_together():
    own = np.array([2**36 - 1, 7, 0])
    for epoch, shard in ((0, 0), (3, 5), (MOST_EPOCHS - 1, MOST_SHARDS - 1)):
        ids = global_ids(epoch, shard, own)
        assert (ids >= 0).all()
        assert (shard_of(ids) == shard).all()
        assert np.array_equal(own_ids(ids, epoch, 2**36), own)
        assert (own_ids(ids, epoch + 1, 2**36) == -1).all()
    assert global_ids(3, 5, np.array([-1])).tolist() == own_ids(np.array([-1]), 3, 9).tolist() == [-1]


def test_feedback_reaches_the_right_steps():
    remote = replay(shards=3)
    ids, random = spread(remote, 0, 120, 6), np.random.default_rng(0)
    priorities = np.ones(120)
    for _ in range(40):
        batch = remote.sample(16)
        at = batch.x.astype(int)
        priorities[at] = values = random.uniform(1, 9, 120)[at]
        assert remote.update_priorities(batch.id, priority=values) == 16
    assert remote.probabilities(ids) == pytest.approx(priorities / priorities.sum(), rel=1e-5)
    for value in (3.0, 7.0):  # the last of equal ids counts
        remote.update_priorities(ids[:60], priority=np.full(60, value))
    remote.update_priorities(ids[60:], td_error=np.ones(60))
    assert remote.probabilities(ids[:60]) == pytest.approx(7 / 480, rel=1e-4)


def test_feedback_of_earlier_epochs_is_never_applied(local):
    """10,000 ids of earlier epochs, of the same shards and the same own ids as steps stored now."""
    remote = replay(64, shards=2)
    old = [spread(remote, 0, 40)]
    for _ in range(4):
        for client in local.clients:
            client.die()
        remote._own_writer._turn = 0
        old.append(spread(remote, 0, 40))
    earlier, now = np.concatenate(old[:-1]), old[-1]
    before = remote.probabilities(now)
    assert remote.probabilities(earlier).sum() == 0
    random = np.random.default_rng(0)
    for _ in range(40):
        ids = random.choice(earlier, 250)
        assert remote.update_priorities(ids, priority=random.uniform(5, 50, 250)) == 0
    assert remote.stats().stale_updates == 10_000
    assert np.array_equal(remote.probabilities(now), before)
    assert remote.update_priorities(now, priority=np.ones(40)) == 40


def test_feedback_that_changes_nothing_is_counted(local):
    """For overwritten steps, ids never assigned, and a lost shard."""
    remote = replay(16, shards=2)
    first = spread(remote, 0, 16, 16)
    second = spread(remote, 16, 8, 8)
    remote.refresh()
    assert remote.update_priorities(first, priority=np.full(16, 5.0)) == 8
    assert remote.update_priorities([-1, -1], [1.0, 1.0]) == 0
    assert remote.stats().stale_updates == 8
    assert remote.probabilities(second) == pytest.approx(1 / 48, rel=1e-5)
    unknown = [second.max() + 1, 500, 1 << 60]
    assert remote.update_priorities(unknown, np.full(3, 5.0)) == 0
    assert remote.probabilities(unknown).tolist() == [0.0] * 3
    assert remote.stats().stale_updates == 11
    assert remote.update_priorities(second, np.ones(8)) == 8
    local.clients[0].die()
    local.clients[0].held = True
    remote.refresh()
    local.clients[0].held = False
    assert remote.stats().losses == 1
    assert remote._stale == 4


def test_samplers_without_feedback_count_ids():
    remote = replay(shards=2, sampler=Uniform())
    ids = spread(remote, 0, 20)
    assert remote.update_priorities(ids, np.ones(20)) == 20
    remote.refresh()
    assert not remote._feedback


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.array([2**63 + 1], np.uint64), [1.0]), IdError),
        (([0], [np.nan]), PriorityError),
        (([0], [1.0, 2.0]), ShapeError),
        (([0.5], [1.0]), DtypeError),
        (([0],), ConfigError),
    ],
)
def test_wrong_feedback_is_an_error(arguments, error):
    remote = replay(shards=2)
    spread(remote, 0, 20)
    with pytest.raises(error):
        remote.update_priorities(*arguments)
    assert remote.probabilities([-1]).tolist() == [0.0]
