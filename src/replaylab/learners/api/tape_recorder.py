"""A hook that records the steps that each update drew."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import optional, place, takes
from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Bools, EnvStep, Hook, TrainingRun
from replaylab.replay import Batch
from replaylab.research import TapeWriter

_NAME = "tape"


class TapeRecorder(Hook):
    """Records a run's draws as a tape, for `replaylab.research.Tape`: at each update the ids of every replica's rows.

    The tape is written when the run ends; until then it is in memory (two bytes a row in buffers of up to 65,536 steps)
    and in checkpoints. It needs a budget in steps, with which all replicas end together. An algorithm that trains one
    seed after the other (`SB3`) is recorded too, and its tape written after each. A recorder is for one training.

    Args:
        path: File to write; None: no file, use `writer`.

    Attributes:
        writer: The recorded draws.

    Example:
        >>> from replaylab.learners import QLearning, TrainingConfig, train
        >>> from replaylab.replay import Uniform
        >>> recorder = TapeRecorder()
        >>> learner = QLearning(batch_size=4, learning_starts=10)
        >>> config = TrainingConfig("FrozenLake-v1", learner, Uniform(), total_steps=20, eval_every=None)
        >>> metrics = train(config, seeds=[0, 1], hooks=[recorder])
        >>> len(recorder.writer)
        11
    """

    @takes(path=optional(place("a tape")))
    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.writer = TapeWriter()
        self._path = path
        self._ended: TapeWriter | None = None  # of the seeds before, where they are trained one after the other
        self._seeds: set[int] = set()  # that were recorded

    def on_begin(self, run: TrainingRun) -> None:
        """Raise for a budget in episodes, with which replicas end at different times.

        Raises:
            ConfigError: The budget is in episodes, or a seed has been recorded before.
        """
        if run.clock.unit != "steps":
            raise ConfigError(
                "a tape needs runs of equal length, but the budget is in episodes; give `total_steps` in its place"
            )
        if again := sorted(self._seeds.intersection(run.seeds)):
            raise ConfigError(f"a TapeRecorder is for one training, but it has recorded seed {again[0]}; make another")
        if self._ended is not None:
            self.writer = TapeWriter()

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Record the ends of episodes."""
        if step.ended.any() or run.clock.over.all():
            self.writer.append_ends(np.where(step.ended, ids, -1), step.terminated)

    def on_draw(self, run: TrainingRun, batch: Batch) -> None:  # noqa: ARG002
        """Record the drawn rows."""
        self.writer.append(batch.id)

    def on_end(self, run: TrainingRun, over: Bools) -> None:  # noqa: ARG002
        """Write the tape.

        Raises:
            ConfigError: Nothing was learned from batches.
            ShapeError: Another seed drew otherwise.
            StorageError: The tape cannot be written.
        """
        if self._ended is not None:
            self._ended.join(self.writer)
            self.writer = self._ended
        self._ended = self.writer
        self._seeds.update(run.seeds)
        if self._path is not None:
            self.writer.write(self._path)

    def state(self) -> dict[str, Any]:
        """Return the draws recorded so far."""
        return {_NAME: {"draws": np.array(len(self.writer))} | self.writer.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.writer.restore({name: array for name, array in state[_NAME].items() if name != "draws"})
