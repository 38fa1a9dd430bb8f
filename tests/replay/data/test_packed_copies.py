"""Batches copied to a device in one piece: on the CPU, with copies that a GPU would make played by others."""

import contextlib
import threading
import weakref

import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError, DtypeError
from replaylab.replay import Batch, Field, Prioritized, ReplayBuffer
from replaylab.replay.data import batch as batches_of
from replaylab.replay.data.frameworks import ALIGNMENT, CudaCopies, PackedCopies

FIELDS = {
    "x": Field((3, 5)),
    "flag": Field((), bool),
    "pair": {"a": Field((), np.int64), "b": (Field((7,), np.uint8), Field((2,), np.float16))},
}


def make(replicas=None):
    rng = np.random.default_rng(0)
    lead = (40,) if replicas is None else (replicas, 40)
    buffer = ReplayBuffer(30, FIELDS, sampler=Prioritized(beta=0.5), replicas=replicas, seed=5)
    b = (rng.integers(0, 255, (*lead, 7), np.uint8), rng.random((*lead, 2)).astype(np.float16))
    pair = {"a": rng.integers(0, 99, lead), "b": b}
    buffer.extend(x=rng.random((*lead, 3, 5), np.float32), flag=rng.random(lead) < 0.5, pair=pair)
    return buffer


class Copied:
    """Copies within the CPU's memory; each ends only when it is waited for, as a GPU's may."""

    def __init__(self):
        self.waits, self.hosts = [], []

    def host(self, nbytes):
        self.hosts.append(torch.full((nbytes,), 255, dtype=torch.uint8))
        return self.hosts[-1]

    def copy(self, host):
        return torch.zeros_like(host), host

    def wait(self, on_device, copied):
        on_device.copy_(copied)
        self.waits.append(threading.current_thread())


def leaves(batch):
    (b0, b1) = batch.pair["b"]
    return {
        **{name: batch[name] for name in ("x", "flag", "weight", "id", "probability")},
        "a": batch.pair["a"],
        "b0": b0,
        "b1": b1,
    }


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("rows", [1, 8, 33])
def test_a_batch_arrives_as_it_was_by_one_copy(rows, replicas):
    copies = Copied()
    packed = PackedCopies(copies)
    batch = make(replicas).sample(rows)
    on_device = Batch(packed.receive(packed.send(batch)))
    assert len(copies.hosts) == len(copies.waits) == 1
    for name, tensor in leaves(on_device).items():
        array = leaves(batch)[name]
        assert tensor.dtype == torch.from_numpy(array).dtype
        assert tensor.is_contiguous()
        np.testing.assert_array_equal(tensor.numpy(), array)
        if name not in ("id", "probability"):
            assert tensor.storage_offset() * tensor.itemsize % ALIGNMENT == 0


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_wait_for_the_copy_in_the_thread_that_takes_them(prefetch, monkeypatch):
    copies = Copied()
    monkeypatch.setattr(batches_of, "CudaCopies", lambda device: copies)
    wanted = list(make().batches(8, prefetch=prefetch, total=6))
    batches = list(make().batches(8, prefetch=prefetch, total=6, device="cuda:0"))
    assert copies.waits == [threading.current_thread()] * 6
    for on_device, batch in zip(batches, wanted, strict=True):  # all are kept: none was overwritten
        for name, tensor in leaves(on_device).items():
            np.testing.assert_array_equal(tensor.numpy(), leaves(batch)[name])


def test_the_next_batches_are_copied_while_one_is_learned_from(monkeypatch):
    """And at most that many are in pinned memory at once: with `prefetch=1` two."""
    copies, alive, most = Copied(), weakref.WeakSet(), [0]

    def host(nbytes):
        memory = torch.zeros(nbytes, dtype=torch.uint8)
        alive.add(memory)
        most[0] = max(most[0], len(alive))
        return memory

    began = threading.Semaphore(0)
    copy = copies.copy
    monkeypatch.setattr(copies, "host", host)
    monkeypatch.setattr(copies, "copy", lambda memory: (copy(memory), began.release())[0])
    monkeypatch.setattr(batches_of, "CudaCopies", lambda device: copies)
    prefetch, total = 1, 6
    batches = make().batches(8, prefetch=prefetch, total=total, device="cuda:0")
    for k in range(total):
        next(batches)
        for _ in range(min(prefetch + 1, total) if k == 0 else k + prefetch < total):
            assert began.acquire(timeout=60)  # without another `next`
        assert len(copies.waits) == k + 1
    assert most[0] <= prefetch + 1


def test_a_dtype_that_pytorch_lacks_is_refused():
    buffer = ReplayBuffer(4, {"x": Field((), np.longdouble)}, seed=0)
    buffer.add(x=1.0)
    with pytest.raises(DtypeError, match="PyTorch has no dtype for"):
        PackedCopies(Copied()).send(buffer.sample(2))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_there_is_a_clear_error():
    with pytest.raises(ConfigError, match="memory is pinned for copies to an accelerator, but PyTorch says"):
        next(make().batches(8, device="cuda"))


class Stream:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        self.log.append(f"{self.name} records")
        return "event"

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")


class Memory:
    def __init__(self, log):
        self.log = log

    def to(self, device, non_blocking):
        assert non_blocking
        self.log.append(f"copy to {device}")
        return self

    def record_stream(self, stream):
        self.log.append(f"used on {stream.name}")


def test_a_copy_has_its_own_stream_and_is_waited_for(monkeypatch):
    log = []
    current = Stream(log, "current")

    @contextlib.contextmanager
    def on(stream):
        log.append(f"on {stream.name}")
        yield
        log.append("off")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(log, "own"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    copies = CudaCopies(torch.device("cuda:0"))
    copies.wait(*copies.copy(Memory(log)))
    assert log == ["on own", "copy to cuda:0", "own records", "off", "current waits for event", "used on current"]


def test_a_batch_on_another_device_shares_no_host_memory():
    batch = make().sample(8)
    on_device = batch.torch("meta")
    assert on_device.x.device.type == "meta"
    before = on_device.id.clone(), on_device.probability.clone()
    batch.id[:], batch.probability[:] = -1, -1.0  # as the next draw into it would
    assert torch.equal(on_device.id, before[0])
    assert torch.equal(on_device.probability, before[1])
    on_cpu = batch.torch("cpu")
    assert on_cpu.id.data_ptr() == batch.id.ctypes.data  # there everything is shared


def test_a_copy_for_jax_shares_nothing_with_the_batch():
    pytest.importorskip("jax")
    buffer = make()
    batch = buffer.sample(8)
    copied = batch.jax(copy=True)
    ids, distribution = copied.id.copy(), copied.probability.copy()
    batch.id[:], batch.probability[:] = -1, -1.0
    np.testing.assert_array_equal(copied.id, ids)
    np.testing.assert_array_equal(copied.probability, distribution)


@pytest.mark.cuda
def test_on_a_gpu_batches_are_those_of_the_host_on_any_stream():
    wanted = list(make().batches(8, prefetch=3, total=20))
    with torch.cuda.stream(torch.cuda.Stream()):
        batches = [
            {name: tensor.clone() for name, tensor in leaves(batch).items()}
            for batch in make().batches(8, prefetch=3, total=20, device="cuda")
        ]
    torch.cuda.synchronize()
    for on_device, batch in zip(batches, wanted, strict=True):
        for name, tensor in on_device.items():
            assert tensor.is_cuda == (name not in ("id", "probability"))
            np.testing.assert_array_equal(tensor.cpu().numpy(), leaves(batch)[name])
