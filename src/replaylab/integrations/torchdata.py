"""A replay as a node of a torchdata pipeline, saved and restored with it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from replaylab.arguments import checked, optional, place
from replaylab.extras import needs
from replaylab.replay import Batch, Replay, ReplayStream, Sampler, Seed

with needs("replaylab.integrations.torchdata", "data"):
    from torchdata.nodes import BaseNode, IterableWrapper


class ReplayNode(BaseNode[Batch], ReplayStream):  # type: ignore[misc] # torchdata has no type marker
    """A `ReplayStream` as a `torchdata.nodes.BaseNode`.

    Its state consists of the source's state, the buffer with its priorities and random streams, and the counters. A
    restored pipeline continues exactly as the saved one would have. ``reset()`` without a state starts the source again
    and keeps the buffer, for a second epoch. Nodes that save their source's state after each item, such as
    `Prefetcher`, need a large ``snapshot_frequency``.

    Args:
        source: A node, or any iterable; as for `ReplayStream`.
        buffer: As for `ReplayStream`.
        batch_size: B.
        warmup: As for `ReplayStream`.
        progress: As for `ReplayStream`.
        seed: As for `ReplayStream`.
        sampler: As for `ReplayStream`.
        names: As for `ReplayStream`.
        folder: Folder in which the buffer is saved by each `get_state`. The state then holds only the folder's path,
            and only the latest state can be restored. None: the state holds the buffer itself, as bytes.

    Raises:
        ConfigError: An option is out of its range.

    Example:
        >>> from torchdata.nodes import Loader
        >>> node = ReplayNode([{"obs": [1.0, 2.0]}] * 10, 100, batch_size=4)
        >>> [batch.obs.shape for batch in Loader(node)][:2]
        [(4, 2), (4, 2)]
    """

    def __init__(
        self,
        source: BaseNode[Any] | Iterable[Any],
        buffer: Replay | int,
        batch_size: int,
        *,
        warmup: int | None = None,
        progress: float | Callable[[int], float] | None = None,
        seed: Seed = None,
        sampler: Sampler | None = None,
        names: Sequence[str] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        BaseNode.__init__(self)
        ReplayStream.__init__(
            self, source, buffer, batch_size, warmup=warmup, progress=progress, seed=seed, sampler=sampler, names=names
        )
        self._node: BaseNode[Any] = source if isinstance(source, BaseNode) else IterableWrapper(source)
        self._folder = checked("folder", folder, optional(place("a folder")))
        self._pending: deque[Mapping[str, Any]] = deque()  # steps of the source's current item that were not added yet

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Start the source again, or restore a state.

        Raises:
            SnapshotError: See `ReplayStream.restore`.
        """
        super().reset(initial_state)
        self._pending.clear()
        if initial_state is None:
            self._node.reset()
            return
        self.restore(initial_state["memory"])
        self._node.reset(initial_state["source"])
        self._pending.extend(deepcopy(initial_state["pending"]))

    def next(self) -> Batch:
        """Take steps from the source until there is a batch, and return it."""
        while True:
            while not self._pending:
                self._pending.extend(self.steps_of(next(self._node)))
            batch = self.push(self._pending.popleft())
            if batch is not None:
                return batch

    def get_state(self) -> dict[str, Any]:
        """Return the state, for `reset`: plain values, NumPy arrays and bytes."""
        return {
            "source": self._node.state_dict(),
            "pending": deepcopy(list(self._pending)),
            "memory": self.state(self._folder),
        }
