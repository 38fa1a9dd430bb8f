"""A slow, plain Python truth of `ReplayBuffer`, to be compared with the real one."""

from .buffer import OracleBuffer, OracleReplica
from .tree import flatten, map_leaves, unflatten

__all__ = ["OracleBuffer", "OracleReplica", "flatten", "map_leaves", "unflatten"]
