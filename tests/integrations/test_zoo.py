"""rl-zoo3's runner with our replay."""

from pathlib import Path

import pytest

pytest.importorskip("rl_zoo3")

import yaml
from rl_zoo3 import ALGOS
from stable_baselines3 import SAC

from replaylab.errors import ConfigError
from replaylab.integrations import zoo
from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer
from replaylab.replay import Linear, Mixture, Prioritized, Recency, Uniform


def test_text_names_samplers_and_plain_values():
    assert zoo.configured("Prioritized(0.6, beta=Linear(0.4, 1.0))") == Prioritized(0.6, Linear(0.4, 1.0))
    assert zoo.configured("Mixture((Uniform(), Recency()), (0.5, 0.5))") == Mixture((Uniform(), Recency()), (0.5, 0.5))
    assert zoo.configured("dict(a=-1, b='x')") == {"a": -1, "b": "x"}


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        "Prioritized.__class__",
        "(lambda: 1)()",
        "__import__('os')",
        "Prioritized(**{})",
        "1 +",
        "ReplayBuffer(1, {})",
        "Prioritized(alpha=-1)",
        "Prioritized(gamma=1)",
    ],
)
def test_nothing_else_is_read(text):
    with pytest.raises(ConfigError):
        zoo.configured(text)


def command(folder, algo, *options, env="Pendulum-v1"):
    zoo.main(
        ["--algo", algo, "--env", env, "-n", "130", "-f", str(folder), "--eval-freq", "-1", "--seed", "1", *options]
    )
    return folder / algo / f"{env}_1"


@pytest.fixture
def seen(monkeypatch):
    """Models that were trained."""
    found = []
    learn = zoo.Manager.learn
    monkeypatch.setattr(zoo.Manager, "learn", lambda self, model: found.append(model) or learn(self, model))
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_priorities(tmp_path, seen):
    replay = ["--replay", "sampler=Prioritized(alpha=0.6)", "compressed=False", "n_steps=2"]
    made = command(tmp_path, "prioritized_sac", *replay, "-params", "learning_starts:100", "--save-replay-buffer")
    (model,) = seen
    assert type(model) is PrioritizedSAC
    assert model.learning_rate(1.0) == 1e-3  # of its file for SAC
    assert model.replay_buffer.replay.sampler == Prioritized(0.6)
    assert model.replay_buffer.n_steps == 2
    assert model.replay_buffer.size() == 130
    assert model._n_updates > 0
    kept = yaml.unsafe_load((made / "Pendulum-v1" / "config.yml").read_text())
    assert dict(kept)["replay_buffer_kwargs"]["sampler"] == "Prioritized(alpha=0.6)"
    assert ALGOS["prioritized_sac"].load(made / "Pendulum-v1.zip", buffer_size=10).replay_buffer.buffer_size == 10


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_hyperparameters(tmp_path, seen):
    file = tmp_path / "own.yml"
    file.write_text(
        "Pendulum-v1: {n_timesteps: 130, policy: MlpPolicy, learning_starts: 120, "
        "replay_buffer_kwargs: {sampler: 'Recency(0.99)', n_steps: 3}}"
    )
    command(tmp_path, "sac", "-conf", str(file))
    (model,) = seen
    assert type(model) is SAC
    assert type(model.replay_buffer) is ReplayLabBuffer
    assert (model.replay_buffer.replay.sampler, model.replay_buffer.n_steps) == (Recency(0.99), 3)


@pytest.mark.filterwarnings("ignore")
def test_what_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="must be an algorithm with a replay buffer, but got ppo"):
        command(tmp_path, "ppo")
    with pytest.raises(ConfigError, match="use PrioritizedSAC"):
        command(tmp_path, "sac", "--replay", "sampler=RankBased()")
    with pytest.raises(ConfigError, match="takes NAME=VALUE"):
        command(tmp_path, "sac", "--replay", "sampler")
    assert Path(zoo.train.__file__).name == "train.py"
    assert zoo.train.ExperimentManager is zoo.exp_manager.ExperimentManager
    assert ALGOS["prioritized_dqn"] is PrioritizedDQN
