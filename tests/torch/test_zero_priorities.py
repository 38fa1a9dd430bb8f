"""Draws where every stored step has priority 0: an error on the CPU; on a GPU, which would wait, rows of weight 0."""

import pytest
import torch

from replaylab.errors import EmptyBufferError
from replaylab.replay import LAP, Field, FrameStack, NStep, Prioritized, ReLo
from replaylab.torch import DeviceReplay
from replaylab.torch.drawing import samplers

FLAG = Field((), bool)
FIELDS = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,)), "terminated": FLAG, "truncated": FLAG}
SAMPLERS = [Prioritized(0.6, 0.4), Prioritized(0.6, 0.4, stratified=False, normalize="none"), ReLo(0.3, 0.4), LAP(0.4)]


def without_priorities(sampler=SAMPLERS[0], steps=5, device="cpu", capacity=8, **options):
    """A replay of steps of priority 0."""
    options = {"final_obs_share": 1.0, **options}
    replay = DeviceReplay(capacity, FIELDS, sampler=sampler, device=device, seed=0, **options)
    no = torch.zeros(steps, dtype=torch.bool)
    rows = torch.rand(steps, 2) + 1.0
    replay.extend(obs=rows, reward=torch.ones(steps), next_obs=rows + 1.0, terminated=no, truncated=no)
    replay.update_priorities(torch.arange(steps), priority=0.0)
    return replay


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_draw_on_cpu_is_refused_and_changes_nothing(sampler):
    replay, twin = without_priorities(sampler), without_priorities(sampler)
    with pytest.raises(EmptyBufferError):
        replay.sample(3)
    for each in (replay, twin):
        each.update_priorities([1, 2, 4], priority=[1.0, 2.0, 3.0])
    assert torch.equal(replay.sample(50).id, twin.sample(50).id)
    assert replay.stats().samples == 50


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize(
    ("capacity", "steps"),
    [(8, 5), (8, 8), (8, 21), (1_200, 1_300)],
    ids=["ring filled in part", "filled", "filled again", "large"],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"next_obs": "derived"}, {"transforms": [NStep(3, 0.9), FrameStack(2)], "next_obs": "derived"}],
    ids=["rows", "derived", "transformed"],
)
def test_draw_that_does_not_wait_has_weight_0(monkeypatch, device, sampler, capacity, steps, options):
    if device == "cpu":
        monkeypatch.setattr(samplers, "is_compiling", lambda: True)  # as in a compiled function, nothing is waited for
    replay = without_priorities(sampler, steps, device, capacity, **options)
    batch = replay.sample(6)
    assert batch.id.tolist() == [-1] * 6
    assert batch.probability.tolist() == batch.weight.tolist() == [0.0] * 6
    assert torch.isfinite(batch.obs).all()
    assert torch.isfinite(batch.reward).all()
    assert int(replay.update_priorities(batch.id, torch.ones(6))) == 0
    replay.update_priorities([steps - 1], priority=2.0)
    assert replay.sample(6).id.tolist() == [steps - 1] * 6


def test_compiled_draw_on_cpu_has_weight_0():
    replay = without_priorities()
    batch = torch.compile(lambda: replay.sample(6), backend="eager", fullgraph=True)()
    assert batch.id.tolist() == [-1] * 6
    assert batch.weight.tolist() == [0.0] * 6


def test_steps_with_priority_0_have_probability_0():
    assert without_priorities().probabilities(torch.arange(5)).tolist() == [0.0] * 5
