"""Metrics for TensorBoard, under Stable-Baselines3's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from replaylab.arguments import place, seed_number, takes, tuple_of
from replaylab.errors import MissingExtraError
from replaylab.learners import Hook
from replaylab.learners.metrics.registry import REGISTRY


class TensorBoard(Hook):
    """Writes what `train` measures as TensorBoard scalars, each seed as a run of its own (``FOLDER/seed-3``).

    Give it to `train` as a hook; look at it with ``tensorboard --logdir FOLDER``. A number that is NaN (a seed
    that has ended) is left out.

    Args:
        folder: Where the event files go; it is made.
        seeds: Those of the run, in its order.

    Raises:
        MissingExtraError: TensorBoard is not installed.

    Example:
        with TensorBoard("runs/cartpole", seeds) as board:
            train(TrainingConfig("CartPole-v1", DQN(), Uniform(), 50_000), seeds, [board])
    """

    @takes(folder=place("a folder"), seeds=tuple_of(seed_number, "whole numbers that are not negative"))
    def __init__(self, folder: str | Path, seeds: Sequence[int]) -> None:
        if find_spec("tensorboard") is None:
            raise MissingExtraError(
                'event files need tensorboard, which is not installed. Run: pip install "replaylab[tensorboard]"'
            )
        from torch.utils.tensorboard import SummaryWriter

        self._writers = [SummaryWriter(str(Path(folder) / f"seed-{seed}")) for seed in seeds]

    def on_metrics(self, now: int, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Write numbers, each (R,), at an environment step or episode."""
        for name, numbers in values.items():
            for writer, value in zip(self._writers, numbers, strict=True):
                if not np.isnan(value):
                    writer.add_scalar(_tag(name), value, now)

    def close(self) -> None:
        """Write what is left and close the files."""
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _tag(metric: str) -> str:
    """Return what Stable-Baselines3 calls a metric."""
    return (REGISTRY[metric].tensorboard if metric in REGISTRY else "") or metric
