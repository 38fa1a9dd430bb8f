"""A custom sampler and learner, and things that are neither."""

from dataclasses import dataclass

from replaylab.learners import QLearning
from replaylab.replay import CustomSampler


@dataclass(frozen=True)
class Fresh(CustomSampler):
    power: float = 1.0

    def distribution(self, view, batch_size):
        wanted = (1.0 + view.replay_counts) ** -self.power
        return wanted / wanted.sum()


@dataclass(frozen=True)
class Budgeted(Fresh):
    """With a field whose name study files use for something else."""

    budget: int = 100


class NoDataclass(Fresh):
    pass


@dataclass(frozen=True)
class Typo(Fresh):
    def distribution(self, view, batch_size):
        return (1.0 + view.replay_counts) ** -power  # noqa: F821


@dataclass(frozen=True)
class HalfAlpha(QLearning):
    alpha: float = 0.5


THING = 3
