"""An environment that can be made but fails when it is stepped."""

import gymnasium as gym
import numpy as np


class Failing(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        raise RuntimeError("the simulator crashed")


if "Failing-v0" not in gym.registry:
    gym.register("Failing-v0", Failing)
