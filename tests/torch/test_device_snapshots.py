"""Snapshots of a device's replay, and of a host's, loaded by each other."""

import numpy as np
import pytest
import torch

from replaylab.errors import SnapshotError
from replaylab.replay import Field, FrameStack, NStep, Prioritized, Recency, ReplayBuffer, Uniform
from replaylab.torch import DeviceReplay
from tests.torch.worlds import World, assert_same_batches, on_host

TRANSFORMS = (NStep(3, 0.9), FrameStack(3, ("obs.camera",)))
WORLDS = {
    "derived": {"next_obs": "derived", "transforms": TRANSFORMS, "sampler": Prioritized(0.6, 0.4)},
    "stored": {"next_obs": "stored", "sampler": Prioritized(0.5, 0.4, new_steps="largest_ever")},
    "same step": {"next_obs": "derived", "sampler": Recency(0.999, least=3, burst=3)},
    "uniform": {"next_obs": "derived", "transforms": TRANSFORMS, "sampler": Uniform()},
}


def make(kind, num_envs, lengths, device="cpu"):
    world = World(3, 12, num_envs, {"device": device}, **WORLDS[kind])
    rng = np.random.default_rng(4)
    for length in lengths:
        world.run(length)
        ids = world.device.sample(7).id
        errors = rng.normal(size=7)
        world.device.update_priorities(ids, torch.from_numpy(errors))
        world.host.update_priorities(on_host(ids), errors)
    return world


def assert_same_probabilities(device, host):
    ids = np.arange(host.next_id)
    if not isinstance(host.sampler, Recency):
        assert np.allclose(on_host(device.probabilities(ids)), host.probabilities(ids), atol=2e-6)


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("lengths", [(2,), (3, 2, 9)])
@pytest.mark.parametrize("kind", WORLDS)
def test_each_loads_the_others_snapshot(tmp_path, kind, num_envs, lengths, device):
    world = make(kind, num_envs, lengths, device)
    derived = WORLDS[kind]["next_obs"] == "derived"
    world.device.save(tmp_path / "device")
    world.host.save(tmp_path / "host")
    again = DeviceReplay.load(tmp_path / "device", device=device)
    host = ReplayBuffer.load(tmp_path / "device", continue_episodes=True)
    of_host = DeviceReplay.load(tmp_path / "host", device=device, final_obs_share=1.0)
    for _ in range(3):  # exactly as it would have continued
        batches = [replay.sample(16) for replay in (world.device, again)]
        assert torch.equal(batches[0].id, batches[1].id)
        assert torch.equal(batches[0].weight, batches[1].weight)
        for replay, batch in zip((world.device, again), batches, strict=True):
            replay.update_priorities(batch.id, batch.reward)
    for replay in (world.device, host):
        assert_same_batches(again, replay, derived) if replay is host else None
    assert_same_batches(of_host, world.host, derived)
    assert_same_probabilities(of_host, world.host)
    world.run(7, (world.host, of_host))
    assert_same_batches(of_host, world.host, derived)
    assert_same_probabilities(of_host, world.host)
    world.run(7, (host, again))
    assert_same_batches(again, host, derived)


def test_a_saved_snapshot_can_be_saved_over(tmp_path):
    world = make("derived", 3, (3, 9))
    for _ in range(2):
        world.device.save(tmp_path / "there")
        world.run(2)
    assert DeviceReplay.load(tmp_path / "there", device="cpu").next_id == world.device.next_id - 6


def test_a_loops_state_is_loaded_with_either_class(tmp_path, device):
    world, weights = make("derived", 3, (3, 9), device), torch.arange(3.0)
    world.device.save(tmp_path, state={"step": 7, "weights": weights.to(device)})
    for replay in (DeviceReplay.load(tmp_path, device=device), ReplayBuffer.load(tmp_path)):
        assert replay.state["step"] == 7
        assert torch.equal(replay.state["weights"], weights)
    assert world.device.state is None


@pytest.mark.filterwarnings("ignore:DeviceReplay keeps")
def test_drops_survive_and_hosts_refuse_them(tmp_path):
    options = {"device_options": {"final_obs_share": 0.1}, "next_obs": "derived", "sampler": Prioritized(0.6, 0.4)}
    world = World(6, 40, 2, **options)
    world.run(40)
    while not world.device.stats().dropped_early:
        world.run(1)
    world.device.save(tmp_path / "there")
    again = DeviceReplay.load(tmp_path / "there", device="cpu")
    assert again.stats().dropped_early == world.device.stats().dropped_early
    assert torch.equal(again.sample(32).id, world.device.sample(32).id)
    with pytest.raises(SnapshotError, match=r"DeviceReplay\.load"):
        ReplayBuffer.load(tmp_path / "there")


def test_halves_are_restored(tmp_path):
    world = World(8, 12, 3, {"half": {"obs.speed": "float16"}}, next_obs="derived")
    world.run(9)
    world.device.save(tmp_path / "there")
    again = DeviceReplay.load(tmp_path / "there", device="cpu")
    assert again.nbytes == world.device.nbytes
    assert_same_batches(again, world.host, derived=True)


def test_ids_with_gaps_are_refused(tmp_path):
    host = ReplayBuffer(8, {"x": Field()}, num_envs=2)
    host.add(x=np.zeros(2), where=[True, False])
    host.add(x=np.zeros(2), where=[True, False])
    host.save(tmp_path / "there")
    with pytest.raises(SnapshotError, match="gaps"):
        DeviceReplay.load(tmp_path / "there", device="cpu")


def test_options_of_a_host_only_are_refused(tmp_path):
    host = ReplayBuffer(9, {"x": Field()}, num_envs=2)
    host.add(x=np.zeros(2))
    host.save(tmp_path / "there")
    with pytest.raises(SnapshotError, match="multiple of `num_envs`"):
        DeviceReplay.load(tmp_path / "there", device="cpu")
