"""Guarantee 1: an id is never ambiguous; what is written to an overwritten id changes nothing and is counted."""

import numpy as np
import pytest

from replaylab.replay import Field, Prioritized, ReplayBuffer

PRIORITIZED = Prioritized(alpha=1.0, beta=0.4)


def make(capacity, **options):
    return ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=PRIORITIZED, seed=1, **options)


def snapshot(buffer, ids):
    return buffer.probabilities(ids).tobytes(), buffer.columns["x"].tobytes()


def test_ids_count_up_and_are_never_reused():
    buffer = make(5)
    assert [buffer.add(x=i) for i in range(17)] == list(range(17))
    assert buffer.extend(x=np.arange(8)).tolist() == list(range(17, 25))


def test_slot_is_id_modulo_capacity():
    buffer = make(5)
    buffer.extend(x=np.arange(100, 117))
    assert buffer.columns["x"].tolist() == [115, 116, 112, 113, 114]


def test_ids_are_per_replica_and_in_time_then_environment_order():
    buffer = make(100, replicas=2, num_envs=3)
    ids = buffer.extend(x=np.zeros((2, 4, 3), np.int64))
    assert ids.tolist() == [np.arange(12).reshape(4, 3).tolist()] * 2
    where = np.array([[True, False, True], [False, False, False]])
    assert buffer.add(x=np.zeros((2, 3), np.int64), where=where).tolist() == [[12, -1, 13], [-1, -1, -1]]
    assert buffer.add(x=np.zeros((2, 3), np.int64)).tolist() == [[14, 15, 16], [12, 13, 14]]


@pytest.mark.parametrize("replicas", [None, 1, 3])
def test_stale_ids_change_nothing_and_are_counted(replicas):
    buffer = make(5, replicas=replicas)
    lead = () if replicas is None else (replicas,)
    ids = buffer.extend(x=np.arange(17) + np.zeros((*lead, 1), np.int64))
    before = snapshot(buffer, ids)
    stale = ids[..., :12]
    assert buffer.update_priorities(stale, np.full(stale.shape, 7.0)) == 0
    assert buffer.update_priorities(stale, priority=np.zeros(stale.shape)) == 0
    assert snapshot(buffer, ids) == before
    # 17 ids, 5 of them stored, in every replica
    assert buffer.update_priorities(ids, priority=np.arange(17.0) + np.zeros((*lead, 1))) == 5 * (replicas or 1)
    p = buffer.probabilities(ids)
    np.testing.assert_allclose(p, np.broadcast_to(np.r_[np.zeros(12), np.arange(12, 17) / 70], p.shape), rtol=1e-12)


def test_minus_one_is_ignored():
    buffer = make(4)
    buffer.extend(x=np.arange(4))
    assert buffer.update_priorities(np.array([-1, 2, -1]), priority=np.array([9.0, 3.0, 9.0])) == 1
    np.testing.assert_allclose(buffer.probabilities(np.arange(4)), np.array([1, 1, 3, 1]) / 6, rtol=1e-12)
    assert buffer.update_priorities(np.full(3, -1), np.ones(3)) == 0
