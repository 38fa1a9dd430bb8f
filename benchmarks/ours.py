"""replaylab as a contestant."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import ACTION, ALPHA, BATCH, BETA, OBS, Contestant, Pool
from benchmarks.scene import Drawer
from benchmarks.stream import StreamDrawer
from replaylab import Field, ReplayBuffer
from replaylab.replay import Prioritized, Transform, Uniform


def fields_of(obs: Any, action: Field) -> dict[str, Any]:
    """Return the fields of transitions of these observations and actions."""
    ends = {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}
    return {"obs": obs, "action": action, "reward": Field(), "next_obs": obs, **ends}


def derived(kind: type[Drawer]) -> type[Drawer]:
    """Return this library's drawer that keeps each observation once."""
    return type("ReplaylabDerived", (kind,), {"label": "replaylab derived", "options": {"next_obs": "derived"}})


FIELDS = fields_of(Field((OBS,)), Field((ACTION,)))


class Replaylab(Contestant):
    """This library: one row a step, a wide sum tree, ids that are never reused."""

    package: ClassVar[str] = "replaylab"
    label: ClassVar[str] = "replaylab"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        super().__init__(capacity, prioritized)
        sampler = Prioritized(alpha=ALPHA, beta=BETA) if prioritized else Uniform()
        self.buffer = ReplayBuffer(capacity, FIELDS, sampler=sampler, seed=1)

    def fetch(self) -> dict[str, NDArray[Any]]:
        return dict(self.buffer.sample(BATCH))

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        self.added += len(steps)
        return [
            (
                s.obs[0],
                s.action[0],
                s.reward.item(),
                s.next_obs[0],
                s.terminated.item(),
                s.truncated.item(),
            )
            for s in steps
        ]

    def add(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        for obs, action, reward, next_obs, terminated, truncated in inputs:
            add(
                obs=obs,
                action=action,
                reward=reward,
                next_obs=next_obs,
                terminated=terminated,
                truncated=truncated,
            )

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any]:
        self.added += sum(map(len, chunks))
        return chunks

    def add_64(self, inputs: list[Any]) -> None:
        extend = self.buffer.extend
        for s in inputs:
            extend(
                obs=s.obs,
                action=s.action,
                reward=s.reward,
                next_obs=s.next_obs,
                terminated=s.terminated,
                truncated=s.truncated,
            )

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        return list(zip(self.added - 1 - ages, priorities, strict=True))


class ReplaylabDrawer(Drawer):
    """This library in a scene.

    Attributes:
        options: Of its buffer.
    """

    package: ClassVar[str] = "replaylab"
    label: ClassVar[str] = "replaylab"
    options: ClassVar[dict[str, Any]] = {}

    def fetch(self) -> dict[str, Any]:
        return dict(self.buffer.sample(self.batch))


class ReplaylabStream(ReplaylabDrawer, StreamDrawer):
    """This library in a scene of the stream's steps."""

    transform: ClassVar[Transform]

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.buffer = ReplayBuffer(capacity, FIELDS, transforms=(self.transform,), seed=1, **self.options)

    def fill(self) -> None:
        for s in self.chunks():
            self.buffer.extend(**vars(s))
