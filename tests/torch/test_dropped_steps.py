"""A warning if short episodes that are truncated fill the side ring, so that fewer steps are stored."""

import warnings

import pytest
import torch

from replaylab.replay import Field
from replaylab.torch import DeviceReplay

FLAG = Field((), bool)
FIELDS = {"obs": Field((2,)), "next_obs": Field((2,)), "terminated": FLAG, "truncated": FLAG}


def run(steps, length, device="cpu", **options):
    """Store steps of four environments whose episodes are truncated after some length."""
    replay = DeviceReplay(400, FIELDS, num_envs=4, device=device, seed=0, next_obs="derived", **options)
    obs = torch.zeros(4, 2)
    for t in range(steps):
        next_obs, ends = torch.rand(4, 2), torch.full((4,), t % length == length - 1)
        replay.add(obs=obs, next_obs=next_obs, terminated=torch.zeros(4, dtype=torch.bool), truncated=ends)
        obs = torch.rand(4, 2) if ends[0] else next_obs
    return replay


def test_dropped_steps_warn_once(device):
    with pytest.warns(UserWarning, match=r"keeps 2\d\d of 400 steps.*`final_obs_share`") as caught:
        replay = run(500, 4, device)
    assert [warning.filename for warning in caught] == [__file__]
    assert replay.stats().dropped_early > 0


@pytest.mark.parametrize(("length", "options"), [(4, {"final_obs_share": 0.25}), (10, {})])
def test_enough_room_does_not_warn(length, options, device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(run(500, length, device, **options)) == 400
