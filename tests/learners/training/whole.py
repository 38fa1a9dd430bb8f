"""An algorithm with its own loop, as small as can be: it does at random, by the process's own generator."""

from dataclasses import dataclass, replace

import numpy as np


class Walker:
    def __init__(self, count):
        self.count, self.updates = count, 0

    def act(self, obs, explore):
        some = next(iter(obs.values())) if isinstance(obs, dict) else obs
        return np.zeros(some.shape[:2], np.int64)

    def numbers(self):
        return {"train/updates": self.updates}


@dataclass(frozen=True)
class RandomWalk:
    stops_after: int = 0
    begins: bool = True
    leaves_after: int = 0

    def train(self, run):
        np.random.seed(run.seed)  # noqa: NPY002 - the process's own
        env, walker = run.make_env(), Walker(2)
        if self.begins:
            run.begin(walker)
        env.reset(seed=run.seed)
        for step in range(self.stops_after or (run.configuration.total_steps or 50) + 7):
            _, _, terminated, truncated, _ = env.step(np.random.randint(2))  # noqa: NPY002
            walker.updates += 1
            if terminated or truncated or step + 1 == self.leaves_after:
                env.reset()

    def early(self):
        return replace(self), 5
