"""A network with real steps, and the gradient of the loss of each single step.

Shapes: N steps, P parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from replaylab.replay import Field, ReplayBuffer, Sampler

GAMMA = 0.99
FIELDS = {
    "obs": Field((4,), "float64"),
    "action": Field((), "int64"),
    "reward": Field((), "float64"),
    "next_obs": Field((4,), "float64"),
    "terminated": Field((), "bool"),
}

Loss = Callable[[Tensor], Tensor]
Floats = npt.NDArray[np.float64]


def cartpole_steps(count: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return `count` steps of CartPole-v1 under random actions, as columns (N, ...)."""
    env = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    rows: list[tuple[object, ...]] = []
    obs, _ = env.reset(seed=seed)
    while len(rows) < count:
        action = int(rng.integers(2))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    columns = zip(*rows, strict=True)
    return {name: np.array(column, field.dtype) for (name, field), column in zip(FIELDS.items(), columns, strict=True)}


@dataclass(frozen=True)
class Gradients:
    """A Q network with its target network, at fixed weights, and a set of steps.

    Everything is float64, so that sums of gradients are exact to about 1e-15.

    Attributes:
        online: Takes obs (..., 4), returns Q(s, ·) (..., 2).
        td_error: δ of every step, (N,).
        steps: Columns (N, ...).
    """

    online: nn.Module
    td_error: Tensor
    steps: dict[str, npt.NDArray[Any]]

    @classmethod
    def make(cls, count: int, seed: int) -> "Gradients":
        """Draw networks 4-64-64-2 and `count` steps by the seed; TD errors are spread to both sides of 1."""
        steps = cartpole_steps(count, seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            online, target = (_network() for _ in range(2))
        with torch.no_grad():
            list(online.parameters())[-2].mul_(5.0)
            following = target(torch.from_numpy(steps["next_obs"])).max(1).values
            goes_on = torch.from_numpy(~steps["terminated"].astype(np.bool_))
            y = torch.from_numpy(steps["reward"]) + GAMMA * following * goes_on
            td_error = y - _taken(online, steps)
        return cls(online, td_error, steps)

    def of_each(self, loss: Loss) -> Floats:
        """Return ∂ loss(δᵢ)/∂θ for every step i, float64 (N, P), with δ's dependence on the target held fixed."""
        return self._vector_products(loss, torch.eye(len(self.td_error), dtype=torch.float64))

    def of(self, loss: Loss, weights: npt.ArrayLike) -> Floats:
        """Return ∂/∂θ Σᵢ weightsᵢ·loss(δᵢ), float64 (P,), likewise."""
        product: Floats = self._vector_products(loss, torch.from_numpy(np.asarray(weights, np.float64)[None]))[0]
        return product

    def _vector_products(self, loss: Loss, weights: Tensor) -> Floats:
        """Return the gradient for each row of `weights` (K, N), (K, P)."""
        q = _taken(self.online, self.steps)
        losses = loss((self.td_error + q.detach()) - q)
        parts = torch.autograd.grad(losses, list(self.online.parameters()), weights, is_grads_batched=True)
        products = torch.cat([part.flatten(1) for part in parts], dim=1)
        return np.asarray(products.numpy(), np.float64)

    def buffer(self, sampler: Sampler, seed: int) -> ReplayBuffer:
        """Return a buffer that holds the steps, with ids 0 to N − 1 and their TD errors as priorities."""
        buffer = ReplayBuffer(len(self.td_error), FIELDS, sampler=sampler, seed=seed)
        ids = buffer.extend(**self.steps)
        buffer.update_priorities(ids, self.td_error.numpy())
        return buffer


def _network() -> nn.Sequential:
    layers = (nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    return nn.Sequential(*layers).double()


def _taken(network: nn.Module, steps: dict[str, npt.NDArray[Any]]) -> Tensor:
    """Return Q(s, a) of every step, (N,)."""
    q: Tensor = network(torch.from_numpy(steps["obs"]))
    return q.gather(1, torch.from_numpy(steps["action"])[:, None])[:, 0]
