"""The returns of a well-known deep Q-learning implementation, with this one at its settings.

    python -m examples.published.cleanrl_returns

Claim: CleanRL's DQN returns 488.7 ± 16.1 on CartPole-v1, −91.5 ± 7.2 on Acrobot-v1 and −195 ± 8.5 on MountainCar-v0
Source: CleanRL, benchmark of dqn.py
Minutes: 6

A run's figure is the mean return of its last 100 episodes, explored with ε = .05. It counts as reproduced if the 95 %
interval of our mean over 10 runs meets CleanRL's mean ± standard deviation.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from examples.published.figures import Figure, show, t_interval

from replaylab.learners import DQN, Metrics, TrainingConfig, train
from replaylab.replay import Linear, Uniform

PUBLISHED = {"CartPole-v1": (488.7, 16.1), "Acrobot-v1": (-91.5, 7.2), "MountainCar-v0": (-195.0, 8.5)}
"""CleanRL's mean and standard deviation of the return."""
SETTINGS = DQN(
    hidden=(120, 84),
    learning_rate=2.5e-4,
    gamma=0.99,
    batch_size=128,
    capacity=10_000,
    double=False,
    loss="squared",
    target_period=50,  # updates, of which there is one every 10 steps
    learning_starts=10_000,
    train_period=10,
    epsilon=Linear(1.0, 0.05, until=0.5),
    max_grad_norm=None,
)


def figures(
    published: Mapping[str, tuple[float, float]] = PUBLISHED,
    seeds: Sequence[int] = range(10),
    steps: int = 500_000,
    settings: DQN = SETTINGS,
) -> Iterator[Figure]:
    """Yield the mean return of every environment."""
    for env_id, (mean, deviation) in published.items():
        metrics = train(TrainingConfig(env_id, settings, Uniform(), steps, eval_every=None, log_every=steps), seeds)
        returns = final_returns(metrics, seeds)
        low, high = t_interval(returns)
        agrees = low <= mean + deviation and high >= mean - deviation
        kind = f"mean of {len(seeds)} runs, 95 %"
        yield Figure(f"{env_id}: return", f"{mean:g} ± {deviation:g}", float(returns.mean()), agrees, (low, high), kind)


def final_returns(metrics: Metrics, seeds: Sequence[int]) -> np.ndarray:
    """Return the mean return of each seed's last 100 episodes, (R,)."""
    return np.array([metrics.of("rollout/ep_rew", seed)[1][-100:].mean() for seed in seeds])


if __name__ == "__main__":
    raise SystemExit(show(figures()))
