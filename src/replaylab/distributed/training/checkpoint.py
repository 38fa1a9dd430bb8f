"""A distributed run in a folder: the learner's state, and the snapshots of the shards.

* ``distributed.json``: what the run is, how far it is, and the learner's file with its length and CRC-32;
* ``learner-….npz``: networks, optimiser, counts and rows so far, as arrays;
* ``replay``: snapshots of the shards (see `RemoteReplay.save`), which they also renew in between.

``distributed.json`` is replaced last, by one atomic rename, once the shards have saved what it counts. So after a kill
at any moment a whole checkpoint is there; the shards may hold more than it counts, never less. Nothing is pickled.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from replaylab.distributed.replay import RemoteReplay, snapshots
from replaylab.distributed.training.learner import LearnerRun
from replaylab.errors import SnapshotError
from replaylab.files import manifest as sealed
from replaylab.files.atomic import discard, make_folder, whole_file, writing
from replaylab.learners.training.checkpoint import flat, nested, settings_ever_of, settings_of, write_arrays

FORMAT, VERSION = "replaylab-distributed-run", 1
MANIFEST, REPLAY = "distributed.json", "replay"
COUNTS = ("seed", "environments", "steps", "updates")


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
    with writing(folder):
        make_folder(folder)
    remote.save(folder / REPLAY)
    state = folder / f"learner-{uuid4().hex}.npz"
    with whole_file(state) as temporary:
        write_arrays(temporary, flat(run.state()))
    about = {
        "format": FORMAT,
        "version": VERSION,
        "job": settings_of(run.configuration),
        "seed": run.seeds[0],
        "environments": environments,
        "lives": lives,
        "replay": snapshots.read(folder / REPLAY)["origin"],
        "steps": run.clock.steps,
        "updates": run.agents.updates,
        "state": sealed.listed(state),
    }
    with whole_file(folder / MANIFEST) as temporary:
        sealed.write(temporary, about)
    discard([one for one in folder.glob("learner-*.npz") if one.name != state.name], [])


def load(folder: Path, run: LearnerRun, environments: int) -> tuple[Callable[..., RemoteReplay], list[int]]:
    """Let a new run go on from where `save` wrote one.

    Returns:
        What makes the replay, with the options of `RemoteReplay.load`; and for each actor how many there were.

    Raises:
        SnapshotError: The folder holds no whole run, or another one.
        StorageError: It cannot be read.
    """
    about = _checked(folder)
    if about["job"] not in settings_ever_of(run.configuration):
        raise SnapshotError(
            f"the run in {folder} is another one; it can continue only as it began, with {about['job']}"
        )
    for name, ours in (("seed", run.seeds[0]), ("environments", environments)):
        if about[name] != ours:
            raise SnapshotError(
                f"the run in {folder} is another one: it began with {name}={about[name]}, but got {ours}"
            )
    if about.get("replay") not in (None, snapshots.read(folder / REPLAY)["origin"]):
        raise SnapshotError(
            f"the run in {folder} has lost its replay to another one, which was begun in the same folder later and not "
            f"saved; begin anew, with a folder for each run"
        )
    with sealed.reading(folder, "run"):
        run.restore(nested(sealed.read_arrays(folder, about["state"], "checkpoint")))

    def replay(**options: Any) -> RemoteReplay:
        return RemoteReplay.load(folder / REPLAY, transforms=run.transforms, **options)

    return replay, about["lives"]


def _checked(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    about = sealed.read(file, FORMAT, "run with actors")
    if about["version"] != VERSION:
        raise SnapshotError(f"{file} does not belong to a {FORMAT} of version {VERSION}")
    with sealed.reading(folder, "run"):
        sealed.check_seal(file, about)
        sealed.check_listed(about["state"], ".npz")
        for number in (*(about[name] for name in COUNTS), *about["lives"]):
            sealed.whole(number, 2**64)
        if not isinstance(about["job"], str):
            raise TypeError("the settings")
    return about
