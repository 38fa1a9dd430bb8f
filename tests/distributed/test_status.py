"""Output of `replaylab cluster status` for given figures, and processes that end while it asks."""

import json
import math
import os

from replaylab.commands.cluster import ClusterCommand
from replaylab.distributed import status
from replaylab.distributed.replay.calls import start, start_shards
from replaylab.distributed.replay.figures import ShardFigures
from replaylab.distributed.replay.options import DECLARED, RemoteConfig
from replaylab.distributed.replay.shard import Declaration
from replaylab.distributed.status import ReplayStatus
from replaylab.replay import Field, Fifo, Uniform

SHARD = ShardFigures(0, 3, True, node="abcdef012345", size=50, total=12.5, added=80)
REPLAY = {"shards": [{"number": 0, "lost_steps": 20}], "samples_per_insert": math.nan, "stale_updates": 9}
TRAINING = {"learner": "DQN", "steps": 1000, "steps_per_second": 123.456, "actors_wait": 0.25, "replay": REPLAY}


def test_lines_show_all_figures():
    training, replay, shard, silent = ReplayStatus("run", (SHARD,), (1,), TRAINING).lines()
    assert training == "training run: learner DQN, steps 1,000, steps per second 123, actors wait 0.25"
    assert replay == "replay run: samples per insert nan, stale updates 9"
    assert shard.startswith("  shard number 0, epoch 3, losses 0, node abcdef012345, size 50, total 12.5")
    assert "lost" not in shard  # not known
    assert silent == "  shard number 1: no answer within 5 seconds"
    assert next(ReplayStatus("run", (SHARD,), (), None).lines()) == "replay run: size 50"


def test_file_is_json_before_the_first_step(monkeypatch, tmp_path):
    monkeypatch.setattr("replaylab.distributed.cluster_status", lambda _: [ReplayStatus("run", (SHARD,), (), TRAINING)])
    assert ClusterCommand("status", json=tmp_path / "status.json")() == 0
    (reported,) = json.loads((tmp_path / "status.json").read_text(), parse_constant=int)
    assert reported["training"]["replay"]["samples_per_insert"] is None
    assert reported["shards"][0]["total"] == 12.5


class Ends:
    """Ends when it is asked."""

    def read(self):
        """Never answer."""
        os._exit(0)


def test_shards_that_have_not_begun_or_end_are_silent(ray_here):
    declared = dict.fromkeys(DECLARED) | {"fields": {"x": Field()}, "sampler": Uniform(), "transforms": ()}
    declared |= {"next_obs": "stored", "retention": Fifo(), "episodes": "flags"}
    (shard,) = start_shards("run", [Declaration(0, 0, RemoteConfig(10, declared, 1, 1, 0))], None)
    assert status._status("run", ["0"]) == ReplayStatus("run", (), (0,), None)
    ends = start("run/training", lambda _: Ends())
    shard.kill()
    assert status._status("run", ["training", "0", "actor-1"]) == ReplayStatus("run", (), (0,), None)
    ends.kill()
