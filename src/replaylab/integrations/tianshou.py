"""The samplers of this library inside Tianshou's vector buffers; its algorithms, collectors and trainers stay."""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, instance, whole
from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.integrations.slot_sampler import FollowsProgress, SlotSampler
from replaylab.replay import Assigned, Priorities, Prioritized, Sampler, Seed

with needs("replaylab.integrations.tianshou", "tianshou"):
    from tianshou.data import PrioritizedVectorReplayBuffer, to_numpy


class ReplayLabVectorBuffer(FollowsProgress, PrioritizedVectorReplayBuffer):
    """Tianshou's prioritized vector buffer with any sampler of the compiled core.

    It stores rows, stacks frames and looks up n-step returns as Tianshou's buffer does. ``weight`` of a batch holds the
    sampler's importance weights. The errors that an algorithm writes there are fed back for the rows; feedback for rows
    that were overwritten since changes nothing.

    Args:
        total_size: Capacity over all environments, in rows; rounded up to a multiple of `buffer_num`.
        buffer_num: Number of environments.
        sampler: Sampler of the batches, except those written in Python (`LaBER`, `CustomSampler`). A sampler that draws
            by age or by episodes needs all environments in each `add`, as in collecting by steps.
        total_batches: Batches in the complete run; schedules (β) then follow the number of batches drawn. None: they
            follow `progress`, which you set.
        seed: Seed of the sampler's random stream; None: fresh entropy.
        **options: Options of Tianshou's buffer: ``stack_num``, ``ignore_obs_next``, ``save_only_last_obs``,
            ``random_seed``.

    Raises:
        ConfigError: An option is out of its range, or is one of those that the sampler replaces: ``alpha``, ``beta``,
            ``weight_norm`` and ``sample_avail``.

    Example:
        >>> from tianshou.data import Batch
        >>> from replaylab.replay import RankBased
        >>> buffer = ReplayLabVectorBuffer(100, 1, RankBased(beta=0.4), seed=0)
        >>> step = Batch(obs=[0.0], act=[1], rew=[1.0], terminated=[False], truncated=[False], obs_next=[1.0])
        >>> for _ in range(5):
        ...     _ = buffer.add(step)
        >>> batch, indices = buffer.sample(4)
        >>> batch.weight.shape
        (4,)
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        sampler: Sampler = Prioritized(),  # noqa: B008 - frozen
        *,
        total_batches: int | None = None,
        seed: Seed = None,
        **options: Any,
    ) -> None:
        total_size = checked("total_size", total_size, whole())
        buffer_num = checked("buffer_num", buffer_num, whole(most=total_size))
        for name in ("alpha", "beta", "weight_norm", "sample_avail"):
            if name in options:
                raise ConfigError(
                    f"`{name}` is not taken, as the sampler determines draws and weights; leave it out, "
                    "or pass it to the sampler, as in Prioritized(alpha=0.6, beta=0.4)"
                )
        checked("sampler", sampler, instance(Sampler, "a Sampler such as RankBased()"))
        super().__init__(total_size, buffer_num, alpha=1.0, beta=1.0, **options)
        del self.weight  # the trees of the base class
        self._weight_norm = False
        self._in_step = sampler.needs_order or sampler.needs_episodes
        if self._in_step:
            priorities = Priorities(self.maxsize, sampler=sampler, num_envs=self.buffer_num, seed=seed)
        else:
            priorities = Priorities(self.maxsize, sampler=sampler, retention=Assigned(), seed=seed)
        self._slots = SlotSampler(priorities, total_batches)
        self._weights = np.ones(self.maxsize, np.float32)

    def add(self, batch: Any, buffer_ids: Any = None) -> Any:
        """Add one step of each of these environments, as Tianshou's buffer does.

        Raises:
            ConfigError: The sampler draws by age or by episodes, but some environments are left out.
        """
        every = buffer_ids is None or np.array_equal(buffer_ids, np.arange(self.buffer_num))
        if self._in_step and not every:
            raise ConfigError(
                f"{type(self.priorities.sampler).__name__} goes by age, so every environment must add in each step, "
                f"but got those of {list(buffer_ids)} of {self.buffer_num}; collect by steps, not by episodes, or use "
                "one such as RankBased"
            )
        return super().add(batch, buffer_ids)

    def init_weight(self, index: Any) -> None:
        """Record new rows."""
        index = np.asarray(index, np.int64)
        if self._in_step:
            ids = self.priorities.add(terminated=self.terminated[index], truncated=self.truncated[index])
        else:
            ids = self.priorities.assign(index)
        self._slots.stored(self._slot_of(index), ids)
        self._weights[index] = 1.0

    def sample_indices(self, batch_size: int | None) -> npt.NDArray[np.int64]:
        """Draw rows; return all stored rows for 0 or None.

        Raises:
            ConfigError: `progress` is not in [0, 1].
            EmptyBufferError: Too few rows are stored.
        """
        if batch_size is None or batch_size <= 0:
            indices: npt.NDArray[np.int64] = super().sample_indices(batch_size)
            self._slots.shown(self._slot_of(indices))
            return indices
        batch = self._slots.draw(batch_size)
        indices = self._index_of(batch.slot)
        self._weights[indices] = batch.weight
        return indices

    def get_weight(self, index: Any) -> Any:
        """Return the weights with which rows were last drawn; 1 for rows that were never drawn."""
        return self._weights[index]

    def update_weight(self, index: Any, new_weight: Any) -> None:
        """Feed errors back for drawn rows; feedback for rows that were overwritten since changes nothing.

        Args:
            index: int (n,).
            new_weight: Errors (n,), of any sign.

        Raises:
            ShapeError: `index` and `new_weight` have different lengths.
            PriorityError: An error is NaN or infinite; nothing is changed.
        """
        errors = np.asarray(to_numpy(new_weight), np.float64).reshape(-1)
        self._slots.feed(self._slot_of(np.asarray(index, np.int64).reshape(-1)), errors)

    def set_beta(self, beta: float) -> None:
        """Raise an error, since β is an option of the sampler.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"β cannot be set to {beta!r} here: it is an option of the sampler, as in "
            "Prioritized(beta=Linear(0.4, 1.0)), and follows total_batches=... or the buffer's `progress`"
        )

    def reset(self, keep_statistics: bool = False) -> None:
        """Remove every row, as Tianshou's buffer does."""
        super().reset(keep_statistics)
        self._slots.clear()
        self._weights[:] = 1.0

    def _slot_of(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the slots of `priorities`: its own ring has all environments of one step in a row."""
        if not self._in_step:
            return index
        size = self.maxsize // self.buffer_num
        return index % size * self.buffer_num + index // size

    def _index_of(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not self._in_step:
            return slots
        return slots % self.buffer_num * (self.maxsize // self.buffer_num) + slots // self.buffer_num
