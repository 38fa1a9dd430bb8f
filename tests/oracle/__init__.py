"""A slow, plain Python truth of `ReplayBuffer`, to be compared with the real one."""

from .buffer import OracleBuffer, OracleReplica
from .stream import Stream, stratified_slots, uniform_slots
from .transforms import TransformOracle
from .tree import flatten, map_leaves, unflatten

__all__ = [
    "OracleBuffer",
    "OracleReplica",
    "Stream",
    "TransformOracle",
    "flatten",
    "map_leaves",
    "stratified_slots",
    "unflatten",
    "uniform_slots",
]
