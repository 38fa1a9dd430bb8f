"""The shards: what each is, what carries its calls, and how the learner knows them."""

from replaylab.distributed.replay.shards.ids import global_ids, id_parts
from replaylab.distributed.replay.shards.shard_pool import ShardPool

__all__ = ["ShardPool", "global_ids", "id_parts"]
