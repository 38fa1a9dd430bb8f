"""Draws against the stated probabilities. False alarms: see `tests/replay/guarantees/chi2.py`; fixed seeds."""

import numpy as np
import pytest
import torch

from replaylab.replay import LAP, Combined, Field, Geometric, Prioritized, Recency, Uniform
from replaylab.torch import DeviceReplay
from tests.replay.guarantees.chi2 import assert_distribution

SAMPLERS = [
    Uniform(),
    Uniform(stratified=True),
    Combined(),
    Recency(0.9995, least=7, burst=1),
    Geometric(6.0),
    Prioritized(0.6, 0.4),
    Prioritized(1.0, 0.4, stratified=False),
    LAP(0.7),
]
ROWS = 1024


def assert_draws(replay, draws=30):
    ids = torch.arange(replay.next_id)
    wanted = replay.probabilities(ids, batch_size=ROWS).cpu().numpy()
    drawn = torch.cat([replay.sample(ROWS).id for _ in range(draws)])
    assert_distribution(np.bincount(drawn.cpu().numpy(), minlength=len(ids)), wanted)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_draws_follow_the_probabilities_in_every_state(sampler, device):
    fields = {"obs": Field(), "next_obs": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
    options = {"num_envs": 2, "sampler": sampler, "next_obs": "derived", "final_obs_share": 0.1, "device": device}
    replay = DeviceReplay(40, fields, seed=1, **options)
    generator = torch.Generator().manual_seed(2)
    for length, share in ((1, 0.0), (6, 0.0), (20, 0.0), (15, 0.5)):  # nearly empty, part full, overwritten, dropped
        axes = (length, 2)
        replay.extend(
            obs=torch.rand(axes, generator=generator),
            next_obs=torch.rand(axes, generator=generator),
            terminated=torch.rand(axes, generator=generator) > share / 4,
            truncated=torch.rand(axes, generator=generator) < share,
        )
        assert_draws(replay)
        if sampler.takes_priorities:
            count = int(replay.next_id)
            ids = torch.arange(count)[torch.rand(count, generator=generator) < 0.5]
            priorities = torch.rand(len(ids), generator=generator).pow(8) * (torch.arange(len(ids)) % 4 > 0)
            replay.update_priorities(ids, priority=priorities)
            assert_draws(replay)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_the_seed_decides_what_is_drawn(sampler):
    def drawn(seed):
        replay = DeviceReplay(500, {"x": Field()}, sampler=sampler, device="cpu", seed=seed)
        replay.extend(x=torch.arange(700.0))
        return torch.stack([replay.sample(64).id for _ in range(3)])

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


def test_priorities_far_apart_are_drawn():
    """The smallest positive priority is one unit, however large the others are."""
    replay = DeviceReplay(3, {"x": Field()}, sampler=Prioritized(1.0, 0.0), device="cpu", seed=0)
    ids = replay.extend(x=torch.zeros(3))
    replay.update_priorities(ids, priority=torch.tensor([1e-30, 0.0, 1e300], dtype=torch.float64))
    probability = replay.probabilities(ids)
    assert probability[0] > 0
    assert probability[1] == 0
    assert abs(float(probability.sum()) - 1) < 1e-15
