"""Output of `replaylab cluster status` for given figures, and processes that end while it asks."""

import json
import math

from replaylab import Field
from replaylab.commands.cluster import ClusterCommand
from replaylab.distributed import status
from replaylab.distributed.replay.calls import ActorBase, start, start_shards
from replaylab.distributed.replay.figures import ShardFigures
from replaylab.distributed.replay.shard import Declaration
from replaylab.distributed.status import ReplayStatus

SHARD = ShardFigures(0, 3, True, node="abcdef012345", size=50, total=12.5, added=80)
TRAINING = {
    **dict.fromkeys(("steps", "total_steps", "steps_per_second", "updates", "updates_per_second"), 1000),
    **dict.fromkeys(("skipped_updates", "waiting_evaluations", "actor_losses", "lost_actor_steps"), 2),
    "environment": "CartPole-v1",
    "learner": "DQN",
    "actors": 4,
    "silent_actors": 1,
    "granted_steps": 64,
    "weights_age": 5.4,
    "actors_wait": 0.25,
    "learner_waits": 0.5,
    "replay": {
        "shards": [{"number": 0, "losses": 3, "lost_steps": 20}],
        "priority_age": 7.6,
        "added": 80,
        "samples": 640,
        "samples_per_insert": 8.0,
        "losses": 3,
        "lost_steps": 20,
        "stale_updates": 9,
    },
}


def test_unknown_losses_are_not_printed():
    replay, shard = ReplayStatus("run", (SHARD,), (), None).lines()
    assert "epoch 3, 50 steps, total" in shard
    assert "lost" not in replay + shard


def test_lines_show_rates_queues_and_staleness():
    training, actors, replay, silent = ReplayStatus("run", (), (1,), TRAINING).lines()
    assert "step 1,000 of 1,000 (1,000 a second)" in training
    assert "4 actors, 1 silent, 2 lost; 2 steps lost; 64 steps under way" in actors
    assert "weights 5 updates old, priorities 8; waiting: actors 25% of the time, learner 50%" in actors
    assert "640 rows drawn (8.00 a step), 3 shards lost with 20 steps, 9 stale updates" in replay
    assert silent == "  shard 1: no answer within 5 seconds"


def test_file_is_json_before_the_first_step(monkeypatch, tmp_path):
    training = {"environment": "CartPole-v1", "replay": {"samples_per_insert": math.nan, "shards": [{"number": 0}]}}
    known = ReplayStatus("run", (SHARD,), (), training)
    monkeypatch.setattr(ReplayStatus, "lines", lambda _: iter(["a line"]))
    monkeypatch.setattr("replaylab.distributed.cluster_status", lambda _: [known])
    assert ClusterCommand("status", json=tmp_path / "status.json")() == 0
    (reported,) = json.loads((tmp_path / "status.json").read_text(), parse_constant=int)
    assert reported["training"]["replay"] == {"samples_per_insert": None, "shards": [{"number": 0}]}
    assert reported["shards"][0]["total"] == 12.5


class Ends(ActorBase):
    """Ends when it is asked."""

    def read(self):
        """Never answer."""
        import os

        os._exit(0)


def test_shards_that_have_not_begun_are_silent(ray_here):
    options = {"capacity": 10, "fields": {"x": Field()}}
    (shard,) = start_shards("run", [Declaration(0, 0, options, 0, keeps_episodes=False, hidden=())], None)
    assert status._status("run", ["0"]) == ReplayStatus("run", (), (0,), None)
    shard.kill()


def test_processes_that_end_meanwhile_are_left_out(ray_here):
    ends = start(Ends, "run/training")
    assert status._status("run", ["training", "0", "actor-1"]) == ReplayStatus("run", (), (0,), None)
    ends.kill()
