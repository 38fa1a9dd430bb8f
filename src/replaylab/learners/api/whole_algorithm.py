"""Interface of algorithms with their own training loop, such as another library's.

`train` drives the agents of a `Learner` itself. A `WholeAlgorithm` it only watches: it gives it an environment, by
which it hears of each step; it evaluates, measures and records between two. Each seed is its own run.
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
    """The current model of a whole algorithm. R is 1."""

    def numbers(self) -> Mapping[str, npt.ArrayLike]:
        """Return the values to log now by metrics' names, including ``train/updates``."""


@runtime_checkable
class ReplayedModel(TrainedModel, Protocol):
    """A model that exposes its replay, for measures (`measure_every`)."""

    @property
    def replay(self) -> ReplayBuffer:
        """The replay in which each step is stored, made with ``num_envs=1`` and ``count_replays=True``."""

    @property
    def newest_batch(self) -> Batch | None:
        """The last drawn batch, columns (B, ...); None: none yet."""


@runtime_checkable
class ProbedModel(ReplayedModel, Probed, Protocol):
    """A model that evaluates batches (1, B, ...) without learning, for measures of TD errors and gradients."""

    @property
    def newest_td_error(self) -> npt.NDArray[Any] | None:
        """The feedback of `newest_batch`, (B,); None: no feedback."""


class SeedRun(Protocol):
    """The training of one seed, passed to `WholeAlgorithm.train`.

    Attributes:
        configuration: A `TrainingConfig`, whose `learner` is the algorithm.
        seed: Seed of everything random in the run.
    """

    configuration: Any
    seed: int

    def make_env(self) -> gym.Env[Any, Any]:
        """Return the environment to train on, whose steps the run counts. Call it once."""

    def begin(self, model: TrainedModel) -> None:
        """Name the model that is trained. Call it once, before the first step."""

    def drawn(self, batch: Batch) -> None:
        """Report each batch to learn from, its columns (B, ...): for hooks (`on_draw`) and tapes."""


@runtime_checkable
class WholeAlgorithm(Protocol):
    """Settings of an algorithm with its own training loop: a frozen dataclass.

    It may have an attribute `metrics`, the `Metric` of each name that it logs in addition to the library's.

    Example:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from replaylab.learners import TrainingConfig, train
        >>> from replaylab.replay import Uniform
        >>> class AlwaysRight:
        ...     def act(self, obs, explore):
        ...         return np.ones(obs.shape[:2], np.int64)
        ...     def numbers(self):
        ...         return {"train/updates": 0}
        >>> @dataclass(frozen=True)
        ... class Right:
        ...     def train(self, run):
        ...         env = run.make_env()
        ...         run.begin(AlwaysRight())
        ...         env.reset(seed=run.seed)
        ...         for _ in range(run.configuration.total_steps):
        ...             _, _, terminated, truncated, _ = env.step(1)
        ...             if terminated or truncated:
        ...                 env.reset()
        ...     def early(self):
        ...         return self, 1
        >>> config = TrainingConfig("CartPole-v1", Right(), Uniform(), 100, eval_every=50, measure_every=None)
        >>> train(config, seeds=[0, 1]).of("eval/mean_reward", seed=1)[0].tolist()
        [50, 100]
    """

    def train(self, run: SeedRun) -> None:
        """Train on the run's environment for its complete budget; further steps are ignored.

        Raises:
            ConfigError: The configuration asks for something that the algorithm cannot do.
        """

    def early(self) -> tuple[WholeAlgorithm, int]:
        """Return the same algorithm with a small buffer and an early first update, and the number of its steps.

        A study checks each cell with it before training.
        """
