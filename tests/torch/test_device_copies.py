"""Copies of a device's replay, by `copy.deepcopy` and by pickles, which continue as the original would."""

import copy
import pickle

import pytest
import torch

from replaylab.replay import Field, FrameStack, NStep, Prioritized, Recency
from replaylab.torch import DeviceReplay
from replaylab.torch.drawing.philox import RandomStream
from tests.replay.test_reseed import in_child, refusal

FLAG, OBS = Field((), bool), {"policy": Field((2,)), "critic": Field((3,))}
FIELDS = {"obs": OBS, "reward": Field(), "next_obs": OBS, "terminated": FLAG, "truncated": FLAG}
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda replay: pickle.loads(pickle.dumps(replay))}
every_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def observation(generator):
    return {name: torch.rand(6, 2, *field.shape, generator=generator) for name, field in OBS.items()}


def store(replay, generator):
    ends = torch.rand(2, 6, 2, generator=generator) < 0.2
    steps = {"obs": observation(generator), "next_obs": observation(generator)}
    replay.extend(**steps, reward=torch.ones(6, 2), terminated=ends[0], truncated=ends[1])


@every_copy
@pytest.mark.parametrize("sampler", [Prioritized(0.6, 0.4), Recency(0.99, least=2, burst=3)], ids=repr)
def test_copy_continues_and_shares_nothing(copied, sampler, device):
    options = {"transforms": [NStep(2, 0.9), FrameStack(2)], "next_obs": "derived", "final_obs_share": 1.0}
    replay = DeviceReplay(20, FIELDS, num_envs=2, sampler=sampler, device=device, seed=0, **options)
    store(replay, torch.Generator().manual_seed(1))
    replay.sample(3)
    other = copied(replay)
    assert not {t.data_ptr() for t in replay.buffers() if t.numel()} & {t.data_ptr() for t in other.buffers()}
    for _ in range(3):
        batches = []
        for each in (replay, other):
            store(each, torch.Generator().manual_seed(2))
            batches.append(each.sample(9))
            each.update_priorities(batches[-1].id, batches[-1].reward)
        assert torch.equal(batches[0].id, batches[1].id)
        assert torch.equal(batches[0].next_obs["critic"], batches[1].next_obs["critic"])


@every_copy
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_copy_must_be_reseeded_in_a_forked_child(copied):
    replay = copied(DeviceReplay(4, {"x": Field()}, device="cpu", seed=0))
    replay.add(x=1.0)
    assert "replay.reseed(seed)" in in_child(lambda: refusal(lambda: replay.sample(2)))
    assert isinstance(replay.parts.stream, RandomStream)
