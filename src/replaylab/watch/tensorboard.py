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
from replaylab.learners import Hook, TrainingRun
from replaylab.learners.metrics import REGISTRY


class TensorBoard(Hook):
    """A hook that writes metrics as TensorBoard scalars, each seed as a separate run (``FOLDER/seed-3``).

    Pass it to `train` as a hook, and run ``tensorboard --logdir FOLDER`` to view the metrics. NaN (of a seed that has
    ended) is not written. If a run continues from a checkpoint, TensorBoard drops what the folder holds of later steps.

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

        self._seeds = list(seeds)
        self._writers = [SummaryWriter(str(Path(folder) / f"seed-{seed}")) for seed in seeds]
        # By tag the newest step and its value; None: of a previous process, and equal to what this one computes.
        self._newest: list[dict[str, tuple[int, float | None]]] = [{} for _ in seeds]

    def on_begin(self, run: TrainingRun) -> None:
        """Drop what was written after the checkpoint from which a run continues."""
        self._newest = [{} for _ in self._seeds]
        if run.clock.steps == 0:
            return
        writers = dict(zip(self._seeds, zip(self._writers, self._newest, strict=True), strict=True))
        for seed, now in zip(run.seeds, run.clock.now.tolist(), strict=True):
            if seed in writers:
                writer, newest = writers[seed]
                writer.close()  # the next value opens a file that begins with the step from which on others are dropped
                writer.purge_step = now + 1
                newest.update(dict.fromkeys(_tags_at(writer.log_dir, now), (now, None)))

    def on_metrics(self, now: int, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Write metrics, each (R,), of an environment step or episode, without repeating a value."""
        for name, numbers in values.items():
            tag = (REGISTRY[name].tensorboard if name in REGISTRY else "") or name  # Stable-Baselines3's name
            for writer, newest, value in zip(self._writers, self._newest, numbers.tolist(), strict=True):
                if not np.isnan(value) and newest.get(tag) not in ((now, value), (now, None)):
                    writer.add_scalar(tag, value, now)
                    newest[tag] = (now, value)

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


def _tags_at(folder: str, step: int) -> list[str]:
    """Return the tags of which a folder's event files hold a value of this step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, {"scalars": 0}).Reload()
    return [tag for tag in events.Tags()["scalars"] if any(event.step == step for event in events.Scalars(tag))]
