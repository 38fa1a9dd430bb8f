"""The guide's script for rl-zoo3 and its file of hyperparameters, in rl-zoo3 itself."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from replaylab.integrations.sb3 import ReplayLabBuffer
from replaylab.replay import Prioritized, Recency

GUIDE = Path(__file__).parents[3] / "docs/guides/stable-baselines3.md"


@pytest.fixture
def zoo(tmp_path):
    """Return a function that runs the guide's script, in its own process: rl-zoo3 replaces Gymnasium's TimeLimit."""
    pytest.importorskip("rl_zoo3")
    section = GUIDE.read_text().partition("\n## rl-zoo3\n")[2]
    for block, file in (("py", "zoo.py"), ("yaml", "replay.yml")):
        (tmp_path / file).write_text(re.search(rf"^```{block}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[1])

    def call(options: str):
        command = [sys.executable, "-W", "ignore", "zoo.py", *options.split()]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return call


def trained_buffer(zoo, folder, algo, env):
    """The replay buffer of a short run."""
    short = "-n 130 -params learning_starts:100 --eval-freq -1 --seed 1 --save-replay-buffer --conf-file replay.yml"
    zoo(f"train --algo {algo} --env {env} {short}")
    return pickle.loads((folder / "logs" / algo / f"{env}_1" / "replay_buffer.pkl").read_bytes())


def test_rl_zoo3_trains_and_plays_a_prioritized_algorithm(zoo, tmp_path):
    buffer = trained_buffer(zoo, tmp_path, "prioritized_dqn", "CartPole-v1")
    assert buffer.replay.sampler == Prioritized(alpha=0.6)
    assert (buffer.n_steps, buffer.size()) == (3, 132)  # whole updates of four steps
    played = zoo("enjoy --algo prioritized_dqn --env CartPole-v1 -f logs --no-render -n 100")
    assert "Mean reward: " in played


@pytest.mark.slow  # the same script with another row of the file
def test_rl_zoo3_trains_with_the_buffer_of_its_file(zoo, tmp_path):
    buffer = trained_buffer(zoo, tmp_path, "sac", "Pendulum-v1")
    assert type(buffer) is ReplayLabBuffer
    assert (buffer.replay.sampler, buffer.n_steps, buffer.size()) == (Recency(), 3, 130)
