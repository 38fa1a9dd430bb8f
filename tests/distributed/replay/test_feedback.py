"""Guarantee 3: ids are never ambiguous. Feedback for what is not there any more changes nothing, and is counted."""

import numpy as np
import pytest

from replaylab.distributed.replay.shards.ids import MOST_EPOCHS, MOST_SHARDS, global_ids, id_parts
from replaylab.errors import ConfigError, DtypeError, IdError, PriorityError, ShapeError
from replaylab.replay import Uniform
from tests.distributed.replay.conftest import lose, replay, steps


def test_ids_are_taken_apart_as_they_were_put_together():
    random = np.random.default_rng(0)
    for _ in range(200):
        epoch, shard = random.integers(MOST_EPOCHS), random.integers(MOST_SHARDS)
        own = np.append(random.integers(2**40, size=5), [-1, 2**40 - 1, 0])
        ids = global_ids(epoch, shard, own)
        assert ((ids >= 0) == (own >= 0)).all()
        epochs, shards, own_ids = id_parts(ids)
        assert np.array_equal(own_ids, own)
        assert (epochs[own >= 0] == epoch).all()
        assert (shards[own >= 0] == shard).all()
        assert (epochs[own < 0] == -1).all()


def test_feedback_of_a_former_epoch_is_never_applied():
    """10,000 tries, each with ids of epochs before, of the same shard and the same own ids as steps stored now."""
    made, transport = replay(64, shards=2, strict=True)
    old = [made.extend(**steps(0, 40))]
    for _ in range(4):
        for number in range(2):
            lose(made, transport, number)
        old.append(made.extend(**steps(0, 40)))
    former, now = np.concatenate(old[:-1]), old[-1]
    before = made.probabilities(now)
    assert made.probabilities(former).sum() == 0
    random = np.random.default_rng(0)
    tries = 0
    for _ in range(40):
        ids = random.choice(former, 250)
        assert made.update_priorities(ids, priority=random.uniform(5, 50, 250)) == 0
        tries += len(ids)
    assert tries == 10_000
    assert made.stats().stale_updates == 10_000
    assert np.array_equal(made.probabilities(now), before)
    assert np.isin(former & (2**40 - 1), now & (2**40 - 1)).all()
    assert made.update_priorities(now, priority=np.ones(40)) == 40


def test_a_shard_refuses_feedback_of_another_epoch_itself():
    made, transport = replay(64, shards=1)
    made.extend(**steps(0, 10))
    shard = transport.shard(0).shard
    distribution = shard.distribution(np.arange(10))[0]
    assert shard.update(7, np.arange(10), np.full(10, 9.0), False)[0] == 0
    assert np.array_equal(shard.distribution(np.arange(10))[0], distribution)
    assert shard.figures()[0]["stale_feedback"] == 10


def test_feedback_for_dropped_steps_is_counted():
    made, _ = replay(20, shards=2)
    first = made.extend(**steps(0, 10))
    made.extend(**steps(10, 20))
    assert made.update_priorities(first, np.ones(10)) == 0
    assert made.update_priorities([-1, -1], [1.0, 1.0]) == 0
    assert made.stats().stale_updates == 10


@pytest.mark.parametrize(("answered", "stale"), [(0, 10), (1, 0)], ids=["on its way", "applied before"])
def test_feedback_to_a_shard_that_is_lost_is_stale_unless_it_was_applied(answered, stale):
    made, transport = replay(shards=2)
    ids = made.extend(**steps(0, 20))
    assert made.update_priorities(ids, np.ones(20)) == 20
    transport.shard(0).die(answered)
    made.tend()  # finds it lost before the answer is read
    assert made.stats().losses == 1
    assert made.stats().stale_updates == stale


def test_samplers_without_feedback_count_ids():
    made, _ = replay(shards=2, sampler=Uniform())
    ids = made.extend(**steps(0, 20))
    assert made.update_priorities(ids, np.ones(20)) == 20


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([1 << 40 << 5], [1.0]), IdError),
        (([1 << 60], [1.0]), IdError),
        (([-2], [1.0]), IdError),
        ((np.array([2**63 + 1], np.uint64), [1.0]), IdError),
        (([0], [np.nan]), PriorityError),
        (([0], [1.0, 2.0]), ShapeError),
        (([0.5], [1.0]), DtypeError),
        (([0],), ConfigError),
    ],
)
def test_senseless_feedback(arguments, error):
    made, _ = replay(shards=2)
    made.extend(**steps(0, 20))
    with pytest.raises(error):
        made.update_priorities(*arguments)
    if error is IdError:
        with pytest.raises(error):
            made.probabilities(arguments[0])
    assert made.probabilities([-1]).tolist() == [0.0]


@pytest.mark.parametrize("strict", [False, True])
def test_an_id_that_its_shard_never_gave_out_is_refused_at_once(strict):
    made, _ = replay(shards=2, strict=strict)
    ids = made.extend(**steps(0, 20))
    for unknown in (ids.max() + 1, 500, 1 << 40 | 10):
        for call in (lambda given: made.update_priorities(given, [5.0] * 21), made.probabilities):
            with pytest.raises(IdError, match=f"id {unknown} was never given out"):
                call([*ids, unknown])
    for _ in range(20):
        assert made.update_priorities(ids, priority=np.ones(20)) == 20
    assert made.stats().stale_updates == 0
    assert made.probabilities(ids) == pytest.approx(np.full(20, 1 / 20))


def test_ids_of_a_writer_elsewhere_are_known_before_the_learner_is_reported():
    made, transport = replay(shards=2)
    writer = made.writer()
    ids = writer.put(steps(0, 10), None, None, many=True)
    writer.flush()
    assert not any(slot.tally.size for slot in made._pool.slots)
    assert made.update_priorities(ids, priority=np.ones((10, 1))) == 10
    made.stats()
    writer.extend(**steps(10, 5)), writer.flush()
    transport.shard(0).die()  # found lost when it is asked for what it has given out
    assert made.update_priorities([10], [1.0]) == 0
    assert made.stats().stale_updates == 1
