"""`DeviceReplay` in place of FastTD3's buffer: the same arguments, calls and keys.

Change the import in FastTD3's ``train.py``::

    from replaylab.torch.fasttd3 import SimpleReplayBuffer

It needs tensordict, which FastTD3 requires too.
"""

import os
from typing import Any, Literal

import torch
from torch import Tensor, nn

from replaylab.extras import needs
from replaylab.replay import Field, NStep, Sampler, Uniform
from replaylab.torch.device_replay import DeviceReplay
from replaylab.torch.drawing.philox import seed_of_torch

with needs("replaylab.torch.fasttd3", "torchrl"):
    from tensordict import TensorDict


class SimpleReplayBuffer(nn.Module):
    """FastTD3's replay buffer, drawn by any sampler of `DeviceReplay`.

    Batches have the keys ``id``, ``weight`` and ``probability`` too. Rows are drawn from all environments together, not
    equally many from each. With ``next_obs="derived"`` the next observation of a terminated step,
    ``(dones > 0) & (truncations == 0)``, is its own observation: leave these rows out of a running normalizer.

    Args:
        n_env: E.
        buffer_size: Steps kept of each environment.
        n_obs: Length of an observation.
        n_act: Length of an action.
        n_critic_obs: Length of a critic's observation.
        asymmetric_obs: Whether there are critic's observations.
        playground_mode: Whether a critic's observation begins with the observation, which is then stored once.
        n_steps: Steps of a return.
        gamma: Discount.
        device: Device of the tensors.
        sampler: As for `DeviceReplay`.
        next_obs: As for `DeviceReplay`.
        half: The 16 bits in which observations are stored; batches have float32. None: float32.
        final_obs_share: As for `DeviceReplay`: raise it if episodes are often truncated after fewer than eight steps.
        seed: As for `DeviceReplay`; None: from PyTorch's generator, so that `torch.manual_seed` determines the draws.

    Attributes:
        replay: The `DeviceReplay` underneath.
        ptr: Number of steps of each environment stored so far, as in FastTD3.

    The other arguments of FastTD3's class are attributes, too. The tensors of its storage (``observations``, ...) are
    not: use ``replay.get(ids)``.
    """

    def __init__(
        self,
        n_env: int,
        buffer_size: int,
        n_obs: int,
        n_act: int,
        n_critic_obs: int = 0,
        asymmetric_obs: bool = False,
        playground_mode: bool = False,
        n_steps: int = 1,
        gamma: float = 0.99,
        device: Any = None,
        *,
        sampler: Sampler | None = None,
        next_obs: Literal["stored", "derived"] = "derived",
        half: Literal["float16", "bfloat16"] | None = None,
        final_obs_share: float = 0.125,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.n_env, self.buffer_size, self.n_steps, self.gamma = n_env, buffer_size, n_steps, gamma
        self.n_obs, self.n_act, self.n_critic_obs, self.asymmetric_obs = n_obs, n_act, n_critic_obs, asymmetric_obs
        self.playground_mode = playground_mode and asymmetric_obs
        self.device, self.ptr = device, 0
        self.shared = n_obs if playground_mode else 0
        obs = {"policy": Field((n_obs,))}
        if asymmetric_obs:
            obs["critic"] = Field((n_critic_obs - self.shared,))
        flag = Field((), bool)
        fields = {"obs": obs, "action": Field((n_act,)), "reward": Field(), "next_obs": obs}
        self.replay = DeviceReplay(
            n_env * buffer_size,
            {**fields, "terminated": flag, "truncated": flag},
            num_envs=n_env,
            sampler=Uniform() if sampler is None else sampler,
            transforms=[NStep(n_steps, gamma)],
            next_obs=next_obs,
            half={} if half is None else dict.fromkeys((f"obs.{name}" for name in obs), half),
            final_obs_share=final_obs_share,
            device="cpu" if device is None else device,
            seed=seed_of_torch() if seed is None else seed,
        )

    def extend(self, tensor_dict: Any) -> None:
        """Store one step of every environment."""
        after = tensor_dict["next"]
        truncated = after["truncations"] > 0
        self.replay.add(
            obs=self._observations(tensor_dict),
            action=tensor_dict["actions"],
            reward=after["rewards"],
            next_obs=self._observations(after),
            terminated=(after["dones"] > 0) & ~truncated,
            truncated=truncated,
        )
        self.ptr += 1

    def sample(self, batch_size: int, *, progress: float | None = None) -> Any:
        """Draw ``n_env * batch_size`` rows."""
        rows = self.n_env * batch_size
        batch = self.replay.sample(rows, progress=progress)
        after = {
            "rewards": batch.reward,
            "dones": (batch.terminated | batch.truncated).long(),
            "truncations": batch.truncated.long(),
            "effective_n_steps": batch.n_steps,
        }
        columns = {"actions": batch.action, "id": batch.id, "weight": batch.weight, "probability": batch.probability}
        columns |= self._columns(batch.obs)
        return TensorDict({**columns, "next": {**after, **self._columns(batch.next_obs)}}, batch_size=rows)

    def update_priorities(self, ids: Tensor, td_error: Tensor) -> Tensor:
        """Pass TD errors for the batch's ``id`` to the sampler."""
        return self.replay.update_priorities(ids, td_error)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the stored steps, priorities and the random stream; see `DeviceReplay.save`."""
        self.replay.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from what `save` wrote, in a buffer of the same arguments; see `DeviceReplay.load`."""
        self.replay = DeviceReplay.load(path, device=self.replay.device)
        self.ptr = self.replay.next_id // self.n_env

    def _observations(self, tensor_dict: Any) -> dict[str, Tensor]:
        obs = {"policy": tensor_dict["observations"]}
        if self.asymmetric_obs:
            obs["critic"] = tensor_dict["critic_observations"][:, self.shared :]
        return obs

    def _columns(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        columns = {"observations": obs["policy"]}
        if self.asymmetric_obs:
            critic = obs["critic"]
            columns["critic_observations"] = torch.cat((obs["policy"], critic), 1) if self.shared else critic
        return columns
