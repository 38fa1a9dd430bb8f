"""Stacks of four 84×84 frames, drawn from a ring that stores each frame once."""

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import wrapped
from benchmarks.ours import ReplaylabDrawer, fields_of
from benchmarks.scene import Drawer, Scene, Work
from replaylab import Field, ReplayBuffer
from replaylab.replay import FrameStack

K, BATCH = 4, 32
SIDE = 84
EPISODE = 250
POOL = 997

Steps = NDArray[np.int64]
Frames = NDArray[np.uint8]


class Movie:
    """Frames of 84×84 uint8 without end; the first eight bytes of frame i are i.

    Episodes have 250 steps; every second one is terminated, the others are truncated. Step i's observation is
    frame i; an episode's last observation is its own frame, −(i + 1).
    """

    @classmethod
    @cache
    def shared(cls) -> "Movie":
        """Return the one that every contestant gets, so that it counts as nobody's memory."""
        return cls(0)

    def __init__(self, seed: int) -> None:
        self._pool = np.random.default_rng(seed).integers(0, 256, (POOL, SIDE, SIDE), np.uint8)

    def frame(self, i: Steps) -> Frames:
        """Return frames i, `(..., 84, 84)`."""
        frames = self._pool[i % POOL]
        frames.reshape(*i.shape, -1)[..., :8] = i[..., None].view(np.uint8)
        return frames

    def next_frame(self, i: Steps) -> Frames:
        """Return what followed steps i."""
        return self.frame(np.where(self.ended(i), -1, 1) * (i + 1))

    @staticmethod
    def stacked(i: Steps, oldest: int = 0) -> Steps:
        """Return which frames are stacked at steps i, `(..., 4)`, the oldest first; the first one repeats."""
        start = np.maximum(i - i % EPISODE, oldest)
        return np.maximum(i[..., None] + np.arange(1 - K, 1), start[..., None])

    def stack(self, i: Steps, oldest: int = 0) -> Frames:
        """Return the stacks of steps i, `(..., 4, 84, 84)`."""
        return self.frame(self.stacked(i, oldest))

    def next_stack(self, i: Steps, oldest: int = 0) -> Frames:
        """Return the stacks that followed steps i."""
        return np.concatenate([self.stack(i, oldest)[..., 1:, :, :], self.next_frame(i)[..., None, :, :]], axis=-3)

    @staticmethod
    def ended(i: Steps) -> NDArray[np.bool_]:
        """Say which of steps i were their episode's last."""
        return i % EPISODE == EPISODE - 1

    @staticmethod
    def terminated(i: Steps) -> NDArray[np.bool_]:
        """Say which of steps i terminated their episode; the other ends are truncations."""
        return i % (2 * EPISODE) == EPISODE - 1


class StackDrawer(Drawer):
    """Expected rows of every library: obs, next_obs (stacks, `(32, 4, 84, 84)`), action and reward."""

    final: ClassVar[bool] = True  # it knows the frame after an episode's last step
    batch: ClassVar[int] = BATCH

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.movie = Movie.shared()

    def episodes(self) -> Iterator[Steps]:
        """Go through the steps that fill and wrap the ring."""
        for first in range(0, wrapped(self.capacity), EPISODE):
            self.added = first + EPISODE
            yield np.arange(first, first + EPISODE)

    def verify(self) -> None:
        oldest = self.added - self.capacity
        for _ in range(20):
            batch = self.fetch()
            i = np.ascontiguousarray(batch["obs"][:, -1].reshape(BATCH, -1)[:, :8]).view(np.int64)[:, 0]
            inside = i >= oldest + K  # where the stack is not cut by the write head, which each does in its way
            keep = inside if self.final else inside & ~self.movie.ended(i)
            self.expect("stack", batch["obs"][inside], self.movie.stack(i[inside]))
            self.expect("next stack", batch["next_obs"][keep], self.movie.next_stack(i[keep]))
            self.expect("action", batch["action"].reshape(BATCH), i % 18)
            self.expect("reward", batch["reward"].reshape(BATCH), i % 1000)


class Replaylab(ReplaylabDrawer, StackDrawer):
    """This library: `FrameStack` with `next_obs` derived."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        fields = fields_of(Field((SIDE, SIDE), np.uint8), Field((), np.int64))
        self.buffer = ReplayBuffer(capacity, fields, transforms=(FrameStack(K),), next_obs="derived", seed=1)

    def fill(self) -> None:
        for i in self.episodes():
            terminated = self.movie.terminated(i)
            self.buffer.extend(
                obs=self.movie.frame(i),
                action=i % 18,
                reward=(i % 1000).astype(np.float32),
                next_obs=self.movie.next_frame(i),
                terminated=terminated,
                truncated=self.movie.ended(i) & ~terminated,
            )


class ReplaylabOut(Replaylab):
    """This library, drawing into the arrays of an earlier batch, as the limit does."""

    label: ClassVar[str] = "replaylab out="

    def draw(self, batch: int, inputs: list[Any]) -> None:
        sample = self.buffer.sample
        out = self.out.get(batch)
        if out is None:
            out = self.out[batch] = sample(batch)
        for _ in inputs:
            sample(batch, out=out)

    def fill(self) -> None:
        super().fill()
        self.out: dict[int, Any] = {}


class Cpprb(StackDrawer):
    """cpprb: `stack_compress` and `next_of`; it takes and returns stacks on the last axis."""

    package: ClassVar[str] = "cpprb"
    label: ClassVar[str] = "cpprb"

    def __init__(self, capacity: int) -> None:
        import cpprb

        super().__init__(capacity)
        fields = {
            "obs": {"shape": (SIDE, SIDE, K), "dtype": np.uint8},
            "act": {"dtype": np.int64},
            "rew": {},
            "done": {},
        }
        self.buffer = cpprb.ReplayBuffer(capacity, fields, next_of="obs", stack_compress="obs")

    def fill(self) -> None:
        for i in self.episodes():
            self.buffer.add(
                obs=np.moveaxis(self.movie.stack(i), 1, -1),
                act=i % 18,
                rew=i % 1000,
                next_obs=np.moveaxis(self.movie.next_stack(i), 1, -1),
                done=self.movie.terminated(i),
            )
            self.buffer.on_episode_end()

    def fetch(self) -> dict[str, NDArray[Any]]:
        drawn = self.buffer.sample(BATCH)
        stacks = {name: np.moveaxis(drawn[name], -1, 1) for name in ("obs", "next_obs")}
        return {**stacks, "action": drawn["act"], "reward": drawn["rew"]}


class Tianshou(StackDrawer):
    """Tianshou: `stack_num` with `ignore_obs_next`, as in its Atari examples."""

    package: ClassVar[str] = "tianshou"
    label: ClassVar[str] = "tianshou"
    final: ClassVar[bool] = False  # after an episode's last step it returns that step's own stack

    def __init__(self, capacity: int) -> None:
        with warnings.catch_warnings(action="ignore"):
            from tianshou.data import Batch, ReplayBuffer

        super().__init__(capacity)
        self._batch = Batch
        self.buffer = ReplayBuffer(capacity, stack_num=K, ignore_obs_next=True)

    def fill(self) -> None:
        for i in self.episodes():
            frames, terminated = self.movie.frame(i), self.movie.terminated(i)
            truncated = self.movie.ended(i) & ~terminated
            for t in range(EPISODE):
                step = self._batch(
                    obs=frames[t],
                    act=i[t] % 18,
                    rew=float(i[t] % 1000),
                    terminated=terminated[t],
                    truncated=truncated[t],
                )
                self.buffer.add(step)

    def fetch(self) -> dict[str, NDArray[Any]]:
        drawn, _ = self.buffer.sample(BATCH)
        return {"obs": drawn.obs, "next_obs": drawn.obs_next, "action": drawn.act, "reward": drawn.rew}


SCENE = Scene(
    "frames",
    (
        Work("frame stack of 4, sample(32)", 32, 20, "stack_32"),
        Work("frame stack of 4, sample(256)", 256, 10, "stack_256"),
    ),
    (Replaylab, ReplaylabOut, Cpprb, Tianshou),
    share=0.1,
    item=SIDE * SIDE,
)
