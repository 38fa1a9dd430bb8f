"""The options of `Priorities`: those of a buffer that do not concern rows."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from replaylab.errors import ConfigError
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.fields import Field, Tree
from replaylab.replay.storage.retention import Assigned, Fifo, Retention
from replaylab.replay.storage.storage import Storage
from replaylab.replay.transforms.transform import Transform


def _ends() -> dict[str, Field]:
    """What is told of each step, and kept of none."""
    return {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}


@dataclass(frozen=True, eq=False)
class PrioritiesConfig(BufferConfig):
    """The options of `Priorities`, which documents them."""

    rows_elsewhere: ClassVar[bool] = True
    retentions: ClassVar[tuple[type[Retention], ...]] = (Fifo, Assigned)

    fields: Mapping[str, Tree] = field(init=False, default_factory=_ends)
    replicas: int | None = field(init=False, default=None)
    transforms: ListOf[Transform] = field(init=False, default=())
    next_obs: Literal["stored", "derived"] = field(init=False, default="stored")
    storage: Storage | None = field(init=False, default=None)
    autoreset: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampler.in_core:
            raise ConfigError(
                f"{type(self.sampler).__name__} is written in Python and looks at rows, of which Priorities has none; "
                "use a sampler of the core, such as Prioritized or RankBased, or a ReplayBuffer"
            )
        if isinstance(self.retention, Assigned) and self.num_envs is not None:
            raise ConfigError(
                f"`num_envs` must be None with Assigned(), where each step has a slot and no environment, but got "
                f"{self.num_envs}; leave it out"
            )
