"""Environments that exit, hang, or give no numbers."""

import contextlib
import os
import signal
import sys
import time

import gymnasium as gym
import numpy as np


class Calm(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        if seed is not None:
            self.luck = self.np_random.random()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(2, 0.5, np.float32), 1.0, self.count == 10, False, {}


class Numbered(Calm):
    """For tables, so that PyTorch need not be imported."""

    observation_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, *super().step(action)[1:]


class Exits(Calm):
    def step(self, action):
        sys.exit(0)


class ExitsWhenMade(Calm):
    def __init__(self):
        sys.exit(0)


class Crashes(Calm):
    """Ends its process."""

    def step(self, action):
        os._exit(7)


class CrashesLater(Calm):
    """Ends its process after as many steps as no check takes."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 100:
            os._exit(7)
        return super().step(action)


class KilledLater(CrashesLater):
    """Is killed, as by a system without memory."""

    def step(self, action):
        if self.steps == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class LeavesAChild(Calm):
    """Ends its process, whose forked child lives on, with all that it had open."""

    def step(self, action):
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        os._exit(7)


class LeavesAStranger(Calm):
    """The same, with a child that has left the worker's session, so that nobody finds it."""

    def step(self, action):
        if os.fork() == 0:
            os.setsid()
            time.sleep(30)
            os._exit(0)
        time.sleep(0.2)
        os._exit(7)


class Slow(Calm):
    def step(self, action):
        time.sleep(0.5)
        return super().step(action)


class Hangs(Calm):
    """Hears no interrupt."""

    def step(self, action):
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(60)


class Prints(Calm):
    """Writes to standard output, by Python and past it, and asks for input."""

    def step(self, action):
        print('{"message": "Progress", "fields": {"step": 1}, "bytes": {}}')
        os.write(1, b"not a message\n")
        with contextlib.suppress(EOFError, OSError):
            input()
        return super().step(action)


class NoReward(Calm):
    """Its third reward is NaN, with some seeds."""

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, np.nan if self.count == 3 and self.luck > 0.5 else reward, *rest


class NoObs(NoReward):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return (np.full(2, np.nan, np.float32) if np.isnan(reward) else obs), 1.0, *rest


class NoLastObs(Calm):
    """Where an episode ends, and only there, an infinity is seen."""

    def step(self, action):
        obs, reward, ended, *rest = super().step(action)
        return (np.array([0.0, np.inf], np.float32) if ended else obs), reward, ended, *rest


for name, kind in list(globals().items()):  # all classes above
    if isinstance(kind, type) and f"{name}-v0" not in gym.registry:
        gym.register(f"{name}-v0", kind, max_episode_steps=50)
