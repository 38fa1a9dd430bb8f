"""A deterministic environment whose every step can be checked: a walk along numbered places."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Places 0, 1, ...; actions 3 (stay) and 4 (continue); terminated at place 4, truncated by a time limit.

    Every episode starts at place 0 and carries its own number, drawn from the environment's generator.
    """

    observation_space = gym.spaces.Box(0.0, 1e6, (2,), np.float64)
    action_space = gym.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.place = int(self.np_random.integers(1_000)), 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(int(action))
        self.place += int(action) - 3
        return self._obs(), float(self.place), self.place == 4, False, {}

    def _obs(self):
        return np.array([self.episode, self.place], np.float64)


ENV_ID = "Corridor-v0"
LIMIT = 7

if ENV_ID not in gym.registry:
    gym.register(ENV_ID, Corridor, max_episode_steps=LIMIT)
