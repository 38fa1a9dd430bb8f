"""A custom sampler: written, tested and used.

    python examples/custom_sampler.py        # uses it, beside uniform draws
    pytest examples/custom_sampler.py        # tests it

Where rewards come at the end of an episode, values spread backwards from there, one step a visit. `NearTheEnd` draws
steps more often the nearer they are to their episode's last stored one.
"""

import argparse
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from replaylab.replay import CustomSampler, ReplayBuffer, Sampler, Uniform, View
from replaylab.testing import SamplerTestCase


@dataclass(frozen=True)
class NearTheEnd(CustomSampler):
    """P(i) ∝ decay^(steps from i to the last stored one of its episode)."""

    decay: float = 0.9

    def distribution(self, view: View, batch_size: int) -> np.ndarray:  # noqa: ARG002
        """Return the chance of every stored step; the buffer does the rest."""
        _, episode = np.unique(view.episodes, return_inverse=True)
        last = np.zeros(episode.max() + 1, np.int64)
        np.maximum.at(last, episode, view.steps_in_episode)
        wanted = self.decay ** (last[episode] - view.steps_in_episode)
        return wanted / wanted.sum()


class TestNearTheEnd(SamplerTestCase):
    """Check that the stated probabilities are those of the draws, for any buffer, as for replaylab's own samplers."""

    sampler = NearTheEnd()


def train(sampler: Sampler, seed: int, episodes: int) -> np.ndarray:
    """Learn to cross a frozen lake from replayed steps alone; return whether each episode reached the goal."""
    env = gym.make("FrozenLake-v1", is_slippery=False)
    rng = np.random.default_rng(seed)
    q = np.zeros((16, 4))
    buffer = ReplayBuffer.for_env(env, 2_000, sampler=sampler, seed=seed)
    reached = np.zeros(episodes, bool)
    for episode in range(episodes):
        ended, (obs, _) = False, env.reset(seed=seed if episode == 0 else None)
        while not ended:
            best = np.flatnonzero(q[obs] == q[obs].max())
            action = rng.integers(4) if rng.random() < 0.3 else rng.choice(best)
            next_obs, reward, terminated, truncated, _ = env.step(int(action))
            buffer.add(
                obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
            )
            batch = buffer.sample(8)
            for s, a, r, s_next, end in zip(
                batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated, strict=True
            ):  # one after the other: the same step may have been drawn twice
                q[s, a] += 0.5 * (r + 0.95 * (not end) * q[s_next].max() - q[s, a])
            obs, ended = next_obs, terminated or truncated
        reached[episode] = reward > 0
    return reached


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    """Compare the two; return for each whether each episode of each seed reached the goal, (R, N)."""
    parser = argparse.ArgumentParser(description="A custom sampler beside uniform draws.")
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(arguments)
    reached = {}
    for sampler in (Uniform(), NearTheEnd()):
        name = type(sampler).__name__
        reached[name] = np.stack([train(sampler, seed, args.episodes) for seed in range(args.seeds)])
        shares = reached[name].mean(1)
        spread = f"{shares.min():.0%} to {shares.max():.0%}"
        print(f"{name}: reached the goal in {shares.mean():.0%} of the episodes ({spread} over seeds)")
    return reached


if __name__ == "__main__":
    main()
