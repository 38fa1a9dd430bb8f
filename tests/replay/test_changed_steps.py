"""`write` and `remove`, beyond what the comparison with the oracle covers: storages, snapshots, figures, refusals."""

import json
from itertools import pairwise

import numpy as np
import pytest

from replaylab import research
from replaylab.errors import ConfigError, DtypeError, FieldError, IdError, ShapeError, SnapshotError
from replaylab.replay import (
    Aged,
    Assigned,
    Field,
    FrameStack,
    MemoryMap,
    NStep,
    Priorities,
    Prioritized,
    Queue,
    ReplayBuffer,
    Reservoir,
    Sequence,
    Uniform,
)

FLAG = Field((), np.bool_)
FIELDS = {"obs": Field((2,)), "next_obs": Field((2,)), "reward": Field(), "terminated": FLAG, "truncated": FLAG}


def steps(n, first=0, **ends):
    """Steps of one episode whose observations count up from `first`."""
    obs = np.repeat(np.arange(first, first + n + 1.0)[:, None], 2, axis=1)
    flags = {name: np.isin(np.arange(n), ends.get(name, ())) for name in ("terminated", "truncated")}
    return {"obs": obs[:-1], "next_obs": obs[1:], "reward": np.ones(n), **flags}


def filled(n=8, capacity=10, fields=FIELDS, **options):
    """A buffer of one episode, and its ids."""
    buffer = ReplayBuffer(capacity, fields, seed=0, **options)
    return buffer, buffer.extend(**steps(n))


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


class TestWrite:
    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_next_obs_of_an_obs(self, next_obs):
        buffer, ids = filled(next_obs=next_obs)
        buffer.write(ids[3:4], obs=np.full((1, 2), 90.0))
        assert buffer.get([2])["next_obs"].tolist() == [[90.0, 90.0] if next_obs == "derived" else [3.0, 3.0]]

    def test_derived_next_obs_is_written(self):
        """The newest one has a separate row; another one is the next step's observation."""
        buffer, ids = filled(next_obs="derived")
        buffer.write(ids[[2, 7]], next_obs=np.full((2, 2), 50.0))
        assert buffer.get(ids[[2, 7]])["next_obs"].tolist() == [[50.0, 50.0]] * 2
        assert buffer.get(ids[[3, 7]])["obs"].tolist() == [[50.0, 50.0], [7.0, 7.0]]
        ids = buffer.extend(**steps(1, first=8))  # which does not begin with 50
        assert buffer.get([7, 8])["next_obs"].tolist() == [[50.0, 50.0], [9.0, 9.0]]

    @pytest.mark.parametrize("options", [{"next_obs": "derived"}, {}, {"retention": Reservoir()}], ids=str)
    def test_compressed_values_are_as_plain_ones(self, options, tmp_path):
        rng = np.random.default_rng(0)
        plain, packed = (
            ReplayBuffer(
                40,
                {name: Field((30, 30), np.uint8, compressed=compressed) for name in ("obs", "next_obs")},
                num_envs=2,
                seed=1,
                **options,
            )
            for compressed in (False, True)
        )
        for turn in range(60):
            images = rng.integers(0, 2, (4, 2, 30, 30)).astype(np.uint8)
            for buffer in (plain, packed):
                buffer.extend(obs=images[:-1], next_obs=images[1:])
            known = plain.next_id
            chosen = np.append(rng.integers(max(known - 50, 0), known, 12), known - 1)
            names = (("obs", "next_obs"), ("obs",), ("next_obs",))[turn % 3]
            written = {name: rng.integers(0, 2, (13, 30, 30)).astype(np.uint8) for name in names}
            assert plain.write(chosen, **written) == packed.write(chosen, **written)
            stored = plain.stored_ids()[0]
            if turn % 20 == 5:
                packed.save(tmp_path)
                packed = ReplayBuffer.load(tmp_path, continue_episodes=True)
            for name, images in plain.get(stored).items():
                np.testing.assert_array_equal(images, packed.get(stored)[name])

    @pytest.mark.parametrize("convert", [np.float64, np.ndarray.tolist], ids=["float64", "list"])
    def test_values_are_converted_as_in_add(self, convert):
        buffer, ids = filled()
        assert buffer.write(ids.reshape(2, 4), reward=convert(np.arange(8.0).reshape(2, 4))) == 8
        assert buffer.get(ids)["reward"].tolist() == list(range(8))

    def test_tensors_with_gradient_are_taken(self):
        torch = pytest.importorskip("torch")
        buffer, ids = filled()
        buffer.write(torch.as_tensor(ids[:2]), reward=torch.ones(2, requires_grad=True) * 7)
        assert buffer.get(ids[:2])["reward"].tolist() == [7.0, 7.0]

    def test_rows_of_the_buffer_itself(self):
        """They are contiguous here, so that the core could read them while it writes."""
        buffer = ReplayBuffer(100, {"x": Field((), np.int64)}, seed=0)
        ids = buffer.extend(x=range(100))
        buffer.write(ids[::-1].copy(), x=buffer.columns["x"])
        assert buffer.get(ids)["x"].tolist() == list(range(99, -1, -1))

    @pytest.mark.parametrize(
        ("values", "error", "message"),
        [
            ({"terminated": [True]}, FieldError, "`terminated` of a stored step cannot be changed"),
            ({"truncated": [True], "reward": [2.0]}, FieldError, "`truncated` of a stored step cannot be changed"),
            ({"rewards": [1.0]}, FieldError, r"unknown `rewards` \(did you mean `reward`\?\)"),
            ({}, FieldError, "`write` is missing a field; its fields are `obs`"),
            ({"reward": [2.0], "obs": [[1.0]]}, ShapeError, r"field `obs` must have shape \(1, 2\) \(ids.shape\[0\]=1"),
            ({"reward": [2.0], "obs": [[1.0, "a"]]}, DtypeError, "field `obs` stores float32"),
            ({"reward": [1e60]}, DtypeError, "cannot hold a value as large as"),
        ],
    )
    def test_refused_values_change_nothing(self, values, error, message):
        buffer, ids = filled()
        before = buffer.get(ids)
        with pytest.raises(error, match=message):
            buffer.write([0], **values)
        for name, column in buffer.get(ids).items():
            np.testing.assert_array_equal(column, before[name])

    def test_a_clock_is_not_written(self):
        buffer = ReplayBuffer(
            4, {"version": Field((), np.int64)}, sampler=Aged(Uniform(), 9.0, clock="version"), seed=0
        )
        ids = buffer.extend(version=[1, 2, 2])
        with pytest.raises(
            FieldError, match="`version` of a stored step cannot be changed, since its age depends on it"
        ):
            buffer.write(ids, version=[1, 1, 1])

    def test_an_unknown_id_changes_nothing(self):
        buffer, ids = filled()
        with pytest.raises(IdError, match="id 8 was never given out"):
            buffer.write([0, 8], reward=[5.0, 5.0])
        assert buffer.get(ids)["reward"].tolist() == [1.0] * 8

    def test_stale_ids_are_counted(self):
        buffer, _ = filled(n=13)
        assert buffer.write([0, 2, -1, 3, 3], reward=[2.0, 2.0, 2.0, 2.0, 4.0]) == 2
        assert buffer.stats().stale_updates == 2
        assert buffer.get([3])["reward"] == 4.0

    def test_the_next_save_has_the_new_values(self, tmp_path):
        """Though no step was added since the last one, whose rows it would keep otherwise."""
        buffer, ids = filled()
        buffer.save(tmp_path)
        before = manifest(tmp_path)
        buffer.save(tmp_path)
        assert manifest(tmp_path)["files"]["rows-0-0"] == before["files"]["rows-0-0"]
        buffer.write(ids[:1], reward=[5.0])
        buffer.save(tmp_path)
        loaded = ReplayBuffer.load(tmp_path, continue_episodes=True)
        assert loaded.get([0])["reward"] == 5.0
        loaded.write(ids[:1], reward=[6.0])
        loaded.save(tmp_path)
        assert ReplayBuffer.load(tmp_path).get([0])["reward"] == 6.0

    def test_a_part_and_a_copy_have_the_new_values(self):
        buffer = ReplayBuffer(4, {"x": Field()}, replicas=3, seed=0)
        ids = buffer.extend(x=np.zeros((3, 2)))
        assert buffer.write(ids, x=np.arange(6.0).reshape(3, 2)) == 6
        assert buffer.part([2]).get([[0, 1]])["x"].tolist() == [[4.0, 5.0]]

    def test_while_the_same_thread_saves_it_raises(self):
        buffer, ids = filled()
        frozen = buffer._parts.core.freeze()
        with pytest.raises(SnapshotError, match="cannot be added or changed by the thread that is saving"):
            buffer.write(ids, reward=np.zeros(8))
        frozen.end()
        assert buffer.write(ids, reward=np.zeros(8)) == 8

    def test_batches_drawn_ahead_come_first(self):
        """As `add`, it waits for the draws that were requested before it."""
        buffer, ids = filled(min_size=1)
        batches = buffer.batches(4, prefetch=3, total=5)
        next(batches)
        buffer.write(ids, reward=np.full(8, 2.0))
        assert [batch.reward.max() for batch in batches] == [1.0, 1.0, 1.0, 2.0]

    def test_draws_stay_the_same(self):
        first, second = (filled(sampler=Prioritized())[0] for _ in range(2))
        first.write(np.arange(8), reward=np.zeros(8))
        assert first.sample(20, progress=0.0).id.tolist() == second.sample(20, progress=0.0).id.tolist()


@pytest.mark.parametrize("call", ["write", "remove"])
def test_rows_in_a_storage_are_not_changed(call, tmp_path):
    buffer, ids = filled(storage=MemoryMap(tmp_path / "rows"))
    with pytest.raises(ConfigError, match=f"so `{call}` cannot change them; make the buffer without `storage`"):
        buffer.write(ids, reward=np.zeros(8)) if call == "write" else buffer.remove(ids)
    assert buffer.get(ids)["reward"].tolist() == [1.0] * 8


class TestRemove:
    def test_figures_are_of_the_remaining_steps(self):
        buffer, _ = filled(n=12, sampler=Prioritized(), count_replays=True)
        before = buffer.nbytes
        assert buffer.remove([0, 2, 5, 5, 11, -1]) == 4
        assert (len(buffer), buffer.size, buffer.next_id) == (7, 7, 12)
        assert buffer.stored_ids()[0].tolist() == [3, 4, 6, 7, 8, 9, 10]
        stats = buffer.stats()
        assert (stats.size, stats.added, stats.oldest_age, stats.total_priority) == (7, 12, 8, 7.0)
        assert (stats.effective_size, stats.stale_updates) == (pytest.approx(7.0), 1)
        assert len(buffer.replay_counts()[0]) == 7
        assert buffer.sampling_totals().rows == 7
        assert buffer.nbytes > before
        assert "7 of 10 steps" in repr(buffer)
        assert buffer.update_priorities([5, 6], [1.0, 1.0]) == 1
        assert buffer.write([5, 6], reward=[1.0, 1.0]) == 1
        assert buffer.remove([5, 6]) == 1

    def test_a_removed_step_is_not_read(self):
        buffer, ids = filled()
        buffer.remove(ids[3:4])
        for read in (buffer.get, buffer.as_batch):
            with pytest.raises(IdError, match=r"id 3 is not stored: it was removed; pass ids from stored_ids\(\)"):
                read(ids[:5])

    def test_an_unknown_id_removes_nothing(self):
        buffer, _ = filled()
        with pytest.raises(IdError, match="never given out"):
            buffer.remove([0, 8])
        assert len(buffer) == 8

    def test_its_place_is_taken_in_turn(self):
        """So the ring keeps C places, and is complete again after C more steps."""
        buffer, ids = filled(n=10)
        buffer.remove(ids[4:7])
        for n in range(10):
            buffer.extend(**steps(1, first=10 + n))
            assert len(buffer) == 7 + np.clip(n - 3, 0, 3)
        assert buffer.stored_ids()[0].tolist() == list(range(10, 20))

    def test_clear_removes_what_was_removed(self):
        buffer, ids = filled()
        buffer.remove(ids[:3])
        buffer.clear()
        buffer.extend(**steps(10))
        assert len(buffer) == 10

    def test_what_precedes_a_removed_step_is_truncated(self):
        buffer, ids = filled(transforms=[NStep(3, 0.5), FrameStack(2, ("obs",))])
        buffer.remove(ids[4:5])
        batch = buffer.as_batch(ids[[2, 3, 5]])
        assert batch.n_steps.tolist() == [2, 1, 3]
        assert batch.discount.tolist() == [0.25, 0.5, 0.125]
        assert batch.next_obs[:, -1, 0].tolist() == [4.0, 4.0, 8.0]
        assert batch.obs[:, :, 0].tolist() == [[1.0, 2.0], [2.0, 3.0], [5.0, 5.0]]

    def test_sequences_end_and_begin_at_a_removed_step(self):
        buffer, ids = filled(transforms=[Sequence(4, 0, 0)], sampler=Uniform(replace=False))
        buffer.remove(ids[[1, 4]])
        assert sorted(buffer.sample(3).id.tolist()) == [0, 2, 5]
        assert buffer.as_batch([2]).mask.tolist() == [[False, False, True, True]]

    def test_everything_removed_is_an_empty_buffer(self):
        buffer, ids = filled(sampler=Prioritized())
        buffer.remove(ids)
        with pytest.raises(LookupError, match="the buffer is empty"):
            buffer.sample(2, progress=0.0)

    def test_min_size_counts_the_remaining_steps(self):
        buffer, ids = filled(min_size=8)
        buffer.sample(2)
        buffer.remove(ids[:1])
        with pytest.raises(LookupError, match="min_size=8, but only 7 steps"):
            buffer.sample(2)

    def test_a_queue_passes_over_removed_steps(self):
        buffer, ids = filled(sampler=Queue())
        buffer.remove(ids[[0, 2]])
        assert buffer.sample(2).id.tolist() == [1, 3]
        buffer.remove(ids[[3, 4, 7]])
        assert buffer.probabilities(ids, batch_size=2).tolist() == [0, 0, 0, 0, 0, 0.5, 0.5, 0]
        assert buffer.sample(2).id.tolist() == [5, 6]
        with pytest.raises(LookupError, match="only 0 of 3 stored steps were not drawn yet"):
            buffer.sample(1)

    @pytest.mark.parametrize("num_envs", [1, 2])
    def test_episodes_end_before_a_removed_step(self, num_envs):
        """Also where the step after it happens to begin with the same observation."""
        fields = {name: FIELDS[name] for name in ("obs", "next_obs", "terminated", "truncated")}
        buffer = ReplayBuffer(20, fields, num_envs=num_envs, seed=0)
        still = {name: np.zeros((5, num_envs, *field.shape), field.dtype) for name, field in fields.items()}
        ids = buffer.extend(**still)
        buffer.remove(ids[2, :1])
        lengths = [len(episode["terminated"]) for episode in buffer.episodes()]
        assert lengths == [2, 2] + [5] * (num_envs - 1)

    @pytest.mark.parametrize("retention", [Reservoir(), None], ids=str)
    def test_a_restored_buffer_continues(self, retention, tmp_path):
        options = {} if retention is None else {"retention": retention}
        buffer, _ = filled(n=30, sampler=Prioritized(), **options)
        buffer.remove(buffer.stored_ids()[0][[1, 4, 5]])
        buffer.save(tmp_path)
        loaded = ReplayBuffer.load(tmp_path, continue_episodes=True)
        for more in range(25):
            assert len(loaded) == len(buffer)
            assert loaded.stored_ids()[0].tolist() == buffer.stored_ids()[0].tolist()
            assert loaded.sample(9, progress=0.0).id.tolist() == buffer.sample(9, progress=0.0).id.tolist()
            for each in (buffer, loaded):
                each.extend(**steps(1, first=30 + more))
        assert len(buffer) <= 10

    def test_a_damaged_list_of_removed_slots_is_refused(self):
        buffer, ids = filled()
        buffer.remove(ids[2:4])
        state = buffer._parts.core.state()
        for wrong in ([2, 2], [8], [-1]):
            with pytest.raises(SnapshotError, match=r"`replica0\.removed` holds what no buffer of this kind does"):
                filled()[0]._parts.core.restore(state | {"replica0.removed": np.array(wrong)})

    def test_priorities_without_rows(self):
        priorities = Priorities(6, retention=Assigned(), sampler=Prioritized(alpha=1.0, beta=0.0), seed=0)
        ids = priorities.assign([5, 0, 3])
        assert priorities.remove(ids[:1]) == 1
        assert priorities.probabilities(ids).tolist() == [0.0, 0.5, 0.5]
        assert set(priorities.sample(64).slot.tolist()) == {0, 3}
        again = priorities.assign([5])
        assert priorities.probabilities([*ids, *again]).tolist() == [0.0, 1 / 3, 1 / 3, 1 / 3]

    @pytest.mark.parametrize("sampler", [research.Permuted()], ids=str)
    def test_samplers_by_all_places_refuse(self, sampler):
        buffer, ids = filled(sampler=sampler)
        with pytest.raises(ConfigError, match=f"steps cannot be removed from a buffer with {type(sampler).__name__}"):
            buffer.remove(ids[:1])
        assert len(buffer) == 8

    def test_a_device_refuses_a_snapshot_with_gaps(self, tmp_path):
        device_replay = pytest.importorskip("replaylab.torch").DeviceReplay
        buffer, ids = filled()
        buffer.remove(ids[:1])
        buffer.save(tmp_path)
        with pytest.raises(SnapshotError, match="have gaps, as with `where`, `remove`"):
            device_replay.load(tmp_path, device="cpu")

    def test_uniform_draws_of_few_among_many(self):
        """Every thousandth step is left: exact, without tries, over all 64-bit words of removed slots."""
        buffer = ReplayBuffer(100_000, {"x": Field((), np.int64)}, seed=0)
        ids = buffer.extend(x=np.arange(130_000))[30_000:]
        left = ids % 1000 == 7
        assert buffer.remove(ids[~left]) == 99_900
        counts = np.bincount(buffer.sample(50_000).x // 1000 - 30, minlength=100)
        assert counts.sum() == 50_000
        assert (np.abs(counts - 500) < 150).all()  # 6.7 standard deviations
        newest = buffer.stored_ids()[0]
        assert all(b - a == 1000 for a, b in pairwise(newest.tolist()))
