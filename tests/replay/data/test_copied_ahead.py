"""Batches that are pinned, and copied to a device while it computes and Python continues.

What a device holds is looked at only in the end: pinned memory that was filled again before its copy had ended would
show then.
"""

import numpy as np
import pytest
import torch

from replaylab.replay import Batch, Field, FrameStack, Prioritized, ReplayBuffer
from tests.oracle import flatten
from tests.replay.buffers import transition

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
SIDE, ROWS, TURNS = 84, 64, 12


def make():
    """Return a buffer of stacks of frames, 1.8 MB a batch."""
    fields = transition(Field((SIDE, SIDE), np.uint8), action=Field((), np.int64))
    transforms = [FrameStack(4)]
    buffer = ReplayBuffer(300, fields, next_obs="derived", sampler=Prioritized(beta=0.5), transforms=transforms, seed=0)
    for step in range(200):
        add(buffer, step, np.random.default_rng(step).integers(256, size=(2, SIDE, SIDE), dtype=np.uint8))
    return buffer


def add(buffer, step, frames):
    ends = {"terminated": step % 50 == 49, "truncated": False}
    buffer.add(obs=frames[0], action=step, reward=step, next_obs=frames[1], **ends)


def learn(buffer, batch, td_error, turn):
    """Do to the buffer what a learner does between two batches."""
    buffer.update_priorities(batch.id, td_error)
    add(buffer, turn, np.full((2, SIDE, SIDE), turn, np.uint8))


def columns(batch):
    return {path: torch.as_tensor(column).numpy(force=True).copy() for path, column in flatten(dict(batch)).items()}


def expected(prefetch):
    """Return the same batches, of ordinary memory, and their errors."""
    buffer, seen = make(), []
    for turn, batch in enumerate(buffer.batches(ROWS, prefetch=prefetch, total=TURNS)):
        seen.append(columns(batch))
        learn(buffer, batch, error_of(batch.torch()).numpy(), turn)
    return seen


def error_of(batch):
    """Return a made-up TD error (B,), small whole numbers on any device."""
    return (batch.obs[:, :, 0, 0].to(torch.int64).sum(1) % 7 + batch.action % 3).to(torch.float32)


def same(tensors, wanted):
    assert len(tensors) == len(wanted) == TURNS
    for batch, columns_then in zip(tensors, wanted, strict=True):
        for path, column in columns(batch).items():
            np.testing.assert_array_equal(column, columns_then[path], err_msg=str(path))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_drawn_ahead_and_pinned_arrive_whole(device, prefetch, pinning):
    buffer, held = make(), []
    for turn, batch in enumerate(buffer.batches(ROWS, prefetch=prefetch, total=TURNS, pin_memory=True)):
        on_device = batch.torch(device)
        held.append(on_device)
        learn(buffer, on_device, error_of(on_device).cpu(), turn)
    assert {held[0].obs.device.type, held[0].weight.device.type} == {torch.device(device).type}
    assert held[0].id.device.type == "cpu"
    same(held, expected(prefetch))


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_copied_ahead_of_its_use_arrives_whole(device, pinning):
    """The next batch is copied on its own stream, while this one is learned from."""
    buffer, held = make(), []
    for turn, (batch, on_device) in enumerate(copied_ahead(buffer.batches(ROWS, total=TURNS, pin_memory=True), device)):
        held.append(on_device)
        learn(buffer, batch, error_of(on_device).cpu(), turn)
    twin, wanted = make(), []
    ahead = twin.sample(ROWS)
    for turn in range(TURNS):
        batch, ahead = ahead, twin.sample(ROWS) if turn + 1 < TURNS else None
        wanted.append(columns(batch))
        learn(twin, batch, error_of(batch.torch()).numpy(), turn)
    same(held, wanted)


def copied_ahead(batches, device):
    """Yield each batch with its copy on a device, which was begun one turn before."""
    beside = torch.cuda.Stream() if device == "cuda" else None

    def begin():
        batch = next(batches, None)
        if batch is None or beside is None:
            return batch, batch and batch.torch(device)
        with torch.cuda.stream(beside):
            return batch, batch.torch(device)

    following = begin()
    while following[0] is not None:
        batch, on_device = following
        if beside is not None:
            torch.cuda.current_stream().wait_stream(beside)
            for column in flatten(dict(on_device)).values():
                if column.is_cuda:
                    column.record_stream(torch.cuda.current_stream())
        following = begin()
        yield batch, on_device


@pytest.mark.parametrize("device", DEVICES)
def test_one_pinned_batch_filled_again_and_again(device, pinning):
    buffer, twin, held, wanted = make(), make(), [], []
    pinned = buffer.sample(ROWS).pin_memory()
    twin.sample(ROWS)
    for _ in range(TURNS):
        if device == "cuda":
            torch.cuda.current_stream().synchronize()
        batch = buffer.sample(ROWS, out=pinned)
        assert batch is pinned
        on_device = batch.torch(device)
        if device == "cpu":  # its tensors are the pinned memory
            on_device = Batch({name: column.clone() for name, column in on_device.items()})
        held.append(on_device)
        wanted.append(columns(twin.sample(ROWS)))
    same(held, wanted)


def busy(seconds=0.2):
    """Give the GPU work for at least so long, without waiting for it."""
    a, b = (torch.ones(4096, 4096, device="cuda") for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first product sets the library up
        begin.record()
        torch.mm(a, b)
        end.record()
        end.synchronize()
    times = int(seconds * 1e3 / begin.elapsed_time(end)) + 1
    for _ in range(times):
        torch.mm(a, b)


@pytest.mark.cuda
def test_python_goes_on_while_a_pinned_batch_is_copied(pinning):
    """Copies wait behind other work; the pinned batches are dropped at once, and more are made in their place."""
    ahead = [batch.torch("cuda") for batch in list(make().batches(ROWS, total=TURNS, pin_memory=True))]
    del ahead  # so that PyTorch has all the memory it needs: taking more might wait
    buffer, twin = make(), make()
    busy(0.0)
    batches, held = buffer.batches(ROWS, total=TURNS, pin_memory=True), []
    first = next(batches)
    assert first.torch().obs.is_pinned()
    busy(1.0)
    copied = torch.cuda.Event()
    held.append(first.torch("cuda"))
    copied.record()
    assert not copied.query(), "the copy was waited for"
    del first
    held += [batch.torch("cuda") for batch in batches]
    assert not copied.query(), "one of the draws waited for the GPU"
    torch.cuda.synchronize()
    same(held, [columns(twin.sample(ROWS)) for _ in range(TURNS)])
