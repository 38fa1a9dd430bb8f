"""A replay that is nothing but a Python list: the least that recorder, stream, mixture and training take."""

import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from replaylab.errors import EmptyBufferError, IdError
from replaylab.replay import Batch


class ToyReplay:
    """Steps of flat fields in a list, drawn uniformly."""

    def __init__(self, capacity, fields, *, num_envs=None, replicas=None, autoreset=None, seed=0):
        self.capacity, self.fields, self.autoreset = capacity, fields, autoreset
        self.num_envs, self.replicas = num_envs, replicas
        self.lead = tuple(axis for axis in (replicas, num_envs) if axis is not None)
        self.steps_kept = [[] for _ in range(replicas or 1)]  # of each replica: (id, step), oldest first
        self.next_ids = np.zeros(replicas or 1, np.int64)
        self.resets = np.zeros((replicas or 1, num_envs or 1), bool)  # environments whose next step is a reset
        self.feedback, self.rng = [], np.random.default_rng(seed)

    size = property(lambda self: self._reported([len(steps_of_replica) for steps_of_replica in self.steps_kept]))
    next_id = property(lambda self: self._reported(self.next_ids))

    def __len__(self):
        return min(map(len, self.steps_kept))

    def add(self, /, *, where=None, final_obs=None, **steps):
        R, E = self.resets.shape
        rows = {name: np.reshape(steps[name], (R, E, *field.shape)) for name, field in self.fields.items()}
        where = np.ones((R, E), bool) if where is None else np.reshape(where, (R, E))
        finals = None if final_obs is None else np.reshape(final_obs, (R, E))
        ids = np.full((R, E), -1)
        for r, e in zip(*where.nonzero(), strict=True):
            step = {name: np.array(rows[name][r, e], field.dtype) for name, field in self.fields.items()}
            ends, resets = step.get("terminated") or step.get("truncated"), self.resets[r, e]
            self.resets[r, e] = ends and not resets and self.autoreset == "next_step"
            if resets:
                continue
            if ends and self.autoreset == "same_step":
                step["next_obs"] = np.array(finals[r, e], self.fields["next_obs"].dtype)
            ids[r, e] = self.next_ids[r]
            self.steps_kept[r] = [*self.steps_kept[r], (self.next_ids[r], step)][-self.capacity :]
            self.next_ids[r] += 1
        return ids.reshape(self.lead) if self.lead else int(ids[0, 0])

    def extend(self, /, *, where=None, final_obs=None, **steps):
        axis = 0 if self.replicas is None else 1
        by_time = {name: np.moveaxis(value, axis, 0) for name, value in steps.items()}
        length = len(next(iter(by_time.values())))
        parts = [self.add(**{name: value[t] for name, value in by_time.items()}) for t in range(length)]
        return np.stack(parts, axis)

    def end_episode(self, where=None):
        self.resets[np.ones_like(self.resets) if where is None else np.reshape(where, self.resets.shape)] = False

    def sample(self, batch_size, *, progress=None):
        if not len(self):
            raise EmptyBufferError("the toy is empty")
        drawn = [
            [steps_of_replica[i] for i in self.rng.integers(len(steps_of_replica), size=batch_size)]
            for steps_of_replica in self.steps_kept
        ]
        columns = {name: np.array([[step[name] for _, step in row] for row in drawn]) for name in self.fields}
        columns["id"] = np.array([[number for number, _ in row] for row in drawn])
        columns["probability"] = self.probabilities(self._reported(columns["id"])).reshape(columns["id"].shape)
        columns["weight"] = np.ones(columns["id"].shape, np.float32)
        return Batch({name: self._reported(column) for name, column in columns.items()})

    def update_priorities(self, ids, td_error=None, *, priority=None):
        self.feedback.append((ids, td_error, priority))
        return int((self.probabilities(ids) > 0).sum())

    def probabilities(self, ids, *, batch_size=None, progress=None):
        rows = np.asarray(ids).reshape(len(self.steps_kept), -1)
        if (rows >= self.next_ids[:, None]).any():
            raise IdError("the toy never gave this id out")
        distribution = [
            np.isin(row, [n for n, _ in steps_of_replica]) / max(len(steps_of_replica), 1)
            for row, steps_of_replica in zip(rows, self.steps_kept, strict=True)
        ]
        return np.array(distribution).reshape(np.shape(ids))

    def stats(self, *, batch_size=None, progress=None):
        return SimpleNamespace(size=self.size, capacity=self.capacity, added=self.next_id)

    def save(self, path):
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / "toy.pickle").write_bytes(pickle.dumps(self.__dict__))

    def _reported(self, values):
        return np.asarray(values) if self.replicas is not None else np.asarray(values)[0]


class SavingToyReplay(ToyReplay):
    """One that can go back to what it saved."""

    def restore(self, path, *, continue_episodes=None):
        self.__dict__.update(pickle.loads((Path(path) / "toy.pickle").read_bytes()))


def assert_same_steps(toy, buffer):
    """The same steps under the same ids, the same ones dropped."""
    assert len(toy) == len(buffer) > 0
    np.testing.assert_array_equal(toy.size, buffer.size)
    np.testing.assert_array_equal(toy.next_id, buffer.next_id)
    least = min(map(len, toy.steps_kept))
    ids = np.array([[number for number, _ in steps_of_replica[-least:]] for steps_of_replica in toy.steps_kept])
    stored = buffer.get(ids if toy.replicas is not None else ids[0])
    for name in toy.fields:
        expected = np.array(
            [[step[name] for _, step in steps_of_replica[-least:]] for steps_of_replica in toy.steps_kept]
        )
        np.testing.assert_array_equal(expected if toy.replicas is not None else expected[0], stored[name], err_msg=name)
