"""A custom learner: continuous actions, from the first line to a study.

    python examples/linear_gaussian.py                                # trains it on Pendulum-v1 and prints its returns
    learner = {type = "linear_gaussian:LinearGaussian"}               # in a study file beside this file

CACLA (van Hasselt & Wiering 2007): a linear critic V(s) = wᵀφ(s) learns by TD(0); a Gaussian policy with linear mean
μ(s) = θᵀφ(s) moves towards an action where the TD error says that it did better than expected. φ is a Fourier basis.

Shapes: R replicas, N observations of each, B drawn steps, F features, D numbers of an action.
"""

import argparse
import itertools
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np

from replaylab.learners import Agents, Metric, Stream, TrainingConfig, Update, generator, train
from replaylab.replay import Prioritized, Uniform


@dataclass(frozen=True, kw_only=True)
class LinearGaussian:
    """Settings; see `replaylab.learners.Learner` for those that the training loop reads."""

    critic_step: float = 1.0
    actor_step: float = 1.0
    sigma: float = 0.3  # of exploration, where the action space is scaled to [-1, 1]
    gamma: float = 0.95
    order: int = 4
    capacity: int = 50_000
    batch_size: int = 32
    learning_starts: int = 200
    train_period: int = 1
    gradient_steps: int = 1
    online: bool = False
    needs_next_action: bool = False
    metrics: ClassVar = (Metric("rollout/exploration_sigma", "Exploration", "none", "σ of the noise, scaled"),)

    def agents(self, observation_space: gym.Space, action_space: gym.Space, seeds: list[int]) -> "LinearGaussianAgents":
        """Return R new agents, one a seed."""
        return LinearGaussianAgents(self, observation_space, action_space, seeds)


class LinearGaussianAgents(Agents):
    """R critics and policies; replica r depends on its own seed and steps alone."""

    def __init__(self, learner: LinearGaussian, space: gym.spaces.Box, actions: gym.spaces.Box, seeds: list[int]):
        self.learner, self.seeds, self.actions = learner, seeds, actions
        self.low, self.width = space.low, space.high - space.low
        orders = itertools.product(range(learner.order + 1), repeat=len(space.low))
        self.frequencies = np.array(list(orders)).T
        shape = (len(seeds), self.frequencies.shape[1])
        self.critic, self.actor = np.zeros(shape), np.zeros((*shape, actions.shape[0]))
        self.updates = self.turns = 0

    def features(self, obs: np.ndarray) -> np.ndarray:
        """φ(s) = cos(π·c·s) for every combination c of orders, with s scaled to [0, 1]; of Euclidean norm at most 1."""
        basis = np.cos(np.pi * ((obs - self.low) / self.width) @ self.frequencies)
        return basis / np.sqrt(basis.shape[-1])

    def act(self, obs: np.ndarray, explore: bool) -> np.ndarray:
        """Return μ(s), exploring with noise of σ; (R, N, D), in the space's bounds and dtype."""
        mean = np.einsum("rnf,rfd->rnd", self.features(obs), self.actor)
        if explore:
            draws = [generator(seed, Stream.EXPLORATION, self.turns) for seed in self.seeds]
            mean += self.learner.sigma * np.stack([draw.standard_normal(mean.shape[1:]) for draw in draws])
            self.turns += 1
        low, high = self.actions.low, self.actions.high
        return (low + (mean.clip(-1.0, 1.0) + 1.0) / 2.0 * (high - low)).astype(self.actions.dtype)

    def update(self, batch) -> Update:
        """One step of the critic along δ·φ; of the actor towards the actions with δ > 0."""
        phi, phi_next = self.features(batch.obs), self.features(batch.next_obs)
        value, value_next = (np.einsum("rbf,rf->rb", features, self.critic) for features in (phi, phi_next))
        td_error = batch.reward + self.learner.gamma * ~batch.terminated * value_next - value
        step = batch.weight / batch.weight.shape[1]
        low, high = self.actions.low, self.actions.high
        taken = (batch.action - low) / (high - low) * 2.0 - 1.0
        ahead = (td_error > 0.0)[..., None] * (taken - np.einsum("rbf,rfd->rbd", phi, self.actor))
        self.critic += self.learner.critic_step * np.einsum("rb,rbf->rf", step * td_error, phi)
        self.actor += self.learner.actor_step * np.einsum("rb,rbf,rbd->rfd", step, phi, ahead)
        self.updates += 1
        return Update(td_error)

    def exploration_metrics(self) -> dict[str, float]:
        """Return the exploration metric that the recorder reports."""
        return {"rollout/exploration_sigma": self.learner.sigma}

    def state(self) -> dict[str, np.ndarray]:
        """Return all that decides what comes next, as arrays (R, ...) or numbers."""
        counts = {"updates": np.array(self.updates), "turns": np.array(self.turns)}
        return {"critic": self.critic.copy(), "actor": self.actor.copy(), **counts}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from there."""
        self.critic, self.actor = state["critic"].copy(), state["actor"].copy()
        self.updates, self.turns = int(state["updates"]), int(state["turns"])


def main(argv: list[str] | None = None) -> dict[str, np.ndarray]:
    """Train with uniform and prioritized replay, and print the greedy returns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args(argv)
    returns = {}
    for sampler in (Uniform(), Prioritized()):
        config = TrainingConfig("Pendulum-v1", LinearGaussian(), sampler, options.steps, eval_every=options.steps // 4)
        metrics = train(config, seeds=range(options.seeds))
        returns[type(sampler).__name__] = greedy_returns = metrics.of("eval/mean_reward")[1]
        print(f"{type(sampler).__name__:12} greedy return {greedy_returns.mean():8.1f}")
    return returns


if __name__ == "__main__":
    main()
