"""`DeviceReplay` in place of the buffer of ManiSkill's SAC baseline: the same arguments, calls and fields.

Change in ManiSkill's ``sac.py``::

    from replaylab.torch.maniskill import ReplayBuffer
"""

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from replaylab.replay import Field, Sampler, Uniform
from replaylab.torch.device_replay import DeviceReplay
from replaylab.torch.drawing.philox import seed_of_torch


@dataclass
class ReplayBufferSample:
    """A batch, with the id and importance weight of each row, for prioritized learners."""

    obs: Tensor
    next_obs: Tensor
    actions: Tensor
    rewards: Tensor
    dones: Tensor
    id: Tensor
    weight: Tensor


class ReplayBuffer:
    """ManiSkill's replay buffer, drawn by any sampler of `DeviceReplay`.

    With ``next_obs="derived"`` the next observation of a terminated step (``dones > 0``) is its own observation: leave
    these rows out of a running normalizer.

    Args:
        env: Environment with the shapes, in ``single_observation_space`` and ``single_action_space``.
        num_envs: E.
        buffer_size: Steps kept of all environments together, rounded down to a multiple of E.
        storage_device: Device of the stored steps.
        sample_device: Device of the batches.
        sampler: As for `DeviceReplay`.
        next_obs: As for `DeviceReplay`.
        half: The 16 bits in which observations are stored; batches have float32. None: float32.
        final_obs_share: As for `DeviceReplay`: raise it if episodes are often truncated after fewer than eight steps.
        seed: As for `DeviceReplay`; None: from PyTorch's generator, so that `torch.manual_seed` determines the draws.

    Attributes:
        replay: The `DeviceReplay` underneath.
        per_env_buffer_size: Steps kept of each environment.

    The other arguments of ManiSkill's class are attributes, too.
    """

    def __init__(
        self,
        env: Any,
        num_envs: int,
        buffer_size: int,
        storage_device: Any,
        sample_device: Any,
        *,
        sampler: Sampler | None = None,
        next_obs: Literal["stored", "derived"] = "derived",
        half: Literal["float16", "bfloat16"] | None = None,
        final_obs_share: float = 0.125,
        seed: int | None = None,
    ) -> None:
        obs = Field(env.single_observation_space.shape)
        fields = {
            "obs": obs,
            "action": Field(env.single_action_space.shape),
            "reward": Field(),
            "next_obs": obs,
            "terminated": Field((), np.bool_),
        }
        self.num_envs, self.buffer_size, self.storage_device = num_envs, buffer_size, storage_device
        self.per_env_buffer_size, self.sample_device = buffer_size // num_envs, torch.device(sample_device)
        self.replay = DeviceReplay(
            buffer_size // num_envs * num_envs,
            fields,
            num_envs=num_envs,
            sampler=Uniform() if sampler is None else sampler,
            next_obs=next_obs,
            half={} if half is None else {"obs": half},
            final_obs_share=final_obs_share,
            device=storage_device,
            seed=seed_of_torch() if seed is None else seed,
        )

    def add(self, obs: Tensor, next_obs: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> None:
        """Store one step of every environment; `done` states whether to stop bootstrapping."""
        self.replay.add(obs=obs, next_obs=next_obs, action=action, reward=reward, terminated=done > 0)

    @property
    def pos(self) -> int:
        """Step of each environment that the next `add` overwrites; waits for the device, as `full` does."""
        return self.replay.next_id // self.num_envs % self.per_env_buffer_size

    @property
    def full(self) -> bool:
        """Whether every `add` overwrites a step."""
        return self.replay.next_id >= self.replay.capacity

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the stored steps, priorities and the random stream; see `DeviceReplay.save`."""
        self.replay.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from what `save` wrote, in a buffer of the same arguments; see `DeviceReplay.load`."""
        self.replay = DeviceReplay.load(path, device=self.replay.device)

    def sample(self, batch_size: int, *, progress: float | None = None) -> ReplayBufferSample:
        """Draw rows."""
        batch = self.replay.sample(batch_size, progress=progress)
        columns = (batch.obs, batch.next_obs, batch.action, batch.reward, batch.terminated.float())
        return ReplayBufferSample(*(column.to(self.sample_device) for column in (*columns, batch.id, batch.weight)))

    def update_priorities(self, ids: Tensor, td_error: Tensor) -> Tensor:
        """Pass TD errors for a batch's `id` to the sampler."""
        return self.replay.update_priorities(ids, td_error)
