"""The effect of importance weights, and of LAP's loss, on the expected gradient.

    python -m examples.published.unbiased_weights

Claim: With β = 1 the expected update under any sampler equals uniform's; LAP with the Huber loss equals PAL
Source: Schaul et al. 2016, section 3.4; Fujimoto et al. 2020
Minutes: 1

The expected gradient of a batch is Σᵢ P(i)·wᵢ·∇ℓ(δᵢ). P comes from `ReplayBuffer.probabilities` and w from batches,
large enough to hold every step, so it is exact; the error is |difference| / |gradient under uniform|. The rounding of
float32 weights and priorities remains, so errors below 1e-6 count as none. Then the same by draws: the mean gradient
of many batches, projected on the exact one and divided by its square, must have 1 in its interval of ± 4.9 standard
errors (false alarms below 1e-6).

The steps are of CartPole-v1 under random actions; a network 4-64-64-2 and its target are fixed. Everything is float64.

Shapes: N steps, P parameters.
"""

from collections.abc import Callable, Iterator

import gymnasium
import numpy as np
import torch
from examples.published.figures import Figure, show
from torch import Tensor, nn

from replaylab.replay import LAP, Field, Prioritized, RankBased, ReplayBuffer, Sampler, Uniform
from replaylab.research import AntiPrioritized, Blocks, Permuted

BATCH_SIZE, ROUNDING, Z = 64, 1e-6, 4.9
FIELDS = {
    "obs": Field((4,), "float64"),
    "action": Field((), "int64"),
    "reward": Field((), "float64"),
    "next_obs": Field((4,), "float64"),
    "terminated": Field((), "bool"),
}
BIASED = Prioritized(beta=0.0)
SAMPLERS: dict[str, Sampler] = {
    "uniform": Uniform(),
    "blocks of 8": Blocks(8),
    "proportional, α = .6": Prioritized(beta=1.0, normalize="none"),
    "proportional, α = 1": Prioritized(alpha=1.0, beta=1.0, normalize="none"),
    "rank-based": RankBased(beta=1.0, normalize="none"),
    "anti-prioritized": AntiPrioritized(beta=1.0, normalize="none"),
    "permuted": Permuted(beta=1.0, normalize="none"),
}


def cartpole_steps(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return `count` steps of CartPole-v1 under random actions, as columns (N, ...)."""
    env, rng, rows = gymnasium.make("CartPole-v1"), np.random.default_rng(seed), []
    obs, _ = env.reset(seed=seed)
    while len(rows) < count:
        action = int(rng.integers(2))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, next_obs, terminated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    columns = zip(*rows, strict=True)
    return {name: np.array(column, field.dtype) for (name, field), column in zip(FIELDS.items(), columns, strict=True)}


class Gradients:
    """A Q network with its target network, at fixed weights drawn by the seed, and N steps.

    TD errors are spread to both sides of 1.
    """

    def __init__(self, count: int, seed: int):
        self.steps = cartpole_steps(count, seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.online, target = (_network() for _ in range(2))
        with torch.no_grad():
            list(self.online.parameters())[-2].mul_(5.0)
            following = target(torch.from_numpy(self.steps["next_obs"])).max(1).values
            y = torch.from_numpy(self.steps["reward"]) + 0.99 * following * torch.from_numpy(~self.steps["terminated"])
            self.td_error = y - self.taken()

    def taken(self) -> Tensor:
        """Return Q(s, a) of every step, (N,)."""
        q = self.online(torch.from_numpy(self.steps["obs"]))
        return q.gather(1, torch.from_numpy(self.steps["action"])[:, None])[:, 0]

    def of(self, loss: Callable[[Tensor], Tensor], weights: np.ndarray) -> np.ndarray:
        """Return ∂/∂θ Σᵢ wᵢ·loss(δᵢ) for each row of weights (K, N), with the targets held fixed; float64 (K, P)."""
        q = self.taken()
        losses = loss((self.td_error + q.detach()) - q)
        parameters = list(self.online.parameters())
        parts = torch.autograd.grad(losses, parameters, torch.from_numpy(weights), is_grads_batched=True)
        return torch.cat([part.flatten(1) for part in parts], dim=1).numpy()

    def buffer(self, sampler: Sampler, seed: int) -> ReplayBuffer:
        """Return a buffer that holds the steps, with ids 0 to N − 1 and their TD errors as priorities."""
        buffer = ReplayBuffer(len(self.td_error), FIELDS, sampler=sampler, seed=seed)
        ids = buffer.extend(**self.steps)
        buffer.update_priorities(ids, self.td_error.numpy())
        return buffer


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).double()


def squared(td_error: Tensor) -> Tensor:
    """Return δ²/2."""
    return td_error**2 / 2


def huber(td_error: Tensor) -> Tensor:
    """Return δ²/2 where |δ| ≤ 1, elsewhere |δ| − ½."""
    return torch.nn.functional.huber_loss(td_error, torch.zeros_like(td_error), reduction="none")


def pal(td_error: Tensor, alpha: float) -> Tensor:
    """Return the loss whose mean under uniform draws has the gradient of Huber's under LAP's.

    PAL(δ) = 1/λ · (δ²/2 where |δ| ≤ 1, elsewhere |δ|^(1+α)/(1+α)), λ the mean of max(|δ|, 1)^α over the steps, fixed.
    """
    size = td_error.abs()
    scale = size.detach().clamp(min=1.0).pow(alpha).mean()
    return torch.where(size <= 1.0, td_error**2 / 2, size.clamp(min=1.0).pow(1 + alpha) / (1 + alpha)) / scale


def distribution_and_weights(gradients: Gradients, sampler: Sampler, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return P(i) and wᵢ of every step, (N,); weights from batches, drawn until every step was in one."""
    buffer, ids = gradients.buffer(sampler, seed), np.arange(len(gradients.td_error))
    weights = np.full(len(ids), np.nan)
    while np.isnan(weights).any():
        batch = buffer.sample(BATCH_SIZE * 256)
        weights[batch.id] = batch.weight
    return buffer.probabilities(ids, batch_size=BATCH_SIZE), weights


def drawn(buffer: ReplayBuffer, along: np.ndarray, batches: int) -> tuple[float, float]:
    """Return the mean gradient of batches along the exact one, as a share of it, and its standard error.

    `along` has each step's own gradient projected on the exact one, in shares of it, (N,); its mean is 1.
    """
    drawn_batches = (buffer.sample(BATCH_SIZE) for _ in range(batches))
    shares = np.array([(batch.weight * along[batch.id]).mean() for batch in drawn_batches])
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(batches))


def error(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Return |estimate − truth| / |truth|, Euclidean."""
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def figures(steps: int = 512, batches: int = 4_000, seed: int = 0) -> Iterator[Figure]:
    """Yield the exact error and the drawn share of every sampler, then LAP against PAL, then one without weights."""
    gradients, even = Gradients(steps, seed), np.full((1, steps), 1.0 / steps)
    truth = gradients.of(squared, even)[0]
    along = gradients.of(squared, np.eye(steps)) @ truth / (truth @ truth)
    for name, sampler in SAMPLERS.items():
        distribution, weights = distribution_and_weights(gradients, sampler, seed)
        size = error(gradients.of(squared, (distribution * weights)[None]), truth)
        yield Figure(f"{name}, β = 1: error of the gradient", "0", size, size < ROUNDING)
        mean, deviation = drawn(gradients.buffer(sampler, seed), along, batches)
        low, high = mean - Z * deviation, mean + Z * deviation
        quantity = f"{name}, β = 1: mean of {batches:,} batches"
        yield Figure(quantity, "1", mean, low <= 1.0 <= high, (low, high), f"± {Z} standard errors")
    for alpha in (0.4, 1.0):
        distribution, weights = distribution_and_weights(gradients, LAP(alpha), seed)
        lap = gradients.of(huber, (distribution * weights)[None])
        size = error(lap, gradients.of(lambda td_error, alpha=alpha: pal(td_error, alpha), even))
        yield Figure(f"LAP (α = {alpha:g}) with Huber against PAL: error", "0", size, size < ROUNDING)
    distribution, _ = distribution_and_weights(gradients, BIASED, seed)
    size = error(gradients.of(squared, distribution[None]), truth)
    yield Figure("control: proportional, β = 0: error", "> 0: biased", size, size > 1e-2)


if __name__ == "__main__":
    raise SystemExit(show(figures()))
