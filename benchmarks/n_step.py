"""n-step returns of 3, drawn from a ring of single steps."""

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.limit import TRANSFORMS
from benchmarks.ours import ReplaylabStream, derived
from benchmarks.peers import sb3_columns
from benchmarks.scene import Scene, Work
from benchmarks.stream import CHUNK, EPISODE, StreamDrawer, number_of
from replaylab.replay import NStep, Transform

K, GAMMA = 3, 0.99
BATCH = StreamDrawer.batch


class NStepDrawer(StreamDrawer):
    """Expected rows of every library: obs, action, reward, next_obs and, if the library gives it, discount."""

    n_step_returns: ClassVar[bool] = True  # its rows are right near an episode's end as well

    def verify(self) -> None:
        for _ in range(20):
            batch = self.fetch()
            first = number_of(batch["obs"])
            reward, last = self._returns(first)
            discount = np.where(self.stream.terminated(last), 0, GAMMA ** (last - first + 1))
            keep = slice(None) if self.n_step_returns else last - first == K - 1
            self.expect("obs", batch["obs"], self.stream.obs(first))
            self.expect("action", batch["action"], self.stream.action(first))
            self.expect("n-step return", batch["reward"], reward, 1e-5)
            self.expect("next_obs", batch["next_obs"][keep], self.stream.next_obs(last[keep]))
            if "discount" in batch:
                self.expect("discount", batch["discount"], discount, 1e-6)

    def _returns(self, first: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the n-step returns from steps `first` on, and their last steps."""
        last, total = first.copy(), self.stream.reward(first).astype(np.float64)
        going = np.ones(len(first), bool)
        for k in range(1, K):
            going &= ~self.stream.ended(last) & (last < self.added - 1)
            last = last + going
            total += np.where(going, GAMMA**k * self.stream.reward(last), 0)
        return total, last


class Replaylab(ReplaylabStream, NStepDrawer):
    """This library: `NStep` puts the returns together as it draws."""

    transform: ClassVar[Transform] = NStep(K, GAMMA)


class StableBaselines3(NStepDrawer):
    """Stable-Baselines3's `NStepReplayBuffer`: NumPy indexing as it draws, tensors out."""

    package: ClassVar[str] = "stable-baselines3"
    label: ClassVar[str] = "SB3"

    def __init__(self, capacity: int) -> None:
        import gymnasium
        from stable_baselines3.common.buffers import NStepReplayBuffer

        super().__init__(capacity)
        obs = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
        action = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.buffer = NStepReplayBuffer(capacity, obs, action, device="cpu", n_steps=K, gamma=GAMMA)

    def fill(self) -> None:
        add = self.buffer.add
        for s in self.chunks():
            ends = s.terminated | s.truncated
            for t in range(CHUNK):
                infos = [{"TimeLimit.truncated": True}] if s.truncated[t] else [{}]
                add(s.obs[t], s.next_obs[t], s.action[t], s.reward[t], ends[t], infos)

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample(BATCH)
        return sb3_columns(batch) | {"discount": (batch.discounts * (1 - batch.dones)).numpy()[:, 0]}


class Tianshou(NStepDrawer):
    """Tianshou: `sample`, then `compute_nstep_return` with a Q function that costs nothing but reads next_obs."""

    package: ClassVar[str] = "tianshou"
    label: ClassVar[str] = "tianshou"

    def __init__(self, capacity: int) -> None:
        with warnings.catch_warnings(action="ignore"):
            import torch
            from tianshou.algorithm.algorithm_base import Algorithm
            from tianshou.data import ReplayBuffer

        super().__init__(capacity)
        self.buffer, self._ring = ReplayBuffer(capacity), ReplayBuffer
        self._returns_of = Algorithm.compute_nstep_return
        self._zeros = torch.zeros(BATCH, 1)

    def fill(self) -> None:
        for s in self.chunks():
            ends = s.terminated | s.truncated
            ring = self._ring.from_data(s.obs, s.action, s.reward, s.terminated, s.truncated, ends, s.next_obs)
            self.buffer.update(ring)

    def _value(self, buffer: Any, indices: NDArray[np.int64]) -> Any:
        self.next_obs = buffer.obs_next[indices]
        return self._zeros

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch, indices = self.buffer.sample(BATCH)
        done = self._returns_of(batch, self.buffer, indices, self._value, GAMMA, K)
        returns = done.returns.numpy()[:, 0]
        return {"obs": batch.obs, "action": batch.act, "next_obs": self.next_obs, "reward": returns}

    def draw(self, batch: int, inputs: list[Any]) -> None:
        sample, returns_of, buffer, value = self.buffer.sample, self._returns_of, self.buffer, self._value
        for _ in inputs:
            drawn, indices = sample(batch)
            drawn = returns_of(drawn, buffer, indices, value, GAMMA, K)
        del drawn


class Cpprb(NStepDrawer):
    """cpprb adds the returns up as steps are added; a draw is a plain one."""

    package: ClassVar[str] = "cpprb"
    label: ClassVar[str] = "cpprb (at add)"
    n_step_returns: ClassVar[bool] = False

    def __init__(self, capacity: int) -> None:
        import cpprb

        super().__init__(capacity)
        fields = {"obs": {"shape": 17}, "act": {"shape": 6}, "rew": {}, "next_obs": {"shape": 17}, "done": {}}
        n_step = {"size": K, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
        self.buffer = cpprb.ReplayBuffer(capacity, fields, Nstep=n_step)

    def fill(self) -> None:
        for s in self.chunks(EPISODE):  # whose end it must be reported
            self.buffer.add(obs=s.obs, act=s.action, rew=s.reward, next_obs=s.next_obs, done=s.terminated)
            self.buffer.on_episode_end()

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample(BATCH)
        return {**batch, "action": batch["act"], "reward": batch["rew"][:, 0]}


SCENE = Scene(
    "n-step",
    (Work("n-step sample(256), K = 3", BATCH, 50, "n_step_256"),),
    (Replaylab, derived(Replaylab), StableBaselines3, Tianshou, Cpprb),
    limit=TRANSFORMS,
)
