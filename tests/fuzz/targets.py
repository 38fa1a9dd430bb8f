"""The two readers, and one case of each: a number that says which file is changed, and how."""

import contextlib
import os
import random
import shutil
import tempfile
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from replaylab import _core
from replaylab.errors import ReplayError
from replaylab.replay import ReplayBuffer

from . import mutate, worlds

CORPUS = Path(__file__).with_name("corpus")
ROWS = "rows"  # the name of the one file of a storage's entry
MEMORY = 2**26
"""Pretended memory of the machine: a file that needs more is refused without a wait."""


def corpus(target):
    """Return the entries of a target: name → file name → content. The part before the first dot names the world."""
    files = {}
    for file in sorted(CORPUS.glob(f"{target}.*.zip")):
        with zipfile.ZipFile(file) as archive:
            files[file.name] = {name: archive.read(name) for name in archive.namelist()}
    return files


def pack(file, files):
    """Write an entry of the corpus."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def make_corpus():
    """Write the corpus again."""
    CORPUS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in worlds.SNAPSHOTS.items():
            buffer = make()
            worlds.fill(buffer, np.random.default_rng(0))
            buffer.save(Path(folder) / name, state=worlds.STATES.get(name))
            files = {file.name: file.read_bytes() for file in (Path(folder) / name).iterdir()}
            pack(CORPUS / f"snapshot.{name}.zip", files)
        for name, make in worlds.STORAGES.items():
            with patch("replaylab.replay.storage.storage.headroom", lambda capacity, writers: 3):
                buffer = make(Path(folder) / ROWS)
            worlds.fill(buffer, np.random.default_rng(0))
            buffer.close()
            pack(CORPUS / f"storage.{name}.zip", {ROWS: (Path(folder) / ROWS).read_bytes()})
            (Path(folder) / ROWS).unlink()


class Target:
    """One reader, with its own folder."""

    def __init__(self, name, seed):
        self.seed = seed
        self.entries = corpus(name)
        self.names = sorted(self.entries)
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))  # noqa: PTH112
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        for place in ("machine", "replay.buffer_memory", "replay.buffer_layout", "replay.storage.storage"):
            self.stack.enter_context(patch(f"replaylab.{place}.machine_memory", lambda: MEMORY))
        self.refused = 0

    def close(self):
        """Remove what was written."""
        self.stack.close()

    def random(self, number):
        """Return the random stream of a case, and the name of its entry."""
        rng = random.Random(self.seed << 40 | number)
        return rng, self.names[number % len(self.names)]

    def use(self, calls):
        """Do everything, whatever was refused before; an error of the library's is right."""
        for call in calls:
            try:
                call()
            except ReplayError:
                self.refused += 1


class Snapshots(Target):
    """`ReplayBuffer.load`, and all that can be done with what it returns."""

    def __init__(self, seed):
        super().__init__("snapshot", seed)
        self.arrays = {
            name: mutate.Arrays(next(content for file, content in files.items() if file.startswith("state")))
            for name, files in self.entries.items()
        }
        for name, files in self.entries.items():
            (self.folder / name).mkdir()
            for file, content in files.items():
                (self.folder / name / file).write_bytes(content)

    def files(self, number):
        """Return the files of a case that are others than in the corpus."""
        rng, name = self.random(number)
        return mutate.snapshot(rng, self.entries[name], self.arrays[name])

    def unchanged(self, number):
        """Return all files of a case."""
        return self.entries[self.random(number)[1]] | self.files(number)

    def run(self, number):
        """Do a case."""
        name = self.random(number)[1]
        changed = self.files(number)
        for file, content in changed.items():
            (self.folder / name / file).write_bytes(content)
        try:
            self.read(self.folder / name, number)
        finally:
            for file in changed:
                (self.folder / name / file).write_bytes(self.entries[name][file])

    def read(self, folder, number=0):
        """Load a folder and use what comes."""
        arguments = {"sampler": worlds.Own()} if ".own." in folder.name else {}
        arguments["continue_episodes"] = (True, False)[number % 2]
        try:
            buffer = ReplayBuffer.load(folder, **arguments)
        except ReplayError:
            self.refused += 1
            return
        self.use(worlds.exercise(buffer, np.random.default_rng(number)))
        if number % 32 == 0:
            self.use(
                [
                    lambda: buffer.save(self.folder / "again", state=buffer.state),
                    lambda: ReplayBuffer.load(self.folder / "again", **arguments),
                ]
            )


class Storages(Target):
    """Opening a file of rows, and all that can be done with it; also where it changes meanwhile."""

    def __init__(self, seed):
        super().__init__("storage", seed)
        self.rows = self.folder / ROWS
        self.templates = {}

    def open(self, world, number):
        """Return a buffer on the file: of every eight, seven skip what Python does before the file is opened."""
        if number % 8 == 0 or world not in self.templates:
            cases = []

            def make(*arguments):
                cases.append(arguments)
                return _core.Replay(*arguments)

            spy = SimpleNamespace(**vars(_core) | {"Replay": make})
            with patch("replaylab.replay.buffer_parts._core", spy), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the file may tell of another run of the machine
                buffer = worlds.STORAGES[world](self.rows)
            self.templates[world] = dict(vars(buffer)), cases[0]
            return buffer
        members, arguments = self.templates[world]
        buffer = ReplayBuffer.__new__(ReplayBuffer)
        core, parts = _core.Replay(*arguments), members["_parts"]
        engine = parts.config.sampler.engine(core, parts.layout, 0)
        parts = replace(parts, core=core, engine=engine, saved={}, ahead=[])
        vars(buffer).update(members | {"_parts": parts, "add": core.add_step, "extend": core.extend_steps})
        return buffer

    def unchanged(self, number):
        """Return all files of a case."""
        rng, name = self.random(number)
        return {ROWS: mutate.storage(rng, self.entries[name][ROWS])}

    def run(self, number):
        """Do a case: of every four, one finds its file sound and has it changed between two calls."""
        rng, name = self.random(number)
        changed = mutate.storage(rng, self.entries[name][ROWS])
        later = rng.randrange(4) == 0 and len(changed) == len(self.entries[name][ROWS])
        self.rows.write_bytes(self.entries[name][ROWS] if later else changed)
        self.read(name, number, changed if later else None)

    def read(self, name, number, later=None):
        """Open the file and use it."""
        world = name.split(".")[1]
        try:
            buffer = self.open(world, number)
        except ReplayError:
            self.refused += 1
            return
        calls = list(worlds.exercise(buffer, np.random.default_rng(number)))
        if later is not None:
            self.use(calls[:2])
            with self.rows.open("r+b") as file:
                file.write(later)
        self.use([*calls, *calls[:3], buffer.flush, buffer.close])


TARGETS = {"snapshots": Snapshots, "storage": Storages}
