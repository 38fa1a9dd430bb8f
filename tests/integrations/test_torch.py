"""`ReplayDataset` under PyTorch's data loaders, in this process and in workers."""

import importlib
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from replaylab.errors import ConfigError, MissingExtraError
from replaylab.integrations.torch import ReplayDataset
from replaylab.replay import Batch, Field, Prioritized, ReplayBuffer, ReplayStream

FIELDS = {"obs": {"image": Field((3, 2), np.uint8)}, "step": Field((), np.int64), "end": Field((), bool)}
STEPS = [{"obs": {"image": np.full((3, 2), i, np.uint8)}, "step": i, "end": i % 5 == 0} for i in range(60)]


def make(**options):
    return ReplayBuffer(20, FIELDS, seed=1, **options)


def loaded(dataset, **options):
    return list(DataLoader(dataset, batch_size=None, **options))


FORKED = {"multiprocessing_context": "fork"}
"""As on Linux by default. Importing torchrl makes it "spawn", whose processes import everything again."""


class TestInThisProcess:
    def test_batches_of_tensors_the_same_as_the_stream_s(self):
        batches = loaded(ReplayDataset(STEPS, make(), 8))
        for batch, expected in zip(batches, ReplayStream(STEPS, make(), 8), strict=True):
            assert isinstance(batch, Batch)
            assert batch.obs["image"].dtype == torch.uint8
            assert batch.end.dtype == torch.bool
            np.testing.assert_array_equal(batch.obs["image"].numpy(), expected.obs["image"])
            np.testing.assert_array_equal(batch.id.numpy(), expected.id)

    def test_the_learner_feeds_back_and_no_step_is_taken_too_early(self):
        dataset = ReplayDataset(STEPS, make(sampler=Prioritized(beta=0.4)), 8)
        for taken, batch in enumerate(DataLoader(dataset, batch_size=None), 8):
            assert dataset.taken == taken
            assert dataset.buffer.update_priorities(batch.id, torch.rand(8)) == 8

    def test_a_second_epoch_keeps_the_memory(self):
        dataset = ReplayDataset(STEPS, make(), 8)
        loader = DataLoader(dataset, batch_size=None)
        assert [len(list(loader)) for _ in range(2)] == [53, 60]
        assert dataset.cycles == 6


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
class TestInWorkers:
    def test_each_has_a_memory_of_its_share_of_the_steps(self):
        dataset = ReplayDataset(STEPS, 20, 8, seed=3)
        batches = loaded(dataset, num_workers=2, **FORKED)
        assert len(batches) == 2 * (30 - 8 + 1)
        for w in range(2):  # the loader takes from its workers in turn
            mine = batches[w::2]
            expected = ReplayStream(STEPS[w::2], 20, 8, seed=np.random.SeedSequence(3, spawn_key=(w,)))
            for batch, wanted in zip(mine, expected, strict=True):
                np.testing.assert_array_equal(batch.step, wanted.step)
                np.testing.assert_array_equal(batch.id, wanted.id)
        assert any((a.id != b.id).any() for a, b in zip(batches[::2], batches[1::2], strict=True))
        assert dataset.taken == 0  # nothing came back

    @pytest.mark.parametrize("seed", [3, np.random.SeedSequence(3)])
    def test_the_same_seen_from_inside_a_worker(self, seed, monkeypatch):
        worker = SimpleNamespace(id=1, num_workers=3)
        monkeypatch.setattr("replaylab.integrations.torch.get_worker_info", lambda: worker)
        dataset = ReplayDataset(STEPS, 20, 8, seed=seed)
        expected = ReplayStream(STEPS[1::3], 20, 8, seed=np.random.SeedSequence(3, spawn_key=(1,)))
        for batch, drawn in zip(dataset, expected, strict=True):
            np.testing.assert_array_equal(batch.id, drawn.id)
        worker.id = 2
        for memory in (dataset, ReplayDataset(STEPS, make(), 8)):  # a copy of one used elsewhere; one given
            with pytest.raises(ConfigError, match="which gets no feedback"):
                next(iter(memory))

    def test_a_source_may_deal_out_itself(self):
        batches = loaded(ReplayDataset(STEPS, 20, 8, shard=False), num_workers=2, **FORKED)
        assert len(batches) == 2 * (60 - 8 + 1)

    def test_persistent_workers_keep_their_memories(self):
        options = {"num_workers": 1, "persistent_workers": True} | FORKED
        loader = DataLoader(ReplayDataset(STEPS, 20, 8), batch_size=None, **options)
        assert [len(list(loader)) for _ in range(2)] == [53, 60]

    @pytest.mark.slow
    def test_a_buffer_of_this_process_is_refused(self):
        with pytest.raises(ConfigError, match="which gets no feedback; use num_workers=0, or give a capacity"):
            loaded(ReplayDataset(STEPS, make(), 8), num_workers=1)

    @pytest.mark.slow
    def test_spawned_ones(self):
        batches = loaded(ReplayDataset(STEPS, 20, 8, seed=3), num_workers=1, multiprocessing_context="spawn")
        expected = ReplayStream(STEPS, 20, 8, seed=np.random.SeedSequence(3, spawn_key=(0,)))
        for batch, drawn in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(batch.obs["image"], drawn.obs["image"])

    def test_a_buffer_of_this_process_is_refused_to_spawned_ones(self):
        with pytest.raises(ConfigError, match="which gets no feedback"):
            pickle.dumps(ReplayDataset(STEPS, make(), 8))


def test_it_can_be_pickled_before_its_first_step():
    dataset = pickle.loads(pickle.dumps(ReplayDataset(STEPS, 20, 8, warmup=9, seed=2)))
    np.testing.assert_array_equal(next(iter(dataset)).id, next(iter(ReplayDataset(STEPS, 20, 8, warmup=9, seed=2))).id)


@pytest.mark.parametrize(
    ("library", "inside", "extra"),
    [
        ("torch", "torch.utils.data", "torch"),
        ("torchdata", "torchdata.nodes", "data"),
        ("torchrl", "torchrl.data.replay_buffers", "torchrl"),
        ("tianshou", "tianshou.data", "tianshou"),
    ],
)
def test_a_missing_library_names_the_install_command(library, inside, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, inside, None)
    monkeypatch.delitem(sys.modules, f"replaylab.integrations.{library}", raising=False)
    with pytest.raises(MissingExtraError) as error:
        importlib.import_module(f"replaylab.integrations.{library}")
    assert str(error.value) == (
        f"replaylab.integrations.{library} needs {library}, which is not installed. "
        f'Run: pip install "replaylab[{extra}]"'
    )


class Drawn(IterableDataset):
    """A user's dataset that draws from a buffer of the main process."""

    def __init__(self, reseeds):
        self.buffer, self.reseeds = ReplayBuffer(999, {"x": Field()}, seed=0), reseeds
        self.buffer.extend(x=np.arange(999.0))

    def __iter__(self):
        if self.reseeds:
            self.buffer.reseed(get_worker_info().seed)
        for _ in range(3):
            yield torch.as_tensor(self.buffer.sample(8).x)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
class TestYourOwnDataset:
    def test_workers_draw_different_batches_after_reseed(self, method):
        batches = loaded(Drawn(True), num_workers=2, multiprocessing_context=method)
        assert len({tuple(values.tolist()) for values in batches}) == 6

    def test_a_worker_that_did_not_reseed_raises(self, method):
        with pytest.raises(ConfigError, match=r"buffer\.reseed\(seed\)"):
            loaded(Drawn(False), num_workers=1, multiprocessing_context=method)
