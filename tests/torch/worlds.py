"""Random steps for a `DeviceReplay` and a `ReplayBuffer` of the same declaration."""

import warnings
from contextlib import contextmanager

import numpy as np
import torch

from replaylab.replay import Field, ReplayBuffer
from replaylab.torch import DeviceReplay

OBS = {"speed": Field((3,)), "camera": Field((2, 3), np.uint8), "flag": Field((), np.bool_)}
FIELDS = {
    "obs": OBS,
    "action": Field((2,), np.float64),
    "reward": Field(),
    "next_obs": OBS,
    "next_mask": Field((3,), np.int16),
    "terminated": Field((), np.bool_),
    "truncated": Field((), np.bool_),
    "tag": Field((), np.int64),
}


class World:
    """Steps whose observations often repeat by chance, given to a device's replay and to a host's.

    Args:
        seed: Of the steps.
        capacity: C.
        num_envs: E, or None.
        device_options: Options that only a `DeviceReplay` has, and `device` if it is not the CPU.
        **options: Options of both.
    """

    def __init__(self, seed, capacity, num_envs, device_options=None, **options):
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.steps = num_envs, 0
        options = {"num_envs": num_envs, "seed": seed, **options}
        self.host = ReplayBuffer(capacity, FIELDS, **options)
        device_options = {"device": "cpu", "final_obs_share": 1.0, **(device_options or {})}
        self.device = DeviceReplay(capacity, FIELDS, **device_options, **options)

    def observations(self, axes):
        return {
            "speed": self.rng.integers(0, 2, (*axes, 3)).astype(np.float32),
            "camera": self.rng.integers(0, 2, (*axes, 2, 3)).astype(np.uint8),
            "flag": self.rng.random(axes) < 0.5,
        }

    def make_steps(self, axes):
        count = int(np.prod(axes))
        tags = np.arange(self.steps, self.steps + count).reshape(axes)
        self.steps += count
        return {
            "obs": self.observations(axes),
            "action": self.rng.normal(size=(*axes, 2)),
            "reward": self.rng.normal(size=axes).astype(np.float32),
            "next_obs": self.observations(axes),
            "next_mask": self.rng.integers(-9, 9, (*axes, 3)).astype(np.int16),
            "terminated": self.rng.random(axes) < 0.15,
            "truncated": self.rng.random(axes) < 0.15,
            "tag": tags,
        }

    def run(self, length, targets=None):
        """Make random calls of `add`, `extend` and `end_episode`, of `length` time steps together."""
        targets = (self.host, self.device) if targets is None else targets
        envs = () if self.num_envs is None else (self.num_envs,)
        while length > 0:
            steps = min(length, int(self.rng.integers(1, 5)))
            length -= steps
            alone = steps == 1 and self.rng.random() < 0.8
            columns = self.make_steps(envs if alone else (steps, *envs))
            ids = [getattr(target, "add" if alone else "extend")(**columns) for target in targets]
            assert np.array_equal(*map(on_host, ids))
            if self.rng.random() < 0.2:
                where = self.rng.random(envs) < 0.5
                for target in targets:
                    target.end_episode(where)


@contextmanager
def never_waits():
    """Whatever waits for a GPU inside raises."""

    def set_mode(mode):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that the mode is a prototype
            torch.cuda.set_sync_debug_mode(mode)

    set_mode("error")
    try:
        yield
    finally:
        set_mode("default")


def tensors(tree):
    """A tree of arrays as tensors."""
    if isinstance(tree, dict):
        return {name: tensors(child) for name, child in tree.items()}
    return torch.as_tensor(tree)


def on_host(column):
    """An array of a tensor or an array."""
    return column.cpu().numpy() if isinstance(column, torch.Tensor) else np.asarray(column)


def leaves(batch):
    """Columns of a batch by path, as arrays."""
    for name, column in batch.items():
        if isinstance(column, dict):
            yield from ((f"{name}.{path}", leaf) for path, leaf in leaves(column))
        else:
            yield name, on_host(column)


def assert_same_batches(device, host, derived):
    """Compare all stored steps, transformed, except what a terminated step's derived next observation is."""
    ids = np.concatenate(host.stored_ids())
    batch, wanted = dict(leaves(device.as_batch(ids))), dict(leaves(host.as_batch(ids)))
    assert batch.keys() == wanted.keys()
    terminated = wanted["terminated"]
    for path, value in wanted.items():
        assert batch[path].dtype == value.dtype, path
        compared = ~terminated if derived and path.startswith("next_obs") else slice(None)
        if path == "reward":  # sums of float64, in which both may differ by the last digit
            assert np.allclose(batch[path], value, rtol=2e-7, atol=1e-7), path
        else:
            assert np.array_equal(batch[path][compared], value[compared]), path
