"""A replay past one machine: shards that are Ray actors, each a `ReplayBuffer`, and one exact distribution over all."""

from replaylab.distributed.replay.figures import RemoteReplayStats, ShardFigures
from replaylab.distributed.replay.options import RemoteOptions
from replaylab.distributed.replay.reader import RemoteReader
from replaylab.distributed.replay.remote_replay import RemoteReplay
from replaylab.distributed.replay.snapshots import Snapshots
from replaylab.distributed.replay.writer import RemoteWriter

__all__ = [
    "RemoteOptions",
    "RemoteReader",
    "RemoteReplay",
    "RemoteReplayStats",
    "RemoteWriter",
    "ShardFigures",
    "Snapshots",
]
