"""A replay that holds its steps and priorities on a PyTorch device, and draws there."""

import os
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from replaylab.arguments import LARGEST_AXIS, checked
from replaylab.errors import ConfigError, EmptyBufferError, IdError, ShapeError
from replaylab.replay import Batch, Field, Sampler, Schedules, Seed, Transform
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.arrays import positive
from replaylab.replay.data.seeding import sampling_streams
from replaylab.torch import figures, snapshots
from replaylab.torch.captured import Captured, capturing
from replaylab.torch.device_parts import DeviceParts
from replaylab.torch.options import RULES, DeviceOptions, check_config, device_of
from replaylab.torch.rows.tensors import field_tensor, ids_tensor


class DeviceReplay(nn.Module):
    """A replay on a PyTorch device: it stores, draws and applies feedback there, and never waits for the device.

    Terms, arguments and results are those of `ReplayBuffer`, with tensors on the device in place of arrays; draws
    follow the same distributions, with other random numbers. The same seed draws the same ids on every device.
    Differences from `ReplayBuffer`:

    * Values of tensors are not checked, since that would wait for the device. `stats` counts feedback that was not
      valid (NaN, infinite or negative priorities), which is ignored. Other values are checked as a `ReplayBuffer` does.
    * `add` and `extend` have no `where`.
    * If every stored step has priority 0, a draw on a GPU returns rows of weight 0; see `sample`.
    * `update_priorities` returns a tensor.
    * Priorities are integers: p^α in multiples of 2^−20, at least one multiple unless p is 0, and at most 2^42 / C.
    * Weights are divided by the largest one of the batch, also with ``normalize="buffer"``.
    * With ``next_obs="derived"`` the next observation of a terminated step is its own observation.

    Everything is in registered buffers that are not part of `state_dict`; `save` writes them.

    Args:
        capacity: C, the largest number of stored steps, a multiple of `num_envs`.
        fields: The fields of a step: name → `Field`, or nested mappings and tuples of them.
        num_envs: E, environments stepped together; None: no E axis.
        sampler: `Uniform`, `Combined`, `Recency`, `Geometric`, `Prioritized`, `ReLo` or `LAP`, with replacement.
        transforms: `NStep`, and `FrameStack` of single frames inside ``obs``.
        next_obs: "stored", or "derived": each observation is stored once. Next observations that are not the
            next step's observation, as at truncations, are in a side ring.
        autoreset: How the environments reset: "same_step", "disabled", or None: every step is a true transition.
        episodes: As for `ReplayBuffer`.
        half: The floating fields stored in 16 bits, path → "float16" or "bfloat16"; batches have the declared dtype.
            A single float32 number stays one, since rows consist of words of 32 bits.
        final_obs_share: Size of the side ring as a share of the capacity. If it is full, the oldest steps are dropped
            before they are overwritten; `stats` counts them, and the first time that this is seen warns.
        kernels: "auto": Triton's if they run, else PyTorch's operations; or "triton" or "torch".
        device: Device of all tensors.
        seed: As for `ReplayBuffer`; of 64 bits.

    Raises:
        FieldError, ConfigError: An argument is out of its range, or only `ReplayBuffer` supports it.
        OverSizeError: The replay would not fit into the device's memory.

    Example:
        >>> import torch
        >>> from replaylab import Field
        >>> from replaylab.torch import DeviceReplay
        >>> replay = DeviceReplay(1000, {"obs": Field((3,)), "reward": Field()}, num_envs=2, device="cpu", seed=0)
        >>> replay.add(obs=torch.zeros(2, 3), reward=torch.ones(2))
        tensor([0, 1])
        >>> replay.sample(4).obs.shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        num_envs: int | None = None,
        sampler: Sampler = BufferConfig.sampler,
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        autoreset: Any = None,
        episodes: Literal["flags", "manual"] = "flags",
        half: Mapping[str, str] | None = None,
        final_obs_share: float = 0.125,
        kernels: Literal["auto", "torch", "triton"] = "auto",
        device: Any = "cuda",
        seed: Seed = None,
    ) -> None:
        super().__init__()
        config = BufferConfig(
            capacity,
            fields,
            num_envs=num_envs,
            sampler=sampler,
            transforms=transforms,
            next_obs=next_obs,
            autoreset=autoreset,
            episodes=episodes,
        )
        options = DeviceOptions(config, device_of(device), half or {}, final_obs_share, kernels)
        self.parts = DeviceParts(options, sampling_streams(seed, None)[0][0])
        remedy = "pass progress=step / total_steps to `sample` or `set_progress`"
        self._schedules = Schedules(type(config.sampler).__name__, config.sampler.schedules, remedy)
        self.parts.draws.scheduled.fill_(self._schedules.at(0.0)[0])  # for compiled draws before `set_progress`
        self._any_stored = False

    @property
    def options(self) -> DeviceOptions:
        """Options of the replay."""
        return self.parts.options

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.options.device

    @property
    def capacity(self) -> int:
        """C, the largest number of stored steps."""
        return self.options.config.capacity

    @property
    def num_envs(self) -> int | None:
        """E, or None if there is no environment axis."""
        return self.options.config.num_envs

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as declared."""
        return dict(self.options.config.fields)

    @property
    def sampler(self) -> Sampler:
        """Sampler of the batches."""
        return self.options.config.sampler

    @property
    def size(self) -> int:
        """Steps stored now; waits for the device."""
        return int(self.parts.ring.size)

    @property
    def next_id(self) -> int:
        """Id of the next step to be stored; waits for the device."""
        return int(self.parts.ring.head)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory in use."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def __len__(self) -> int:
        """Return how many steps are stored now; waits for the device."""
        return self.size

    @torch.no_grad()
    def add(self, /, *, final_obs: Any = None, **steps: Any) -> Tensor:
        """Store one time step of every environment and return the ids.

        Args:
            final_obs: With autoreset "same_step": the true last observations of all environments, nested as ``obs``
                is, ``[E] *shape``; only those of environments that ended are used.
            **steps: Every declared field, ``[E] *field.shape``.

        Returns:
            int64 ``[E]``, or () if there is no environment axis.

        Raises:
            FieldError: A field is missing or unknown, or `final_obs` is; or `where` was passed, which only a
                `ReplayBuffer` has.
            ShapeError, DtypeError: A value does not fit its field.
        """
        ids = self.parts.store("add", steps, final_obs, many=False)
        self._note_stored(ids)
        return ids

    @torch.no_grad()
    def extend(self, /, *, final_obs: Any = None, **steps: Any) -> Tensor:
        """Store T time steps at once, as T calls of `add` would; arguments and result have a T axis in front."""
        ids = self.parts.store("extend", steps, final_obs, many=True)
        self._note_stored(ids)
        return ids

    def _note_stored(self, ids: Tensor) -> None:
        if not self._any_stored and ids.numel():  # so that a compiled function assigns once
            self._any_stored = True

    @torch.no_grad()
    def end_episode(self, where: Any = None) -> None:
        """Record that environments, bool ``[E]``, were reset separately: their next step does not follow a stored step.

        None: all environments.

        Raises:
            ShapeError, DtypeError: `where` is not bool ``[E]``.
        """
        if where is None:
            chosen = torch.ones(self.options.envs, dtype=torch.bool, device=self.device)
        else:
            leading = {} if self.num_envs is None else {"num_envs": self.num_envs}
            chosen = field_tensor("where", where, Field((), np.bool_), torch.bool, leading, self.device).reshape(-1)
        self.parts.ring.end_episode(chosen)

    def set_progress(self, progress: float | None) -> None:
        """Set training progress, in [0, 1], for samplers with a schedule.

        Draws in a compiled function or a CUDA graph follow it, too, if it is called outside.

        Raises:
            ConfigError: It is not in [0, 1], or a CUDA graph is being captured.
        """
        if capturing(self.device):
            raise ConfigError(
                "training progress cannot be set while a CUDA graph is captured, whose replays would all set the same "
                "value; call `set_progress` before each replay"
            )
        self.parts.set_scheduled(self._schedules.at(progress)[0])

    @torch.no_grad()
    def reseed(self, seed: Seed) -> None:
        """Continue with another random stream: that of a new replay with this seed.

        A forked process, which has a copy of a replay on the CPU, must call it before its first draw, with another seed
        in each process.
        """
        self.parts.stream.set_seed(sampling_streams(seed, None)[0][0])

    @torch.no_grad()
    def sample(self, batch_size: int, *, progress: float | None = None, out: Batch | None = None) -> Batch:
        """Draw a batch; the arguments are those of `ReplayBuffer.sample`.

        Returns:
            A batch of tensors on the device, new ones unless `out` is given. In a CUDA graph its next replay overwrites
            them. If every stored step has priority 0 on a GPU, where an error would need a wait, every row has id −1,
            probability 0 and weight 0, so that it adds nothing to a weighted loss, and the values of some step.

        Raises:
            EmptyBufferError: Nothing was stored; or, on the CPU and not compiled, every stored step has priority 0.
            FieldError, ShapeError: `out` is not a batch of an equal call.
            ConfigError: `batch_size` or `progress` is out of its range, or `progress` is passed inside a compiled
                function or a capture (use `set_progress`); or the process was forked, and `reseed` was not called.
        """
        if self.parts.stream.copied:
            raise ConfigError(
                "a DeviceReplay that was copied into another process by a fork must be given another random stream "
                "before it draws, or both processes would draw the same batches; call replay.reseed(seed) in this "
                "process, with a different seed in each process"
            )
        if not self._any_stored:
            raise EmptyBufferError("`sample` needs at least one stored step, but the replay is empty; call `add` first")
        if is_compiling():
            if progress is not None:
                raise ConfigError("`progress` cannot be passed inside torch.compile; call `set_progress` before")
        elif progress is not None or (self.parts.scheduled_value is None and not capturing(self.device)):
            self.set_progress(progress)
        return self.parts.sample(positive("batch_size", batch_size, most=LARGEST_AXIS), out)

    @torch.no_grad()
    def update_priorities(self, ids: Any, td_error: Any = None, *, priority: Any = None) -> Tensor:
        """Pass the learner's feedback for these steps to the sampler, as `ReplayBuffer.update_priorities` does.

        Ids whose step is not stored change nothing; for equal ids, the last value counts. Values that are NaN or
        infinite, and negative priorities, are ignored and counted in `stats`.

        Args:
            ids: int64 of any shape.
            td_error: δ of the same shape.
            priority: p, used instead of `td_error`: one for each id, or one for all.

        Returns:
            How many of the ids were still stored, int64 (): ``int()`` of it waits for the device.

        Raises:
            ConfigError: Not exactly one of `td_error` and `priority` is given, or a priority to a sampler without.
            ShapeError, DtypeError: The tensors do not fit each other.
        """
        return self.parts.update(ids, td_error, priority)

    @torch.no_grad()
    def write(self, ids: Any, /, **values: Any) -> Tensor:
        """Change stored values of these steps, as `ReplayBuffer.write` does.

        With ``next_obs="derived"``, the ``obs`` of a step is also the ``next_obs`` of the step before it if they were
        equal when the step was added. Other next observations, such as those of truncated steps in the side ring,
        cannot be changed.

        Args:
            ids: int64 of any shape.
            **values: Some of the fields, of the shape of the ids, then the field's.

        Returns:
            How many of the ids were still stored, int64 (): ``int()`` of it waits for the device.

        Raises:
            FieldError: A field is unknown, or ``terminated``, ``truncated`` or a derived ``next_obs``, or there is
                none.
            ShapeError, DtypeError: A value does not fit its field or the ids; nothing is changed.
        """
        return self.parts.write(ids, values)

    def captured(self, batch_size: int) -> Captured[Batch]:
        """Return a function that draws a batch as `sample` does, by one launch of a CUDA graph.

        The first three calls run without a graph, and the fourth captures it. From then on every call returns the same
        tensors, which it overwrites: copy what must outlive the next call. Call `set_progress` before a call, as the
        graph reads what it sets. The graph keeps its memory until the function is deleted. On a CPU each call is one of
        `sample`.

        Example:
            >>> import torch
            >>> from replaylab import Field
            >>> from replaylab.torch import DeviceReplay
            >>> replay = DeviceReplay(8, {"x": Field()}, device="cpu", seed=0)
            >>> ids = replay.extend(x=torch.arange(5.0))
            >>> draw = replay.captured(4)
            >>> draw().x.shape
            torch.Size([4])
        """
        rows = positive("batch_size", batch_size, most=LARGEST_AXIS)
        return Captured(lambda: self.sample(rows), self.device)

    def captured_update(self, ids: Tensor, td_error: Tensor) -> Captured[Tensor]:
        """Return a function that calls ``update_priorities(ids, td_error)`` by one launch of a CUDA graph.

        It reads both tensors at each call: write new values into them (``td_error.copy_(...)``), since other tensors
        are not seen. The ids of a captured draw are such a tensor after its fourth call.
        """
        return Captured(lambda: self.update_priorities(ids, td_error), self.device)

    @torch.no_grad()
    def probabilities(self, ids: Any, *, batch_size: int | None = None, progress: float | None = None) -> Tensor:
        """Return for each of these steps the probability that a random row of the next batch is this step.

        Args:
            ids: int64 of any shape; steps that are not stored have probability 0.
            batch_size: B, for `Combined`.
            progress: Training progress, for `Recency` with a schedule.

        Raises:
            ConfigError: `batch_size` is needed, or it or `progress` is out of its range.
            DtypeError: The ids are not integers.
        """
        rows = ids_tensor(ids, self.device)
        if batch_size is not None:
            batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        unknown = self.sampler.distribution_needs_progress and self.parts.scheduled_value is None
        with self._at(progress, unknown):
            return self.parts.probabilities(rows.flatten(), batch_size).view(rows.shape)

    @torch.no_grad()
    def get(self, ids: Any) -> dict[str, Any]:
        """Return the stored steps of these ids, as columns nested like the fields; waits for the device.

        Raises:
            IdError: A step is not stored, or not any more.
        """
        rows = self._stored(ids)
        return self.parts.nested(self.parts.untransformed.columns(rows))

    @torch.no_grad()
    def as_batch(self, ids: Any) -> Batch:
        """Return these steps, int64 (B,), in the form of a drawn batch, of weight 1; waits for the device.

        Raises:
            IdError: A step is not stored, or not any more.
        """
        rows = self._stored(ids)
        return self.parts.batch(rows, {"weight": torch.ones_like(rows, dtype=torch.float32)})

    def _stored(self, ids: Any) -> Tensor:
        rows = ids_tensor(ids, self.device)
        if rows.ndim != 1:
            raise ShapeError(f"`ids` must have shape (B,), but got {tuple(rows.shape)}")
        missing = rows[~self.parts.ring.stored(rows)]
        if len(missing):
            raise IdError(f"step {int(missing[0])} is not stored; pass ids from {self.next_id - self.size} on")
        return rows

    @torch.no_grad()
    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> figures.DeviceStats:
        """Return figures of the stored steps, the draws and the priorities; waits for the device, and takes O(N).

        Args:
            batch_size: B, for the figures of a distribution that depends on it; None leaves these out.
            progress: Training progress, likewise.

        Raises:
            ConfigError: `batch_size` or `progress` is out of its range.
        """
        if batch_size is not None:
            batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
        with self._at(progress, self._schedules.constant is not None):
            return figures.stats_of(self.parts, batch_size, progress is not None)

    @contextmanager
    def _at(self, progress: float | None, unknown: bool) -> Iterator[None]:
        """Set training progress for one call if it is passed, or else its start if it is `unknown`."""
        value, scheduled = self.parts.scheduled_value, self.parts.draws.scheduled.clone()
        if progress is not None or unknown:
            self.set_progress(progress)
        try:
            yield
        finally:
            self.parts.scheduled_value = value
            self.parts.draws.scheduled.copy_(scheduled)

    @property
    def state(self) -> dict[str, Any] | None:
        """The training loop's `state` in the snapshot that was loaded, with tensors on the CPU; as `ReplayBuffer`'s."""
        return self.parts.loop_state

    @torch.no_grad()
    def save(self, path: str | os.PathLike[str], *, state: Mapping[str, Any] | None = None) -> None:
        """Write the replay to a folder, as a snapshot that `ReplayBuffer.load` can also read.

        The rows pass through the host's memory. If the process is killed, the old or the new snapshot remains complete.

        Args:
            path: The folder.
            state: What else the training loop needs to continue; as for `ReplayBuffer.save`.

        Raises:
            ConfigError, StorageError, SnapshotError: As for `ReplayBuffer.save`.
        """
        snapshots.save(self.parts, path, state)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Any = "cuda",
        kernels: Literal["auto", "torch", "triton"] = "auto",
        final_obs_share: float | None = None,
        seed: Seed = None,
    ) -> Self:
        """Return the replay of a snapshot, of a `DeviceReplay` or a `ReplayBuffer`.

        A `DeviceReplay` continues exactly, on any device, and its environments continue where they were. From a
        `ReplayBuffer`, priorities are rounded to the device's integers, and another random stream begins.

        Args:
            path: The folder.
            device: Device of the new replay.
            kernels: As for the constructor.
            final_obs_share: As for the constructor; None: as it was saved, and of a `ReplayBuffer` the default.
            seed: Seed of another random stream, as for `reseed`: processes that load one snapshot draw different
                batches if each passes another seed. None: a `DeviceReplay` continues exactly, and the stream after a
                snapshot of a `ReplayBuffer` begins from fresh entropy.

        Raises:
            SnapshotError: The snapshot is damaged, its ids have gaps, or it uses options that only `ReplayBuffer` has.
            StorageError: The folder cannot be read.
            ConfigError, OverSizeError: As for the constructor.
        """
        options: dict[str, Any] = {"kernels": kernels}
        if final_obs_share is not None:
            options["final_obs_share"] = final_obs_share
        options = {name: checked(name, value, RULES[name]) for name, value in options.items()}
        options |= {"device": device_of(device), "seed": seed}
        replay: Self
        replay, read = snapshots.load(path, check_config, lambda **saved: cls(**saved | options))
        with torch.no_grad():
            read(replay.parts)
        replay._any_stored = replay.size > 0
        if seed is not None:
            replay.reseed(seed)
        return replay

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Raise unless the replay keeps its device and dtypes; a module that holds one can be moved to its device."""
        del recurse
        moved = fn(torch.zeros((), device=self.device))
        if moved.device != self.device or moved.dtype != torch.float32:
            raise ConfigError(
                f"a DeviceReplay stays on {self.device} with its own dtypes, but was asked for {moved.dtype} on "
                f"{moved.device}; save it and load it there with DeviceReplay.load(path, device=...)"
            )
        return self

    def extra_repr(self) -> str:
        """Return the options, for printing."""
        config = self.options.config
        return f"capacity={config.capacity:,}, num_envs={config.num_envs}, sampler={config.sampler}"
