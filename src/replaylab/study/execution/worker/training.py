"""Training of a chunk in this process, and the request to stop it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaylab.study.plan import Chunk

if TYPE_CHECKING:
    from replaylab.learners import Hook


class TrainingStopped(BaseException):
    """Training ended early, with a checkpoint if one could be written.

    It is no `Exception`, so that custom code does not catch it.
    """


@dataclass
class StopRequest:
    """The state that a training loop and the thread which receives the request share."""

    requested: bool = False
    heeded: bool = False
    """Whether a training loop that writes checkpoints is at work; otherwise nothing can be kept."""


def train_chunk(
    chunk: Chunk,
    on_step: Callable[[int], None] | None = None,
    on_metrics: Callable[[int, Mapping[str, Any]], None] | None = None,
    *,
    hooks: Sequence[Hook] = (),
    resume: Path | None = None,
    tape: str | None = None,
) -> dict[str, Any]:
    """Train a chunk in this process and return its columns: seed, step, metric, value; each (rows,).

    Args:
        chunk: what to train.
        on_step: called now and then with the steps taken.
        on_metrics: called at each evaluation and each measurement of the learner: the step, and values of shape
            (seeds,).
        hooks: what else watches or steers training.
        resume: folder of a checkpoint to continue from.
        tape: file of the draws that it learns from, if it does not draw itself.
    """
    from replaylab.learners import Callbacks, train
    from replaylab.learners.api.whole_algorithm import WholeAlgorithm

    os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed: small networks, a second thread costs more
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    configuration, seeds = chunk.configuration(tape), chunk.seeds
    if on_step is not None and isinstance(configuration.learner, WholeAlgorithm):
        on_step = _mean_of(on_step, chunk)
    callbacks = Callbacks(progress=on_step, on_metrics=on_metrics)
    metrics = train(configuration, seeds, [callbacks, *hooks], resume=resume)
    columns: dict[str, Any] = metrics.columns
    return columns


def _mean_of(on_step: Callable[[int], None], chunk: Chunk) -> Callable[[int], None]:
    """Return a callback for seeds that are trained one after the other, which reports their mean steps."""
    ended = newest = 0

    def heard(step: int) -> None:
        nonlocal ended, newest
        ended, newest = ended + (step < newest), step
        on_step((ended * chunk.steps + step) // len(chunk.seeds))

    return heard
