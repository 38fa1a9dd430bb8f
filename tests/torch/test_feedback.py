"""Effects of `update_priorities`, without a wait for the device, and the weights of a batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError, DtypeError, ShapeError
from replaylab.replay import LAP, Field, Linear, Prioritized, Uniform
from replaylab.torch import DeviceReplay
from replaylab.torch.drawing.fixed_point import ONE
from replaylab.torch.rows import tensors


def make(sampler, count=6, capacity=4, device="cpu"):
    replay = DeviceReplay(capacity, {"x": Field()}, sampler=sampler, device=device, seed=0)
    return replay, replay.extend(x=torch.arange(float(count))).cpu()


def leaves(replay):
    return replay.parts.draws.tree.sums[: replay.capacity].tolist()


def test_leaves_are_powers_in_fixed_point(device):
    replay, ids = make(Prioritized(0.5, 0.4, epsilon=0.0), device=device)
    replay.update_priorities(ids[2:], torch.tensor([-4.0, 1e-14, 0.0, 2.0]))
    by_id = [leaves(replay)[i % 4] for i in range(2, 6)]
    assert by_id == [2 * ONE, 1, 0, round(2**0.5 * ONE)]


def test_stale_and_unknown_ids_change_nothing(device):
    replay, _ = make(Prioritized(0.5, 0.4), device=device)
    before = leaves(replay)
    assert int(replay.update_priorities(torch.tensor([0, 1, -1, 6, 10**12]), torch.full((5,), 9.0))) == 0
    assert leaves(replay) == before
    assert replay.stats().stale_updates == 5


def test_invalid_values_change_nothing_and_are_counted(device):
    replay, ids = make(Prioritized(1.0, 0.4, epsilon=0.0), count=4, device=device)
    errors = torch.tensor([torch.nan, torch.inf, -torch.inf, -3.0])
    assert int(replay.update_priorities(ids, errors)) == 4
    assert leaves(replay) == [ONE, ONE, ONE, 3 * ONE]
    replay.update_priorities(ids, priority=torch.tensor([-1.0, 2.0, torch.nan, 0.0]))
    assert leaves(replay) == [ONE, 2 * ONE, ONE, 0]
    assert replay.stats().invalid_feedback == 5


def test_the_last_of_equal_ids_counts_in_any_number_of_them(device):
    replay, ids = make(Prioritized(1.0, 0.4), count=4, device=device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        fed = ids[torch.randint(4, (1000,), generator=generator)]
        values = torch.rand(1000, generator=generator, dtype=torch.float64) + 0.5
        replay.update_priorities(fed, priority=values)
        last = [values[(fed == i).nonzero()[-1, 0]] for i in ids]
        assert leaves(replay) == [round(float(value) * ONE) for value in last]


@pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
def test_weights(normalize, device):
    replay, ids = make(Prioritized(1.0, Linear(0.2, 1.0), normalize=normalize), count=4, device=device)
    replay.update_priorities(ids, priority=torch.tensor([1.0, 2.0, 4.0, 8.0]))
    with pytest.warns(UserWarning, match="set_progress"):
        batch = replay.sample(64)
    for beta, progress in ((0.2, None), (0.6, 0.5), (0.6, None), (1.0, 1.0)):
        if progress is not None:
            batch = replay.sample(64, progress=progress)
        raw = (4 * replay.probabilities(batch.id)) ** -beta
        wanted = raw if normalize == "none" else raw / raw.max()
        assert torch.allclose(batch.weight.double(), wanted, rtol=1e-6)


def test_samplers_without_weights_have_ones():
    for sampler in (Uniform(), LAP()):
        replay, ids = make(sampler)
        replay.update_priorities(ids, torch.rand(6))
        assert bool((replay.sample(9).weight == 1).all())


def test_wrong_feedback_is_refused():
    replay, ids = make(Prioritized())
    with pytest.raises(ShapeError, match="shape of `ids`"):
        replay.update_priorities(ids, torch.zeros(3))
    with pytest.raises(DtypeError, match="`ids` must be integers"):
        replay.update_priorities(ids.float(), torch.zeros(6))
    with pytest.raises(ConfigError, match="exactly one"):
        replay.update_priorities(ids, torch.zeros(6), priority=1.0)
    with pytest.raises(ConfigError, match="needs a sampler that uses priorities"):
        make(Uniform())[0].update_priorities(ids, priority=1.0)


def test_feedback_needs_no_gradient_and_takes_arrays():
    replay, ids = make(Prioritized(1.0, 0.0, epsilon=0.0), count=4)
    replay.update_priorities(ids, torch.full((4,), 2.0, requires_grad=True))
    replay.update_priorities(np.array([0]), np.array([3.0]))
    assert leaves(replay) == [3 * ONE, 2 * ONE, 2 * ONE, 2 * ONE]


@pytest.mark.parametrize("kind", [float, np.float32, np.array, torch.tensor])
def test_one_priority_is_for_all_ids(kind, device):
    replay, ids = make(Prioritized(1.0, 0.4, epsilon=0.0), count=4, device=device)
    priority = kind(3.0)
    replay.update_priorities(ids, priority=priority.to(device) if kind is torch.tensor else priority)
    assert leaves(replay) == [3 * ONE] * 4


def test_one_priority_on_a_gpu_is_not_waited_for(monkeypatch):
    """Neither of PyTorch nor of another library, whose array is made a tensor."""
    replay, ids = make(Prioritized(1.0, 0.4, epsilon=0.0), count=4)
    foreign = SimpleNamespace(ndim=0, __cuda_array_interface__={})
    as_tensor = tensors.as_tensor
    stands_for = torch.tensor(3.0)
    monkeypatch.setattr(
        tensors,
        "as_tensor",
        lambda what, value, device: as_tensor(what, stands_for if value is foreign else value, device),
    )
    replay.update_priorities(ids, priority=foreign)
    assert leaves(replay) == [3 * ONE] * 4
