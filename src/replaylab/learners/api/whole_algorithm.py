"""Algorithms that bring a training loop of their own, such as another library's: the other kind of learner.

`train` drives the agents of a `Learner` itself. A `WholeAlgorithm` it only watches: it gives it an environment, by
which it hears of each step; it evaluates, measures and records between two. Each seed is a run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt

from replaylab.learners.api.protocols import Policy, Probed
from replaylab.replay import Batch, ReplayBuffer

if TYPE_CHECKING:
    import gymnasium as gym


@runtime_checkable
class TrainedModel(Policy, Protocol):
    """What a whole algorithm trains, as it is now. R is 1."""

    def numbers(self) -> Mapping[str, npt.ArrayLike]:
        """Return what is to be logged now, by metrics' names; ``train/updates`` is among them."""


@runtime_checkable
class ReplayedModel(TrainedModel, Protocol):
    """A model that shows what it replays, as measures need (`measure_every`)."""

    @property
    def replay(self) -> ReplayBuffer:
        """What each step is stored in as it comes; made with ``num_envs=1`` and ``count_replays=True``."""

    @property
    def newest_batch(self) -> Batch | None:
        """What was drawn last, its columns (B, ...); None: nothing yet."""


@runtime_checkable
class ProbedModel(ReplayedModel, Probed, Protocol):
    """A model that evaluates batches (1, B, ...) without learning from them: TD errors and gradients are measured."""

    @property
    def newest_td_error(self) -> npt.NDArray[Any] | None:
        """What `newest_batch` gave back to the sampler, (B,); None: nothing."""


class SeedRun(Protocol):
    """The training of one seed, as a whole algorithm is given it.

    Attributes:
        configuration: What is to be trained, a `TrainingConfig`; its `learner` is the algorithm.
        seed: Of all that is random in it.
    """

    configuration: Any
    seed: int

    def make_env(self) -> gym.Env[Any, Any]:
        """Return the environment to train on; the run counts the steps that it takes. To be called once."""

    def begin(self, model: TrainedModel) -> None:
        """Say what is trained: once, before the first step."""

    def drawn(self, batch: Batch) -> None:
        """Say what was drawn to learn from, its columns (B, ...): each time, for hooks and tapes."""


@runtime_checkable
class WholeAlgorithm(Protocol):
    """Settings of an algorithm with a training loop of its own: a frozen dataclass.

    It may have an attribute `metrics`, the `Metric` of each name that it logs in addition to the library's.
    """

    def train(self, run: SeedRun) -> None:
        """Train on the run's environment for all of its budget; steps beyond it are not looked at.

        Raises:
            ConfigError: The configuration asks for something that the algorithm cannot do.
        """

    def early(self) -> tuple[WholeAlgorithm, int]:
        """Return the same with little stored and an early first update, and after how many steps that has been made."""
