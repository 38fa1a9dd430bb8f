"""Sizes of the check, and replays that are full."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from replaylab.replay import Field, NStep, Prioritized, ReplayBuffer, Sampler
from replaylab.torch import DeviceReplay

OBS, ACTION = 17, 6


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is stored and drawn.

    Attributes:
        capacity: Stored steps.
        large: Stored steps of a replay whose updates are compared with those of `capacity`.
        envs: Environments that store together.
        batches: Rows of draws, small, middle and large.
        updated: Ids of an update, and rows of an add.
        calls: Calls in a timed block.
        blocks: Timed blocks, of which the median counts.
        steps: Steps of the comparisons of graphs and of the search for synchronization.
    """

    capacity: int
    large: int
    envs: int
    batches: tuple[int, int, int]
    updated: int
    calls: int
    blocks: int
    steps: int


FULL = Sizes(1_000_000, 10_000_000, 1_000, (256, 4_096, 32_768), 4_096, 50, 20, 1_000)
SMALL = Sizes(4_096, 8_192, 16, (32, 64, 128), 64, 2, 3, 20)


def fields(obs: int = OBS, action: int = ACTION) -> dict[str, Field]:
    """Return the fields of a step of vectors: 43 numbers of 32 bits with flags and next observations."""
    vector, flag = Field((obs,)), Field((), bool)
    return {
        "obs": vector,
        "action": Field((action,)),
        "reward": Field(),
        "next_obs": vector,
        "terminated": flag,
        "truncated": flag,
    }


def steps(
    device: torch.device, envs: int, generator: torch.Generator, obs: int = OBS, action: int = ACTION
) -> dict[str, torch.Tensor]:
    """Return a step of every environment; one in a hundred ends, and as many are truncated."""
    ends = torch.rand(2, envs, generator=generator, device=device) < 0.01
    numbers = torch.rand(envs, 2 * obs + action + 1, generator=generator, device=device)
    return {
        "obs": numbers[:, :obs],
        "next_obs": numbers[:, obs : 2 * obs],
        "action": numbers[:, 2 * obs : 2 * obs + action],
        "reward": numbers[:, -1],
        "terminated": ends[0],
        "truncated": ends[1] & ~ends[0],
    }


def chained(device: torch.device, envs: int, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], ...]:
    """Return two steps that lead to each other, except where an environment is truncated: one in a hundred."""
    first, second = (steps(device, envs, generator) for _ in range(2))
    other = steps(device, envs, generator)["obs"]
    for step, after in ((first, second), (second, first)):
        step["terminated"] = torch.zeros_like(step["terminated"])
        step["next_obs"] = torch.where(step["truncated"][:, None], other, after["obs"])
    return first, second


def filled(
    capacity: int, envs: int, device: torch.device, sampler: Sampler, n_steps: int = 1, **options: Any
) -> DeviceReplay:
    """Return a full replay, whose environments went on from their next observations, with random priorities."""
    transforms = [NStep(n_steps, 0.99)] if n_steps > 1 else []
    replay = DeviceReplay(
        capacity // envs * envs, fields(), num_envs=envs, sampler=sampler, transforms=transforms, device=device, seed=0,
        **options,
    )  # fmt: skip
    fill(replay, capacity, device)
    return replay


def fill(replay: DeviceReplay, capacity: int, device: torch.device) -> None:
    """Fill a replay of `fields`, and give every step a random priority where there are priorities."""
    generator = torch.Generator(device).manual_seed(0)
    envs = replay.options.envs
    obs = steps(device, envs, generator)["obs"]
    for _ in range(capacity // envs + 2):
        step = steps(device, envs, generator)
        replay.add(**{**step, "obs": obs})
        ended = (step["terminated"] | step["truncated"])[:, None]
        obs = torch.where(ended, step["obs"], step["next_obs"])
    if replay.sampler.keeps_priorities:
        for start in range(replay.next_id - replay.size, replay.next_id, 2**19):
            ids = torch.arange(start, min(start + 2**19, replay.next_id), device=device)
            replay.update_priorities(ids, torch.randn(len(ids), generator=generator, device=device))


def filled_rows(capacity: int, device: torch.device, sampler: Sampler, width: int = 43) -> DeviceReplay:
    """Return a full replay of rows of one field: a draw gathers as much as `torch.index_select` of rows does."""
    replay = DeviceReplay(capacity, {"x": Field((width,))}, sampler=sampler, device=device, seed=0)
    generator = torch.Generator(device).manual_seed(0)
    for start in range(0, capacity, 2**19):
        count = min(2**19, capacity - start)
        ids = replay.extend(x=torch.rand(count, width, generator=generator, device=device))
        if replay.sampler.keeps_priorities:
            replay.update_priorities(ids, torch.randn(count, generator=generator, device=device))
    return replay


def filled_host(capacity: int) -> ReplayBuffer:
    """Return a full `ReplayBuffer` with random priorities."""
    buffer = ReplayBuffer(capacity, fields(), sampler=Prioritized(0.6, 0.4), seed=0)
    rng = np.random.default_rng(0)
    for start in range(0, capacity, 2**16):
        count = min(2**16, capacity - start)
        ends = rng.random((2, count)) < 0.01
        vectors = {
            name: rng.random((count, *field.shape), np.float32)
            for name, field in fields().items()
            if field.dtype == np.float32
        }
        ids = buffer.extend(**vectors, terminated=ends[0], truncated=ends[1] & ~ends[0])
        buffer.update_priorities(ids, rng.standard_normal(count))
    return buffer


def repeated_ids(replay: DeviceReplay, count: int) -> torch.Tensor:
    """Return stored ids, of which a quarter appear again."""
    generator = torch.Generator().manual_seed(1)
    first = replay.next_id - replay.size
    ids = first + torch.randint(replay.size, (count,), generator=generator)
    ids[: count // 4] = ids[count // 4 : count // 4 * 2]
    return ids.to(replay.device)
