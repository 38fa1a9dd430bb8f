"""Ids that stay unique when shards die: (epoch of the shard, shard, the shard's own id) in one int64."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

STEP_BITS, SHARD_BITS, EPOCH_BITS = 36, 9, 18
"""From the lowest bits up; the sign bit stays free for −1."""

MOST_SHARDS, MOST_EPOCHS = 1 << SHARD_BITS, 1 << EPOCH_BITS

EPOCHS_PER_REPLAY = 64
"""A shard gets the next epoch whenever it restarts; a replay that is loaded begins this many epochs above."""


def global_ids(epoch: int, shard: int, steps: Ids) -> Ids:
    """Return the global ids of a shard's own ids; −1 stays −1.

    Example:
        >>> global_ids(0, 0, np.array([5, -1])).tolist()
        [5, -1]
    """
    return steps | np.int64((epoch << SHARD_BITS | shard) << STEP_BITS)  # −1 has all bits set, and keeps them


def shard_of(ids: Ids) -> Ids:
    """Return the shard of global ids.

    Example:
        >>> shard_of(global_ids(2, 3, np.array([7, 8]))).tolist()
        [3, 3]
    """
    return (ids >> STEP_BITS) & (MOST_SHARDS - 1)


def own_ids(ids: Ids, epoch: int, next_id: int) -> Ids:
    """Return a shard's own ids of global ids of this shard; −1 for another epoch and for ids from `next_id` on.

    Example:
        >>> own_ids(global_ids(2, 3, np.array([7, 8])), epoch=2, next_id=8).tolist()
        [7, -1]
    """
    steps = ids & ((1 << STEP_BITS) - 1)
    return np.where((ids >> (STEP_BITS + SHARD_BITS) == epoch) & (steps < next_id), steps, -1)
