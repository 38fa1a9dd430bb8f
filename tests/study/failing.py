"""An environment that is there, and breaks at its first step."""

import gymnasium as gym
import numpy as np


class Fails(gym.Env):
    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        raise RuntimeError("it broke")


if "Fails-v0" not in gym.registry:
    gym.register("Fails-v0", Fails)
