"""Custom algorithms."""

from stable_baselines3 import DQN

from replaylab.learners import Metric


class Eager(DQN):
    """its own Defaults, and a number that it logs."""

    metrics = (Metric("train/eagerness", "Eagerness", "none", "how eager it is"),)

    def __init__(self, *args, eagerness=2.0, gamma=0.9, **kwargs):
        self.eagerness = eagerness
        super().__init__(*args, gamma=gamma, **kwargs)

    def train(self, *args, **kwargs):
        super().train(*args, **kwargs)
        self.logger.record("train/eagerness", self.eagerness)
        self.logger.record("train/unlisted", 1.0)


class Annealed(DQN):
    """Its discount changes as it goes."""

    def _on_step(self):
        super()._on_step()
        self.gamma = min(0.99, self.num_timesteps / 1_000)


NOTHING = 3
