"""Devices of a replay's tensors and kernels: copies between devices, the current device, and free memory."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from replaylab.errors import OverSizeError
from replaylab.replay import Field
from replaylab.torch import DeviceReplay
from replaylab.torch.operators import on_its_device
from replaylab.torch.rows import step_ring
from replaylab.torch.rows.tensors import as_tensor

SECOND = torch.device("cuda", 1)


@pytest.mark.parametrize(("source", "device", "non_blocking"), [("meta", "cpu", False), ("cpu", "meta", True)])
def test_a_copy_to_the_host_is_awaited(source, device, non_blocking):
    copies = []

    class Recorded(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.to:
                copies.append(kwargs["non_blocking"])
                return torch.zeros(2)
            return super().__torch_function__(function, types, args, kwargs or {})

    as_tensor("x", torch.zeros(2, device=source).as_subclass(Recorded), torch.device(device))
    assert copies == [non_blocking]


@pytest.mark.cuda
def test_tensors_of_a_gpu_arrive_complete_on_the_host():
    replay = DeviceReplay(2**22, {"x": Field((8,))}, device="cpu", seed=0)
    x = torch.ones(2**22, 8, device="cuda")
    torch.cuda._sleep(10**8)
    replay.extend(x=x)
    assert bool((replay.get(torch.arange(2**22))["x"] == 1).all())


@pytest.mark.parametrize("current", [0, 1])
def test_kernels_run_on_the_device_of_their_tensors(current, monkeypatch):
    entered = []

    @contextmanager
    def device(index):
        entered.append(index)
        yield

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", device)
    result = on_its_device(lambda tensor, n: (tensor.device, n, list(entered)))(SimpleNamespace(device=SECOND), 5)
    assert result == (SECOND, 5, [SECOND] if current == 0 else [])


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_draws_what_the_first_draws():
    drawn = []
    for index in (0, 1):
        replay = DeviceReplay(64, {"x": Field()}, device=f"cuda:{index}", seed=0)
        replay.extend(x=torch.arange(50.0))
        drawn.append(replay.sample(32).id.cpu())
    assert torch.equal(*drawn)


def test_memory_that_pytorch_keeps_is_free(monkeypatch):
    sizes = {"mem_get_info": (100, 1_000), "memory_reserved": 700, "memory_allocated": 300}
    for name, size in sizes.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, size=size: size)
    assert step_ring._free_memory(SECOND) == 500
    monkeypatch.setattr(step_ring, "_free_memory", lambda device: 500)
    DeviceReplay(50, {"x": Field()}, device="cpu")
    with pytest.raises(OverSizeError):
        DeviceReplay(100, {"x": Field()}, device="cpu")
