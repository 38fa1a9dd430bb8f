"""A run's state in a folder: what is loaded continues bit for bit as the saved run would have.

* ``run.json``: what the run is, which replicas are left, and the other files with their lengths and CRC-32;
* ``state-….npz``: networks or tables, optimisers, random streams, environments, counts and rows so far, as arrays;
* ``buffer-0`` or ``buffer-1``: a snapshot of the replay buffer (see `replaylab.replay.snapshot`); the two take turns,
  each written again only where it changed.

Files are never changed while ``run.json`` lists them; it is replaced last, by one atomic rename. So after a kill at any
moment, the old checkpoint or the new one is there, whole. Nothing is pickled.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from itertools import compress, product
from pathlib import Path
from shutil import rmtree
from typing import Any, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.arguments import optional, place, takes, whole
from replaylab.errors import SnapshotError, StorageError
from replaylab.files import manifest as sealed
from replaylab.files import npy
from replaylab.files.atomic import discard, make_folder, replacing, settle, settle_folder, writing
from replaylab.learners.api.hooks import Bools, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training import env_state
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.hooks import Hooks
from replaylab.learners.training.state import Run
from replaylab.replay import RestorableReplay, require

FORMAT, VERSION = "replaylab-run", 2
BUFFERS = ("buffer-0", "buffer-1")


def save(folder: str | os.PathLike[str], run: Run) -> None:
    """Write a run to a folder, in place of what was written there before.

    Raises:
        StorageError: The folder cannot be made or written to; what was there before stays.
        SnapshotError: The folder holds something other than a whole run.
    """
    path = sealed.folder_of(folder, "save")
    with writing(path):
        _save(path, run)


def _save(path: Path, run: Run) -> None:
    before = _manifest(path) if (path / "run.json").exists() else {}
    made = make_folder(path)
    buffer = next(name for name in BUFFERS if name != before.get("buffer"))
    _tidy(path, before.get("state", {}).get("file"))
    state, fresh = path / f"state-{uuid4().hex}.npz", not (path / buffer).exists()
    try:
        run.replay.save(path / buffer)
        parts = {"run": run.state(), "recorder": run.hooks.state(), "rows": run.recorder.table().columns}
        write_arrays(state, flat(parts))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "job": settings_of(run.configuration),
            "began_with": run.recorder.replicas,
            "seeds": run.seeds,
            "hooks": run.hooks.with_state,
            "steps": run.clock.steps,
            "buffer": buffer,
            "state": sealed.listed(state),
        }
        with replacing(path / "run.json", path / "run.json.new") as new:
            sealed.write(new, manifest)
            _checked(new)
    except BaseException:
        if not sealed.mentions(path / "run.json", state.name):  # Ctrl-C may come right after the rename
            if fresh:
                rmtree(path / buffer, ignore_errors=True)
            discard([state], made)
        raise
    settle_folder(path)
    _tidy(path, state.name)


def load(folder: str | os.PathLike[str], configuration: TrainingConfig, hooks: Hooks) -> Run:
    """Return the run that `save` wrote, and let the hooks continue from there.

    Args:
        folder: What `save` was given.
        configuration: What is trained: the same as then.
        hooks: As they were made when the run began.

    Raises:
        SnapshotError: The folder holds no whole run, or another one.
        StorageError: It cannot be read.
        ConfigError: The replay cannot restore what it saved.
    """
    path = sealed.folder_of(folder, "load")
    manifest = _manifest(path)
    ours, theirs = settings_ever_of(configuration), manifest["job"]
    if theirs in ours and manifest["began_with"] != hooks.recorder.replicas:
        began, got = manifest["began_with"], hooks.recorder.replicas
        raise SnapshotError(f"the run in {path} is another one: it began with {began} seeds, but got {got}")
    if theirs not in ours:
        raise SnapshotError(f"the run in {path} is another one; it can continue only as it began, with {theirs}")
    if absent := sorted(set(manifest.get("hooks", ())) - set(hooks.with_state)):
        raise SnapshotError(f"the run in {path} began with a {absent[0]} among its hooks; give `train` one again")
    with sealed.reading(path, "run"):
        state = nested(sealed.read_arrays(path, manifest["state"], "checkpoint"))
        _check_seeds(path, manifest["seeds"], state["recorder"]["places"], state["rows"]["seed"], hooks)
    run = Run(configuration, manifest["seeds"], hooks)
    require(run.replay, RestorableReplay, "`resume`").restore(path / manifest["buffer"])
    with sealed.reading(path, "run"):
        run.restore(state["run"])
        hooks.restore(state["recorder"])
        hooks.recorder.restore_rows(manifest["seeds"], Metrics(state["rows"]))
    return run


def _check_seeds(path: Path, left: list[int], places: Any, seen: Any, hooks: Hooks) -> None:
    """Raise `SnapshotError` unless a run goes on with the seeds it began with: those left, and those with rows."""
    given = hooks.recorder.seeds.tolist()
    if [given[place] for place in places] != left or not set(seen.tolist()) <= set(given):
        began = sorted({*left, *seen.tolist()})
        raise SnapshotError(f"the run in {path} is of other seeds: it can continue only with {began}, but got {given}")


class Checkpoints(Hook):
    """Saves a run to a folder during training, and at the end what each agent has learned.

    Args:
        folder: Where; `train`'s `resume` continues from it. It is made if it is not there.
        every: Steps or episodes of the slowest replica between two checkpoints; None: only the agents are saved, at the
            end.
    """

    @takes(folder=place("a folder"), every=optional(whole()))
    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        self.folder, self.every = Path(folder), every
        self._next, self._tried = 0, False

    def on_begin(self, run: TrainingRun) -> None:
        """Refuse what cannot be saved, before anything is trained.

        Raises:
            StorageError: Something is in the way of the folder.
            ConfigError: The environment or the replay cannot continue from a checkpoint.
        """
        self.check_folder()
        if self.every is not None:
            env_state.check(run.env, run.env_id, "a checkpoint")
            require(run.replay, RestorableReplay, "a checkpoint")
            self._next = self._after(run, self.every)

    def check_folder(self) -> None:
        """Raise where no folder can be made.

        Raises:
            StorageError: Something is in the way of it.
        """
        there = next(one for one in (self.folder.absolute(), *self.folder.absolute().parents) if one.exists())
        if not there.is_dir():
            raise StorageError(f"`folder` must be a folder, but {there} is a file: give another place, or move it away")

    def before_turn(self, run: TrainingRun) -> None:
        """Save the run where that is due.

        Raises:
            ConfigError: A hook's state cannot be saved, which is found out after one step.
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
        """Save what the agents of these replicas have learned."""
        save_agents(self.folder, run.agents_of(over), [s for s, here in zip(run.seeds, over, strict=True) if here])

    @staticmethod
    def _after(run: TrainingRun, every: int) -> int:
        """Return the next multiple of `every` that the slowest replica comes to."""
        return (int(run.clock.now.min()) // every + 1) * every


def save_agents(folder: str | os.PathLike[str], agents: Agents, seeds: list[int]) -> None:
    """Write what each agent has learned to ``agents-SEED.npz``; `Agents.restore` takes the arrays, first axis 1."""
    path = sealed.folder_of(folder, "save_agents")
    with writing(path):
        make_folder(path)
        state = agents.state()
        for r, seed in enumerate(seeds):
            file = path / f"agents-{seed}.npz"
            with replacing(file, file.with_name(f"{file.name}.new")) as new:
                write_arrays(new, {k: v[r : r + 1] if v.ndim else v for k, v in state.items()})
        settle_folder(path)


def load_agents(folder: str | os.PathLike[str], agents: Agents, seed: int) -> None:
    """Give a single agent, made in the same way, what `save_agents` wrote of a seed.

    Raises:
        SnapshotError: There is no file of this seed.
    """
    file = Path(folder) / f"agents-{seed}.npz"
    if not file.is_file():
        raise SnapshotError(
            f"{file} is missing: the run of seed {seed} did not end, or was not saved; train it with Checkpoints"
        )
    with sealed.reading(file, "file of agents"), file.open("rb") as source:
        agents.restore(npy.read_arrays(source))


def settings_of(configuration: TrainingConfig) -> str:
    """Return what decides a run in words; functions by name, without their addresses."""
    return _nameless(configuration.learning_settings())


def settings_ever_of(configuration: TrainingConfig) -> set[str]:
    """Return the same, and as it was written before options were there that came later."""
    now, parts = configuration.learning_settings(), (configuration.learner, configuration.sampler)
    names = sorted({name for part in parts for name in _later(part)})
    found = set()
    for absent in product((False, True), repeat=len(names)):
        text = now
        for part in parts:
            text = text.replace(str(part), _without(part, list(compress(names, absent))))
        found.add(_nameless(text))
    return found


def _nameless(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _later(part: Any) -> Iterator[str]:
    """Yield the options that came later, of a part and of what it holds."""
    for field, value in _options(part):
        if field.metadata.get("said_if_changed"):
            yield field.name
        for inner in value if isinstance(value, tuple) else (value,):
            yield from _later(inner)


def _without(part: Any, names: Collection[str]) -> str:
    """Return a part in words, without these options where they are as they always were."""
    text = str(part)
    for field, value in _options(part):
        if field.name in names and value == field.default:
            text = text.replace(f", {field.name}={value!r}", "")
            continue
        for inner in value if isinstance(value, tuple) else (value,):
            if is_dataclass(inner):
                text = text.replace(str(inner), _without(inner, names))
    return text


def _options(part: Any) -> Iterator[tuple[Field[Any], Any]]:
    for field in fields(part) if is_dataclass(part) else ():
        yield field, getattr(part, field.name)


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


def write_arrays(file: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write arrays to an ``.npz`` file, and flush it to disk."""
    with file.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)
        settle(out)


def _tidy(path: Path, kept: str | None) -> None:
    """Remove states that are no longer listed, and those of writes that were cut short."""
    ours = re.compile(r"state-[0-9a-f]{32}\.npz(\.new)?")
    discard([one for one in path.glob("state-*") if ours.fullmatch(one.name) and one.name != kept], [])


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
