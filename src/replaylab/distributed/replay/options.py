"""The options of a replay in shards: checked, and made into what each shard is declared as."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, check, checked, flag, instance, optional, shown, whole, wholes
from replaylab.distributed.ray_session import RaySession, check_address
from replaylab.distributed.replay.limiter import Limiter
from replaylab.distributed.replay.shards.ids import MOST_EPOCHS, MOST_SHARDS
from replaylab.distributed.replay.shards.transport import Declaration, Transport
from replaylab.distributed.replay.snapshots import Restored, Snapshots
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import ReplayBuffer, Sampler, Seed, Uniform

AXIS = whole(most=LARGEST_AXIS)

LONGEST_RUN = 256
"""Steps that go to a shard at once: with fewer, more calls."""

DECLARED = ("fields", "num_envs", "sampler", "transforms", "next_obs", "retention", "autoreset", "episodes")
"""Options of a `ReplayBuffer` that it tells, and that all shards have alike."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RemoteOptions:
    """How a `RemoteReplay` works. These options are not saved with it.

    Attributes:
        placement: Where the shards are. None: Ray chooses. "spread": on as many nodes as possible. Otherwise a node id
            for each shard.
        prefetch: Batches requested in advance, besides the one that `sample` waits for. Default: 1.
        limiter: How often steps may be drawn. None: without a limit.
        snapshot: Where shards are saved in the background. None: a shard that is lost begins empty.
        strict: Whether to read all totals before every draw, request no batch in advance, and wait for the answer to
            every feedback. Default: False.
        address: Address of the Ray cluster: ``"host:port"`` or ``"auto"``. None: the cluster that this process is
            connected to, or else a Ray on this machine that `RemoteReplay.close` ends.
        transport: Carries the calls to the shards. None: Ray.

    Raises:
        ConfigError: An option is out of its range.
    """

    placement: str | ListOf[str] | None = None
    prefetch: int = 1
    limiter: Limiter | None = None
    snapshot: Snapshots | None = None
    strict: bool = False
    address: str | None = None
    transport: Transport | None = None

    def __post_init__(self) -> None:
        check(self, "", prefetch=whole(0, 1000), strict=flag)
        check(self, "", limiter=optional(instance(Limiter, "a Limiter, or None")))
        check(self, "", snapshot=optional(instance(Snapshots, "Snapshots(folder), or None")))
        check_address(self.address)

    def carrier(self, shards: int, opened: ExitStack) -> Transport:
        """Return what carries the calls: `transport`, or a connection to Ray, which is closed with what is opened.

        Raises:
            ConfigError: No cluster answers at the address, or `placement` is wrong.
        """
        if self.transport is not None:
            return self.transport
        session = RaySession(self.address)
        opened.callback(session.close)
        session.open()
        from replaylab.distributed.replay.shards.ray_transport import connected  # imports Ray

        return connected(uuid4().hex, self.placement, shards)


@dataclass(frozen=True, eq=False)
class RemoteConfig:
    """What a `RemoteReplay` is, which documents it.

    Attributes:
        declared: Those of `DECLARED`.
        options: Those that are not saved.
        template: An empty buffer that is declared so, with one place for each environment.
    """

    capacity: int
    declared: Mapping[str, Any]
    count_replays: bool
    min_size: int
    shards: int
    seed: Seed
    options: RemoteOptions
    template: ReplayBuffer = field(init=False, repr=False)
    _root: np.random.SeedSequence = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check(self, "", capacity=whole(), min_size=whole(), shards=whole())
        check(self, "", options=instance(RemoteOptions, "RemoteOptions(prefetch=2)"))
        envs, seed = self.declared["num_envs"], self.seed
        options = {**self.declared, "count_replays": self.count_replays, "seed": seed}
        template = ReplayBuffer(optional_axis(envs), **options)
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "_root", root)
        self._check_sizes()
        check_distribution(template)

    def declarations(self, restored: Restored | None) -> list[Declaration]:
        """Return the declaration of each shard; those of a snapshot continue under a new epoch."""
        sampler, template = inner_sampler(self.template.sampler), self.template
        autoreset = None if template.autoreset == "next_step" else template.autoreset  # writers leave resets out
        options = {**self.declared, "sampler": sampler, "autoreset": autoreset, "count_replays": self.count_replays}
        seed = int(self._root.generate_state(1, np.uint64)[0])
        # a snapshot of a lost shard does not hold these
        load_options = {"sampler": sampler, "transforms": template.transforms}
        base = Declaration(0, 0, {}, seed, parts=self.shards, load_options=load_options)
        folders: ListOf[str | None] = [None] * self.shards
        if restored is not None:
            if restored.epoch >= MOST_EPOCHS:
                last = restored.epoch - 1
                raise StorageError(f"the snapshot in {restored.folder} is of epoch {last}; there are no more for ids")
            base = replace(base, epoch=restored.epoch, load_options=restored.load_options)
            if len(restored.shard_folders) == self.shards:
                folders = restored.shard_folders
            else:
                base = replace(base, absorbs=restored.shard_folders)
        share, more = divmod(self.capacity, self.shards)
        return [
            replace(base, number=k, options=options | {"capacity": share + (k < more)}, folder=folder)
            for k, folder in enumerate(folders)
        ]

    def stream(self) -> np.random.SeedSequence:
        """Return the seed sequence of the learner's random stream."""
        return np.random.SeedSequence(self._root.entropy, spawn_key=(*self._root.spawn_key, self.shards))

    def template_of(self, envs: int) -> ReplayBuffer:
        """Return an empty buffer that checks the steps of this many environments."""
        alone = self.declared["num_envs"] is None
        changes = {"num_envs": None if alone else envs, "sampler": Uniform()}
        return ReplayBuffer(envs, **{**self.declared, **changes})

    @property
    def run(self) -> int:
        """Steps of an environment that go to a shard before the next gets as many, where nothing looks around them."""
        steps = (self.declared["num_envs"] or 1) * self.shards
        return min(LONGEST_RUN, max(1, self.capacity // (8 * steps)))

    def _check_sizes(self) -> None:
        envs, shards = self.declared["num_envs"] or 1, self.shards
        if shards > min(self.capacity, MOST_SHARDS):
            raise ConfigError(
                f"`shards` must be at most the capacity and {MOST_SHARDS}, but got (shards={shards:,}, capacity="
                f"{self.capacity:,}); use fewer shards, or a larger capacity"
            )
        if envs > self.capacity // shards:
            raise ConfigError(
                f"every shard must hold one step of every environment, but got (num_envs={envs:,}, capacity="
                f"{self.capacity:,}, shards={shards}); use a larger capacity, or fewer shards"
            )
        if self.min_size > self.capacity:
            raise ConfigError(
                "`min_size` must be at most the capacity, or nothing could ever be drawn, but got (min_size="
                f"{self.min_size:,}, capacity={self.capacity:,}); use a smaller one"
            )


class Declared:
    """The options of a `RemoteReplay` as properties."""

    _config: RemoteConfig
    _template: ReplayBuffer

    @property
    def capacity(self) -> int:
        """C, the steps kept in all shards together."""
        return self._config.capacity

    @property
    def shards(self) -> int:
        """S."""
        return self._config.shards

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as declared."""
        return self._template.fields

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields as `add` takes them; see `ReplayBuffer.given_fields`."""
        return self._template.given_fields

    @property
    def num_envs(self) -> int | None:
        """E, or None where there is no environment axis."""
        return self._template.num_envs

    @property
    def replicas(self) -> None:
        """None: there is no replica axis."""

    @property
    def autoreset(self) -> str | None:
        """The environments' autoreset mode, or None."""
        return self._template.autoreset

    @property
    def sampler(self) -> Sampler:
        """What is drawn."""
        return self._template.sampler


def optional_axis(envs: Any) -> int:
    """Return E as a capacity: 1 without environments; the buffer reports what is not a number of them."""
    try:
        return AXIS(envs)
    except Exception:  # the rule's
        return 1


def inner_sampler(sampler: Sampler) -> Sampler:
    """Return what shards draw by: the same distribution, without weights, which are made of all shards' answers."""
    return replace(sampler, beta=0.0) if hasattr(sampler, "beta") else sampler  # type: ignore[type-var]  # all are


def check_distribution(template: ReplayBuffer) -> None:
    """Raise `ConfigError` unless the sampling distributions of several such buffers join into one."""
    sampler = template.sampler
    kind = type(sampler).__name__
    reason = ""
    if template.sampling_totals() is None:
        reason_of_kind = REASONS.get(kind, "it is not in proportion to a number of each step")
        reason = BY_AGE if sampler.needs_order and kind not in REASONS else reason_of_kind
    elif getattr(sampler, "block_length", 1) > 1:
        reason = "a batch is of blocks of neighbours, which the shares of shards would cut; use block_length=1"
    if reason:
        raise ConfigError(
            f"{kind} cannot be drawn from several shards exactly: {reason}; use Uniform(), Prioritized(), ReLo() or "
            "LAP(), or a ReplayBuffer"
        )


BY_AGE = "it goes by the order in which steps were stored, which is known within each shard alone"
REASONS = {
    "RankBased": "a step's rank among all steps is known to no shard",
    "Greedy": "the largest errors of all are known to no shard",
    "Uniform": "without repetition, a shard's share of the rows depends on what the others hold at that moment",
    "Mixture": "its parts need their own shares of every shard",
    "LaBER": "its pool is scored where the learner is; draw a large Uniform() batch, and keep a part",
    "ShuffledEpochs": "what an epoch has not shown yet is known within each shard alone",
}
"""Why the sampling distributions of shards do not join, where it is not the steps' order."""


def environments(envs: ListOf[int] | None, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers of a writer's environments, of so many; None: all.

    Raises:
        ConfigError: They are none.
    """
    picked = np.arange(count) if envs is None else checked("envs", envs, wholes("e"))
    sound = picked.ndim == 1 and len(set(picked.tolist())) == len(picked)
    if not sound or ((picked < 0) | (picked >= count)).any():
        raise ConfigError(f"`envs` must be different numbers from 0 to {count - 1}, but got {shown(envs)}")
    return picked
