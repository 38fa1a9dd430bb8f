"""Greedy evaluation, on environments of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.envs import make_vector_env
from replaylab.learners.agents import Agents
from replaylab.learners.streams import Stream, numbers


class Evaluation:
    """Plays whole episodes without exploration.

    The n-th evaluation of a seed always starts from the same episodes, drawn from its `Stream.EVALUATION`:
    strategies are compared on equal starts, and how often one evaluates changes nothing else.

    Args:
        env_id: The environment.
        seeds: One for each replica.
        episodes: Episodes for each replica and evaluation.
        max_steps: Where an episode is cut in an environment without a time limit.
    """

    def __init__(self, env_id: str, seeds: Sequence[int], episodes: int, *, max_steps: int = 10_000) -> None:
        self.seeds, self.episodes, self.max_steps = list(seeds), episodes, max_steps
        self.env = make_vector_env(env_id, len(self.seeds) * episodes)
        space = self.env.single_action_space
        self._first_action = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self._count = 0

    def __call__(self, agents: Agents) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return each replica's mean return and mean episode length, float64 (R,)."""
        starts = [
            number for seed in self.seeds for number in numbers(seed, Stream.EVALUATION, self.episodes, self._count)
        ]
        self._count += 1
        obs, _ = self.env.reset(seed=starts)  # type: ignore[arg-type]  # vector environments take a list
        returns = np.zeros(len(starts))
        lengths = np.zeros(len(starts))
        running = np.ones(len(starts), np.bool_)
        for _ in range(self.max_steps):
            action = agents.q_values(self._by_replica(obs)).argmax(-1).reshape(-1)
            obs, reward, terminated, truncated, _ = self.env.step(action + self._first_action)
            returns += running * reward
            lengths += running
            running &= ~(terminated | truncated)
            if not running.any():
                break
        return self._by_replica(returns).mean(1), self._by_replica(lengths).mean(1)

    def _by_replica(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values.reshape(len(self.seeds), self.episodes, *values.shape[1:])
