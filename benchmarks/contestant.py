"""Interface of a timed library: the operations as blocks of calls, on inputs made beforehand."""

import ctypes
import dataclasses
import gc
import importlib.metadata
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

OBS, ACTION = 17, 6
BATCH = 256
CHUNK = 64
ALPHA, BETA = 0.6, 0.4


@dataclasses.dataclass(frozen=True)
class Pool:
    """M steps to add, over and over; within a row, fields repeat one another so that a draw can be checked.

    Attributes:
        obs: float32 `(M, 17)`.
        action: float32 `(M, 6)`; `action[:, 0] == obs[:, 2]`.
        next_obs: float32 `(M, 17)`; `next_obs[:, 0] == obs[:, 0]`.
        reward: float32 `(M,)`; equal to `obs[:, 1]`.
        terminated: bool `(M,)`; every 200th step.
        truncated: bool `(M,)`; every 1,000th step.
    """

    obs: NDArray[np.float32]
    action: NDArray[np.float32]
    next_obs: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @classmethod
    def draw(cls, rng: np.random.Generator, size: int) -> "Pool":
        """Draw `size` random steps."""
        obs = rng.standard_normal((size, OBS), dtype=np.float32)
        action = rng.standard_normal((size, ACTION), dtype=np.float32)
        next_obs = rng.standard_normal((size, OBS), dtype=np.float32)
        action[:, 0], next_obs[:, 0] = obs[:, 2], obs[:, 0]
        step = np.arange(size)
        return cls(obs, action, next_obs, obs[:, 1].copy(), step % 200 == 199, step % 1000 == 999)

    def __len__(self) -> int:
        return len(self.obs)

    def slices(self, starts: NDArray[np.int64], length: int) -> list["Pool"]:
        """Cut out `length` consecutive steps at each start, as views."""
        return [Pool(*(column[s : s + length] for column in vars(self).values())) for s in starts]


def cycle(pool: Pool, steps: int, chunk: int) -> list[Pool]:
    """Cut `steps` steps, rounded up to whole chunks, out of the pool, which comes round again and again."""
    chunks = len(pool) // chunk
    return pool.slices(np.arange(-(-steps // chunk)) % chunks * chunk, chunk)


def wrapped(capacity: int) -> int:
    """Return how many steps fill a ring and run an eighth into the next round."""
    return capacity + capacity // 8


class OfLibrary(ABC):
    """A buffer of a library.

    Attributes:
        package: The distribution's name.
        label: The name in the table.
        extra: The extra of this package that installs it.
        buffer: The library's own, with `sample`.
    """

    package: ClassVar[str]
    label: ClassVar[str]
    extra: ClassVar[str] = "bench"
    buffer: Any

    @classmethod
    def version(cls) -> str:
        """Return the installed version."""
        return importlib.metadata.version(cls.package)


class Contestant(OfLibrary):
    """One buffer of one library, uniform or prioritized.

    Each operation is a pair. `prepare_…` puts fresh inputs into the form the library takes fastest and is not
    timed; the method of the operation's own name is one plain loop of calls over them and is. `None` instead
    of inputs means that the library cannot do it.

    Attributes:
        rings: How many buffers of that capacity one instance holds.
        added: Steps added, for libraries whose slots depend on it.
    """

    rings: ClassVar[int] = 1

    def __init__(self, capacity: int, prioritized: bool) -> None:
        self.capacity = capacity
        self.prioritized = prioritized
        self.added = 0

    def fill(self, pool: Pool, priorities: NDArray[np.float64]) -> None:
        """Make the ring full and wrapped, then give every slot its priority (`priorities`: `(C,)`)."""
        for chunk in cycle(pool, wrapped(self.capacity), 1000):
            self.add_64(self.prepare_add_64([chunk]) or [])
        self.newest = chunk.obs[-1]
        if self.prioritized:
            self.set_all_priorities(priorities)

    def set_all_priorities(self, priorities: NDArray[np.float64]) -> None:
        """Give every slot its priority, age by age, in calls of the usual size."""
        ages = np.arange(self.capacity)
        for first in range(0, self.capacity, BATCH):
            block = slice(first, first + BATCH)
            self.update(self.prepare_update(ages[None, block], priorities[None, block]) or [])

    @abstractmethod
    def fetch(self) -> dict[str, NDArray[Any]]:
        """Draw one batch as NumPy columns obs, action, next_obs and reward."""

    @abstractmethod
    def prepare_add(self, steps: list[Pool]) -> list[Any] | None:
        """Turn pools of one step into the arguments of `add`."""

    @abstractmethod
    def add(self, inputs: list[Any]) -> None:
        """Add each step by one call."""

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any] | None:
        """Turn pools of 64 steps, or another number of them, into the arguments of one call each."""
        return self.prepare_add(chunks)

    def add_64(self, inputs: list[Any]) -> None:
        """Add each chunk of 64 steps."""
        self.add(inputs)

    def prepare_sample(self, seeds: list[int]) -> list[Any] | None:
        """Return one item for each call to `sample`."""
        return seeds

    def sample(self, inputs: list[Any]) -> None:
        """Draw one batch of 256 for each item, holding it until the next."""
        sample = self.buffer.sample
        for _ in inputs:
            batch = sample(BATCH)
        del batch

    def slots(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ring's slots of steps, by age: 0 is the newest step."""
        return (self.added - 1 - ages) % self.capacity

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        """Turn ages and priorities, both `(calls, 256)`, into arguments."""
        del ages, priorities
        return None

    def update(self, inputs: list[Any]) -> None:
        """Set the priorities of 256 random steps by one call for each item."""
        update = self.buffer.update_priorities
        for steps, priorities in inputs:
            update(steps, priorities)

    def check_priorities(self) -> None:
        """Raise unless only the newest step is drawn once its priority is far above the others; this one stays."""
        newest = np.zeros((1, BATCH), np.int64)
        self.update(self.prepare_update(newest, np.full((1, BATCH), 1e30)) or [])
        obs = np.asarray(self.fetch()["obs"])
        if not np.array_equal(obs, np.broadcast_to(self.newest, obs.shape)):
            raise RuntimeError(f"{self.label} gave the newest step's priority to another step")

    def check(self) -> None:
        """Raise unless the rows of a drawn batch are rows of the pool."""
        batch = {name: np.asarray(column) for name, column in self.fetch().items()}
        obs = batch["obs"].reshape(BATCH, OBS)
        pairs = {
            "action": (batch["action"].reshape(BATCH, ACTION)[:, 0], obs[:, 2]),
            "next_obs": (batch["next_obs"].reshape(BATCH, OBS)[:, 0], obs[:, 0]),
            "reward": (batch["reward"].reshape(BATCH), obs[:, 1]),
        }
        for name, (left, right) in pairs.items():
            if not np.array_equal(left, right.astype(left.dtype)):
                raise RuntimeError(f"{self.label} drew a {name} that belongs to another step")


def resident_bytes() -> int | None:
    """Return the memory this process holds, in bytes, where the system tells; what is free goes back to it first."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return None
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
    return int(statm.read_text().split()[1]) * 4096
