"""A tiny environment whose every observation is unique and which keeps its own log of what truly happened."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

OBSERVATIONS = {
    "box": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "discrete": spaces.Discrete(10**9),
    "dict": spaces.Dict(
        {
            "time": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "where": spaces.Discrete(1000),
            "bits": spaces.MultiBinary(4),
        }
    ),
    "tuple": spaces.Tuple((spaces.Box(0, 255, (2, 2), np.uint8), spaces.MultiDiscrete([1000, 1000, 1000]))),
}


class ScriptedEnv(gym.Env):
    """Episodes of scripted lengths and kinds of end.

    Args:
        kind: a key of `OBSERVATIONS`.
        name: a number shown in every observation.
        script: (length, terminated, truncated) of each episode, repeated for ever.
    """

    def __init__(self, kind, name, script):
        self.kind, self.name, self.script = kind, name, script
        self.observation_space = OBSERVATIONS[kind]
        self.action_space = spaces.Discrete(7)
        self.episode, self.log = -1, []

    def observe(self):
        e, t, i = self.episode, self.t, self.name
        match self.kind:
            case "box":
                return np.array([i, e, t, e * 100 + t], np.float32)
            case "discrete":
                return np.int64(i * 10**6 + e * 1000 + t)
            case "dict":
                bits = np.array([t >> k & 1 for k in range(4)], np.int8)
                return {"time": np.array([e, t, i], np.float64), "where": np.int64(i), "bits": bits}
            case "tuple":
                return np.array([[i, e], [t, 255]], np.uint8), np.array([i, e, t], np.int64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        length, ends_terminated, ends_truncated = self.script[self.episode % len(self.script)]
        obs = self.observe()
        self.t += 1
        ends = self.t == length
        reward = float(self.name + self.t / 64)
        flags = ends and ends_terminated, ends and ends_truncated
        self.log.append((obs, int(action), reward, self.observe(), *flags))
        return self.observe(), reward, *flags, {}


# Episodes of one step, ends of each kind, two ends at once, two envs that end together.
SCRIPTS = (
    ((3, True, False), (1, False, True), (1, True, False), (4, True, True)),
    ((1, True, False),),
    ((5, False, True), (2, True, False)),
    ((3, False, True), (1, True, False)),
)


def make_vector(kind, mode, scripts=SCRIPTS):
    makers = [lambda i=i, s=s: ScriptedEnv(kind, i, s) for i, s in enumerate(scripts)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode))


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
