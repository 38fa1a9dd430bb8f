"""Every format that is kept in a bundle: how one is written, and read, with a number that tells which it is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
import numpy as np

from replaylab.distributed.replay import RemoteReplay, snapshots
from replaylab.distributed.training import checkpoint as distributed
from replaylab.files.bundle import Bundle, Schema
from replaylab.learners import QLearning, TrainingConfig
from replaylab.learners.training import checkpoint, saved_agents
from replaylab.learners.training.hooks import HookList
from replaylab.learners.training.state import Run
from replaylab.replay import Field, Prioritized, ReplayBuffer, Uniform, snapshot
from replaylab.research import TapeWriter
from replaylab.research.tape_file import TapeReader
from tests.distributed.replay.conftest import replay, steps
from tests.distributed.replay.in_process import shards_here

TABLE = QLearning(batch_size=4, learning_starts=10, capacity=40)


@dataclass(frozen=True)
class Format:
    schema: Schema
    write: Callable[[Path, int], None]
    read: Callable[[Path], int]

    def bundle(self, folder):
        return Bundle(folder, self.schema)


def write_snapshot(folder, number):
    packed = Field((64,), compressed=True)
    buffer = ReplayBuffer(9, {"x": Field(), "y": packed}, sampler=Prioritized(beta=0.4), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(number):
        buffer.add(x=1.0, y=rng.random(64))
    buffer.save(folder, state={"steps": number, "weights": rng.random((2, 3))})


def a_run():
    config = TrainingConfig("FrozenLake-v1", TABLE, Uniform(), total_steps=100)
    return Run(config, [3], HookList(config, [3]))


def write_run(folder, number):
    run = a_run()
    run.clock.steps = number
    checkpoint.save(folder, run)
    run.env.close()


def read_run(folder):
    run = a_run()
    loaded = checkpoint.load(folder, run.configuration, run.hooks)
    for each in (run, loaded):
        each.env.close()
    return loaded.clock.steps


def write_distributed(folder, number):
    with Bundle(folder, distributed.SCHEMA).replacing() as draft:
        draft.arrays("learner", {"weights": np.arange(number)})
        draft.describe(settings={"a": 1}, steps=number, updates=3)


def read_distributed(folder):
    return len(Bundle(folder, distributed.SCHEMA).read().arrays("learner")["weights"])


def write_shards(folder, number):
    with shards_here():
        remote = replay(shards=2)
        remote.extend(**steps(0, number))
        remote.save(folder)


def read_shards(folder):
    with shards_here():
        return RemoteReplay.load(folder).size


FORMATS = {
    "snapshot": Format(snapshot.SCHEMA, write_snapshot, lambda folder: len(ReplayBuffer.load(folder))),
    "run": Format(checkpoint.SCHEMA, write_run, read_run),
    "distributed run": Format(distributed.SCHEMA, write_distributed, read_distributed),
    "shards": Format(snapshots.SCHEMA, write_shards, read_shards),
}


def tape():
    """The bytes of a tape, and a function that reads one."""
    writer = TapeWriter()
    for ids in np.arange(12).reshape(4, 3):
        writer.append(ids)
    return writer.content(), lambda file: [
        TapeReader(file).ids(draw).tolist() for draw in range(TapeReader(file).draws)
    ]


def agents():
    """The bytes of what an agent has learned, and a function that reads it."""
    env = gym.make("FrozenLake-v1")

    def read(file):
        agent = TABLE.agents(env.observation_space, env.action_space, [0])
        saved_agents.load_agents(file.parent, agent, 3)
        return {name: array.tolist() for name, array in agent.state().items()}

    with TemporaryDirectory() as folder:
        saved_agents.save_agents(folder, TABLE.agents(env.observation_space, env.action_space, [0]), [3])
        return (Path(folder) / "agents-3.npz").read_bytes(), read


FILES = {"one.tape": tape, "agents-3.npz": agents}
"""Formats that are one file, by its name."""
