"""Environments that break: at their first step, later than a check before training notices, or with some seeds."""

import gymnasium as gym
import numpy as np


class Fails(gym.Env):
    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        raise RuntimeError("it broke")


class FailsLater(Fails):
    """Breaks after as many steps as no check takes."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 100:
            super().step(action)
        return np.zeros(1, np.float32), 1.0, self.steps % 10 == 0, False, {}


class Picky(gym.Env):
    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.luck = self.np_random.random()
        return np.full(1, self.luck, np.float32), {}

    def step(self, action):
        if self.luck > 0.8:
            raise RuntimeError("bad luck")
        return np.full(1, self.luck, np.float32), 1.0, self.np_random.random() < 0.1, False, {}


for name, kind in {"Fails-v0": Fails, "FailsLater-v0": FailsLater, "Picky-v0": Picky}.items():
    if name not in gym.registry:
        gym.register(name, kind)
