"""Training by Ray actors: processes that really die, and what is seen of them from outside."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from replaylab.commands.main import main
from replaylab.distributed import Actors, Shards, cluster_status, train
from replaylab.learners import DQN, Checkpoints, Hook, TrainingConfig
from replaylab.replay import Prioritized
from tests.distributed.processes import descendants
from tests.study.execution.test_study_run import wait_for

pytestmark = pytest.mark.no_sanitizer

LEARNER = DQN(hidden=(8,), batch_size=16, capacity=1_000, learning_starts=100, train_period=8)


class Kills(Hook):
    """Kills a shard's process at step 400 and an actor's at 600, and looks around at 800."""

    def __init__(self, ray):
        self.ray, self.due, self.seen = ray, [self.shard, self.actor, self.look], None

    def after_turn(self, run):
        """Do what is due."""
        if self.due and run.clock.steps >= 1000 - 200 * len(self.due):
            self.due.pop(0)(run)

    def shard(self, run):
        """Kill -9 of the process of shard 0."""
        self.kill(run.replay.replay._pool.slots[0].client.actor)

    def actor(self, run):
        """Kill -9 of the process of actor 1."""
        name = run.replay.replay._pool.transport.run
        self.kill(self.ray.get_actor(f"{name}/actor-1/0", "replaylab"))

    def kill(self, actor):
        """Kill -9 of an actor's process."""
        os.kill(self.ray.get(actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)

    def look(self, run):
        """See what others see."""
        self.stats = run.replay.replay.stats()
        self.seen = cluster_status(None)


def test_shard_and_actor_are_killed_and_the_run_goes_on_later(ray_here, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "replaylab.distributed")
    kills, saving = Kills(ray_here), Checkpoints(tmp_path, 300)
    config = TrainingConfig("CartPole-v1", LEARNER, Prioritized(beta=0.4), total_steps=1_200, eval_every=600)
    metrics = train(config, 3, actors=Actors(2, unroll=8), shards=Shards(2, snapshot_period=0.5), hooks=[kills, saving])
    assert metrics.of("eval/mean_reward")[0].tolist() == [600, 1200]
    assert kills.stats.losses == 1
    assert kills.stats.size > 0
    assert len(kills.seen) == 1
    lines = "\n".join(kills.seen[0].lines())
    assert re.search(r"CartPole-v1, DQN, step \d+ of 1,200 .* 2 actors, [01] lost with \d+ steps", lines)
    assert re.search(r"shard [01]: epoch \d, \d+ steps, total", lines)
    assert "shard 0 (epoch 0) is lost" in caplog.text
    assert "actor 1 (life 0) is lost" in caplog.text
    assert train(config, 3, actors=Actors(2), shards=Shards(1), resume=tmp_path).of("eval/mean_reward")[0][-1] == 1200
    wait_for(lambda: not cluster_status(None))  # nothing is left behind, once Ray has taken note of it


def test_from_the_command_line(ray_here, tmp_path, capsys):
    run = tmp_path / "run"
    small = ["--learner-options", "hidden=[8]", "learning_starts=100", "train_period=8", "--eval-episodes", "1"]
    given = ["train", "--actors", "1", "--shards", "1", "--steps", "300", "--save", str(run), *small]
    assert main(given) == 0
    assert "final return" in capsys.readouterr().out
    assert main(["train", "--resume", str(run), "--shards", "2"]) == 0
    assert json.loads((run / "actors.json").read_text())["shards"] == 2
    assert main(["cluster", "status", "--address", ray_here.get_runtime_context().gcs_address]) == 0
    assert "no replay in shards runs in this cluster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--shards", "2"], "--shards needs --actors"),
        (["--address", "auto"], "--address needs --actors"),
        (["--actors", "2", "--seeds", "2"], "--seeds must be 1 with --actors"),
        (["--actors", "0"], "`count` of Actors must be at least 1, but got 0"),
        (["--actors", "2", "--episodes", "5"], "the budget must be in steps"),
        (["--actors", "2", "--strategy", "rank_based"], "RankBased cannot be drawn from several shards exactly"),
        (["--actors", "2", "--samples-per-insert", "0"], "`samples_per_insert` must be positive"),
    ],
)
def test_wrong_options(ray_here, wrong, said, capsys):
    budget = [] if "--episodes" in wrong else ["--steps", "2000"]
    assert main(["train", *budget, *wrong]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--shards", "2"], ["--address", "auto"]])
def test_options_of_actors_for_a_run_without(option, tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), *option]) == 2
    assert f"{option[0]} is for runs with actors, but {tmp_path} holds none" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "word", "code"),
    [(signal.SIGKILL, "", -9), (signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)],
)
def test_all_is_killed_or_interrupted_and_goes_on(end, word, code, tmp_path):
    """By kill -9 of the learner and of every process of its Ray; by Ctrl-C and SIGTERM, after which none is left."""
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "replaylab", "train"]
    options = ["--actors", "2", "--steps", "6000", "--learner-options", "hidden=[8]", "train_period=8"]
    saving = ["--save", str(tmp_path), "--save-every", "500"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a job in the background is born deaf to it
    arguments = [*command, *options, *saving]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as training:
        wait_for(lambda: (tmp_path / "distributed.json").exists() or training.poll() is not None, 300.0)
        assert training.poll() is None
        with_it = [training.pid, *descendants(training.pid)] if end == signal.SIGKILL else [training.pid]
        below = list(descendants(training.pid))
        for process in with_it:
            os.kill(process, end)
        said = training.communicate()[1]
    assert training.returncode == code
    if word:
        assert said == f"replaylab: {word}; replaylab train --resume {tmp_path} continues from the last checkpoint.\n"
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    done = subprocess.run([*command, "--resume", str(tmp_path)], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "final return" in done.stdout
