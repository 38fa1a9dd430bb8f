"""Draws and feedback as CUDA graphs: how often Python runs, what is returned, and the same draws as without."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import Field, Prioritized
from replaylab.torch import Captured, DeviceReplay
from replaylab.torch.captured import EAGER_CALLS


class Graph:
    """A graph that counts its replays."""

    replays = 0

    def replay(self):
        Graph.replays += 1


def test_python_runs_until_the_capture(monkeypatch):
    calls, captures, Graph.replays = [], [], 0

    @contextmanager
    def graph(captured):
        captures.append(captured)
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {"device": nullcontext, "CUDAGraph": Graph, "graph": graph, "Stream": lambda: stream, "stream": nullcontext}
    for name, fake in (fakes | {"current_stream": lambda: stream}).items():
        monkeypatch.setattr(torch.cuda, name, fake)
    captured = Captured(lambda: calls.append(1) or len(calls), torch.device("cuda", 0))
    results = [captured() for _ in range(EAGER_CALLS + 5)]
    assert results == [1, 2, 3, *[EAGER_CALLS + 1] * 5]
    assert (len(calls), len(captures), Graph.replays) == (EAGER_CALLS + 1, 1, 5)


def test_captured_calls_draw_and_feed_back_as_others(device):
    eager, graphed = (
        DeviceReplay(64, {"x": Field()}, sampler=Prioritized(0.6, 0.4), device=device, seed=3) for _ in range(2)
    )
    draw = graphed.captured(16)
    with pytest.raises(EmptyBufferError):
        draw()
    for replay in (eager, graphed):
        replay.extend(x=torch.arange(50.0))
    ids, td_error = torch.zeros(16, dtype=torch.int64, device=device), torch.zeros(16, device=device)
    update = graphed.captured_update(ids, td_error)
    for number in range(EAGER_CALLS + 5):
        batches = [eager.sample(16), draw()]
        assert torch.equal(batches[0].id, batches[1].id)
        assert torch.equal(batches[0].weight, batches[1].weight)
        ids.copy_(batches[1].id)
        td_error.copy_(batches[1].x * number)
        eager.update_priorities(ids, td_error)
        assert int(update()) == 16
    assert torch.equal(eager.parts.draws.tree.sums, graphed.parts.draws.tree.sums)


def test_a_wrong_batch_size_is_refused():
    with pytest.raises(ConfigError, match="`batch_size`"):
        DeviceReplay(8, {"x": Field()}, device="cpu").captured(0)
