"""Storage of the rows, and the rule by which rows are kept."""

from replaylab.replay.storage.retention import Assigned, Fifo, Reservoir, Retention
from replaylab.replay.storage.storage import (
    Handle,
    MappedStorage,
    MemoryMap,
    SharedMemory,
    Storage,
    checked_storage,
    core_storage,
)

__all__ = [
    "Assigned",
    "Fifo",
    "Handle",
    "MappedStorage",
    "MemoryMap",
    "Reservoir",
    "Retention",
    "SharedMemory",
    "Storage",
    "checked_storage",
    "core_storage",
]
