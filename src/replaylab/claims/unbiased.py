"""Claim 6, weights are unbiased: what importance weights and LAP's loss do to the expected gradient.

The expected gradient of a batch is Σᵢ P(i)·wᵢ·∇ℓ(δᵢ). P comes from `ReplayBuffer.probabilities` and w from batches,
large enough to hold every step, so it is computed exactly; the error is |difference| / |gradient under uniform|.
What is left is the rounding of float32 weights and priorities, so errors below 1e-6 count as none. Then the same
by draws: the mean gradient of many batches, projected on the exact one and divided by its square, must have 1 in
its interval.

Shapes: N steps, P parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from replaylab.claims.claim import Claim, ReplicatedFigure, agreement
from replaylab.replay import LAP, Field, Prioritized, RankBased, ReplayBuffer, Sampler, Uniform
from replaylab.research import AntiPrioritized, Blocks, Permuted

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


STEPS = 512
BATCH_SIZE = 64
BATCHES = 4_000
ROUNDING = 1e-6
Z = 4.9
"""Half-width of the intervals by draws in standard errors: false alarms below 1e-6."""

SAMPLERS: dict[str, Sampler] = {
    "uniform": Uniform(),
    "blocks of 8": Blocks(8),
    "proportional, α = .6": Prioritized(beta=1.0, normalize="none"),
    "proportional, α = 1": Prioritized(alpha=1.0, beta=1.0, normalize="none"),
    "rank-based": RankBased(beta=1.0, normalize="none"),
    "anti-prioritized": AntiPrioritized(beta=1.0, normalize="none"),
    "permuted": Permuted(beta=1.0, normalize="none"),
}


def squared(td_error: Tensor) -> Tensor:
    """Return δ²/2."""
    return td_error**2 / 2


def huber(td_error: Tensor) -> Tensor:
    """Return δ²/2 where |δ| ≤ 1, elsewhere |δ| − ½."""
    return torch.nn.functional.huber_loss(td_error, torch.zeros_like(td_error), reduction="none")


def pal(td_error: Tensor, alpha: float) -> Tensor:
    """Return the loss whose mean under uniform draws has the gradient of Huber's under LAP's.

    PAL(δ) = 1/λ · (δ²/2 where |δ| ≤ 1, elsewhere |δ|^(1+α)/(1+α)), λ the mean of max(|δ|, 1)^α over the steps,
    held fixed. Source: Fujimoto, Meger & Precup 2020.
    """
    size = td_error.abs()
    scale = size.detach().clamp(min=1.0).pow(alpha).mean()
    return torch.where(size <= 1.0, td_error**2 / 2, size.clamp(min=1.0).pow(1 + alpha) / (1 + alpha)) / scale


def distribution_and_weights(gradients: Gradients, sampler: Sampler, seed: int) -> tuple[Floats, Floats]:
    """Return P(i) and wᵢ of every step, (N,); weights from batches, drawn until every step was in one."""
    buffer = gradients.buffer(sampler, seed)
    ids = np.arange(len(gradients.td_error))
    weights = np.full(len(ids), np.nan)
    while np.isnan(weights).any():
        batch = buffer.sample(BATCH_SIZE * 256)
        weights[batch.id] = batch.weight
    return buffer.probabilities(ids, batch_size=BATCH_SIZE), weights


def error(estimate: Floats, truth: Floats) -> float:
    """Return |found − truth| / |truth|, Euclidean."""
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def drawn(buffer: ReplayBuffer, along: Floats, batches: int) -> tuple[float, float]:
    """Return the mean gradient of `batches` batches along the exact one, as a share of it, and its standard error.

    Args:
        buffer: Holds the steps as ids 0 to N − 1.
        along: Each step's own gradient projected on the exact one, in shares of it, (N,); its mean is 1.
        batches: How many batches to draw.
    """
    shares = np.empty(batches)
    for k in range(batches):
        batch = buffer.sample(BATCH_SIZE)
        shares[k] = (batch.weight * along[batch.id]).mean()
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(batches))


def measure(steps: int = STEPS, batches: int = BATCHES, seed: int = 0) -> Iterator[ReplicatedFigure]:
    """Yield the exact error and the drawn share of every sampler, then LAP against PAL."""
    gradients = Gradients.make(steps, seed)
    even = np.full(steps, 1.0 / steps)
    truth = gradients.of(squared, even)
    along = gradients.of_each(squared) @ truth / (truth @ truth)
    for name, sampler in SAMPLERS.items():
        distribution, weights = distribution_and_weights(gradients, sampler, seed)
        yield _exact(f"{name}, β = 1", error(gradients.of(squared, distribution * weights), truth))
        mean, deviation = drawn(gradients.buffer(sampler, seed), along, batches)
        low, high = mean - Z * deviation, mean + Z * deviation
        quantity = f"{name}, β = 1: mean gradient of {batches:,} batches along uniform's exact one"
        yield ReplicatedFigure(quantity, "1", mean, low, high, f"± {Z} standard errors", agreement(low <= 1.0 <= high))
    for alpha in (0.4, 1.0):
        distribution, weights = distribution_and_weights(gradients, LAP(alpha), seed)
        lap, wanted = gradients.of(huber, distribution * weights), gradients.of(lambda d, a=alpha: pal(d, a), even)  # type: ignore[misc]
        yield _exact(f"LAP (α = {alpha:g}) with Huber against PAL", error(lap, wanted))
    distribution, _ = distribution_and_weights(gradients, SAMPLERS["proportional, α = .6"], seed)
    without = error(gradients.of(squared, distribution), truth)
    quantity = "control: proportional, β = 0: error of the expected gradient"
    yield ReplicatedFigure.exact(quantity, "> 0: biased", without, without > 1e-2)


def _exact(quantity: str, size: float) -> ReplicatedFigure:
    return ReplicatedFigure.exact(f"{quantity}: error of the expected gradient", "0", size, size < ROUNDING)


CLAIM = Claim(
    6,
    "Weights are unbiased",
    "With β = 1 the expected update under any sampler equals uniform's; LAP with the Huber loss equals PAL in "
    "expected gradient.",
    "Schaul et al. 2016, section 3.4; Fujimoto et al. 2020",
    0.5,
    measure,
)
