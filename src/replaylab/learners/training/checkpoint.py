"""Checkpoints of a run in a folder; a loaded run continues bit for bit.

The folder is a `Bundle`, whose manifest ``run.json`` has the settings of the run and the remaining replicas, with

* ``state``, an ``.npz`` file: networks or tables, optimisers, random streams, environments, counts and rows so far;
* ``buffer-0`` or ``buffer-1``: a snapshot of the replay buffer (see `replaylab.replay.snapshot`); checkpoints use the
  two alternately, and only what has changed is written again.

So if the process is killed at any moment, the previous checkpoint or the new one is complete. Nothing is pickled.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from replaylab.arguments import instance, one_of, optional, place, takes, text, tuple_of, whole
from replaylab.envs import env_state
from replaylab.errors import SnapshotError, StorageError
from replaylab.files.bundle import Bundle, Schema, reading
from replaylab.files.folder import folder_of
from replaylab.learners.api.hooks import Bools, Hook, TrainingRun
from replaylab.learners.training.configuration import TrainingConfig, check_same_run
from replaylab.learners.training.hooks import HookList
from replaylab.learners.training.saved_agents import save_agents
from replaylab.learners.training.state import Run
from replaylab.replay import RestorableReplay, require
from replaylab.trees import flatten, nest

BUFFERS = ("buffer-0", "buffer-1")
COUNT = whole(0, 2**64)

SCHEMA = Schema(
    noun="run",
    format="replaylab-run",
    version=3,
    manifest="run.json",
    members={
        "settings": instance(dict, "an object"),
        "began_with": COUNT,
        "steps": COUNT,
        "seeds": tuple_of(COUNT, "an array of seeds"),
        "hooks": tuple_of(text, "an array of names"),
        "buffer": one_of(*BUFFERS),
    },
    files="state",
)


def save(folder: str | os.PathLike[str], run: Run) -> None:
    """Write a run to a folder; it replaces the previous checkpoint there.

    Raises:
        StorageError: The folder cannot be made or written to; the previous checkpoint stays.
        SnapshotError: The folder holds something other than a complete run.
    """
    with Bundle(folder_of(folder, "save"), SCHEMA).replacing() as draft:
        buffer = next(name for name in BUFFERS if draft.before is None or name != draft.before["buffer"])
        run.replay.save(draft.folder(buffer))
        parts = {"run": run.state(), "recorder": run.hooks.state(), "rows": run.recorder.table().columns}
        draft.arrays("state", dict(flatten(parts, separator="/")))
        draft.describe(
            settings=run.configuration.learning_settings(),
            began_with=run.recorder.replicas,
            seeds=run.seeds,
            hooks=run.hooks.with_state,
            steps=run.clock.steps,
            buffer=buffer,
        )


def load(
    folder: str | os.PathLike[str], configuration: TrainingConfig, hooks: HookList, make: Callable[..., Any] = Run
) -> Any:
    """Return the run that `save` wrote, and restore the states of the hooks.

    Args:
        folder: The folder passed to `save`.
        configuration: The configuration of the saved run.
        hooks: New hooks of the same kinds as when the run began.
        make: Creates the run, as `loop_of` describes.

    Raises:
        SnapshotError: The folder has no complete run, or that of another configuration.
        StorageError: The folder cannot be read.
        ConfigError: The replay cannot restore its snapshot.
    """
    path = folder_of(folder, "load")
    manifest = Bundle(path, SCHEMA).read()
    check_same_run(path, manifest["settings"], configuration.learning_settings())
    if (began := manifest["began_with"]) != (got := hooks.recorder.replicas):
        raise SnapshotError(f"the run in {path} is another one: it began with {began} seeds, but got {got}")
    if absent := sorted(set(manifest["hooks"]) - set(hooks.with_state)):
        raise SnapshotError(f"the run in {path} began with a {absent[0]} among its hooks; give `train` one again")
    with reading(path, "run"):
        state = nest(manifest.arrays("state"), "/")
        _check_seeds(path, manifest["seeds"], state["recorder"]["places"], state["rows"]["seed"], hooks)
    run = make(configuration, manifest["seeds"], hooks)
    replay = require(run.replay, RestorableReplay, "`resume`")
    replay.restore(path / manifest["buffer"], continue_episodes=True)
    with reading(path, "run"):
        run.restore(state["run"])
        hooks.restore(state["recorder"])
        hooks.recorder.restore_rows(manifest["seeds"], state["rows"])
    return run


def _check_seeds(path: Path, continued: list[int], places: Any, with_rows: Any, hooks: HookList) -> None:
    """Raise `SnapshotError` unless a run continues with its original seeds: those remaining, and those with rows."""
    seeds = hooks.recorder.seeds.tolist()
    if [seeds[place] for place in places] != continued or not set(with_rows.tolist()) <= set(seeds):
        began = sorted({*continued, *with_rows.tolist()})
        raise SnapshotError(f"the run in {path} is of other seeds: it can continue only with {began}, but got {seeds}")


class Checkpoints(Hook):
    """A hook that saves a run to a folder during training, and at the end the agents.

    Args:
        folder: The folder, made if missing; `train`'s `resume` continues from it.
        every: Steps or episodes of the slowest replica between two checkpoints; None: only the agents are saved, at the
            end.
    """

    @takes(folder=place("a folder"), every=optional(whole()))
    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        self.folder, self.every = Path(folder), every
        self._next, self._tried = 0, False

    def on_begin(self, run: TrainingRun) -> None:
        """Check that the run can be saved, before anything is trained.

        Raises:
            StorageError: A file is at the path of the folder.
            ConfigError: The environment or the replay cannot continue from a checkpoint.
        """
        self.check_folder()
        if self.every is not None:
            env_state.check(run.env, run.env_id, "a checkpoint")
            require(run.replay, RestorableReplay, "a checkpoint")
            self._next = self._after(run, self.every)

    def check_folder(self) -> None:
        """Check that the folder can be made.

        Raises:
            StorageError: A file is at its path, or at that of a parent.
        """
        folder = self.folder.absolute()
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not existing.is_dir():
            raise StorageError(
                f"`folder` must be a folder, but {existing} is a file: give another place, or move it away"
            )

    def before_turn(self, run: TrainingRun) -> None:
        """Save the run if a checkpoint is due.

        Raises:
            ConfigError: A hook's state cannot be saved, which is checked after the first step.
        """
        if self.every is None:
            return
        if run.clock.steps and not self._tried:
            cast("Run", run).hooks.state()
            self._tried = True
        if run.clock.now.min() >= self._next:
            save(self.folder, cast("Run", run))
            self._next = self._after(run, self.every)

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Save the agents of the replicas that have ended."""
        save_agents(self.folder, run.agents_of(over), [s for s, ended in zip(run.seeds, over, strict=True) if ended])

    @staticmethod
    def _after(run: TrainingRun, every: int) -> int:
        """Return the next multiple of `every` that the slowest replica will reach."""
        return (int(run.clock.now.min()) // every + 1) * every
