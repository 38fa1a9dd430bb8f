"""A run with actors in a folder: the learner's state, and the snapshots of the shards.

The folder is a `Bundle`, whose manifest ``distributed.json`` has the settings and counts of the run, with

* ``learner``, an ``.npz`` file: networks, optimizer, counts, rows so far, and policies that wait for their evaluation;
* ``replay``: snapshots of the shards (see `RemoteReplay.save`), which the shards also renew in between.

The manifest is replaced once the shards have saved the steps that it counts. So after a kill at any moment a complete
checkpoint exists. Actors continue meanwhile: the shards may hold more steps than it counts. Nothing is pickled.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from replaylab.arguments import instance, whole
from replaylab.distributed.replay import RemoteReplay
from replaylab.distributed.training.evaluator import Waiting
from replaylab.distributed.training.learner import LearnerRun
from replaylab.files.bundle import Bundle, Schema, reading
from replaylab.learners import Checkpoints
from replaylab.learners.training.configuration import check_same_run
from replaylab.learners.training.factories import make_replay_buffer
from replaylab.replay import Uniform
from replaylab.trees import flatten, nest

REPLAY = "replay"
COUNT = whole(0, 2**64)

SCHEMA = Schema(
    noun="run with actors",
    format="replaylab-distributed-run",
    version=3,
    manifest="distributed.json",
    members={
        "settings": instance(dict, "an object"),
        "steps": COUNT,
        "updates": COUNT,
    },
    files="learner",
)


def discard(saved: Checkpoints | None) -> None:
    """Discard the checkpoint of a previous run in the folder, whose replay a new run will overwrite."""
    if saved is not None:
        (saved.folder / SCHEMA.manifest).unlink(missing_ok=True)


def save(folder: Path, run: LearnerRun, replay: RemoteReplay, waiting: Waiting) -> None:
    """Write a run, with its evaluations without results, to a folder; it replaces the previous checkpoint there.

    Raises:
        StorageError: The folder cannot be written, or a shard was lost meanwhile; the previous checkpoint stays.
    """
    with Bundle(folder, SCHEMA).replacing() as draft:
        replay.save(folder / REPLAY)
        state = run.state() | {"evaluations": {str(due): weights for due, weights in waiting}}
        draft.arrays("learner", dict(flatten(state, separator="/")))
        draft.describe(settings=run.settings, steps=run.clock.steps, updates=run.agents.updates)


def load(folder: Path, run: LearnerRun) -> tuple[Callable[..., RemoteReplay], Waiting]:
    """Restore the state that `save` wrote in a new run.

    Returns:
        A function that loads the replay, with the options of `RemoteReplay.load`; and evaluations without results.

    Raises:
        SnapshotError: The folder does not hold a complete run, or holds another one.
        StorageError: The folder cannot be read.
    """
    about = Bundle(folder, SCHEMA).read()
    check_same_run(folder, about["settings"], run.settings)
    with reading(folder, "run"):
        state = nest(about.arrays("learner"), "/")
        run.restore(state)
        waiting = sorted((int(due), weights) for due, weights in state.get("evaluations", {}).items())
    return partial(RemoteReplay.load, folder / REPLAY, transforms=run.transforms), deque(waiting)


def empty_replay(run: LearnerRun, environments: int) -> Callable[..., RemoteReplay]:
    """Return a function that creates an empty replay, in the same way, for the steps of all actors' environments."""
    parts: dict[str, Any] = {"env": run.env, "seeds": run.seeds, "transforms": run.transforms}
    like = make_replay_buffer(**parts, capacity=1, sampler=Uniform(), count_replays=False)
    options: dict[str, Any] = {"sampler": run.sampler, "transforms": run.transforms, "next_obs": like.next_obs}
    return partial(RemoteReplay, run.learner.capacity, like.fields, num_envs=environments, **options)
