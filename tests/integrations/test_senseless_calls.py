"""Every public call of the integrations, with one senseless argument at a time."""

import pytest

from tests.senseless import SEED, TRUTH, Call, wrongs

GIVEN = {"source": [{"x": 1.0}] * 9, "buffer": 8, "batch_size": 2}
STREAM = {"source": "[] {}", "warmup": "None", "progress": "None 0", "seed": SEED}


def drained(node):
    node.reset()
    return list(node)


def test_data_sets():
    torch = pytest.importorskip("replaylab.integrations.torch")
    assert wrongs(Call(torch.ReplayDataset, GIVEN, STREAM | {"shard": TRUTH}, use=list)) == []


def test_nodes():
    torchdata = pytest.importorskip("replaylab.integrations.torchdata")
    assert wrongs(Call(torchdata.ReplayNode, GIVEN, STREAM | {"folder": "None text"}, use=drained)) == []
