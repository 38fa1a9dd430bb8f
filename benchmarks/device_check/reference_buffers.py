"""Buffers with the operations of others', for their times only, where the originals cannot be imported.

Each does the same work on tensors of the same layouts and dtypes:

* `FastTD3Buffer`: `SimpleReplayBuffer` of FastTD3, https://github.com/younggyoseo/FastTD3, fast_td3/fast_td3_utils.py
* `ManiSkillBuffer`: `ReplayBuffer` of https://github.com/haosulab/ManiSkill, examples/baselines/sac/sac.py
* `CumsumBuffer`: priorities drawn by a cumulative sum and a search, as TD7 does, https://github.com/sfujim/TD7
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Steps = Mapping[str, Tensor]


class FastTD3Buffer:
    """Tensors (E, T, ...); every environment gets the same number of draws; flags are int64."""

    def __init__(
        self, envs: int, length: int, obs: int, action: int, n_steps: int, gamma: float, device: torch.device
    ) -> None:
        self.envs, self.length, self.n_steps, self.gamma, self.device = envs, length, n_steps, gamma, device
        widths = {"obs": obs, "action": action, "next_obs": obs}
        self.vectors = {name: torch.zeros(envs, length, width, device=device) for name, width in widths.items()}
        self.rewards = torch.zeros(envs, length, device=device)
        self.dones, self.truncations = (torch.zeros(envs, length, dtype=torch.int64, device=device) for _ in range(2))
        self.stored = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(part.nbytes for part in (*self.vectors.values(), self.rewards, self.dones, self.truncations))

    def add(self, step: Steps) -> None:
        """Store a step of every environment."""
        at = self.stored % self.length
        for name, tensor in self.vectors.items():
            tensor[:, at] = step[name]
        self.rewards[:, at] = step["reward"]
        self.dones[:, at] = (step["terminated"] | step["truncated"]).to(torch.int64)
        self.truncations[:, at] = step["truncated"].to(torch.int64)
        self.stored += 1

    def sample(self, per_env: int) -> dict[str, Tensor]:
        """Draw `per_env` rows of each environment."""
        if self.n_steps == 1:
            index = self._indices(min(self.length, self.stored), per_env)
            flags = {"dones": self.dones, "truncations": self.truncations, "rewards": self.rewards}
            batch = {name: self._vectors(name, index) for name in self.vectors}
            batch |= {name: tensor.gather(1, index).reshape(-1) for name, tensor in flags.items()}
            batch["n_steps"] = torch.ones_like(batch["dones"])
            return batch
        full = self.stored >= self.length
        newest = self.stored % self.length - 1
        if full:  # returns must not run from the newest step into the oldest one
            previous = self.truncations[:, newest].clone()
            self.truncations[:, newest] = torch.logical_not(self.dones[:, newest]).to(torch.int64)
        index = self._indices(self.length if full else max(1, self.stored - self.n_steps + 1), per_env)
        batch = {name: self._vectors(name, index) for name in ("obs", "action")}
        batch |= self._returns(index)
        if full:
            self.truncations[:, newest] = previous
        return batch

    def _returns(self, index: Tensor) -> dict[str, Tensor]:
        steps = (index[..., None] + torch.arange(self.n_steps, device=self.device).view(1, 1, -1)) % self.length
        rewards, dones, truncations = (
            tensor[..., None].expand(-1, -1, self.n_steps).gather(1, steps)
            for tensor in (self.rewards, self.dones, self.truncations)
        )
        before = torch.cat([torch.zeros_like(dones[..., :1]), dones[..., :-1]], dim=2)
        going = torch.cumprod(1.0 - before, dim=2)
        discounts = torch.pow(self.gamma, torch.arange(self.n_steps, device=self.device)).view(1, 1, -1)
        returns = (rewards * going * discounts).sum(2)
        ends = []
        for flags in (dones, truncations):
            first = torch.argmax((flags > 0).float(), dim=2)
            ends.append(torch.where(flags.sum(2) == 0, self.n_steps - 1, first))
        last = steps.gather(2, torch.minimum(*ends)[..., None])[..., 0]
        return {
            "rewards": returns.reshape(-1),
            "n_steps": going.sum(2).reshape(-1),
            "next_obs": self._vectors("next_obs", last),
            "dones": self.dones.gather(1, last).reshape(-1),
            "truncations": self.truncations.gather(1, last).reshape(-1),
        }

    def _indices(self, high: int, per_env: int) -> Tensor:
        return torch.randint(0, high, (self.envs, per_env), device=self.device)

    def _vectors(self, name: str, index: Tensor) -> Tensor:
        tensor = self.vectors[name]
        width = tensor.shape[2]
        return tensor.gather(1, index[..., None].expand(-1, -1, width)).reshape(-1, width)


class ManiSkillBuffer:
    """Tensors (T, E, ...), indexed by indices that are drawn on the CPU."""

    def __init__(self, envs: int, capacity: int, obs: int, action: int, device: torch.device) -> None:
        self.length, self.envs, self.device, self.stored = capacity // envs, envs, device, 0
        shapes = {"obs": (obs,), "next_obs": (obs,), "action": (action,), "reward": (), "terminated": ()}
        self.tensors = {name: torch.zeros(self.length, envs, *shape).to(device) for name, shape in shapes.items()}

    def add(self, step: Steps) -> None:
        """Store a step of every environment."""
        for name, tensor in self.tensors.items():
            tensor[self.stored % self.length] = step[name]
        self.stored += 1

    def sample(self, rows: int) -> dict[str, Tensor]:
        """Draw rows."""
        steps = torch.randint(0, min(self.stored, self.length), (rows,))
        envs = torch.randint(0, self.envs, (rows,))
        return {name: tensor[steps, envs].to(self.device) for name, tensor in self.tensors.items()}


class CumsumBuffer:
    """Rows of one tensor, drawn in proportion to float32 priorities."""

    def __init__(self, rows: Tensor, priorities: Tensor) -> None:
        self.rows, self.priorities = rows, priorities

    def sample(self, count: int) -> Tensor:
        """Draw rows."""
        ends = torch.cumsum(self.priorities, 0)
        targets = torch.rand(count, device=ends.device) * ends[-1]
        return self.rows[torch.searchsorted(ends, targets).clamp(max=len(ends) - 1)]
