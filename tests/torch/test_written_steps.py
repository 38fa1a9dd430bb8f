"""`write` on a device changes what it changes in a `ReplayBuffer`."""

import numpy as np
import pytest
import torch

from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.replay import Field, FrameStack, NStep
from replaylab.torch import DeviceReplay
from tests.torch.worlds import World, assert_same_batches, on_host, tensors

TRANSFORMS = {"none": (), "n-step": (NStep(3, 0.5),), "stack": (FrameStack(3, ("obs.camera",)), NStep(2, 0.9))}


def random_values(world, ids, derived):
    """Values of a random choice of fields for some ids."""
    steps = world.make_steps(ids.shape)
    names = [name for name in steps if name not in ("terminated", "truncated", *["next_obs"] * derived)]
    chosen = world.rng.choice(names, world.rng.integers(1, len(names) + 1), replace=False)
    return {name: steps[name] for name in chosen}


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("transforms", sorted(TRANSFORMS))
@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("num_envs", [None, 3])
def test_writes_agree_with_a_replay_buffer(num_envs, next_obs, transforms, as_tensors):
    """Of stored and dropped steps, some more than once, between steps that are added."""
    world = World(4, 30, num_envs, transforms=TRANSFORMS[transforms], next_obs=next_obs)
    world.run(25)
    for _ in range(12):
        world.run(3)
        newest = world.host.next_id - 1
        ids = world.rng.integers(-1, newest + 1, (2, 9))
        ids[0] = world.rng.integers(newest - 3, newest + 1, 9)
        values = random_values(world, ids, next_obs == "derived")
        fed = tensors(values) if as_tensors else values
        count = world.device.write(torch.as_tensor(ids) if as_tensors else ids, **fed)
        assert int(count) == world.host.write(ids, **values)
        assert_same_batches(world.device, world.host, next_obs == "derived")


def test_stale_ids_are_counted():
    replay = DeviceReplay(3, {"x": Field()}, device="cpu", seed=0)
    ids = replay.extend(x=torch.arange(5.0))
    assert int(replay.write(ids, x=torch.full((5,), 9.0))) == 3
    assert replay.stats().stale_updates == 2
    assert on_host(replay.get(ids[2:])["x"]).tolist() == [9.0] * 3


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"terminated": [True]}, FieldError, "`terminated` of a stored step cannot be changed"),
        ({"next_obs": [1.0]}, FieldError, "`next_obs` is derived from the `obs` of the next step"),
        ({"x": [1.0]}, FieldError, "unknown `x`"),
        ({}, FieldError, "is missing a field"),
        ({"obs": [1.0, 2.0]}, ShapeError, r"must have shape \(1,\)"),
        ({"obs": torch.ones(1, dtype=torch.complex64)}, DtypeError, "stores float32"),
        ({"obs": [9.0], "tag": [0.5]}, DtypeError, "field `tag` stores int64"),
    ],
)
def test_refused_values_change_nothing(values, error, message):
    flag = Field((), np.bool_)
    fields = {"obs": Field(), "next_obs": Field(), "tag": Field((), np.int64), "terminated": flag, "truncated": flag}
    replay = DeviceReplay(4, fields, next_obs="derived", device="cpu", seed=0)
    replay.add(obs=5.0, next_obs=6.0, tag=7, terminated=False, truncated=False)
    with pytest.raises(error, match=message):
        replay.write([0], **values)
    assert float(replay.get([0])["obs"]) == 5.0
    assert int(replay.get([0])["tag"]) == 7


def test_half_precision_is_rounded_as_in_add():
    replay = DeviceReplay(4, {"x": Field((2,))}, half={"x": "bfloat16"}, device="cpu", seed=0)
    replay.extend(x=np.full((2, 2), 1.001, np.float32))
    replay.write([0], x=np.full((1, 2), 1.001, np.float32))
    assert torch.equal(replay.get([0])["x"], replay.get([1])["x"])


def test_a_compiled_function_writes():
    replay = DeviceReplay(4, {"x": Field()}, device="cpu", seed=0)
    ids = replay.extend(x=torch.arange(3.0))
    write = torch.compile(lambda ids, x: replay.write(ids, x=x), fullgraph=True, backend="eager")
    assert int(write(ids[1:], torch.tensor([7.0, 8.0]))) == 2
    assert replay.get(ids)["x"].tolist() == [0.0, 7.0, 8.0]
