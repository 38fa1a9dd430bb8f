"""Output of `replaylab cluster status` for given figures, without a cluster."""

import json
import math
from dataclasses import replace

from replaylab.commands.cluster import ClusterCommand
from replaylab.distributed import status
from replaylab.distributed.replay.figures import ShardFigures
from replaylab.distributed.status import ReplayStatus

SHARD = ShardFigures(0, 3, True, None, None, "abcdef012345", 50, 12.5, 80)


def test_losses_that_nobody_here_knows_are_not_reported_as_none():
    replay, shard = ReplayStatus("run", (SHARD,), (), None).lines()
    assert "epoch 3, 50 steps" in shard
    assert "lost" not in replay + shard
    known = replace(SHARD, losses=3, lost_steps=20)
    assert "lost 3 times with 20 steps" in list(ReplayStatus("run", (known,), (), None).lines())[1]


def test_the_file_is_json_before_the_first_step(monkeypatch, tmp_path, capsys):
    training = {"environment": "CartPole-v1", "replay": {"samples_per_insert": math.nan, "shards": [{"number": 0}]}}
    found = replace(ReplayStatus("run", (SHARD,), (), training), training=training)
    monkeypatch.setattr(ReplayStatus, "lines", lambda _: iter(["a line"]))
    monkeypatch.setattr("replaylab.distributed.cluster_status", lambda _: [found])
    assert ClusterCommand("status", json=tmp_path / "status.json")() == 0
    (reported,) = json.loads((tmp_path / "status.json").read_text(), parse_constant=int)
    assert reported["training"]["replay"] == {"samples_per_insert": None, "shards": [{"number": 0}]}
    assert reported["shards"][0]["total"] == 12.5


def test_a_training_that_ends_meanwhile_is_none(ray_here, monkeypatch):
    @ray_here.remote(num_cpus=0)
    class Ends:
        def read(self):
            import os

            os._exit(0)

    from replaylab.distributed.replay.shards.ray_transport import NAMESPACE

    ends = Ends.options(name="run/training", namespace=NAMESPACE).remote()
    assert status._status("run", {"training": (0, "run/training")}) == ReplayStatus("run", (), (), None)
    del ends
