"""Random streams of a device's replay: copies in other processes must be given another one."""

import numpy as np
import pytest
import torch

from replaylab.replay import Combined, Field, Prioritized, Recency, ReplayBuffer, Uniform
from replaylab.torch import DeviceReplay
from tests.replay.test_reseed import in_child, refusal

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
every_sampler = pytest.mark.parametrize(
    "sampler", [Uniform(), Combined(), Prioritized(beta=0.4), Recency(0.9, least=3, burst=2)], ids=repr
)


def filled(sampler=None, seed=0):
    replay = DeviceReplay(20, {"x": Field()}, sampler=sampler or Uniform(), device="cpu", seed=seed)
    replay.extend(x=torch.arange(20.0))
    return replay


def ids_of(replay, draws=3):
    return [replay.sample(8).id.tolist() for _ in range(draws)]


@every_sampler
def test_a_forked_child_draws_after_reseed(sampler):
    replay = filled(sampler)

    def child(seed):
        message = refusal(lambda: replay.sample(8))
        replay.add(x=torch.tensor(1.0))
        replay.reseed(seed)
        return message, ids_of(replay)

    (message, first), (_, second), (_, third) = (in_child(lambda seed=seed: child(seed)) for seed in (1, 2, 1))
    assert "replay.reseed(seed)" in message
    assert first == third != second
    assert ids_of(replay) == ids_of(filled(sampler))


@every_sampler
def test_reseed_draws_as_a_new_replay_of_the_seed(sampler):
    reseeded = filled(sampler, seed=1)
    before = ids_of(filled(sampler, seed=1))
    reseeded.reseed(5)
    drawn = ids_of(reseeded)
    assert drawn == ids_of(filled(sampler, seed=5))
    assert drawn != before


@pytest.mark.parametrize("kind", [DeviceReplay, ReplayBuffer])
def test_ranks_that_load_one_snapshot_draw_by_their_seeds(kind, tmp_path):
    options = {"device": "cpu"} if kind is DeviceReplay else {}
    replay = kind(20, {"x": Field()}, seed=0, **options)
    replay.extend(x=torch.arange(20.0) if options else np.arange(20.0))
    replay.save(tmp_path)
    drawn = [ids_of(DeviceReplay.load(tmp_path, device="cpu", seed=seed)) for seed in (3, 4, 3)]
    assert drawn[0] == drawn[2] != drawn[1]
    loaded = DeviceReplay.load(tmp_path, device="cpu")
    loaded.reseed(3)
    assert ids_of(loaded) == drawn[0]
    if kind is DeviceReplay:
        assert ids_of(DeviceReplay.load(tmp_path, device="cpu")) == ids_of(replay)
