"""An environment with numbered states that breaks at its first step: its workers need no PyTorch."""

import gymnasium as gym


class Fails(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        raise RuntimeError("it broke")


if "FailsNumbered-v0" not in gym.registry:
    gym.register("FailsNumbered-v0", Fails)
