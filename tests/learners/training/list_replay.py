"""A replay of plain Python lists: what `Replay` asks for, and nothing of this library's buffer."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from replaylab.replay import Batch, Field

NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


class ListReplay:
    """Stores steps of R replicas in lists, and draws the newest one alone, as `Online` does."""

    num_envs = None

    def __init__(self, *, env, capacity, seeds, sampler, transforms, count_replays):
        assert not transforms
        assert not count_replays
        self.capacity, self.replicas, self.autoreset = capacity, len(seeds), "same_step"
        shape = env.single_observation_space.shape
        self.fields = {"obs": Field(shape), "action": Field((), int), "reward": Field()}
        self.steps = [[] for _ in seeds]
        self.told = 0

    @property
    def size(self):
        return np.array([min(len(own), self.capacity) for own in self.steps])

    @property
    def next_id(self):
        return np.array([len(own) for own in self.steps])

    def __len__(self):
        return int(self.size.min())

    def add(self, *, where=None, final_obs=None, **step):
        for r, own in enumerate(self.steps):
            row = {name: np.asarray(step[name])[r] for name in NAMES}
            if row["terminated"] or row["truncated"]:
                row["next_obs"] = final_obs[r]
            own.append({name: np.asarray(value).tolist() for name, value in row.items()})
        return self.next_id - 1

    def extend(self, **steps):
        raise NotImplementedError

    def end_episode(self, where=None):
        raise NotImplementedError

    def sample(self, batch_size, *, progress=None):
        columns = {name: np.array([[own[-1][name]] for own in self.steps]) for name in NAMES}
        columns["reward"] = columns["reward"].astype(np.float32)
        shape, ids = (self.replicas, 1), (self.next_id - 1)[:, None]
        return Batch(columns | {"weight": np.ones(shape, np.float32), "probability": np.ones(shape), "id": ids})

    def update_priorities(self, ids, td_error=None, *, priority=None):
        self.told += 1
        return np.size(ids)

    def probabilities(self, ids, *, batch_size=None, progress=None):
        return (np.asarray(ids) == (self.next_id - 1)[:, None]).astype(float)

    def stats(self, *, batch_size=None, progress=None):
        return SimpleNamespace(size=self.size)

    def save(self, path):
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / "steps.json").write_text(json.dumps(self.steps))


class RestorableListReplay(ListReplay):
    """One that can also go on from what it saved."""

    def restore(self, path):
        self.steps = json.loads((Path(path) / "steps.json").read_text())
