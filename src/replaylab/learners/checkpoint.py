"""A run in the middle, in a folder: what is loaded goes on bit for bit as what was saved would have.

* ``run.json``: what the run is, which replicas are left, and the other files with their lengths and CRC-32;
* ``state-….npz``: networks or tables, optimisers, random streams, environments, counts and rows so far, as arrays;
* ``buffer-0`` or ``buffer-1``: a snapshot of the replay buffer (see `replaylab.replay.snapshot`); the two take turns,
  each written again only where it changed.

Files are never changed while ``run.json`` speaks of them; it is replaced last, by one atomic rename. So whatever moment
a kill picks, the old checkpoint is there or the new one, whole. Nothing is pickled.
"""

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.errors import SnapshotError
from replaylab.learners.agents import Agents
from replaylab.learners.goals import transforms_for
from replaylab.learners.metrics import Metrics
from replaylab.learners.recorder import Recorder
from replaylab.learners.run import Job, Run
from replaylab.replay import ReplayBuffer
from replaylab.replay.custom import CustomSampler
from replaylab.writing import writing

FORMAT, VERSION = "replaylab-run", 1
BUFFERS = ("buffer-0", "buffer-1")


def save(folder: str | os.PathLike[str], run: Run, recorder: Recorder) -> None:
    """Write a run to a folder, in place of what was written there before.

    Raises:
        StorageError: It cannot be written; what was there before still is.
    """
    path = Path(folder)
    with writing(path):
        _save(path, run, recorder)


def _save(path: Path, run: Run, recorder: Recorder) -> None:
    path.mkdir(parents=True, exist_ok=True)
    before = _manifest(path) if (path / "run.json").exists() else {}
    buffer = next(name for name in BUFFERS if name != before.get("buffer"))
    run.buffer.save(path / buffer)
    state = {"run": run.state(), "recorder": recorder.state(), "rows": recorder.table().columns}
    written = _write_arrays(path, f"state-{uuid4().hex}.npz", flat(state))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "job": told(run.job),
        "began_with": recorder.replicas,
        "seeds": run.seeds,
        "steps": run.clock.steps,
        "buffer": buffer,
        "state": written,
    }
    _write_json(path / "run.json", manifest)
    for other in path.glob("state-*.npz"):
        if other.name != written["file"]:
            other.unlink()


def load(folder: str | os.PathLike[str], job: Job, recorder: Recorder) -> Run:
    """Return the run that `save` wrote, and let the recorder go on from there.

    Args:
        folder: What `save` was given.
        job: What is trained: the same as then.
        recorder: As it was made when the run began.

    Raises:
        SnapshotError: There is no whole run in the folder, or it is another one.
    """
    path = Path(folder)
    manifest = _manifest(path)
    ours, theirs = told(job), manifest["job"]
    if ours != theirs or manifest["began_with"] != len(recorder.seeds):
        raise SnapshotError(f"the run in {path} is another one; it can go on only as it began, with {theirs}")
    state = nested(_read_arrays(path, manifest["state"]))
    blank = Run(job, manifest["seeds"])
    sampler = blank.buffer.sampler if isinstance(blank.buffer.sampler, CustomSampler) else None
    buffer = ReplayBuffer.load(
        path / manifest["buffer"], sampler=sampler, transforms=transforms_for(blank.env, job.transforms)
    )
    run = Run(job, manifest["seeds"], buffer)
    run.restore(state["run"])
    recorder.seeds = np.asarray(manifest["seeds"], np.int64)
    recorder.restore(state["recorder"], Metrics(state["rows"]))
    return run


def save_agents(folder: str | os.PathLike[str], agents: Agents, seeds: list[int]) -> None:
    """Write what each agent has learned to ``agents-SEED.npz``; `Agents.restore` takes the arrays, first axis 1."""
    path = Path(folder)
    state = agents.state()
    for r, seed in enumerate(seeds):
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            _write_arrays(path, f"agents-{seed}.npz", {k: v[r : r + 1] if v.ndim else v for k, v in state.items()})


def load_agents(folder: str | os.PathLike[str], agents: Agents, seed: int) -> None:
    """Let a single agent, made alike, take over what `save_agents` wrote of a seed.

    Raises:
        SnapshotError: Nothing was written of it.
    """
    file = Path(folder) / f"agents-{seed}.npz"
    if not file.is_file():
        raise SnapshotError(f"{file} is missing: the run of seed {seed} did not end, or was not saved")
    with np.load(file, allow_pickle=False) as arrays:
        agents.restore({name: arrays[name] for name in arrays.files})


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


def _write_arrays(path: Path, name: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    with (path / f"{name}.new").open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    (path / f"{name}.new").replace(path / name)
    content = (path / name).read_bytes()
    return {"file": name, "bytes": len(content), "crc32": zlib.crc32(content)}


def _read_arrays(path: Path, listed: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    file = path / listed["file"]
    if not file.is_file():
        raise SnapshotError(f"the checkpoint is not complete: {file} is missing")
    content = file.read_bytes()
    if len(content) != listed["bytes"] or zlib.crc32(content) != listed["crc32"]:
        raise SnapshotError(f"the checkpoint is damaged: {file} is not what was written; use another copy")
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _write_json(file: Path, value: dict[str, Any]) -> None:
    new = file.with_name(f"{file.name}.new")
    with new.open("w") as out:
        json.dump(value | {"crc32": _seal(value)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _manifest(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    if not file.is_file():
        raise SnapshotError(f"{path} holds no run: there is no run.json in it; pass the folder a run was saved to")
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        seal = manifest.pop("crc32")
    except (ValueError, KeyError, AttributeError) as error:
        raise SnapshotError(f"{file} is damaged: {error}; use another copy") from None
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise SnapshotError(f"{file} does not belong to a {FORMAT} of version {VERSION}")
    if seal != _seal(manifest):
        raise SnapshotError(f"{file} is damaged: it is not what was written; use another copy")
    return manifest


def _seal(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
