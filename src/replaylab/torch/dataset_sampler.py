"""Prioritized sampling of any map-style data set, for PyTorch's data loaders."""

from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import data

from replaylab.arguments import LARGEST_AXIS, InvalidArgument, checked, optional, seed_number, whole, wholes
from replaylab.errors import ConfigError, IdError, SnapshotError
from replaylab.files.folder import contents_of, folder_with
from replaylab.replay import Priorities, Prioritized, Sampler, Schedules

COUNT = whole(most=LARGEST_AXIS)
ORDER = 10
"""Spawn key, below the seed, of the stream that shuffles each draw; no other stream of the library has it."""


class PrioritizedDatasetSampler(data.Sampler[int]):
    """Draws the items of a map-style data set by their priorities, with exact sampling probabilities.

    It yields indices, as PyTorch's own samplers do: pass it to ``DataLoader(..., sampler=)``, or wrap it in a
    ``BatchSampler`` for ``batch_sampler=``. Before any feedback all items are equally likely. A draw, and feedback for
    one item, take O(log N).

    Samplers run in the loader's main process, also with worker processes. These receive only indices, so all feedback
    reaches the one distribution. The loader then draws ``num_workers * prefetch_factor`` batches ahead: feedback
    changes only those after them.

    With several ranks, each creates the sampler with the same seed and passes the same feedback, that of all ranks, to
    `update_priorities`. All then make the same draw of ``batch_size * world_size`` rows, one from each stratum, and
    each rank yields its share of the strata. Nothing is communicated. An item drawn twice can be in two ranks' shares.

    Args:
        data_source: The data set, of length N, or another object of that length.
        batch_size: B, rows of a draw for each rank: the loader's batch size, so that each batch is one draw. With
            another one, probabilities stay exact.
        sampler: What to draw by: `Prioritized`, or another sampler that takes priorities and ignores order.
        num_samples: Rows of an epoch for each rank; None: N divided by the ranks, rounded up.
        rank: Number of this rank.
        world_size: W, the number of ranks.
        seed: Seed of its own random stream; None: fresh entropy, for one rank only.

    Attributes:
        priorities: The `Priorities` that it draws from; the id of an item is its index.
        num_samples: Rows of an epoch for each rank.
        progress: Training progress in [0, 1], for a sampler with a schedule; set it by hand.

    Raises:
        ConfigError: An argument is out of its range; or, from the iterator, `progress` is.
        EmptyBufferError: From the iterator: every priority is zero, or too few are positive for draws without
            replacement.

    Example:
        >>> from torch.utils.data import DataLoader, StackDataset
        >>> items = torch.linspace(0.0, 1.0, 100)
        >>> sampler = PrioritizedDatasetSampler(items, batch_size=10, seed=0)
        >>> loader = DataLoader(StackDataset(range(100), items), batch_size=10, sampler=sampler)
        >>> for index, item in loader:
        ...     loss = (item - 0.25) ** 2  # of each item
        ...     total_loss = (sampler.weights(index) * loss).mean()
        ...     updated = sampler.update_priorities(index, loss)
        >>> near, far = sampler.priorities.probabilities([25, 99])
        >>> bool(near < 0.001 < 0.02 < far)
        True
    """

    def __init__(
        self,
        data_source: Sized,
        batch_size: int,
        *,
        sampler: Sampler = Prioritized(beta=0.4),  # noqa: B008 - frozen
        num_samples: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        seed: int | None = None,
    ) -> None:
        items = checked("data_source", data_source, _length)
        self._batch_size = checked("batch_size", batch_size, COUNT)
        world_size = checked("world_size", world_size, COUNT)
        self._rank = checked("rank", rank, whole(0, world_size - 1))
        self.num_samples = checked("num_samples", num_samples, optional(COUNT)) or -(-items // world_size)
        if checked("seed", seed, optional(seed_number)) is None and world_size > 1:
            raise ConfigError("`seed` must be the same number on every rank, but got None; pass, for example, seed=0")
        self.priorities = Priorities(items, sampler=checked("sampler", sampler, _by_priority), seed=seed)
        self.priorities.extend(items)
        self._schedules = Schedules(type(sampler).__name__, sampler.schedules, "set the attribute `progress`")
        self._order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(ORDER,)))
        self._weights = np.full(items, np.nan, np.float32)
        self._rows = np.zeros((self.num_samples, world_size), np.int64)  # of this epoch, of all ranks
        self._drawn = self._yielded = 0
        self._resumes = False
        self.progress: float | None = None

    def __len__(self) -> int:
        """Return how many indices an epoch has on each rank."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of an epoch; a new iterator begins a new one, except after `load_state_dict` within one."""
        if not self._resumes:
            self._drawn = self._yielded = 0
        self._resumes = False
        while self._yielded < self.num_samples:
            if self._yielded == self._drawn:
                self._draw()
            self._yielded += 1
            yield int(self._rows[self._yielded - 1, self._rank])

    def _draw(self) -> None:
        """Draw a batch for every rank, in random order: the core returns rows by stratum, and so by index."""
        rows = min(self._batch_size, self.num_samples - self._drawn)
        progress = self._schedules.progress(self.progress)
        batch = self.priorities.sample(rows * self._rows.shape[1], progress=progress)
        self._weights[batch.id] = batch.weight
        self._rows[self._drawn : self._drawn + rows] = self._order.permutation(batch.id).reshape(rows, -1)
        self._drawn += rows

    def weights(self, indices: npt.ArrayLike | torch.Tensor) -> torch.Tensor:
        """Return the importance weights of drawn items, float32, in the shape and on the device of `indices`.

        A weight is the `Batch.weight` of the item's last draw. With worker processes, an item may be drawn again, for a
        later batch, before it is used; if priorities changed in between, both batches get the later weight.

        Raises:
            IdError: An item was not drawn by any rank.
            DtypeError: The indices are not integers.
        """
        rows = checked("indices", indices, wholes())
        weights = self._weights.take(rows, mode="wrap")
        undrawn = rows[(rows < 0) | (rows >= len(self._weights)) | np.isnan(weights)]
        if undrawn.size:
            raise IdError(f"`indices` must be of drawn items, but {undrawn[0]:,} was not drawn; pass a batch's indices")
        return torch.as_tensor(weights, device=indices.device if isinstance(indices, torch.Tensor) else None)

    def update_priorities(
        self,
        indices: npt.ArrayLike | torch.Tensor,
        td_error: npt.ArrayLike | torch.Tensor | None = None,
        *,
        priority: npt.ArrayLike | torch.Tensor | None = None,
    ) -> int:
        """Pass the learner's feedback for these items to the sampler; see `Priorities.update_priorities`.

        Args:
            indices: int64 of any shape, of any items, drawn or not; −1 is ignored. With several ranks: those of all.
            td_error: δ of the same shape, such as each item's loss: p = |δ| + ε.
            priority: Instead of `td_error`: p itself, ≥ 0; an item of priority 0 is never drawn.

        Returns:
            How many indices were not −1.

        Raises:
            PriorityError: A value is NaN, infinite, or a negative priority; nothing is changed.
            IdError: There is no such item.
            ShapeError, DtypeError: The arrays do not fit each other.
        """
        return self.priorities.update_priorities(indices, td_error, priority=priority)

    def state_dict(self, used: int | None = None) -> dict[str, Any]:
        """Return everything, as tensors and numbers; it is the same on every rank, so that one rank may save it.

        Args:
            used: How many indices of this epoch the training loop of a rank has used. None: all that were yielded,
                which is right without worker processes. With them, the restored sampler first yields the indices that
                were drawn ahead.

        Raises:
            ConfigError: `used` is not a whole number from 0 to the number of indices yielded.
        """
        state = {
            "weights": self._weights,
            "rows": self._rows[: self._drawn],
            "used": self._yielded if used is None else checked("used", used, whole(0, self._yielded)),
            "order": self._order.bit_generator.state,
            "progress": self.progress,
        }
        files = contents_of(lambda folder: self.priorities.save(folder, state=state))
        tensors = {name: torch.frombuffer(bytearray(file), dtype=torch.uint8) for name, file in files.items()}
        return {"epoch": list(self._rows.shape), "files": tensors}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned: the next iterator continues its epoch, or begins the next one.

        Raises:
            SnapshotError: It is of a sampler with other options, or damaged; nothing is changed.
        """
        try:
            epoch = tuple(state_dict["epoch"])
            files = {Path(name).name: file.cpu().numpy().tobytes() for name, file in state_dict["files"].items()}
        except (AttributeError, LookupError, TypeError) as error:
            raise SnapshotError(f"`state_dict` must be what `state_dict` returned, but is not ({error!r})") from None
        if epoch != self._rows.shape:
            raise SnapshotError(
                f"the state is of a sampler with (num_samples, world_size) = {epoch}, but this one has "
                f"{self._rows.shape}; create it as the saved one"
            )
        with folder_with(files) as folder:
            self.priorities.restore(folder, continue_episodes=True)
        state: Any = self.priorities.state
        self._drawn, self._yielded, self.progress = len(state["rows"]), state["used"], state["progress"]
        self._rows[: self._drawn], self._weights[:] = state["rows"], state["weights"]
        self._order.bit_generator.state = state["order"]
        self._resumes = self._yielded < self.num_samples


def _length(value: Any) -> int:
    """The length of a data set."""
    try:
        return COUNT(len(value))
    except (InvalidArgument, TypeError):
        raise InvalidArgument("a map-style data set with a length of at least 1") from None


def _by_priority(value: Any) -> Sampler:
    """A sampler that depends on priorities, and not on the order of items or episodes."""
    if not isinstance(value, Sampler) or not value.takes_priorities or value.needs_order or value.needs_episodes:
        raise InvalidArgument("a sampler that takes priorities and ignores order, such as Prioritized() or RankBased()")
    return value
