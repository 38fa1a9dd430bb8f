"""Sequences of 80 steps, 32 in a batch, that don't cross an episode's end."""

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.ours import ReplaylabStream, derived
from benchmarks.scene import Scene, Work
from benchmarks.stream import CHUNK, StreamDrawer, number_of
from benchmarks.tensor_peers import import_flashbax, random_keys
from replaylab.replay import Sequence, Transform

BATCH, LENGTH, OVERLAP = 32, 80, 40


class SequenceDrawer(StreamDrawer):
    """Expected rows of every library: obs, action, reward, next_obs `(32, 80, ...)`, and mask where it has one."""

    inside: ClassVar[bool] = True  # its sequences stay inside an episode
    batch: ClassVar[int] = BATCH

    def verify(self) -> None:
        for _ in range(10):
            batch = self.fetch()
            mask = batch.get("mask", np.ones((BATCH, LENGTH), bool))
            i = np.where(mask, number_of(batch["obs"]), -1)
            start = i[:, :1] if self.inside else i[:, :1] * mask[:, :1]
            self.expect("order of steps", i[mask], (start + np.arange(LENGTH))[mask])
            if self.inside:
                episode = start // 400
                self.expect("episode", (i // 400)[mask], np.broadcast_to(episode, i.shape)[mask])
            truth = {
                "obs": self.stream.obs(i),
                "action": self.stream.action(i),
                "reward": self.stream.reward(i),
                "next_obs": self.stream.next_obs(i),
            }
            for name, column in truth.items():
                self.expect(name, batch[name][mask], column[mask])
                self.expect(f"{name} outside the mask", batch[name][~mask], np.zeros_like(column[~mask]))


class Replaylab(ReplaylabStream, SequenceDrawer):
    """This library: `Sequence` of overlapping blocks, with a mask."""

    transform: ClassVar[Transform] = Sequence(LENGTH, OVERLAP, burn_in=0)


class Rlox(SequenceDrawer):
    """rlox's `SequenceReplayBuffer`: windows of finished episodes."""

    package: ClassVar[str] = "rlox"
    label: ClassVar[str] = "rlox"

    def __init__(self, capacity: int) -> None:
        import rlox

        super().__init__(capacity)
        self.buffer = rlox.SequenceReplayBuffer(capacity, 17, 6)

    def fill(self) -> None:
        push = self.buffer.push
        for s in self.chunks():
            scalars = (s.reward.tolist(), s.terminated.tolist(), s.truncated.tolist())
            for row in zip(s.obs, s.next_obs, s.action, *scalars, strict=True):
                push(*row)

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample_sequences(BATCH, LENGTH, next(self.seeds))
        return {**batch, "action": batch["actions"], "reward": batch["rewards"]}

    def draw(self, batch: int, inputs: list[Any]) -> None:
        sample = self.buffer.sample_sequences
        for seed in inputs:
            drawn = sample(batch, LENGTH, seed)
        del drawn


class Torchrl(SequenceDrawer):
    """torchrl's `SliceSampler` over tensors in memory; episode ends are found once and cached."""

    package: ClassVar[str] = "torchrl"
    label: ClassVar[str] = "torchrl"

    def __init__(self, capacity: int) -> None:
        with warnings.catch_warnings(action="ignore"):
            import torch
            from tensordict import TensorDict
            from torchrl.data import LazyTensorStorage, SliceSampler, TensorDictReplayBuffer

        super().__init__(capacity)
        self._tensor, self._dict = torch.from_numpy, TensorDict
        sampler = SliceSampler(slice_len=LENGTH, end_key="end", cache_values=True, strict_length=True)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(capacity), sampler=sampler, batch_size=BATCH * LENGTH
        )

    def fill(self) -> None:
        for s in self.chunks():
            columns = {name: self._tensor(column) for name, column in vars(s).items()}
            columns["end"] = columns["terminated"] | columns["truncated"]
            self.buffer.extend(self._dict(columns, batch_size=[CHUNK]))

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample()
        names = ("obs", "action", "reward", "next_obs")
        return {name: batch[name].numpy().reshape(BATCH, LENGTH, *batch[name].shape[1:]) for name in names}

    def draw(self, batch: int, inputs: list[Any]) -> None:
        del batch
        sample = self.buffer.sample
        for _ in inputs:
            drawn = sample()
        del drawn


class Flashbax(SequenceDrawer):
    """flashbax's trajectory buffer, compiled by XLA; it knows no episodes."""

    package: ClassVar[str] = "flashbax"
    label: ClassVar[str] = "flashbax"
    extra: ClassVar[str] = "bench-jax"
    inside: ClassVar[bool] = False

    def __init__(self, capacity: int) -> None:
        jax, flashbax = import_flashbax()
        super().__init__(capacity)
        buffer = flashbax.make_trajectory_buffer(1, BATCH, LENGTH, 1, LENGTH, max_length_time_axis=capacity)
        self._sample, self._add = jax.jit(buffer.sample), jax.jit(buffer.add, donate_argnums=0)
        first = {name: jax.numpy.asarray(column[0]) for name, column in vars(self.stream.steps(0, 1)).items()}
        self.state = buffer.init(first)

    def fill(self) -> None:
        for s in self.chunks():
            self.state = self._add(self.state, {name: column[None] for name, column in vars(s).items()})

    def prepare_draw(self, seeds: list[int]) -> list[Any]:
        return random_keys(seeds)

    def fetch(self) -> dict[str, NDArray[Any]]:
        (key,) = self.prepare_draw([next(self.seeds)])
        return {name: np.asarray(column) for name, column in self._sample(self.state, key).experience.items()}

    def draw(self, batch: int, inputs: list[Any]) -> None:
        del batch
        sample, state = self._sample, self.state
        for key in inputs:
            drawn = sample(state, key)
        del drawn


SCENE = Scene(
    "sequences",
    (Work("sequences of 80, sample(32)", BATCH, 20, "sequence_32"),),
    (Replaylab, derived(Replaylab), Rlox, Torchrl, Flashbax),
    item=166,
)
