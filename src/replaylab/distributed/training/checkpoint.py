"""A distributed run in a folder: the learner's state, and the snapshots of the shards.

The folder is a `Bundle`, whose manifest ``distributed.json`` says what the run is and how far it is, with

* ``learner``, an ``.npz`` file: networks, optimiser, counts and rows so far;
* ``replay``: snapshots of the shards (see `RemoteReplay.save`), which they also renew in between.

The manifest is replaced once the shards have saved what it counts. So after a kill at any moment a complete checkpoint
is there; the shards may hold more than it counts, never less. Nothing is pickled.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from replaylab.arguments import instance, text, tuple_of, whole
from replaylab.distributed.replay import RemoteReplay, snapshots
from replaylab.distributed.training.learner import LearnerRun
from replaylab.errors import SnapshotError
from replaylab.files.bundle import Bundle, Schema, reading
from replaylab.learners.training.configuration import check_same_run
from replaylab.trees import flatten, nest

REPLAY = "replay"
COUNT = whole(0, 2**64)

SCHEMA = Schema(
    noun="run with actors",
    format="replaylab-distributed-run",
    version=2,
    manifest="distributed.json",
    members={
        **dict.fromkeys(("seed", "environments", "steps", "updates"), COUNT),
        "settings": instance(dict, "an object"),
        "lives": tuple_of(COUNT, "an array of counts"),
        "replay": text,
    },
    files="learner",
)


def save(folder: Path, run: LearnerRun, remote: RemoteReplay, environments: int, lives: list[int]) -> None:
    """Write a run to a folder, in place of what was written there before.

    Args:
        folder: Where to.
        run: What has learned.
        remote: What is stored.
        environments: M.
        lives: For each actor, how many there were in its place before.

    Raises:
        StorageError: It cannot be written, or a shard was lost meanwhile; what was there before stays.
    """
    with Bundle(folder, SCHEMA).replacing() as draft:
        remote.save(folder / REPLAY)
        draft.arrays("learner", dict(flatten(run.state(), separator="/")))
        draft.describe(
            settings=run.configuration.learning_settings(),
            seed=run.seeds[0],
            environments=environments,
            lives=lives,
            replay=snapshots.read(folder / REPLAY)["origin"],
            steps=run.clock.steps,
            updates=run.agents.updates,
        )


def load(folder: Path, run: LearnerRun, environments: int) -> tuple[Callable[..., RemoteReplay], list[int]]:
    """Restore the state that `save` wrote in a new run.

    Returns:
        A function that loads the replay, with the options of `RemoteReplay.load`; and each actor's number of starts.

    Raises:
        SnapshotError: The folder does not hold a complete run, or holds another one.
        StorageError: The folder cannot be read.
    """
    about = Bundle(folder, SCHEMA).read()
    check_same_run(folder, about["settings"], run.configuration.learning_settings())
    for name, current in (("seed", run.seeds[0]), ("environments", environments)):
        if about[name] != current:
            raise SnapshotError(
                f"the run in {folder} is another one: it began with {name}={about[name]}, but got {current}"
            )
    if about["replay"] != snapshots.read(folder / REPLAY)["origin"]:
        raise SnapshotError(
            f"the run in {folder} has lost its replay to another one, which was begun in the same folder later and not "
            f"saved; begin again, with a folder for each run"
        )
    with reading(folder, "run"):
        run.restore(nest(about.arrays("learner"), "/"))

    def replay(**options: Any) -> RemoteReplay:
        return RemoteReplay.load(folder / REPLAY, transforms=run.transforms, **options)

    return replay, about["lives"]
