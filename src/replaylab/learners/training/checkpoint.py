"""A run in the middle, in a folder: what is loaded goes on bit for bit as what was saved would have.

* ``run.json``: what the run is, which replicas are left, and the other files with their lengths and CRC-32;
* ``state-….npz``: networks or tables, optimisers, random streams, environments, counts and rows so far, as arrays;
* ``buffer-0`` or ``buffer-1``: a snapshot of the replay buffer (see `replaylab.replay.snapshot`); the two take turns,
  each written again only where it changed.

Files are never changed while ``run.json`` speaks of them; it is replaced last, by one atomic rename. So whatever moment
a kill picks, the old checkpoint is there or the new one, whole. Nothing is pickled.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.errors import SnapshotError, StorageError
from replaylab.learners.api.protocols import Agents
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training.env_hindsight import transforms_for
from replaylab.learners.training.metrics_recorder import Recorder
from replaylab.learners.training.state import Job, Run
from replaylab.replay import ReplayBuffer, npy
from replaylab.replay import manifest as sealed
from replaylab.replay.samplers.custom import CustomSampler
from replaylab.writing import writing

FORMAT, VERSION = "replaylab-run", 2
BUFFERS = ("buffer-0", "buffer-1")


def save(folder: str | os.PathLike[str], run: Run, recorder: Recorder) -> None:
    """Write a run to a folder, in place of what was written there before.

    Raises:
        StorageError: The folder cannot be made or written to; what was there before stays.
        SnapshotError: Something else than a whole run is there.
    """
    path = sealed.folder_of(folder, "save")
    with writing(path):
        _save(path, run, recorder)


def _save(path: Path, run: Run, recorder: Recorder) -> None:
    before = _manifest(path) if (path / "run.json").exists() else {}
    made = sealed.make_folder(path)
    buffer = next(name for name in BUFFERS if name != before.get("buffer"))
    _tidy(path, before.get("state", {}).get("file"))
    state, fresh = path / f"state-{uuid4().hex}.npz", not (path / buffer).exists()
    try:
        run.buffer.save(path / buffer)
        parts = {"run": run.state(), "recorder": recorder.state(), "rows": recorder.table().columns}
        _write_arrays(state, flat(parts))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "job": told(run.job),
            "began_with": recorder.replicas,
            "seeds": run.seeds,
            "steps": run.clock.steps,
            "buffer": buffer,
            "state": sealed.listed(state),
        }
        new = sealed.write(path / "run.json", manifest)
        _checked(new)
        new.replace(path / "run.json")
    except BaseException:
        if fresh:
            rmtree(path / buffer, ignore_errors=True)
        sealed.discard([state, *path.glob("run.json.new")], made)
        raise
    sealed.settle_folder(path)
    _tidy(path, state.name)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise StorageError if something is in the way of a folder, before anything is trained."""
    path = Path(folder).absolute()
    there = next(one for one in (path, *path.parents) if one.exists())
    if not there.is_dir():
        raise StorageError(f"`save` must be a folder, but {there} is a file: give another place, or move it away")


def load(folder: str | os.PathLike[str], job: Job, recorder: Recorder) -> Run:
    """Return the run that `save` wrote, and let the recorder go on from there.

    Args:
        folder: What `save` was given.
        job: What is trained: the same as then.
        recorder: As it was made when the run began.

    Raises:
        SnapshotError: There is no whole run in the folder, or it is another one.
        StorageError: It cannot be read.
    """
    path = sealed.folder_of(folder, "load")
    manifest = _manifest(path)
    ours, theirs = told(job), manifest["job"]
    if ours != theirs or manifest["began_with"] != len(recorder.seeds):
        raise SnapshotError(f"the run in {path} is another one; it can go on only as it began, with {theirs}")
    with sealed.reading(path, "run"):
        state = nested(sealed.read_arrays(path, manifest["state"], "checkpoint"))
    blank = Run(job, manifest["seeds"])
    sampler = blank.buffer.sampler if isinstance(blank.buffer.sampler, CustomSampler) else None
    buffer = ReplayBuffer.load(
        path / manifest["buffer"], sampler=sampler, transforms=transforms_for(blank.env, job.transforms)
    )
    run = Run(job, manifest["seeds"], buffer)
    with sealed.reading(path, "run"):
        run.restore(state["run"])
        recorder.seeds = np.asarray(manifest["seeds"], np.int64)
        recorder.restore(state["recorder"], Metrics(state["rows"]))
    return run


def save_agents(folder: str | os.PathLike[str], agents: Agents, seeds: list[int]) -> None:
    """Write what each agent has learned to ``agents-SEED.npz``; `Agents.restore` takes the arrays, first axis 1."""
    path = sealed.folder_of(folder, "save_agents")
    sealed.make_folder(path)
    state = agents.state()
    for r, seed in enumerate(seeds):
        new = path / f"agents-{seed}.npz.new"
        with writing(path):
            try:
                _write_arrays(new, {k: v[r : r + 1] if v.ndim else v for k, v in state.items()})
                sealed.put(new, path / f"agents-{seed}.npz")
            except BaseException:
                sealed.discard([new], [])
                raise


def load_agents(folder: str | os.PathLike[str], agents: Agents, seed: int) -> None:
    """Let a single agent, made alike, take over what `save_agents` wrote of a seed.

    Raises:
        SnapshotError: Nothing was written of it.
    """
    file = Path(folder) / f"agents-{seed}.npz"
    if not file.is_file():
        raise SnapshotError(f"{file} is missing: the run of seed {seed} did not end, or was not saved")
    with sealed.reading(file, "file of agents"), file.open("rb") as source:
        agents.restore(npy.read_arrays(source))


def told(job: Job) -> str:
    """Return a job in words; functions by name, without their addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(job))


def flat(state: Mapping[str, Any], prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return nested arrays by path."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, part in state.items():
        if isinstance(part, Mapping):
            arrays |= flat(part, f"{prefix}{name}/")
        else:
            arrays[prefix + name] = np.asarray(part)
    return arrays


def nested(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return what `flat` was given."""
    state: dict[str, Any] = {}
    for path, array in arrays.items():
        *way, last = path.split("/")
        place = state
        for name in way:
            place = place.setdefault(name, {})
        place[last] = array
    return state


def _write_arrays(file: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    with file.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)
        sealed.settle(out)


def _tidy(path: Path, kept: str | None) -> None:
    """Remove states that are no longer listed, and those of writes that were cut short."""
    ours = re.compile(r"state-[0-9a-f]{32}\.npz(\.new)?")
    sealed.discard([one for one in path.glob("state-*") if ours.fullmatch(one.name) and one.name != kept], [])


def _manifest(path: Path) -> dict[str, Any]:
    return _checked(path / "run.json")


def _checked(file: Path) -> dict[str, Any]:
    """Return a manifest if its members are what `save` makes them."""
    manifest = sealed.read(file, FORMAT, "run")
    if manifest["version"] != VERSION:
        raise SnapshotError(f"{file} does not belong to a {FORMAT} of version {VERSION}")
    with sealed.reading(file.parent, "run"):
        sealed.check_seal(file, manifest)
        sealed.check_listed(manifest["state"], ".npz")
        if manifest["buffer"] not in BUFFERS or not isinstance(manifest["job"], str):
            raise ValueError(f"a buffer in {manifest['buffer']!r:.80}")
        for number in (manifest["began_with"], manifest["steps"], *manifest["seeds"]):
            sealed.whole(number, 2**64)
    return manifest
