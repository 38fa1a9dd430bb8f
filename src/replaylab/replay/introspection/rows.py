"""Reading the rows of a buffer by slot, and by id in the form of a batch."""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.errors import ConfigError
from replaylab.replay.buffer_parts import BufferParts
from replaylab.replay.data.arrays import ids_array
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.memory import check_batch_memory
from replaylab.trees import without_missing


def columns(parts: BufferParts) -> dict[str, Any]:
    """Return views of every field by slot; see `ReplayBuffer.columns`."""
    if (storage := parts.config.storage) is not None:
        raise ConfigError(
            f"`columns` shows rows by slot, which those in {storage} do not have; use get(ids), which copies"
        )
    views = parts.layout.unflatten(iter([parts.core.column(i) for i in range(len(parts.layout.flat))]))
    return {name: view for name, tree in views.items() if (view := without_missing(tree)) is not None}


def as_batch(parts: BufferParts, ids: npt.ArrayLike) -> Batch:
    """Return steps in the form of a drawn batch; see `ReplayBuffer.as_batch`."""
    rows, layout = ids_array(ids), parts.layout
    check_batch_memory(layout.batch_row_nbytes, rows.size)
    columns = parts.core.gather(rows, True, True)
    layout.relabel(columns)
    if layout.sequence is not None and rows.size:  # a sequence's id is that of its oldest stored step
        rows = parts.core.blocks(rows, True)[..., 0]
    return layout.batch(columns | {"weight": np.ones(rows.shape, np.float32), "id": rows})
