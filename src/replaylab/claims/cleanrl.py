"""Claim 4, CleanRL's DQN: whether this implementation reaches the returns of a well-known one.

CleanRL's settings (`dqn.py`): 500,000 steps, layers 120 and 84, Adam 2.5e-4, buffer 10,000, batches of 128, γ .99,
squared loss, a copy to the target network every 500 steps, ε from 1 to .05 over half the run, an update every 10 steps
from step 10,000 on. The figure of a run is the mean return of its last 100 episodes, explored with ε = .05. It counts
as reproduced if the 95 % interval of our mean over 10 runs meets CleanRL's mean ± standard deviation.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import scipy.stats

from replaylab.claims.claim import Claim, ReplicatedFigure, agreement
from replaylab.learners import DQN, Metrics, TrainingConfig, train
from replaylab.replay import Linear, Uniform

FIGURES = {"CartPole-v1": (488.7, 16.1), "Acrobot-v1": (-91.5, 7.2), "MountainCar-v0": (-195.0, 8.5)}
"""CleanRL's mean and standard deviation of the return."""
STEPS = 500_000
LAST = 100
SETTINGS = DQN(
    hidden=(120, 84),
    learning_rate=2.5e-4,
    gamma=0.99,
    batch_size=128,
    capacity=10_000,
    double=False,
    loss="squared",
    target_period=50,  # updates, of which one is made every 10 steps
    learning_starts=10_000,
    train_period=10,
    epsilon=Linear(1.0, 0.05, until=0.5),
    max_grad_norm=None,
)


def measure(
    figures: Mapping[str, tuple[float, float]] = FIGURES,
    seeds: Sequence[int] = range(10),
    steps: int = STEPS,
    settings: DQN = SETTINGS,
) -> Iterator[ReplicatedFigure]:
    """Yield the mean return of every environment."""
    for env_id, (mean, deviation) in figures.items():
        metrics = train(TrainingConfig(env_id, settings, Uniform(), steps, eval_every=None, log_every=steps), seeds)
        returns = final_returns(metrics, seeds)
        low, high = t_interval(returns)
        agrees = low <= mean + deviation and high >= mean - deviation
        published = f"{mean:g} ± {deviation:g}"
        quantity, interval = f"{env_id}: return", f"mean of {len(seeds)} runs, 95 %"
        yield ReplicatedFigure(quantity, published, float(returns.mean()), low, high, interval, agreement(agrees))


def final_returns(metrics: Metrics, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the mean return of each seed's last 100 episodes, (R,)."""
    return np.array([metrics.of("rollout/ep_rew", seed)[1][-LAST:].mean() for seed in seeds])


def t_interval(values: npt.NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean."""
    half = scipy.stats.t.ppf((1.0 + level) / 2.0, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


CLAIM = Claim(
    4,
    "CleanRL's DQN",
    "With CleanRL's settings deep Q-learning gets 488.7 ± 16.1 on CartPole-v1, −91.5 ± 7.2 on Acrobot-v1 and "
    "−195 ± 8.5 on MountainCar-v0.",
    "CleanRL, benchmark of dqn.py",
    6,
    measure,
)
