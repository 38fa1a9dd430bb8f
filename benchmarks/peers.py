"""The peers, each by its fastest correct public path. What each does and does not do: README.md."""

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import ACTION, ALPHA, BATCH, BETA, CHUNK, OBS, Contestant, Pool, cycle, wrapped


def sb3_columns(batch: Any) -> dict[str, NDArray[Any]]:
    """Return what Stable-Baselines3 drew as NumPy columns."""
    return {
        "obs": batch.observations.numpy(),
        "action": batch.actions.numpy(),
        "next_obs": batch.next_observations.numpy(),
        "reward": batch.rewards.numpy()[:, 0],
    }


class Cpprb(Contestant):
    """cpprb: NumPy columns, a binary segment tree in C++."""

    package: ClassVar[str] = "cpprb"
    label: ClassVar[str] = "cpprb"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        import cpprb

        super().__init__(capacity, prioritized)
        fields: dict[str, dict[str, int]] = {
            "obs": {"shape": OBS},
            "act": {"shape": ACTION},
            "rew": {},
            "next_obs": {"shape": OBS},
            "done": {},
        }
        if prioritized:
            self.buffer = cpprb.PrioritizedReplayBuffer(capacity, fields, alpha=ALPHA)
        else:
            self.buffer = cpprb.ReplayBuffer(capacity, fields)

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample(BATCH)
        return {**batch, "action": batch["act"], "reward": batch["rew"]}

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        return [
            (s.obs, s.action, s.reward[:, None], s.next_obs, s.terminated.astype(np.float32)[:, None]) for s in steps
        ]

    def add(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        for obs, action, reward, next_obs, done in inputs:
            add(obs=obs, act=action, rew=reward, next_obs=next_obs, done=done)

    def sample(self, inputs: list[Any]) -> None:
        sample = self.buffer.sample
        if self.prioritized:
            for _ in inputs:
                batch = sample(BATCH, BETA)
        else:
            for _ in inputs:
                batch = sample(BATCH)
        del batch

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        slots = (self.buffer.get_next_index() - 1 - ages) % self.capacity
        return list(zip(slots.astype(np.uint64), priorities.astype(np.float32), strict=True))


class Rlox(Contestant):
    """rlox: columns and a binary sum tree in Rust."""

    package: ClassVar[str] = "rlox"
    label: ClassVar[str] = "rlox"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        import rlox

        super().__init__(capacity, prioritized)
        if prioritized:
            self.buffer = rlox.PrioritizedReplayBuffer(capacity, OBS, ACTION, ALPHA, BETA)
        else:
            self.buffer = rlox.ReplayBuffer(capacity, OBS, ACTION)

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch = self.buffer.sample(BATCH, 1)
        return {**batch, "action": batch["actions"], "reward": batch["rewards"]}

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        self.added += len(steps)
        return [row for s in steps for row in self._rows(s)]

    def add(self, inputs: list[Any]) -> None:
        push = self.buffer.push
        for obs, action, reward, terminated, truncated, next_obs in inputs:
            push(obs, action, reward, terminated, truncated, next_obs)

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any]:
        self.added += sum(map(len, chunks))
        return [self._rows(s) if self.prioritized else self._flat(s) for s in chunks]

    def add_64(self, inputs: list[Any]) -> None:
        if self.prioritized:
            for rows in inputs:
                self.add(rows)
        else:
            push_batch = self.buffer.push_batch
            for obs, next_obs, action, reward, terminated, truncated in inputs:
                push_batch(obs, next_obs, action, reward, terminated, truncated)

    def sample(self, inputs: list[Any]) -> None:
        sample = self.buffer.sample
        for seed in inputs:
            batch = sample(BATCH, seed)
        del batch

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        return list(zip(self.slots(ages).astype(np.uint64), priorities, strict=True))

    @staticmethod
    def _rows(s: Pool) -> list[tuple[Any, ...]]:
        scalars = (s.reward.tolist(), s.terminated.tolist(), s.truncated.tolist())
        return list(zip(s.obs, s.action, *scalars, s.next_obs, strict=True))

    @staticmethod
    def _flat(s: Pool) -> tuple[Any, ...]:
        ends = (s.terminated.view(np.uint8), s.truncated.view(np.uint8))
        return (s.obs.ravel(), s.next_obs.ravel(), s.action.ravel(), s.reward, *ends)


class StableBaselines3(Contestant):
    """Stable-Baselines3: NumPy columns, batches as PyTorch tensors; no prioritized replay."""

    package: ClassVar[str] = "stable-baselines3"
    label: ClassVar[str] = "SB3"
    rings: ClassVar[int] = 2

    def __init__(self, capacity: int, prioritized: bool) -> None:
        import gymnasium
        from stable_baselines3.common.buffers import ReplayBuffer

        super().__init__(capacity, prioritized)
        if prioritized:
            raise ValueError("Stable-Baselines3 has no prioritized replay")
        obs = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
        action = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)
        options: dict[str, Any] = {"device": "cpu", "handle_timeout_termination": False}
        self.buffer = ReplayBuffer(capacity, obs, action, **options)
        self.buffer_64 = ReplayBuffer(capacity, obs, action, n_envs=CHUNK, **options)

    def fill(self, pool: Pool, priorities: NDArray[np.float64]) -> None:
        del priorities
        for chunk in cycle(pool, wrapped(self.capacity), 1000):
            self.add(self.prepare_add(chunk.slices(np.arange(1000), 1)))
        self.add_64(self.prepare_add_64(cycle(pool, wrapped(self.capacity), CHUNK)))

    def fetch(self) -> dict[str, NDArray[Any]]:
        return sb3_columns(self.buffer.sample(BATCH))

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        shape: tuple[int, ...] = ()
        return [
            (s.obs[0], s.next_obs[0], s.action[0], s.reward.reshape(shape), s.terminated.reshape(shape)) for s in steps
        ]

    def add(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        infos: list[dict[str, Any]] = [{}]
        for obs, next_obs, action, reward, done in inputs:
            add(obs, next_obs, action, reward, done, infos)

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any]:
        return [(s.obs, s.next_obs, s.action, s.reward, s.terminated) for s in chunks]

    def add_64(self, inputs: list[Any]) -> None:
        add = self.buffer_64.add
        infos: list[dict[str, Any]] = [{}] * CHUNK
        for obs, next_obs, action, reward, done in inputs:
            add(obs, next_obs, action, reward, done, infos)


class Tianshou(Contestant):
    """Tianshou: columns in a `Batch`, a binary segment tree compiled by Numba."""

    package: ClassVar[str] = "tianshou"
    label: ClassVar[str] = "tianshou"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        with warnings.catch_warnings(action="ignore"):
            from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

        super().__init__(capacity, prioritized)
        self._batch, self._ring = Batch, ReplayBuffer
        self.buffer = PrioritizedReplayBuffer(capacity, ALPHA, BETA) if prioritized else ReplayBuffer(capacity)

    def fetch(self) -> dict[str, NDArray[Any]]:
        batch, _ = self.buffer.sample(BATCH)
        return {"obs": batch.obs, "action": batch.act, "next_obs": batch.obs_next, "reward": batch.rew}

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        return [
            self._batch(
                obs=s.obs[0],
                act=s.action[0],
                rew=s.reward[0],
                terminated=s.terminated[0],
                truncated=s.truncated[0],
                obs_next=s.next_obs[0],
            )
            for s in steps
        ]

    def add(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        for batch in inputs:
            add(batch)

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any]:
        return [
            self._ring.from_data(
                s.obs, s.action, s.reward, s.terminated, s.truncated, s.terminated | s.truncated, s.next_obs
            )
            for s in chunks
        ]

    def add_64(self, inputs: list[Any]) -> None:
        update = self.buffer.update
        for ring in inputs:
            update(ring)

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        slots = (self.buffer.last_index[0] - ages) % self.capacity
        return list(zip(slots, priorities, strict=True))

    def update(self, inputs: list[Any]) -> None:
        update = self.buffer.update_weight
        for slots, priorities in inputs:
            update(slots, priorities)
