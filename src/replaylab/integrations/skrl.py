"""The samplers of this library inside skrl's memory; its agents and trainers stay."""

from typing import Any

from replaylab.arguments import checked, instance, whole
from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.integrations.slot_sampler import FollowsProgress, SlotSampler
from replaylab.replay import Priorities, Prioritized, Sampler, Seed, Uniform

with needs("replaylab.integrations.skrl", "skrl"):
    import torch
    from skrl.memories.torch import Memory

    from replaylab.integrations.watched_rewards import Draw


class ReplayLabMemory(FollowsProgress, Memory):  # type: ignore[misc]  # of a library without types
    """skrl's memory with any sampler of the compiled core.

    It stores the rows as skrl's memories do. A batch's rewards carry the importance weights and collect the TD errors:
    where the agent's loss compares values with targets of these rewards, each row's gradient is multiplied by its
    weight, and the errors are fed back before the next batch is drawn. This is the weighted loss for DQN, DDQN, DDPG,
    TD3 and SAC, without a change of the agent; with two critics, the mean of both errors is fed back.

    Args:
        memory_size: Capacity of each environment, in steps.
        sampler: Sampler of the batches. Excluded are those written in Python (`LaBER`, `CustomSampler`), those of
            other feedback than TD errors (`ReLo`), and those by episodes (`EpisodeEnds`), because skrl's agents do not
            store time limits.
        num_envs: E, environments that are stepped together.
        total_batches: Batches in the complete run; schedules (β) then follow the number of batches drawn. None: they
            follow `progress`, which you set.
        seed: Seed of the sampler's random stream; None: fresh entropy.
        **options: Options of skrl's memory: ``device``, ``export``, ``export_format``, ``export_directory``.

    Raises:
        ConfigError: An option is out of its range, or the sampler is one of those excluded.

    Example:
        >>> import torch
        >>> from replaylab.replay import RankBased
        >>> memory = ReplayLabMemory(100, RankBased(beta=0.4), device="cpu", seed=0)
        >>> memory.create_tensor("rewards", size=1, dtype=torch.float32)
        True
        >>> for reward in (1.0, 2.0):
        ...     memory.add_samples(rewards=torch.tensor([[reward]]))
        >>> memory.sample(["rewards"], batch_size=4)[0][0].shape
        torch.Size([4, 1])
    """

    def __init__(
        self,
        memory_size: int,
        sampler: Sampler = Prioritized(),  # noqa: B008 - frozen
        *,
        num_envs: int = 1,
        total_batches: int | None = None,
        seed: Seed = None,
        **options: Any,
    ) -> None:
        memory_size = checked("memory_size", memory_size, whole())
        num_envs = checked("num_envs", num_envs, whole())
        checked("sampler", sampler, instance(Sampler, "a Sampler such as RankBased()"))
        if sampler.needs_episodes or sampler.feedback_kind != "td_error":
            raise ConfigError(
                f"`sampler` must not depend on episodes or on other feedback than TD errors, but got {sampler!r}; use "
                "one such as Prioritized or RankBased"
            )
        super().__init__(memory_size=memory_size, num_envs=num_envs, **options)
        self._slots = SlotSampler(Priorities(memory_size * num_envs, sampler=sampler, seed=seed), total_batches)
        self._draw: Draw | None = None

    def add_samples(self, **tensors: Any) -> None:
        """Store one step of some environments or of all, and feed back the TD errors of the last batch.

        Args:
            **tensors: Tensors (n, size), n ≤ E; or (size,), of one environment.

        Raises:
            ConfigError: A tensor has more than E rows, of which skrl's memories store each tensor at other places.
        """
        for name, tensor in tensors.items():
            if tensor is not None and tensor.ndim == 2 and len(tensor) > self.num_envs:
                raise ConfigError(
                    f"`{name}` must have at most {self.num_envs} rows, one an environment, but got {len(tensor)}; "
                    "add step by step"
                )
        self._feed_back()
        before = self._next_row()
        super().add_samples(**tensors)
        capacity = self.priorities.capacity
        self.priorities.extend((self._next_row() - before) % capacity or capacity)

    def sample(
        self, names: list[str], *, batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[list[Any]]:
        """Draw a batch.

        Args:
            names: Names of the tensors to return.
            batch_size: B.
            mini_batches: Must be 1.
            sequence_length: Must be 1.

        Returns:
            One list of the tensors, each (B, size); None for a tensor that does not exist.

        Raises:
            ConfigError: `mini_batches` or `sequence_length` is not 1, or `progress` is not in [0, 1].
            EmptyBufferError: Too few steps are stored.
        """
        for name, value in (("mini_batches", mini_batches), ("sequence_length", sequence_length)):
            if value != 1:
                raise ConfigError(
                    f"`{name}` must be 1, but got {value!r}; use skrl's RandomMemory with agents that need more"
                )
        self._feed_back()
        batch = self._slots.draw(batch_size)
        self.sampling_indexes = torch.from_numpy(batch.slot).to(self.device)
        columns = self.sample_by_index(names, indexes=self.sampling_indexes)[0]
        if "rewards" in names and "rewards" in self.tensors and not isinstance(self.priorities.sampler, Uniform):
            self._draw = Draw(batch, self.device)
            index = names.index("rewards")
            columns[index] = self._draw.watch(columns[index])
        return [columns]

    def reset(self) -> None:
        """Remove every step, as skrl's memories do."""
        super().reset()
        self._draw = None
        self._slots.clear()

    def _feed_back(self) -> None:
        """Pass the TD errors of the last batch to the sampler, if a loss was computed from it."""
        draw, self._draw = self._draw, None
        if draw is not None and (errors := draw.errors()) is not None:
            self.priorities.update_priorities(draw.ids, errors)

    def _next_row(self) -> int:
        """Return the row that is written next."""
        return int(self.memory_index * self.num_envs + self.env_index)
