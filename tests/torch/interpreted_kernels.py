"""Run by `test_kernels.py` in a process with TRITON_INTERPRET=1: kernels against PyTorch's operations, bit for bit."""

import itertools
from unittest.mock import patch

import torch

from replaylab.replay import LAP, Combined, Field, Geometric, NStep, Prioritized, Recency, ReLo, Uniform
from replaylab.torch import DeviceReplay

FLAG = Field((), bool)
FIELDS = {"obs": Field(), "reward": Field(), "next_obs": Field(), "terminated": FLAG, "truncated": FLAG}
SAMPLERS = (
    Prioritized(0.6, 0.4),
    Prioritized(1.0, 0.4, stratified=False, new_steps="largest_ever", normalize="none"),
    ReLo(0.3, 0.4),
    LAP(0.4),
    Uniform(),
    Uniform(stratified=True),
    Geometric(30.0),
    Recency(0.999, least=3, burst=2),
    Combined(),
)


def buffers(replay):
    return {name: buffer for name, buffer in replay.named_buffers() if "tickets" not in name}


def assert_same_buffers(replay, other):
    for name, buffer in buffers(replay).items():
        assert torch.equal(buffer, buffers(other)[name]), name


def compare(sampler, next_obs, capacity):
    from replaylab.torch.drawing import kernels  # with Triton, which is not everywhere where modules are collected
    from replaylab.torch.rows import kernels as row_kernels

    row_kernels.ROWS = kernels.DRAWN = 16 if capacity < 100 else 256  # a program takes long here, its rows do not
    options = {"num_envs": 2, "sampler": sampler, "next_obs": next_obs, "final_obs_share": 0.1, "device": "cpu"}
    options["transforms"] = [NStep(3, 0.97)] if capacity > 1_000 else []
    replays = [DeviceReplay(capacity, FIELDS, kernels=run_by, seed=9, **options) for run_by in ("torch", "triton")]
    assert [replay.parts.stream.triton for replay in replays] == [False, True]
    generator = torch.Generator().manual_seed(4)
    for length in (1, 3, capacity // 4, capacity // 2):
        obs, next_obs, reward = torch.rand((3, length, 2), generator=generator)
        truncated, terminated = torch.rand((2, length, 2), generator=generator) < 0.15
        batches = []
        for replay in replays:
            flags = {"terminated": terminated, "truncated": truncated}
            replay.extend(obs=obs, next_obs=next_obs, reward=reward, **flags)
            batches.append(replay.sample(150))
        for name, column in batches[0].items():
            assert torch.equal(column, batches[1][name]), name
        ids = torch.cat((batches[0].id, torch.tensor([-1, 10**12, 0])))
        values = torch.randn(len(ids), generator=generator) * 10.0 ** torch.randint(
            -9, 9, (len(ids),), generator=generator
        )
        values[3:6] = torch.tensor([torch.nan, torch.inf, 0.0])
        feedbacks = [{"td_error": values}, {"priority": values.double()}][: 1 + sampler.takes_priorities]
        for feedback in feedbacks:
            applied = [replay.update_priorities(ids, **feedback) for replay in replays]
            assert torch.equal(*applied)
        assert_same_buffers(*replays)
    if sampler.takes_priorities:
        zeros = torch.arange(replays[0].next_id - capacity, replays[0].next_id)
        batches = []
        for replay in replays:
            replay.update_priorities(zeros, priority=0.0)
            with patch("replaylab.torch.drawing.samplers.is_compiling", lambda: True):  # nothing is waited for
                batches.append(replay.sample(150))
        assert (batches[0].id == -1).all()
        for name, column in batches[0].items():
            assert torch.equal(column, batches[1][name]), name
        assert_same_buffers(*replays)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number, (sampler, next_obs) in enumerate(itertools.product(SAMPLERS, ("stored", "derived"))):
        compare(sampler, next_obs, (40, 1_100)[number % 2])
    print("equal")
