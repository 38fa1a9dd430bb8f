"""Helpers of the tests of Stable-Baselines3's integration: its draws as a sampler, and steps to store."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from replaylab.replay import CustomSampler


@dataclass(frozen=True)
class LibraryDraws(CustomSampler):
    """The draws of the library's own buffer, from NumPy's global generator; with feedback, which it ignores."""

    capacity: int
    n_envs: int = 1

    wants_feedback: ClassVar[bool] = True
    no_closed_form: ClassVar[str] = "it replays another library's draws"

    def draw(self, view, batch_size, rng):
        by_place = dict(zip((view.ids % self.capacity).tolist(), view.ids.tolist(), strict=True))
        places = np.random.randint(0, len(view) // self.n_envs, size=batch_size)  # noqa: NPY002 - the library's
        envs = np.random.randint(0, self.n_envs, size=batch_size)  # noqa: NPY002
        return np.array([by_place[place] for place in (places * self.n_envs + envs).tolist()])


BOX = spaces.Box(-1, 1, (3,), np.float32)
DICT = spaces.Dict({"pose": BOX, "camera": spaces.Box(0, 255, (1, 9, 9), np.uint8), "room": spaces.Discrete(5)})
ACTION = spaces.Box(-1, 1, (2,), np.float32)


def stacked(space, n_envs):
    """Return one observation an environment."""
    drawn = [space.sample() for _ in range(n_envs)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([obs[key] for obs in drawn]) for key in space.spaces}
    return np.stack(drawn)


def mixed(first, second, where):
    """Return the first observations, where told the second."""
    if isinstance(first, dict):
        return {key: mixed(first[key], second[key], where) for key in first}
    first = first.copy()
    first[where] = second[where]
    return first


def stream(space, n_envs, steps, seed=0, action=ACTION):
    """Yield arguments of `add`: episodes that end in both ways, after which another observation begins the next."""
    rng = np.random.default_rng(seed)
    space.seed(seed)
    action.seed(seed)
    obs = stacked(space, n_envs)
    for _ in range(steps):
        after, fresh = stacked(space, n_envs), stacked(space, n_envs)
        done, limit = rng.random(n_envs) < 0.15, rng.random(n_envs) < 0.5
        infos = [{"TimeLimit.truncated": bool(ends and cut)} for ends, cut in zip(done, limit, strict=True)]
        yield obs, after, stacked(action, n_envs), rng.normal(size=n_envs).astype(np.float32), done, infos
        obs = mixed(after, fresh, done)
