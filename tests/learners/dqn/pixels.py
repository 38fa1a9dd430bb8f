"""A tiny game of pixels whose every frame can be distinguished from the others: a dot that moves along a row."""

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

SIDE, LIMIT = 36, 9


class Dots(gym.Env):
    """A grey frame whose brightness is the episode's, and a white dot at the step's place; ends after 4 to 9 steps.

    Action 1 earns 1, action 0 nothing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.grey, self.last = (int(number) for number in self.np_random.integers([1, 4], [200, LIMIT + 1]))
        self.t = 0
        return self.frame(), {}

    def step(self, action):
        self.t += 1
        return self.frame(), float(action), self.t == self.last, False, {}

    def frame(self):
        frame = np.full((SIDE, SIDE), self.grey, np.uint8)
        frame[self.t] = 255
        return frame

    def render(self):
        return np.repeat(self.frame()[:, :, None], 3, 2)


def stacked(frames=4, **kwargs):
    return FrameStackObservation(Dots(**kwargs), frames)


ENV_ID = "Dots-v0"

if ENV_ID not in gym.registry:
    gym.register(ENV_ID, stacked)
