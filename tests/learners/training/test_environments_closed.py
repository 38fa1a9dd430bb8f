"""Training closes the environments that it has made, however it ends."""

import gymnasium as gym
import numpy as np
import pytest

from replaylab.learners import QLearning
from replaylab.replay import Uniform
from tests.learners.calls import train


class Counted(gym.Env):
    """Ends after as many steps as its seed says; counts which of its kind are open."""

    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)
    opened = closed = 0

    def __init__(self):
        Counted.opened += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 9))
        return 0, {}

    def step(self, action):
        self.left -= 1
        return int(action), 1.0, self.left == 0, False, {}

    def close(self):
        Counted.closed += 1


class Breaks(Counted):
    def step(self, action):
        raise RuntimeError("broke")


for name, kind in {"Counted-v0": Counted, "Breaks-v0": Breaks}.items():
    if name not in gym.registry:
        gym.register(name, kind)


@pytest.fixture(autouse=True)
def counts(monkeypatch):
    monkeypatch.setattr(Counted, "opened", 0)
    monkeypatch.setattr(Counted, "closed", 0)


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("budget", [{"total_steps": 20}, {"total_episodes": 3}])
def test_at_the_end_and_when_some_replicas_have_ended(budget, every):
    metrics = train(
        "Counted-v0", QLearning(learning_starts=1), Uniform(), [0, 1, 2], **budget, eval_every=every, eval_episodes=2
    )
    assert len(np.unique(metrics.columns["seed"])) == 3
    assert 0 < Counted.opened == Counted.closed


def test_where_the_environment_raises():
    with pytest.raises(RuntimeError, match="broke"):
        train("Breaks-v0", QLearning(learning_starts=1), Uniform(), [0, 1], total_steps=20, eval_every=None)
    assert 0 < Counted.opened == Counted.closed
