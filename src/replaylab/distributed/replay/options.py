"""The options of a replay in shards: checked, and made into what each shard is declared as."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, check, checked, flag, instance, optional, shown, whole, wholes
from replaylab.distributed.ray_session import check_address
from replaylab.distributed.replay.limiter import Limiter
from replaylab.distributed.replay.shards.ids import MOST_EPOCHS, MOST_SHARDS
from replaylab.distributed.replay.shards.transport import Declaration, Transport
from replaylab.distributed.replay.snapshots import Restored, Snapshots
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import ReplayBuffer, Sampler, Seed, Uniform

AXIS = whole(most=LARGEST_AXIS)

LONGEST_RUN = 256
"""Steps that go to a shard at once: with fewer, more calls."""

DECLARED = ("fields", "num_envs", "sampler", "transforms", "next_obs", "retention", "autoreset")
"""Options of a `ReplayBuffer` that it tells, and that all shards have alike."""


@dataclass(frozen=True, eq=False)
class Means:
    """The options of a `RemoteReplay` that say by what means it works; they are not saved with it."""

    shards: int
    placement: Any
    prefetch: int
    limiter: Limiter | None
    snapshot: Snapshots | None
    strict: bool
    seed: Seed
    transport: Transport | None
    address: str | None

    def __post_init__(self) -> None:
        check(self, "", shards=whole(), prefetch=whole(0, 1000), strict=flag)
        check(self, "", limiter=optional(instance(Limiter, "a Limiter, or None")))
        check_address(self.address)
        check(self, "", snapshot=optional(instance(Snapshots, "Snapshots(folder), or None")))


@dataclass(frozen=True, eq=False)
class RemoteOptions:
    """The options of a `RemoteReplay`, which documents them.

    Attributes:
        declared: Those of `DECLARED`.
        means: Those that are not saved.
        template: An empty buffer that is declared so, with one place for each environment.
    """

    capacity: int
    declared: Mapping[str, Any]
    count_replays: bool
    min_size: int
    means: Means
    template: ReplayBuffer = field(init=False, repr=False)
    _root: np.random.SeedSequence = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check(self, "", capacity=whole(), min_size=whole())
        envs, seed = self.declared["num_envs"], self.means.seed
        options = {**self.declared, "count_replays": self.count_replays, "seed": seed}
        template = ReplayBuffer(1 if envs is None else optional_axis(envs), **options)
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "_root", root)
        self._check_sizes()
        check_law(template)

    def declarations(self, restored: Restored | None) -> list[Declaration]:
        """Return what each shard is made from."""
        sampler, template = inner_sampler(self.template.sampler), self.template
        autoreset = None if template.autoreset == "next_step" else template.autoreset  # writers leave resets out
        options = {**self.declared, "sampler": sampler, "autoreset": autoreset, "count_replays": self.count_replays}
        given = {"sampler": sampler, "transforms": template.transforms}  # for what no snapshot holds, when one is lost
        seed = int(self._root.generate_state(1, np.uint64)[0])
        base = Declaration(0, 0, {}, seed, parts=self.means.shards, given=given)
        each = [
            replace(base, number=k, options=options | {"capacity": self._share(k)}) for k in range(self.means.shards)
        ]
        return each if restored is None else [self._restoring(one, restored) for one in each]

    def stream(self) -> np.random.SeedSequence:
        """Return what the learner's random stream is made from."""
        return np.random.SeedSequence(self._root.entropy, spawn_key=(*self._root.spawn_key, self.means.shards))

    def template_of(self, envs: int) -> ReplayBuffer:
        """Return an empty buffer by which the steps of so many environments are checked."""
        alone = self.declared["num_envs"] is None
        given = {"num_envs": None if alone else envs, "sampler": Uniform()}
        return ReplayBuffer(envs, **{**self.declared, **given})

    @property
    def run(self) -> int:
        """Steps of an environment that go to a shard before the next gets as many, where nothing looks around them."""
        steps = (self.declared["num_envs"] or 1) * self.means.shards
        return min(LONGEST_RUN, max(1, self.capacity // (8 * steps)))

    def _share(self, number: int) -> int:
        """Return how many steps a shard keeps."""
        each, more = divmod(self.capacity, self.means.shards)
        return each + (number < more)

    def _restoring(self, declared: Declaration, restored: Restored) -> Declaration:
        """Return a declaration that begins with what was saved, under a new epoch."""
        epoch, folders = restored.epoch, restored.shard_folders
        if epoch >= MOST_EPOCHS:
            raise StorageError(f"the snapshot in {restored.folder} is of epoch {epoch - 1}; there are no more for ids")
        given: dict[str, Any] = {"epoch": epoch, "given": restored.given}
        if len(folders) == self.means.shards:
            return replace(declared, **given, folder=folders[declared.number])
        return replace(declared, **given, absorbs=folders)

    def _check_sizes(self) -> None:
        envs, shards = self.declared["num_envs"] or 1, self.means.shards
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

    _options: RemoteOptions
    _template: ReplayBuffer

    @property
    def capacity(self) -> int:
        """C, the steps kept in all shards together."""
        return self._options.capacity

    @property
    def shards(self) -> int:
        """S."""
        return self._options.means.shards

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
    """Return E as a capacity; where it is no number of environments, the buffer's own error says so."""
    try:
        return max(AXIS(envs), 1)
    except Exception:  # the rule's
        return 1


def inner_sampler(sampler: Sampler) -> Sampler:
    """Return what shards draw by: the same law, without weights, which are made of all shards' answers."""
    return replace(sampler, beta=0.0) if hasattr(sampler, "beta") else sampler  # type: ignore[type-var]  # all are


def check_law(template: ReplayBuffer) -> None:
    """Raise `ConfigError` unless the laws of several such buffers join into one."""
    sampler = template.sampler
    kind = type(sampler).__name__
    reason = ""
    if template.law_totals() is None:
        known = REASONS.get(kind, "it is not in proportion to a number of each step")
        reason = BY_AGE if sampler.needs_order and kind not in REASONS else known
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
    "Mixture": "its parts need shares of their own of every shard",
    "LaBER": "its pool is scored where the learner is; draw a large Uniform() batch, and keep a part",
    "Dispersed": "a row depends on the episodes of the rows before, in all shards",
    "Sticky": "what was drawn last is known within each shard alone",
    "ShuffledEpochs": "what an epoch has not shown yet is known within each shard alone",
}
"""Why the laws of shards do not join, where it is not the steps' order."""


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
