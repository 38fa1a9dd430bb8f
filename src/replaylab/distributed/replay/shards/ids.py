"""Ids that are never ambiguous, whatever dies: (epoch of the shard, shard, the shard's own id) in one int64.

A shard that is started again has the next epoch. So an id that a former one gave out is never taken for a new step's.
"""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

STEP_BITS, SHARD_BITS, EPOCH_BITS = 40, 11, 12
"""From the lowest bits up; the sign stays free, for −1."""

MOST_SHARDS, MOST_EPOCHS = 1 << SHARD_BITS, 1 << EPOCH_BITS


def global_ids(epoch: int, shard: int, steps: Ids) -> Ids:
    """Return the global ids of a shard's own ids; −1 stays −1.

    Example:
        >>> global_ids(0, 0, np.array([5, -1])).tolist()
        [5, -1]
    """
    return steps | np.int64((epoch << SHARD_BITS | shard) << STEP_BITS)  # all bits of −1 are set, and stay so


def id_parts(ids: Ids) -> tuple[Ids, Ids, Ids]:
    """Return epoch, shard and own id of global ids, int64 (n,) each; of −1 all three are −1.

    Example:
        >>> [part.tolist() for part in id_parts(global_ids(2, 3, np.array([7, -1])))]
        [[2, -1], [3, -1], [7, -1]]
    """
    above = ids >> STEP_BITS  # of −1 it is −1, with all bits set
    shard = np.where(ids < 0, above, above & (MOST_SHARDS - 1))
    return above >> SHARD_BITS, shard, np.where(ids < 0, ids, ids & ((1 << STEP_BITS) - 1))
