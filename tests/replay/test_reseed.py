"""Random streams in copies of a buffer: draws raise in forked and spawned processes until `reseed`."""

import copy
import multiprocessing
import os
import pickle
import signal

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import (
    Combined,
    Field,
    LaBER,
    MemoryMap,
    MixedReplay,
    Priorities,
    Prioritized,
    RankBased,
    ReplayBuffer,
    Reservoir,
    ShuffledEpochs,
    Uniform,
)
from tests.replay.buffers import Even, filled
from tests.replay.storage.storage_worlds import NEEDS_LINUX
from tests.replay.toy_replay import ToyReplay

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def rate(pool):
    return pool.x + 1.0


SAMPLERS = [
    *(Uniform(), Uniform(replace=False), Combined(), Prioritized(beta=0.4), RankBased(beta=0.4), ShuffledEpochs()),
    *(Even(), LaBER(rate)),
]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


def ids_of(buffer, draws=3):
    return [buffer.sample(8).id.tolist() for _ in range(draws)]


def in_child(work):
    """Return what a function returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(writing, pickle.dumps(work()))
        except BaseException as error:
            os.write(writing, pickle.dumps(error))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    if isinstance(result, BaseException):
        raise result
    return result


def pickled(buffer):
    return pickle.loads(pickle.dumps(buffer))


def refusal(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


class TestForkedChildren:
    @every_sampler
    def test_first_draw_raises_until_reseed(self, sampler):
        buffer, never_forked = filled(sampler), filled(sampler)

        def child():
            first, second = refusal(lambda: buffer.sample(8)), refusal(lambda: next(buffer.batches(8, prefetch=1)))
            buffer.reseed(7)
            return first, second, ids_of(buffer)

        first, second, drawn = in_child(child)
        assert "buffer.reseed(seed)" in first
        assert first == second
        never_forked.reseed(7)
        assert drawn == ids_of(never_forked)

    @every_sampler
    def test_children_of_different_seeds_draw_differently(self, sampler):
        buffer, never_forked = filled(sampler), filled(sampler)

        def child(seed):
            buffer.reseed(seed)
            return ids_of(buffer)

        drawn = [in_child(lambda seed=seed: child(seed)) for seed in (1, 2, 1)]
        assert drawn[0] == drawn[2] != drawn[1]
        assert ids_of(buffer) == ids_of(never_forked)  # the parent continues as if there were no children

    @every_sampler
    def test_all_but_draws_works_without_reseed(self, sampler, tmp_path):
        buffer = filled(sampler)

        def child():
            ids = [buffer.add(x=20), buffer.extend(x=[21, 22]).tolist()]
            buffer.update_priorities([20], [2.0])
            buffer.end_episode()
            buffer.save(tmp_path / "snapshot")
            return ids, buffer.get([22])["x"].tolist(), buffer.as_batch([21]).x.tolist(), buffer.stats().size

        ids, stored, shown, size = in_child(child)
        assert (ids, stored, shown, np.ravel(size).tolist()) == ([20, [21, 22]], [22], [21], [20])
        assert ReplayBuffer.load(tmp_path / "snapshot", sampler=None if sampler.in_core else sampler).next_id == 23

    def test_a_grandchild_must_reseed_again(self):
        buffer = filled()

        def child():
            buffer.reseed(1)
            return in_child(lambda: refusal(lambda: buffer.sample(1)))

        assert "buffer.reseed(seed)" in in_child(child)

    @pytest.mark.parametrize("copied", [copy.deepcopy, pickled, lambda buffer: buffer.part([1])])
    def test_copies_made_in_a_child_must_reseed(self, copied):
        buffer = filled(replicas=2)
        assert "buffer.reseed(seed)" in in_child(lambda: refusal(lambda: copied(buffer).sample(1)))
        copied(buffer).sample(1)

    def test_priorities_must_reseed(self):
        priorities, never_forked = (Priorities(20, sampler=Prioritized(beta=0.4), seed=0) for _ in range(2))
        for each in (priorities, never_forked):
            each.extend(20)

        def child():
            message = refusal(lambda: priorities.sample(8))
            priorities.reseed(3)
            return message, ids_of(priorities)

        message, drawn = in_child(child)
        assert "buffer.reseed(seed)" in message
        never_forked.reseed(3)
        assert drawn == ids_of(never_forked)

    def test_mixed_replay_reseeds_each_of_its_buffers(self):
        buffers = filled(), filled(seed=0)
        mixed = MixedReplay(buffers)

        def child(seed):
            message = refusal(lambda: mixed.sample(8))
            mixed.reseed(seed)
            return message, [mixed.sample(16).id.tolist() for _ in range(3)]

        (message, first), (_, second), (_, third) = (in_child(lambda seed=seed: child(seed)) for seed in (1, 2, 1))
        assert "buffer.reseed(seed)" in message
        assert first == third != second
        assert [row[:8] for row in first] != [row[8:] for row in first]  # the buffers' streams differ

    def test_undelivered_batches_of_a_snapshot_raise_too(self, tmp_path):
        buffer = filled()
        batches = buffer.batches(8, prefetch=2)
        next(batches)
        while len(buffer._parts.ahead[0].drawn().requests) < 2:
            pass
        buffer.save(tmp_path)
        batches.close()
        loaded = ReplayBuffer.load(tmp_path)

        def child():
            message = refusal(lambda: next(loaded.batches(8)))
            loaded.reseed(5)
            return message, next(loaded.batches(8)).id.tolist()

        message, drawn = in_child(child)
        assert "buffer.reseed(seed)" in message
        again = ReplayBuffer.load(tmp_path, seed=5)
        assert drawn == again.sample(8).id.tolist()
        assert next(loaded.batches(8)).id.tolist() != drawn


def draw_spawned(buffer, pipe):
    """Send the error of the first draw, and what is drawn after `reseed`."""
    try:
        pipe.send(str(buffer.sample(4).id))
    except ConfigError as error:
        pipe.send(str(error))
    buffer.reseed(9)
    pipe.send(buffer.sample(4).id.tolist())


def test_a_spawned_process_must_reseed():
    buffer = filled()
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=draw_spawned, args=(buffer, child_end))
    process.start()
    assert "buffer.reseed(seed)" in parent_end.recv()
    buffer.reseed(9)
    assert parent_end.recv() == buffer.sample(4).id.tolist()
    process.join()


class TestOneSeed:
    @every_sampler
    @pytest.mark.parametrize("replicas", [None, 3])
    @pytest.mark.parametrize("seed", [5, 2**63, np.random.SeedSequence(8)], ids=str)
    def test_reseed_draws_as_a_new_buffer_of_the_seed(self, sampler, replicas, seed):
        new, reseeded = filled(sampler, replicas=replicas, seed=seed), filled(sampler, replicas=replicas, seed=1)
        before = ids_of(filled(sampler, replicas=replicas, seed=1))
        reseeded.reseed(seed)
        drawn = ids_of(reseeded)
        assert drawn == ids_of(new)
        assert drawn != before

    def test_a_reservoir_follows_the_new_stream(self):
        new, reseeded = (ReplayBuffer(5, {"x": Field()}, retention=Reservoir(), seed=seed) for seed in (4, 1))
        reseeded.reseed(4)
        for buffer in (new, reseeded):
            buffer.extend(x=range(50))
        assert new.stored_ids()[0].tolist() == reseeded.stored_ids()[0].tolist()

    def test_one_seed_for_each_replica(self):
        buffer = filled(replicas=2)
        buffer.reseed([3, 4])
        assert buffer.sample(8).id.tolist() == [filled(seed=seed).sample(8).id.tolist() for seed in (3, 4)]

    @pytest.mark.parametrize("seed", [-1, 1.5, "x", True, [1, 2, 3]])
    def test_an_invalid_seed_changes_nothing(self, seed):
        buffer, other = filled(replicas=2), filled(replicas=2)
        with pytest.raises(ConfigError):
            buffer.reseed(seed)
        assert ids_of(buffer) == ids_of(other)

    def test_none_is_fresh_entropy(self):
        buffer, other = filled(), filled()
        for each in (buffer, other):
            each.reseed(None)
        assert ids_of(buffer) != ids_of(other)

    def test_mixed_replay_needs_buffers_with_reseed(self):
        toy = ToyReplay(10, {"x": Field((), np.int64)})
        with pytest.raises(ConfigError, match="ToyReplay has not"):
            MixedReplay((filled(), toy)).reseed(0)


class TestLoads:
    @every_sampler
    def test_ranks_that_load_one_snapshot_draw_by_their_seeds(self, sampler, tmp_path):
        buffer = filled(sampler)
        buffer.sample(4)
        buffer.save(tmp_path)
        options = {"sampler": None if sampler.in_core else sampler}
        drawn = [ids_of(ReplayBuffer.load(tmp_path, seed=seed, **options)) for seed in (0, 1, 0, None)]
        assert drawn[0] == drawn[2]
        assert drawn[0] != drawn[1]
        assert drawn[3] == ids_of(buffer)
        reseeded = ReplayBuffer.load(tmp_path, **options)
        reseeded.reseed(1)
        assert ids_of(reseeded) == drawn[1]

    def test_priorities_load_with_a_seed(self, tmp_path):
        priorities = Priorities(20, seed=0)
        priorities.extend(20)
        priorities.save(tmp_path)
        drawn = [ids_of(Priorities.load(tmp_path, seed=seed)) for seed in (0, 1, None)]
        assert drawn[2] == ids_of(priorities)
        priorities.reseed(1)
        assert drawn[1] == ids_of(priorities) != drawn[0]


@NEEDS_LINUX
def test_storages_shared_by_a_fork_must_reseed(tmp_path):
    buffer = filled(storage=MemoryMap(tmp_path / "rows"))

    def child():
        opened = buffer.handle().open(seed=4)
        message = refusal(lambda: buffer.sample(8))
        buffer.reseed(4)
        return message, ids_of(buffer), ids_of(opened)

    message, reseeded, opened = in_child(child)
    assert "buffer.reseed(seed)" in message
    assert reseeded == opened
