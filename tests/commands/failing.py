"""Environments with numbered states that break after 100 steps, or at once: their workers need no PyTorch."""

import gymnasium as gym


class Fails(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 100:
            raise RuntimeError("it broke")
        return 1, 1.0, self.steps % 10 == 0, False, {}


class FailsAtOnce(Fails):
    steps = 100


for name, kind in {"FailsNumbered-v0": Fails, "FailsAtOnce-v0": FailsAtOnce}.items():
    if name not in gym.registry:
        gym.register(name, kind)
