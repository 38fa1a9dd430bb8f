"""`ReplayNode` in torchdata's pipelines: its batches, and its state saved and restored."""

import pickle

import numpy as np
import pytest
import torch
from torchdata.nodes import IterableWrapper, Loader, Mapper, Prefetcher

from replaylab.errors import SnapshotError
from replaylab.integrations.torchdata import ReplayNode
from replaylab.replay import Field, Prioritized, ReplayBuffer, ReplayStream

FIELDS = {"obs": Field((3,), np.uint8), "step": Field((), np.int64)}
STEPS = [{"obs": np.full(3, i, np.uint8), "step": i} for i in range(80)]
LISTS = [STEPS[0], STEPS[1:8], STEPS[8:12], [], STEPS[12], STEPS[13:60], STEPS[60:]]


def make():
    return ReplayBuffer(20, FIELDS, sampler=Prioritized(beta=0.4), seed=1)


def learn(batches, node, turns=None):
    """Feed back, and return what was seen."""
    seen = []
    for batch in batches:
        seen.append((batch.id.copy(), batch.step.copy(), batch.weight.copy()))
        node.buffer.update_priorities(batch.id, np.cos(batch.step) * len(seen))
        if len(seen) == turns:
            break
    return seen


def assert_same(batches, two):
    assert len(batches) == len(two)
    for mine, other in zip(batches, two, strict=True):
        for left, right in zip(mine, other, strict=True):
            np.testing.assert_array_equal(left, right)


class TestBatches:
    @pytest.mark.parametrize("source", [STEPS, LISTS], ids=["steps", "lists"])
    @pytest.mark.parametrize("wrap", [list, IterableWrapper], ids=["iterable", "node"])
    def test_the_same_as_the_stream_s(self, source, wrap):
        stream = ReplayStream(source, make(), 8)
        node = ReplayNode(wrap(source), make(), 8)
        assert_same(learn(Loader(node), node), learn(stream, stream))
        assert (node.taken, node.size, node.position, node.cycles) == (80, 20, 0, 4)

    def test_within_a_pipeline(self):
        source = Mapper(IterableWrapper(range(40)), lambda i: STEPS[i])
        tensors = Mapper(ReplayNode(source, 20, 8, seed=0), lambda batch: batch.torch())
        batches = list(Loader(Prefetcher(tensors, 2, snapshot_frequency=1000)))
        assert len(batches) == 33
        assert batches[0].obs.dtype == torch.uint8

    def test_a_second_epoch_keeps_the_memory(self):
        node = ReplayNode(STEPS, make(), 8)
        loader = Loader(node)
        assert [len(list(loader)) for _ in range(2)] == [73, 80]
        assert node.cycles == 8


@pytest.fixture(params=["bytes", "folder"])
def folder(request, tmp_path):
    return tmp_path / "memory" if request.param == "folder" else None


@pytest.mark.parametrize("source", [STEPS, LISTS], ids=["steps", "lists"])
class TestState:
    @pytest.mark.parametrize("turns", [1, 2, 30, 72])
    def test_restored_it_goes_on_exactly(self, source, turns, folder):
        node = ReplayNode(source, make(), 8, folder=folder)
        learn(node, node, turns)
        state = pickle.loads(pickle.dumps(node.state_dict()))
        again = ReplayNode(source, make(), 8, folder=folder)
        again.reset(state)
        assert again.taken == node.taken
        assert_same(learn(again, again), learn(node, node))

    def test_through_a_loader_and_torch_save(self, source, folder, tmp_path):
        node = ReplayNode(source, 20, 8, seed=1, folder=folder)
        loader = Loader(node)
        learn(loader, node, 25)
        torch.save(loader.state_dict(), tmp_path / "state.pt")
        expected = learn(loader._it, node)
        again = ReplayNode(source, 20, 8, seed=99, folder=folder)
        other = Loader(again)
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=False))
        assert_same(learn(other, again), expected)

    def test_the_learner_s_buffer_is_restored_in_place(self, source, folder):
        node = ReplayNode(source, make(), 8, folder=folder)
        held = node.buffer
        learn(node, node, 10)
        state = node.state_dict()
        expected = learn(node, node, 20)
        node.reset(state)
        assert node.buffer is held
        assert_same(learn(node, node, 20), expected)

    def test_before_the_first_step(self, source, folder):
        state = ReplayNode(source, 20, 8, folder=folder).state_dict()
        node = ReplayNode(source, 20, 8, seed=4, folder=folder)
        node.reset(state)
        assert len(list(node)) == 73


def test_the_state_holds_plain_values(tmp_path):
    """So that torch.load takes it with weights_only=True, the default, where the memory lies in a folder."""
    node = ReplayNode(STEPS, make(), 8, folder=tmp_path / "memory")
    next(node)
    torch.save(node.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["memory"] == node.state_dict()["memory"] | {"buffer": state["memory"]["buffer"]}
    assert set(state["memory"]["buffer"]) == {"folder", "digest"}


def test_a_state_of_another_memory_is_refused():
    node = ReplayNode(STEPS, make(), 8)
    next(node)
    with pytest.raises(SnapshotError, match="the snapshot is of a buffer with capacity=20, but this one has 10"):
        ReplayNode(STEPS, 10, 8).reset(node.state_dict())
