"""sbx, whose algorithms are Stable-Baselines3's in JAX: the buffer with everything but priorities."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("sbx")

import jax
import sbx

from replaylab.errors import ConfigError
from replaylab.integrations.sb3 import ReplayLabBuffer, WithPriorities
from replaylab.replay import Prioritized, Recency


@pytest.fixture(autouse=True, scope="module")
def little_optimized():
    """XLA optimizes for longer than these few steps take."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def model_of(kind, env, **replay):
    small = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 8, "learning_starts": 30, "seed": 1}
    options = {"replay_buffer_class": ReplayLabBuffer, "replay_buffer_kwargs": replay}
    return kind("MlpPolicy", env, train_freq=2, gradient_steps=2, **small | options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "env"), [("DQN", "CartPole-v1"), pytest.param("SAC", "Pendulum-v1", marks=pytest.mark.slow)]
)
def test_it_learns(name, env, tmp_path):
    model = model_of(getattr(sbx, name), env, sampler=Recency(), n_steps=3, compressed=True)
    drawn = []
    draw = model.replay_buffer.replay.sample
    model.replay_buffer.replay.sample = lambda size, **options: drawn.append(size) or draw(size, **options)
    model.learn(40)
    assert set(drawn) == {8 * 2}  # all gradient steps at once
    assert model.replay_buffer.size() == 40
    assert np.isfinite(model.logger.name_to_value["train/critic_loss"])
    del model.replay_buffer.replay.sample
    model.save_replay_buffer(tmp_path / "kept")
    model.load_replay_buffer(tmp_path / "kept")
    assert model.replay_buffer.size() == 40


@pytest.mark.filterwarnings("ignore")
def test_priorities_are_refused():
    with pytest.raises(ConfigError, match=r"which SAC of sbx does not give: its update is compiled whole"):
        model_of(sbx.SAC, "Pendulum-v1", sampler=Prioritized())
    mixed = type("PrioritizedSAC", (WithPriorities, sbx.SAC), {})
    with pytest.raises(ConfigError, match=r"which PrioritizedSAC of sbx does not give"):
        model_of(mixed, "Pendulum-v1")
