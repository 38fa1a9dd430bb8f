"""The samplers of this library inside TorchRL's replay buffers; their storages, losses and trainers stay."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, instance, one_of, optional
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.extras import needs
from replaylab.files.folder import contents_of, folder_of, folder_with
from replaylab.integrations.slot_sampler import FollowsProgress, SlotSampler
from replaylab.replay import Priorities, Prioritized, Sampler, Seed

with needs("replaylab.integrations.torchrl", "torchrl"):
    import torch
    from torchrl.data.replay_buffers import PrioritizedSampler

FILE = "replaylab.pt"
AS_NEW = -np.inf
"""Priority by which TorchRL marks a row as new; it changes nothing, since rows that are written are new anyway."""


class ReplayLabSampler(FollowsProgress, PrioritizedSampler):  # type: ignore[misc] # TorchRL feeds back to samplers of this class alone
    """Any sampler of the compiled core, for TorchRL's replay buffers.

    It draws rows of a storage that is written to in turn (`RoundRobinWriter`, the default): tensors, memory maps or
    lists. Draws have ``priority_weight``, by which TorchRL's losses multiply, and ``replay_id``. Feedback for rows that
    were overwritten since they were drawn changes nothing.

    Args:
        capacity: N, the storage's ``max_size``.
        sampler: Sampler of the rows, except those that need rows or episodes (`LaBER`, `CustomSampler`, `EpisodeEnds`).
        transform: "sqrt" for losses that write the squared error as their ``td_error`` (DQN, TD3, DDPG); None for
            those that write the error itself (SAC).
        total_batches: Batches in the complete run; schedules (β) then follow the number of batches drawn. None: they
            follow `progress`, which you set.
        reduction: TorchRL's reduction of a row's several errors to one: "max", "min", "mean" or "median".
        seed: Seed of its random stream, the only one it draws from; None: fresh entropy.

    Raises:
        ConfigError: An argument is out of its range, or the sampler needs information that TorchRL does not pass on.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> from replaylab.replay import RankBased
        >>> sampler = ReplayLabSampler(1000, RankBased(beta=0.4), seed=0)
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), sampler=sampler, batch_size=4)
        >>> _ = buffer.extend(TensorDict({"obs": torch.zeros(8, 3)}, [8]))
        >>> buffer.sample()["priority_weight"].shape
        torch.Size([4])
    """

    def __init__(
        self,
        capacity: int,
        sampler: Sampler = Prioritized(),  # noqa: B008 - frozen
        *,
        transform: Literal["sqrt"] | None = None,
        total_batches: int | None = None,
        reduction: Literal["max", "min", "mean", "median"] = "max",
        seed: Seed = None,
    ) -> None:
        checked("sampler", sampler, instance(Sampler, "a Sampler such as RankBased()"))
        if sampler.needs_episodes and sampler.in_core:
            raise ConfigError(
                f"{type(sampler).__name__} goes by episodes, which TorchRL does not pass to its "
                "samplers; use one such as RankBased"
            )
        self._squared = checked("transform", transform, optional(one_of("sqrt"))) is not None
        self.reduction = checked("reduction", reduction, one_of("max", "min", "mean", "median"))
        self._slots = SlotSampler(Priorities(capacity, sampler=sampler, seed=seed), total_batches)
        self._max_capacity = self.priorities.capacity
        self._max_priority_within_buffer = False

    def __repr__(self) -> str:
        return f"ReplayLabSampler({self._max_capacity:,}, {self.priorities.sampler!r})"

    @property
    def device(self) -> torch.device:
        """Device of the draws: the CPU."""
        return torch.device("cpu")

    @property
    def default_priority(self) -> float:
        """Priority to feed back for a row that counts as new."""
        return AS_NEW

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Draw rows of the storage.

        Returns:
            Their slots, int64 (B,), and ``priority_weight`` float32 (B,), ``replay_id`` int64 (B,).

        Raises:
            ConfigError: The storage holds rows that were not added through the sampler's buffer, or `progress` is not
                in [0, 1].
            EmptyBufferError: The storage holds too few rows.
        """
        self._check(storage)
        batch = self._slots.draw(int(batch_size))
        info = {"priority_weight": torch.from_numpy(batch.weight), "replay_id": torch.from_numpy(batch.id)}
        return torch.from_numpy(batch.slot), info

    def add(self, index: int | torch.Tensor) -> None:
        """Record a row that was written."""
        self.extend(torch.as_tensor(index))

    def extend(self, index: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        """Record rows that were written.

        Raises:
            ConfigError: The rows were not written in turn, or have several indices each.
        """
        if isinstance(index, tuple) or index.ndim > 1:
            raise ConfigError(
                "a storage of several dimensions is not taken, as its rows have several indices each; flatten what you "
                "store (data.reshape(-1)) and use a storage with ndim=1"
            )
        slots = _numbers(index).astype(np.int64)
        turn = (self.priorities.next_id + np.arange(len(slots))) % self._max_capacity
        if not np.array_equal(slots, turn):
            raise ConfigError(
                f"rows must be written in turn (RoundRobinWriter), the next to slot {int(turn[0])} of "
                f"{self._max_capacity:,}, but came to slot {int(slots[0])}; give storage and sampler one capacity, "
                "load both or neither, and use the default writer"
            )
        self._slots.stored(slots, self.priorities.extend(len(slots)))

    def mark_update(self, index: int | torch.Tensor, *, storage: Any = None) -> None:
        """Do nothing: TorchRL calls it before `extend`, which gives new rows the largest priority."""

    def update_priority(self, index: int | torch.Tensor, priority: Any, *, storage: Any = None) -> None:  # noqa: ARG002
        """Feed errors back for slots: for the rows that were drawn from them, if these are still stored.

        Args:
            index: int (n,), slots; those below 0 are skipped.
            priority: Errors (n,), of any sign, or one for all.
            storage: Not used.

        Raises:
            ShapeError: `index` and `priority` have different lengths.
            PriorityError: An error is NaN or infinite; nothing is changed.
        """
        slots, errors = _numbers(index).astype(np.int64), _numbers(priority).astype(np.float64)
        if len(errors) == 1:
            errors = np.broadcast_to(errors, slots.shape)
        if self._squared:
            errors = np.where(errors == AS_NEW, AS_NEW, np.sqrt(np.abs(errors)))
        self._slots.feed(slots, errors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything, as tensors: priorities, ids, random stream, and recent draws."""
        files, state = contents_of(self.priorities.save), self._slots.state()
        return {
            "files": {name: torch.frombuffer(bytearray(content), dtype=torch.uint8) for name, content in files.items()},
            "slots": state | {"drawn": {name: torch.from_numpy(array) for name, array in state["drawn"].items()}},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            SnapshotError: It is of a sampler with other options, or damaged.
        """
        files = {Path(name).name: content.cpu().numpy().tobytes() for name, content in state_dict["files"].items()}
        with folder_with(files) as folder:
            self.priorities.restore(folder, continue_episodes=True)
        state = state_dict["slots"]
        drawn = {name: array.cpu().numpy() for name, array in state["drawn"].items()}
        self._slots.restore(state | {"drawn": drawn})

    def dumps(self, path: str | Path) -> None:
        """Write the state to a folder."""
        folder = folder_of(path, "dumps")
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), folder / FILE)

    def loads(self, path: str | Path) -> None:
        """Restore what `dumps` wrote.

        Raises:
            SnapshotError: It is of a sampler with other options, or damaged.
        """
        self.load_state_dict(torch.load(folder_of(path, "loads") / FILE, weights_only=True))

    def _init(self) -> None:
        """Do nothing: the trees of the base class are not used."""

    def _empty(self) -> None:
        self._slots.clear()

    @property
    def alpha(self) -> Any:
        """Raise an error, as `beta` does: exponents are options of the sampler.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "`alpha` and `beta` are options of the sampler here, as in Prioritized(alpha=0.6, beta=...), where β may "
            "be a schedule; leave out TorchRL's schedulers of them"
        )

    beta = alpha

    def _check(self, storage: Any) -> None:
        """Raise unless every row of the storage is known; rows stored before the sampler's first draw are new."""
        if storage.max_size != self._max_capacity:
            raise ConfigError(
                f"the sampler was made for {self._max_capacity:,} rows, but the storage's max_size is "
                f"{storage.max_size:,}; give both the same"
            )
        rows = len(storage)
        if rows == 0:
            raise EmptyBufferError("the storage is empty; add rows before sampling")
        if self.priorities.next_id == 0:
            self.extend(torch.arange(rows))
        if rows != len(self.priorities):
            raise ConfigError(
                f"the storage holds {rows:,} rows, but the sampler knows {len(self.priorities):,}: others were "
                "written past this buffer; add rows through the buffer that has the sampler, or, where the storage was "
                "filled before, call sample() once before the first extend()"
            )


def _numbers(values: Any) -> npt.NDArray[Any]:
    """Return numbers of any device as an array (n,)."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values).reshape(-1)
