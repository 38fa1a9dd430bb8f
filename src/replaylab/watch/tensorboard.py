"""A hook that writes metrics for TensorBoard, under Stable-Baselines3's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from replaylab.arguments import place, seed_number, takes, tuple_of
from replaylab.extras import missing_extra
from replaylab.learners import Hook
from replaylab.learners.metrics.registry import REGISTRY


class TensorBoard(Hook):
    """A hook that writes metrics as TensorBoard scalars, each seed as a separate run (``FOLDER/seed-3``).

    Pass it to `train` as a hook, and run ``tensorboard --logdir FOLDER`` to view the metrics. NaN (of a seed that has
    ended) is not written.

    Args:
        folder: Folder of the event files, created if missing.
        seeds: Seeds of the run, in its order.

    Raises:
        MissingExtraError: TensorBoard is not installed.

    Example:
        with TensorBoard("runs/cartpole", seeds) as board:
            train(TrainingConfig("CartPole-v1", DQN(), Uniform(), 50_000), seeds, [board])
    """

    @takes(folder=place("a folder"), seeds=tuple_of(seed_number, "whole numbers that are not negative"))
    def __init__(self, folder: str | Path, seeds: Sequence[int]) -> None:
        if find_spec("tensorboard") is None:
            raise missing_extra("TensorBoard", "tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writers = [SummaryWriter(str(Path(folder) / f"seed-{seed}")) for seed in seeds]

    def on_metrics(self, now: int, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Write metrics, each (R,), of an environment step or episode."""
        for name, numbers in values.items():
            tag = (REGISTRY[name].tensorboard if name in REGISTRY else "") or name  # Stable-Baselines3's name
            for writer, value in zip(self._writers, numbers, strict=True):
                if not np.isnan(value):
                    writer.add_scalar(tag, value, now)

    def close(self) -> None:
        """Write pending values and close the files."""
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
