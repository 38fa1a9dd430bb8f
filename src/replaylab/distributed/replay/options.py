"""The options of a replay in shards: checked, and turned into the options of each shard's buffer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from replaylab.arguments import LARGEST_AXIS, check, instance, one_of, optional, whole
from replaylab.distributed.ray_session import check_address
from replaylab.distributed.replay.ids import MOST_SHARDS
from replaylab.distributed.replay.snapshots import Snapshots
from replaylab.errors import ConfigError
from replaylab.replay import Field, FrameStack, ReplayBuffer, Seed
from replaylab.trees import flatten

DECLARED = ("fields", "num_envs", "sampler", "transforms", "next_obs", "retention", "autoreset", "episodes")
"""Options of a `ReplayBuffer` that all shards have in common."""

EPISODE = "_episode"
"""Field with each stored step's episode number, if transforms look at neighbors: a restore keeps episodes complete."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RemoteOptions:
    """Placement and snapshots of a `RemoteReplay`. These options are not saved with it.

    Attributes:
        placement: Where the shards are. None: Ray chooses. "spread": on as many nodes as possible.
        snapshot: Where shards are saved in the background. None: a shard that is lost restarts empty.
        address: Address of the Ray cluster: ``"host:port"`` or ``"auto"``. None: the cluster that this process is
            connected to, or else a Ray on this machine that `RemoteReplay.close` ends.

    Raises:
        ConfigError: An option is out of its range.
    """

    placement: Literal["spread"] | None = None
    snapshot: Snapshots | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        snapshot = optional(instance(Snapshots, "Snapshots(folder), or None"))
        check(self, "", placement=optional(one_of("spread")), snapshot=snapshot)
        check_address(self.address)


@dataclass(frozen=True, eq=False)
class RemoteConfig:
    """The arguments of a `RemoteReplay`, which documents them; shards, readers and writers have it, too."""

    capacity: int
    declared: Mapping[str, Any]  # those of `DECLARED`
    min_size: int
    shards: int
    seed: Seed
    template: ReplayBuffer = field(init=False, repr=False)  # empty, with these options
    root: np.random.SeedSequence = field(init=False, repr=False)  # of all random streams

    def __post_init__(self) -> None:
        check(self, "", capacity=whole(), min_size=whole(), shards=whole(most=MOST_SHARDS))
        envs, seed = self.declared["num_envs"], self.seed
        places = envs if isinstance(envs, int) and 0 < envs <= LARGEST_AXIS else 1  # the buffer reports other values
        object.__setattr__(self, "template", ReplayBuffer(places, **self.declared, seed=seed))
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        object.__setattr__(self, "root", root)
        self._check_sizes()
        self._check_sampler()

    @property
    def envs(self) -> int:
        """E, the environments of all writers; 1 without an environment axis."""
        return self.declared["num_envs"] or 1

    @property
    def keeps_episodes(self) -> bool:
        """Whether transforms look at neighbors, so that an environment must store in one shard."""
        return bool(self.declared["transforms"]) or self.declared["next_obs"] == "derived"

    @cached_property
    def frames(self) -> dict[str, int]:
        """Stacked fields whose frames travel once, since the stack of the next observation overlaps, and k of each."""
        transforms, flat = self.template.transforms, dict(flatten(self.template.fields))
        if len(transforms) != 1 or not isinstance(transforms[0], FrameStack):
            return {}
        stacked = transforms[0].leaves(flat)
        first = [path for path in stacked if not path.startswith("next_")]
        return dict.fromkeys(first, transforms[0].length) if {f"next_{path}" for path in first} <= set(stacked) else {}

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns of a shard that batches do not show."""
        return EPISODE, "weight", *self.frames

    def first_env(self, shard: int) -> int:
        """Return the first environment of a shard; that of shard S is E."""
        return -(-shard * self.envs // self.shards)

    def shard_of_env(self, env: int) -> int:
        """Return the shard of an environment."""
        return env * self.shards // self.envs

    def shard_options(self, number: int) -> dict[str, Any]:
        """Return the options of a shard's `ReplayBuffer`."""
        capacity, sampler = (self.capacity + self.shards - 1 - number) // self.shards, self.template.sampler
        options = {**self.declared, "capacity": capacity, "num_envs": None, "autoreset": None}
        options["sampler"] = replace(sampler, beta=0.0) if hasattr(sampler, "beta") else sampler  # type: ignore[type-var]
        options["transforms"] = [
            replace(part, stacked_input=False) if isinstance(part, FrameStack) else part
            for part in self.template.transforms
        ]
        if self.frames:  # one stack that holds the frames of both observations
            (stack,), names = options["transforms"], tuple(f"next_{path}" for path in self.frames)
            options["transforms"] = [replace(stack, length=stack.length + 1, fields=names)]
        if self.keeps_episodes:
            options["fields"] = {**self.declared["fields"], EPISODE: Field((), np.int64)}
            options["num_envs"] = self.first_env(number + 1) - self.first_env(number)
        return options

    def _check_sizes(self) -> None:
        if self.envs > self.capacity // self.shards:
            raise ConfigError(
                f"every shard must hold one step of every environment, but got (num_envs={self.envs:,}, capacity="
                f"{self.capacity:,}, shards={self.shards}); use a larger capacity, or fewer shards"
            )
        if self.keeps_episodes and self.shards > self.envs:
            raise ConfigError(
                "`shards` must be at most `num_envs` if transforms look at neighbors of a step, but got "
                f"(shards={self.shards}, num_envs={self.envs}); use fewer shards"
            )
        if self.min_size > self.capacity:
            raise ConfigError(
                "`min_size` must be at most the capacity, or nothing could ever be drawn, but got (min_size="
                f"{self.min_size:,}, capacity={self.capacity:,}); use a smaller one"
            )

    def _check_sampler(self) -> None:
        """Raise `ConfigError` unless the sampling distributions of several such buffers join into one."""
        sampler = self.template.sampler
        reason = "it does not draw each step in proportion to a number that its shard knows"
        if self.template.sampling_totals() is not None:
            if getattr(sampler, "block_length", 1) == 1:
                return
            reason = "shards would cut its blocks of neighbors; use block_length=1"
        raise ConfigError(
            f"{type(sampler).__name__} cannot be drawn from several shards exactly: {reason}; use Uniform(), "
            "Prioritized(), ReLo() or LAP(), or a ReplayBuffer"
        )
