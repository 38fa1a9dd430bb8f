"""A replay as a dataset for `torch.utils.data.DataLoader`."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from replaylab.arguments import checked, flag
from replaylab.errors import ConfigError
from replaylab.extras import needs
from replaylab.replay import Batch, Replay, ReplayStream, Sampler, Seed

with needs("replaylab.integrations.torch", "torch"):
    from torch.utils.data import IterableDataset, get_worker_info

IN_WORKER = (
    "a data loader's worker process would draw from its own copy of the buffer, which gets no feedback; use "
    "num_workers=0, or give a capacity instead, so that each worker makes its own buffer"
)


class ReplayDataset(ReplayStream, IterableDataset[Batch]):
    """A `ReplayStream` for PyTorch's data loaders.

    Its items are batches already: write ``DataLoader(dataset, batch_size=None)``, which converts them to tensors. With
    worker processes, each worker has its own buffer, filled with every ``num_workers``-th item of the source, and its
    own random stream. Priorities cannot be fed back to the buffers of workers. A buffer that you pass, or that already
    holds steps, lives in the main process, so worker processes refuse it.

    Args:
        source: As for `ReplayStream`. With worker processes, it must yield the same items in each of them, and be
            picklable with the "spawn" start method.
        buffer: A buffer, or a capacity; with worker processes, the capacity of each worker's buffer.
        batch_size: B.
        warmup: As for `ReplayStream`, in each worker.
        progress: As for `ReplayStream`.
        seed: As for `ReplayStream`; every worker has its own stream from it.
        sampler: As for `ReplayStream`.
        names: As for `ReplayStream`.
        shard: Whether to distribute the items over the workers; False: the source does so itself.

    Raises:
        ConfigError: An option is out of its range; or, from the data loader, a worker process received a buffer.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> dataset = ReplayDataset([{"obs": [1.0, 2.0]}] * 10, 100, batch_size=4)
        >>> [tuple(batch.obs.shape) for batch in DataLoader(dataset, batch_size=None)][:2]
        [(4, 2), (4, 2)]
    """

    def __init__(
        self,
        source: Iterable[Any],
        buffer: Replay | int,
        batch_size: int,
        *,
        warmup: int | None = None,
        progress: float | Callable[[int], float] | None = None,
        seed: Seed = None,
        sampler: Sampler | None = None,
        names: Sequence[str] | None = None,
        shard: bool = True,
    ) -> None:
        super().__init__(
            source, buffer, batch_size, warmup=warmup, progress=progress, seed=seed, sampler=sampler, names=names
        )
        self._shard = checked("shard", shard, flag)
        self._home: int | None = None  # the worker whose buffer this is

    def __len__(self) -> int:
        """Raise TypeError: a data loader would use the number of stored steps as the number of batches; see `size`."""
        raise TypeError("a ReplayDataset has as many batches as its source gives; `size` counts the stored steps")

    def _items(self) -> Iterable[Any]:
        worker = get_worker_info()
        if worker is None:
            return self.source
        if self._buffer is not None and self._home != worker.id:
            raise ConfigError(IN_WORKER)
        self._home = worker.id
        return islice(self.source, worker.id, None, worker.num_workers) if self._shard else self.source

    def _first_seed(self) -> Seed:
        if self._home is None:
            return self._seed
        root = self._seed if isinstance(self._seed, np.random.SeedSequence) else np.random.SeedSequence(self._seed)
        return np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, self._home))

    def __getstate__(self) -> dict[str, Any]:
        if self._buffer is not None:
            raise ConfigError(IN_WORKER)
        return self.__dict__
