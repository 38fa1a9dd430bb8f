"""The learners of two public notebooks, with their settings; the notebooks themselves are in examples/originals."""

import numpy as np
import pytest

from replaylab import measures
from replaylab.learners import DQN, DQNAsPublished, TrainingConfig, train
from replaylab.replay import Combined, FrameStack, Linear, Prioritized, SlidingWindow, Uniform


class TestComparativeStudy:
    """Four memories under one learner, with the study's flaws."""

    MEMORIES = (
        ("none", SlidingWindow(), 150_000),
        ("uniform", Uniform(replace=False), 150_000),
        ("prioritized", Prioritized(alpha=0.6, epsilon=0.01, beta=0.0), 10_000),
        ("combined", Combined("replace", distinct=True), 150_000),
    )

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "memory", "capacity"), MEMORIES)
    def test_a_run(self, name, memory, capacity):
        learner = DQNAsPublished(
            hidden=(128,),
            learning_rate=1e-3,
            gamma=0.8,
            batch_size=64,
            capacity=capacity,
            learning_starts=64,
            loss="squared",
            double=False,
            max_grad_norm=None,
            epsilon=Linear(1.0, 0.05, steps=950),
            end_reward=-10.0,
            truncation_terminates=True,
            insertion_priorities=name == "prioritized",
            target_each_episode=True,
            explores_first_action=True,
        )
        limit = {"max_episode_steps": 200}  # as CartPole-v0
        settings = {
            "total_episodes": 300,
            "eval_every": 300,
            "env_options": limit,
            "log_every": 50,
            "measure_every": 50,
        }
        metrics = train(TrainingConfig("CartPole-v1", learner, memory, **settings), seeds=[0])
        durations = metrics.of("rollout/ep_len")[1]
        assert durations.shape == (300,)
        assert durations.max() <= 200
        assert durations[:20].mean() < 20, "one action only, at first"
        for statistic in ("mean", "median", "max", "std"):
            assert np.isfinite(metrics.of(f"train/td_error_{statistic}")[1]).all()
        assert 0 < metrics.of("replay/legacy_correlated_pairs")[1].mean() < 64 * 63 / 2

    def test_pairs_of_correlated_states(self):
        def correlation_count(state, threshold=0.8):  # the study's own
            cov = np.cov(state)
            size = np.sqrt(np.diag(cov))
            return (np.sum(np.abs(cov / size[:, None] / size) > threshold) - len(cov)) / 2

        states = np.random.default_rng(0).normal(size=(64, 4))
        assert measures.legacy_correlated_pairs(states) == correlation_count(states) > 0


def test_pong():
    """Frames, stacks, prioritized draws without repetition, and the notebook's network for some frames."""
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    learner = DQN(
        learning_rate=1e-5,
        gamma=0.99,
        batch_size=32,
        capacity=100_000,
        learning_starts=300,  # the notebook's 10,000, so that a short run learns
        target_period=10_000,
        loss="huber",
        double=False,
        max_grad_norm=None,
        epsilon=Linear(1.0, 0.01, steps=100_000),
    )
    memory = Prioritized(alpha=0.5, epsilon=1e-4, beta=0.0, replace=False)
    transforms = [FrameStack(4, stacked_input=True)]
    settings = {"transforms": transforms, "total_steps": 320, "eval_every": None, "log_every": 10}
    metrics = train(TrainingConfig("PongNoFrameskip-v4", learner, memory, **settings), seeds=[0])
    assert metrics.of("train/updates")[1].max() >= 20
    assert np.isfinite(metrics.of("train/loss")[1]).all()
    assert metrics.of("rollout/exploration_rate")[1][-1] == pytest.approx(1 - 0.99 * 320 / 100_000, abs=2e-4)
