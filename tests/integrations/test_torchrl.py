"""The samplers under TorchRL's own buffers: storages, feedback, saving."""

import pickle

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, PriorityError, ShapeError, SnapshotError
from replaylab.replay import Combined, EpisodeEnds, LaBER, Linear, Prioritized, RankBased, Recency, Uniform

torch = pytest.importorskip("torch")
data = pytest.importorskip("torchrl.data")
tensordict = pytest.importorskip("tensordict")
adapter = pytest.importorskip("replaylab.integrations.torchrl")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Got conflicting batch_sizes:UserWarning"),
    pytest.mark.filterwarnings("ignore:Loading the storage on an uninitialized:UserWarning"),
]

N = 10
STORAGES = [data.LazyTensorStorage, data.LazyMemmapStorage, data.ListStorage]


def rows(count, start=0, **more):
    obs = torch.arange(start, start + count).float()[:, None]
    return tensordict.TensorDict({"obs": obs} | more, [count])


def replay_of(sampler=RankBased(beta=0.4), storage=data.LazyTensorStorage, filled=8, **options):  # noqa: B008
    of_torchrl = {name: options.pop(name) for name in ("prefetch", "writer") if name in options}
    sampler = adapter.ReplayLabSampler(N, sampler, **{"seed": 0} | options)
    buffer = data.TensorDictReplayBuffer(storage=storage(N), sampler=sampler, batch_size=4, **of_torchrl)
    if filled:
        buffer.extend(rows(filled))
    return buffer


def distribution(buffer):
    priorities = buffer.sampler.priorities
    return priorities.probabilities(priorities.stored_ids(), batch_size=4)


@pytest.mark.parametrize("storage", STORAGES)
class TestStorages:
    def test_rows_weights_and_feedback(self, storage):
        buffer = replay_of(storage=storage)
        for start in range(8, 40, 4):  # round and round
            batch = buffer.sample()
            np.testing.assert_array_equal(batch["obs"][:, 0], batch["replay_id"])
            np.testing.assert_array_equal(batch["index"], batch["replay_id"] % N)
            chances = buffer.sampler.priorities.probabilities(batch["replay_id"])
            largest = (len(buffer) * distribution(buffer).min()) ** -0.4
            np.testing.assert_allclose(batch["priority_weight"], (len(buffer) * chances) ** -0.4 / largest, rtol=1e-4)
            batch["td_error"] = torch.arange(4.0) + 1
            buffer.update_tensordict_priority(batch)
            assert buffer.sampler.priorities.stats().stale_updates == 0
            buffer.extend(rows(4, start))
        buffer.add(rows(1, 40)[0])
        assert buffer.sampler.priorities.stored_ids().tolist() == list(range(31, 41))

    def test_stale_feedback_changes_nothing(self, storage):
        buffer = replay_of(storage=storage, filled=N)
        batch = buffer.sample()
        buffer.extend(rows(N, N))
        before = distribution(buffer)
        batch["td_error"] = torch.full((4,), 1e6)
        buffer.update_tensordict_priority(batch)
        np.testing.assert_array_equal(distribution(buffer), before)
        assert buffer.sampler.priorities.stats().stale_updates == 4

    def test_saved_and_loaded(self, storage, tmp_path):
        buffer = replay_of(storage=storage)
        late = buffer.sample()
        copies = [replay_of(storage=storage, filled=0, seed=1) for _ in range(2)]
        copies[0].load_state_dict(buffer.state_dict())
        if storage is data.ListStorage:
            copies.pop()  # TorchRL does not write lists of tensordicts
        else:
            buffer.dumps(tmp_path)
            copies[1].loads(tmp_path)
        late["td_error"] = torch.tensor([5.0, 4.0, 3.0, 2.0])
        for each in (buffer, *copies):
            each.extend(rows(7, 8))
            each.update_tensordict_priority(late)
        for each in copies:
            np.testing.assert_array_equal(distribution(each), distribution(buffer))
        drawn = [each.sample(64)["replay_id"].tolist() for each in (buffer, *copies)]
        assert all(ids == drawn[0] for ids in drawn)

    def test_emptied(self, storage):
        buffer = replay_of(storage=storage)
        buffer.empty()
        with pytest.raises(EmptyBufferError, match="the storage is empty"):
            buffer.sample()
        buffer.extend(rows(3))
        assert set(buffer.sample(32)["index"].tolist()) == {0, 1, 2}


class TestFeedback:
    def test_batches_drawn_ahead(self):
        """A slot drawn, written to, and drawn again: each batch's feedback is for its own step."""
        buffer = replay_of(Prioritized(beta=0.4), filled=N)
        first = buffer.sample(64)
        buffer.extend(rows(N, N))
        second = buffer.sample(64)
        first["td_error"], second["td_error"] = torch.full((64,), 1e6), torch.ones(64)
        buffer.update_tensordict_priority(second)
        before = distribution(buffer)
        buffer.update_tensordict_priority(first)
        np.testing.assert_array_equal(distribution(buffer), before)

    def test_prefetched(self):
        buffer = replay_of(prefetch=2, filled=N)
        for start in range(N, 200, 3):
            batch = buffer.sample()
            np.testing.assert_array_equal(batch["obs"][:, 0], batch["replay_id"])
            batch["td_error"] = torch.ones(4)
            buffer.update_tensordict_priority(batch)
            buffer.extend(rows(3, start))

    def test_squared_errors(self):
        squared, other = replay_of(Prioritized(beta=0.4), transform="sqrt"), replay_of(Prioritized(beta=0.4))
        for buffer, power in ((squared, 2), (other, 1)):
            batch = buffer.sample()
            batch["td_error"] = torch.tensor([1.0, 2.0, 3.0, 4.0]) ** power
            buffer.update_tensordict_priority(batch)
        np.testing.assert_allclose(distribution(squared), distribution(other))

    def test_first_priorities_are_taken(self):
        buffer = replay_of(Prioritized(alpha=1.0, beta=0.4, epsilon=0.0), filled=0)
        buffer.extend(rows(4, td_error=torch.tensor([1.0, 2.0, 3.0, 4.0])))
        np.testing.assert_allclose(distribution(buffer), [0.1, 0.2, 0.3, 0.4])
        index = buffer.extend(rows(1, 4))
        buffer.update_priority(index, torch.tensor([10.0]))
        np.testing.assert_allclose(distribution(buffer), [0.05, 0.1, 0.15, 0.2, 0.5])

    def test_new_rows_have_the_largest_priority(self):
        buffer = replay_of(Prioritized(alpha=1.0, beta=0.4, epsilon=0.0), filled=0)
        buffer.extend(rows(2, td_error=torch.tensor([1.0, 4.0])))
        buffer.add(rows(1, 2)[0])
        buffer.mark_update(torch.tensor([0]))
        np.testing.assert_allclose(distribution(buffer), [1 / 9, 4 / 9, 4 / 9])

    def test_errors_with_a_last_axis_and_one_for_all(self):
        buffer = replay_of(Prioritized(beta=0.4))
        batch = buffer.sample()
        batch["td_error"] = torch.ones(4, 1)
        buffer.update_tensordict_priority(batch)
        buffer.update_priority(torch.arange(8), 2.0)
        np.testing.assert_allclose(distribution(buffer), 1 / 8)

    def test_what_is_no_error(self):
        buffer = replay_of()
        with pytest.raises(PriorityError):
            buffer.update_priority(torch.tensor([1, 2]), torch.tensor([1.0, float("nan")]))
        with pytest.raises(ShapeError, match="one for each of 3 slots, but got 2"):
            buffer.sampler.update_priority(torch.arange(3), torch.ones(2))
        with pytest.raises(ConfigError, match="slots must be below 10, but one is 10"):
            buffer.update_priority(torch.tensor([N]), torch.ones(1))


class TestDistributions:
    def test_the_newest_always(self):
        buffer = replay_of(Combined())
        for start in range(8, 30):
            buffer.add(rows(1, start)[0])
            assert buffer.sample()["obs"][-1, 0] == start
            assert len(buffer.sample()) == 5

    @pytest.mark.parametrize("sampler", [Uniform(), Recency(eta=0.9, least=3, burst=2)], ids=repr)
    def test_without_feedback(self, sampler):
        batch = replay_of(sampler).sample()
        assert (batch["priority_weight"] == 1.0).all()

    def test_schedules_follow_the_batches_or_you(self):
        counted = replay_of(Prioritized(beta=Linear(0.0, 1.0)), total_batches=2)
        counted.update_priority(torch.arange(8), torch.arange(8.0) + 1)
        assert (counted.sample()["priority_weight"] == 1.0).all()
        assert (counted.sample(64)["priority_weight"] < 1.0).any()
        other = replay_of(Prioritized(beta=Linear(0.0, 1.0)))
        with pytest.warns(UserWarning, match=r"start value 0\.0 .*; pass total_batches=\.\.\., or set `progress`"):
            assert (other.sample()["priority_weight"] == 1.0).all()
        other.sampler.progress = 0.0
        assert (other.sample()["priority_weight"] == 1.0).all()

    def test_a_storage_filled_before(self):
        storage = data.LazyTensorStorage(N)
        data.TensorDictReplayBuffer(storage=storage, batch_size=4).extend(rows(6))
        sampler = adapter.ReplayLabSampler(N, RankBased(beta=0.4), seed=0)
        buffer = data.TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
        assert len(buffer.sample()) == 4
        assert len(sampler.priorities) == 6


class TestRefusals:
    def test_rows_written_past_the_buffer(self):
        buffer = replay_of()
        data.TensorDictReplayBuffer(storage=buffer.storage, batch_size=4).extend(rows(10))
        with pytest.raises(ConfigError, match="holds 10 rows, but the sampler knows 8"):
            buffer.sample()

    def test_out_of_turn(self):
        buffer = replay_of(filled=0, writer=data.TensorDictMaxValueWriter(rank_key="obs"))
        buffer.extend(rows(N).flip(0))
        with pytest.raises(ConfigError, match="the next to slot 0 of 10, but came to slot 9"):
            buffer.extend(rows(1, 20))

    def test_another_capacity(self):
        sampler = adapter.ReplayLabSampler(N + 1)
        buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(N), sampler=sampler, batch_size=4)
        buffer.extend(rows(2))
        with pytest.raises(ConfigError, match="made for 11 rows, but the storage's max_size is 10"):
            buffer.sample()

    def test_several_dimensions(self):
        sampler = adapter.ReplayLabSampler(N)
        storage = data.LazyTensorStorage(N, ndim=2)
        buffer = data.TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
        with pytest.raises(ConfigError, match="a storage of several dimensions"):
            buffer.extend(tensordict.TensorDict({"obs": torch.zeros(5, 2)}, [5, 2]))

    @pytest.mark.parametrize(("sampler", "why"), [(LaBER(len), "needs rows"), (EpisodeEnds(), "goes by episodes")])
    def test_samplers(self, sampler, why):
        with pytest.raises(ConfigError, match=why):
            adapter.ReplayLabSampler(N, sampler)

    @pytest.mark.parametrize("name", ["alpha", "beta"])
    def test_exponents(self, name):
        with pytest.raises(ConfigError, match="are options of the sampler"):
            getattr(replay_of().sampler, name)

    def test_a_state_of_other_options(self):
        with pytest.raises(SnapshotError, match="with sampler="):
            replay_of(Uniform()).sampler.load_state_dict(replay_of().sampler.state_dict())


def test_samplers_without_feedback_warn_once():
    buffer = replay_of()
    for _ in range(999):
        buffer.sample()
    with pytest.warns(UserWarning, match=r"RankBased draws by priorities, but 1,000 batches .* update_tensordict_pri"):
        buffer.sample()


def test_pickled():
    buffer = replay_of()
    other = pickle.loads(pickle.dumps(buffer))
    np.testing.assert_array_equal(other.sample()["index"], buffer.sample()["index"])


def test_its_line():
    assert repr(replay_of().sampler).startswith("ReplayLabSampler(10, RankBased(")
