"""Training of a chunk with checkpoints, from which a killed one continues.

A chunk that continues gives the same rows as an uninterrupted one. If the environment or the replay cannot continue
from a checkpoint, nothing is kept, and a killed chunk begins again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import numpy as np

from replaylab.envs import env_state
from replaylab.errors import ConfigError, ReplayError, SnapshotError, StorageError
from replaylab.learners import Hook
from replaylab.learners.api.hooks import Bools, TrainingRun
from replaylab.learners.api.whole_algorithm import WholeAlgorithm
from replaylab.learners.training import checkpoint
from replaylab.learners.training.state import Run
from replaylab.replay import RestorableReplay, require
from replaylab.study.execution.worker.training import StopRequest, TrainingStopped, train_chunk
from replaylab.study.plan import Chunk


def train_with_checkpoints(
    chunk: Chunk,
    on_step: Callable[[int], None],
    folder: Path,
    every: float,
    stop: StopRequest,
    hooks: Callable[[], Sequence[Hook]] = tuple,
    tape: str | None = None,
) -> tuple[dict[str, Any], float]:
    """Train a chunk, from its last checkpoint if a readable one exists.

    Args:
        chunk: what to train.
        on_step: called now and then with the steps taken.
        folder: of the checkpoint.
        every: seconds between two checkpoints.
        stop: asks for a checkpoint, and the end.
        hooks: makes the other hooks, again for each try.
        tape: as for `train_chunk`.

    Returns:
        Its columns, as `train_chunk`, and the seconds that it had been trained for before this call.
    """
    if isinstance(chunk.configuration().learner, WholeAlgorithm):  # of whose loop nothing can be kept
        return train_chunk(chunk, on_step, hooks=hooks(), tape=tape), 0.0
    checkpoints = TimedCheckpoints(folder, every, stop)
    if (folder / "run.json").is_file():
        try:
            columns = train_chunk(chunk, on_step, hooks=[checkpoints, *hooks()], resume=folder, tape=tape)
            return columns, checkpoints.seconds_before
        except (SnapshotError, StorageError):  # damaged, or of another version of the library
            checkpoints = TimedCheckpoints(folder, every, stop)
    rmtree(folder, ignore_errors=True)
    return train_chunk(chunk, on_step, hooks=[checkpoints, *hooks()], tape=tape), 0.0


class TimedCheckpoints(Hook):
    """Saves a checkpoint every so many seconds; runs without checkpoints train all the same.

    Args:
        folder: Where.
        every: Seconds between two checkpoints.
        stop: Asks for a checkpoint, and the end; None: nobody asks.

    Attributes:
        seconds_before: How long the run had been trained for when it was kept.
    """

    def __init__(self, folder: Path, every: float, stop: StopRequest | None = None) -> None:
        self.folder, self.every, self.seconds_before = folder, every, 0.0
        self._stop = stop or StopRequest()
        self._began = time.perf_counter()
        self._due = self._began + every

    def on_begin(self, run: TrainingRun) -> None:
        """Check whether the environment and the replay can continue from a checkpoint."""
        try:
            env_state.check(run.env, run.env_id, "a checkpoint")
            require(run.replay, RestorableReplay, "a checkpoint")
        except ConfigError:
            self._due = math.inf
        self._stop.heeded = self._due < math.inf

    def before_turn(self, run: TrainingRun) -> None:
        """Keep the run where that is due, or asked for.

        Raises:
            TrainingStopped: It was asked for.
        """
        if time.perf_counter() < self._due and not self._stop.requested:
            return
        try:
            checkpoint.save(self.folder, cast("Run", run))
            self._due = time.perf_counter() + self.every
        except ReplayError:  # the disk is full, or a hook has what no checkpoint holds
            self._due = math.inf
            self._stop.heeded = False
        if self._stop.requested:
            raise TrainingStopped

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Continue as before with some of the replicas."""

    def state(self) -> dict[str, Any]:
        """Return how long the run has been trained for."""
        return {"trained_seconds": np.array(self.seconds_before + time.perf_counter() - self._began)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.seconds_before = float(state["trained_seconds"])
