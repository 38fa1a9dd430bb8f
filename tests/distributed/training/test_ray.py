"""Training on Ray: processes that are killed, and what others see of them."""

import json
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
from replaylab.distributed.replay.calls import NAMESPACE
from replaylab.learners import DQN, Checkpoints, Hook, TrainingConfig
from replaylab.replay import Prioritized
from tests.distributed.processes import descendants
from tests.distributed.studies.test_kills import three_nodes  # noqa: F401 - a fixture
from tests.study.execution.test_study_run import wait_for

pytestmark = pytest.mark.no_sanitizer

LEARNER = DQN(hidden=(8,), batch_size=16, capacity=1_000, learning_starts=100, train_period=8)


class Kills(Hook):
    """Kills processes of a shard, an actor and the evaluator, and looks around."""

    def __init__(self, ray):
        self.ray, self.statuses = ray, None
        self.due = {400: "0", 800: "actor-1", 1200: "evaluator", 1800: None}

    def after_turn(self, run):
        replay = run.replay.replay
        for step in [step for step in self.due if run.clock.steps >= step]:
            if name := self.due.pop(step):  # kill -9 of a process, which may be busy
                actor = self.ray.get_actor(f"{replay.run}/{name}", NAMESPACE)._actor_id.hex()
                os.kill(self.ray._private.state.actors(actor)["Pid"], signal.SIGKILL)
            else:  # see what others see
                self.stats, self.statuses = replay.stats(), cluster_status(None)


def test_killed_processes_restart_and_the_run_can_be_resumed(ray_here, monkeypatch, tmp_path):
    monkeypatch.setattr("replaylab.distributed.training.loop.FIGURES_PERIOD", 0.0)  # `look` needs some, however soon
    kills, saving = Kills(ray_here), Checkpoints(tmp_path, 500)
    config = TrainingConfig("CartPole-v1", LEARNER, Prioritized(beta=0.4), total_steps=3_000, eval_every=1_000)
    actors, shards = Actors(2, envs=2, unroll=8), Shards(1, snapshot_period=0.5)
    metrics = train(config, 3, actors=actors, shards=shards, hooks=[kills, saving])
    assert metrics.of("eval/mean_reward")[0].tolist() == [1000, 2000, 3000]
    assert kills.stats.losses == 1
    assert kills.stats.size > 0
    lines = "\n".join(kills.statuses[0].lines())
    assert re.search(r"environment CartPole-v1, learner DQN, steps [\d,]+, total steps 3,000, steps per second", lines)
    assert re.search(r"actors 2, actor losses [01], lost actor steps [\d,]+, silent actors 0, actors wait", lines)
    assert re.search(r"shard number 0, epoch \d, losses \d, lost steps [\d,]+, node", lines)
    resumed = train(config, 3, actors=actors, shards=Shards(2), resume=tmp_path)
    assert resumed.of("eval/mean_reward")[0].tolist() == [1000, 2000, 3000]
    wait_for(lambda: not cluster_status(None))  # nothing is left behind, once Ray has taken note of it


def test_from_the_command_line(ray_here, tmp_path, capsys):
    run = tmp_path / "run"
    small = ["--learner-options", "hidden=[8]", "learning_starts=100", "train_period=8", "--eval-episodes", "1"]
    actors = ["--actors", "1", "--envs-per-actor", "2"]
    assert main(["train", *actors, "--steps", "300", "--save", str(run), *small]) == 0
    assert "final return" in capsys.readouterr().out
    assert main(["train", "--resume", str(run), "--shards", "2"]) == 0
    assert json.loads((run / "actors.json").read_text()) == {"count": 1, "envs": 2, "shards": 2}
    assert main(["cluster", "status", "--address", ray_here.get_runtime_context().gcs_address]) == 0
    assert "no replay in shards runs in this cluster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--shards", "2"], "--shards needs --actors"),
        (["--address", "auto"], "--address needs --actors"),
        (["--actors", "2", "--seeds", "2"], "--seeds must be 1 with --actors"),
        (["--actors", "0"], "`count` of Actors must be at least 1, but got 0"),
        (["--actors", "2", "--episodes", "5"], "the budget must be in steps"),
        (["--actors", "2", "--strategy", "rank_based"], "RankBased"),
    ],
)
def test_wrong_options(ray_here, wrong, words, capsys):
    budget = [] if "--episodes" in wrong else ["--steps", "2000"]
    assert main(["train", *budget, *wrong]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--shards", "2"], ["--address", "auto"]])
def test_options_of_actors_for_a_run_without(option, tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), *option]) == 2
    assert f"{option[0]} is for runs with actors, but {tmp_path} holds none" in capsys.readouterr().err


GATED = """
import time
from pathlib import Path

import gymnasium as gym

class Gated(gym.Wrapper):
    '''CartPole that takes its 151st step once there is a file "open".'''

    steps = 0

    def __init__(self, folder):
        super().__init__(gym.make("CartPole-v1"))
        self.file = Path(folder, "open")

    def step(self, action):
        self.steps += 1
        while self.steps > 150 and not self.file.exists():
            time.sleep(0.01)
        return self.env.step(action)

gym.register("Gated-v0", Gated)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "word", "code"),
    [(signal.SIGKILL, "", -9), (signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)],
)
def test_all_is_killed_or_interrupted_and_goes_on(end, word, code, tmp_path):
    """By kill -9 of the learner and of every process of its Ray; by Ctrl-C and SIGTERM, after which none is left."""
    pytest.importorskip("ray")
    (tmp_path / "gated.py").write_text(GATED)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "replaylab", "train"]
    options = ["--actors", "2", "--steps", "6000", "--learner-options", "hidden=[8]", "train_period=8"]
    options += ["--env", "gated:Gated-v0", "--env-options", f"folder={tmp_path}"]
    saving = ["--save", str(run), "--save-every", "500"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a job in the background is born deaf to it
    arguments = [*command, *options, *saving]
    with subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as training:
        wait_for(lambda: (run / "distributed.json").exists() or training.poll() is not None, 300.0)
        assert training.poll() is None
        with_it = [training.pid, *descendants(training.pid)] if end == signal.SIGKILL else [training.pid]
        below = list(descendants(training.pid))
        for process in with_it:
            os.kill(process, end)
        said = training.communicate()[1]
    assert training.returncode == code
    if word:
        assert said == f"replaylab: {word}; replaylab train --resume {run} continues from the last checkpoint.\n"
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    (tmp_path / "open").touch()
    resuming = [*command, "--resume", str(run)]
    done = subprocess.run(resuming, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "final return" in done.stdout


TRAINS_ON_TWO_NODES = """
import sys
import ray
from replaylab.distributed import Actors, Shards, train
from replaylab.learners import DQN, Hook, TrainingConfig
from replaylab.replay import Uniform

class Says(Hook):
    said = False
    def after_turn(self, run):
        if not self.said and run.clock.steps >= 1_000:
            self.said = True
            print(ray.get_runtime_context().get_node_id(), flush=True)
    def on_end(self, run, over):
        stats = run.replay.replay.stats()
        print(f"losses {stats.losses}, updates {run.agents.updates + run.skipped}", flush=True)

learner = DQN(hidden=(8,), learning_starts=100, train_period=4)
config = TrainingConfig("CartPole-v1", learner, Uniform(), total_steps=30_000, eval_every=None)
train(config, 0, actors=Actors(2, envs=2), shards=Shards(2, placement="spread"), address=sys.argv[1], hooks=[Says()])
"""


@pytest.mark.slow
def test_training_continues_after_a_node_was_killed(three_nodes):  # noqa: F811
    """A node's raylet is killed, as when a machine loses its power; the learner is on another node."""
    command = [sys.executable, "-c", TRAINS_ON_TWO_NODES, three_nodes.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
        learners_node = training.stdout.readline().strip()
        node = next(node for node in three_nodes.worker_nodes if node.node_id != learners_node)
        (info,) = node.all_processes["raylet"]
        info.process.kill()
        info.process.wait()  # a zombie would keep its workers alive
        output = training.communicate(timeout=300)[0]
    assert training.returncode == 0
    assert re.fullmatch(r"losses [01], updates 7476\n", output)
