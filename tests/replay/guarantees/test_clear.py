"""`clear` drops what is stored and nothing else; that it agrees with the oracle is tested with the other calls."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, IdError
from replaylab.replay import (
    CustomSampler,
    Field,
    LaBER,
    MemoryMap,
    NStep,
    Prioritized,
    ReplayBuffer,
    Reservoir,
    Sequence,
    SharedMemory,
)
from replaylab.research import Blocks, Permuted
from tests.replay.buffers import transition
from tests.replay.guarantees.test_conformance import SAMPLERS, kind_of

FIELDS = transition(Field((), np.int64))
ENDS = np.arange(400) % 7 == 6


@dataclass(frozen=True)
class Seldom(CustomSampler):
    """By replay counts, ages and episodes: all that a record knows."""

    def distribution(self, view, batch_size):
        assert (np.diff(view.ids) == 1).all()
        assert view.ids[-1] - view.ages[0] == view.ids[0]
        wanted = 1.0 / (1.0 + view.replay_counts) + view.steps_in_episode + view.priorities
        return wanted / wanted.sum()


NOT_ALIKE = (Blocks, Permuted)
"""Draws that need more rows, or whose random stream is used by `add`."""
IN_CORE = [sampler for sampler in SAMPLERS if sampler.in_core and sampler.draws_sequences]
CLEARED = [Seldom(), *(sampler for sampler in IN_CORE if not isinstance(sampler, NOT_ALIKE))]


def give(buffer, first, steps):
    k = np.arange(first, first + steps)
    return buffer.extend(obs=k, reward=k, next_obs=k + 1, terminated=ENDS[k], truncated=np.zeros(steps, bool))


@pytest.mark.parametrize("before", [0, 3, 10, 27])
@pytest.mark.parametrize("sampler", CLEARED, ids=kind_of)
def test_what_follows_is_what_a_new_buffer_does(sampler, before):
    """The same draws, sampling distributions and columns as a buffer that never held anything, except for the ids."""
    for options in ({}, {"transforms": [NStep(2)], "next_obs": "derived"}, {"transforms": [Sequence(3, 1, 2)]}):
        buffer = ReplayBuffer(10, FIELDS, sampler=sampler, count_replays=True, seed=4, **options)
        fresh = ReplayBuffer(10, FIELDS, sampler=sampler, count_replays=True, seed=4, **options)
        ids = give(buffer, 0, before)
        if before:
            buffer.update_priorities(ids, np.linspace(0.1, 9, before))
        buffer.clear()
        buffer.end_episode()
        assert len(buffer) == 0
        assert buffer.stats(batch_size=2, progress=0.5).added == before if sampler.has_closed_form else True
        with pytest.raises(EmptyBufferError):
            buffer.sample(1, progress=0.5)
        first = -(-before // 10) * 10
        for at, steps in ((50, 4), (54, 9), (63, 30)):
            mine, others = give(buffer, at, steps), give(fresh, at, steps)
            np.testing.assert_array_equal(mine - first, others)
            for _ in range(3):
                batch, other = (b.sample(2, progress=0.5) for b in (buffer, fresh))
                assert batch.keys() == other.keys()
                for name in batch:
                    np.testing.assert_array_equal(batch[name], other[name] + (first if name == "id" else 0))
            some = mine[-2:]
            values = [3.0, 0.5]
            assert buffer.update_priorities(some, values) == fresh.update_priorities(some - first, values) == 2
            if sampler.has_closed_form:
                distributions = (
                    b.probabilities(i, batch_size=2, progress=0.5) for b, i in ((buffer, mine), (fresh, others))
                )
                np.testing.assert_array_equal(*distributions)


def test_ids_from_before_are_gone():
    buffer = ReplayBuffer(10, FIELDS, sampler=Prioritized(beta=0.5), seed=0)
    ids = give(buffer, 0, 13)
    buffer.clear()
    assert buffer.update_priorities(ids, np.ones(13)) == 0
    assert not buffer.probabilities(ids).any()
    with pytest.raises(IdError, match="id 12 is not stored: the buffer holds no step now"):
        buffer.get([12])
    assert give(buffer, 0, 2).tolist() == [20, 21]
    with pytest.raises(IdError, match="the buffer now holds ids 20 to 21"):
        buffer.get([13])
    assert buffer.update_priorities(np.arange(-1, 20), np.ones(21)) == 0
    assert buffer.stats().added == 15
    assert buffer.stats().stale_updates == 13 + 20
    buffer.clear()
    buffer.clear()
    assert give(buffer, 0, 1).tolist() == [30]


def test_an_episode_goes_on():
    buffer = ReplayBuffer(10, FIELDS, transforms=[Sequence(4, 0, 0)], seed=0)
    give(buffer, 0, 3)
    buffer.clear()
    ids = give(buffer, 3, 4)
    batch = buffer.as_batch(ids)
    assert batch.obs[0].tolist() == [0, 0, 0, 3]  # its block's first three steps were dropped
    assert batch.obs[1].tolist() == [4, 5, 6, 0]


def test_replicas_and_reservoirs():
    buffer = ReplayBuffer(8, {"x": Field()}, retention=Reservoir(), replicas=3, seed=0)
    buffer.extend(x=np.zeros((3, 100)))
    buffer.clear()
    assert buffer.size.tolist() == [0, 0, 0]
    ids = buffer.extend(x=np.arange(1.0, 1001.0) * np.ones((3, 1)))
    assert (ids[:, :8] % 8 == np.arange(8)).all()
    assert (np.diff(ids[:, :8]) == 1).all()
    assert (np.abs(buffer.columns["x"].mean(1) - 500) < 330).all()  # 3.2 standard errors, of this seed
    assert buffer.stats().added.tolist() == [1100] * 3
    buffer.sample(10)


@pytest.mark.parametrize("retention", [None, Reservoir()])
def test_compressed_values_are_let_go_of(retention, tmp_path):
    fields = {"frame": Field((30, 30), np.uint8, compressed=True)}
    buffer = ReplayBuffer(500, fields, retention=retention, seed=0)
    frames = np.random.default_rng(0).integers(0, 255, (900, 30, 30), np.uint8)
    buffer.extend(frame=frames)
    full = buffer.nbytes
    buffer.save(tmp_path)
    buffer.clear()
    assert buffer.nbytes < full / 2
    ids = buffer.extend(frame=frames[:5])
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    for each in (buffer, loaded):
        np.testing.assert_array_equal(each.get(ids)["frame"], frames[:5])
        each.extend(frame=frames)
        assert each.nbytes < 1.5 * full


@pytest.mark.parametrize("sampler", [Prioritized(beta=0.5), Seldom(), LaBER(lambda batch: batch.reward)])
def test_a_snapshot_goes_on(sampler, tmp_path):
    buffer = ReplayBuffer(10, FIELDS, sampler=sampler, transforms=[NStep(2)], next_obs="derived", seed=0)
    give(buffer, 0, 23)
    buffer.save(tmp_path)
    buffer.clear()
    for steps in (0, 4, 9, 20):
        if steps:
            give(buffer, 30, steps)
        buffer.save(tmp_path)
        options = {} if isinstance(sampler, Prioritized) else {"sampler": sampler}
        loaded = ReplayBuffer.load(tmp_path, continue_episodes=True, **options)
        assert len(loaded) == len(buffer)
        if steps:
            batches = [each.sample(5) for each in (buffer, loaded)]
            for name in batches[0]:
                np.testing.assert_array_equal(batches[0][name], batches[1][name])
        twins = [give(each, 60, 2).tolist() for each in (buffer, loaded)]
        assert twins[0] == twins[1]


def test_a_part_of_a_cleared_buffer():
    buffer = ReplayBuffer(10, {"x": Field()}, replicas=3, sampler=Prioritized(beta=0.5), seed=0)
    buffer.extend(x=np.zeros((3, 14)))
    buffer.clear()
    assert buffer.part([2]).add(x=[1.0]).tolist() == buffer.add(x=np.ones(3)).tolist()[2:] == [20]


@pytest.mark.parametrize("kind", [MemoryMap, SharedMemory])
def test_rows_that_are_others_too_are_not_dropped(kind, tmp_path):
    storage = kind(tmp_path / "rows") if kind is MemoryMap else kind("replaylab-test-clear")
    buffer = ReplayBuffer(10, {"x": Field()}, storage=storage, seed=0)
    try:
        buffer.add(x=1.0)
        with pytest.raises(ConfigError, match="rows in a storage are others' too, so `clear` cannot drop them"):
            buffer.clear()
        assert len(buffer) == 1
    finally:
        buffer.close()
        buffer.storage.unlink()
