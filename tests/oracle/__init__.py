"""A slow, plain Python truth of `ReplayBuffer`, to be compared with the real one."""

from .buffer import OracleBuffer, OracleReplica
from .stream import Stream, block_slots, stratified_slots, uniform_slots
from .transforms import TransformOracle
from .tree import flatten, map_leaves, unflatten

__all__ = [
    "OracleBuffer",
    "OracleReplica",
    "Stream",
    "TransformOracle",
    "block_slots",
    "flatten",
    "map_leaves",
    "stratified_slots",
    "unflatten",
    "uniform_slots",
]
