"""Greedy evaluation on separate environments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.envs import make_vector_env
from replaylab.envs.vectorize import step_limit, whole_games
from replaylab.learners.api.answers import actions_of
from replaylab.learners.api.finite import check_obs
from replaylab.learners.api.protocols import Policy
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.trees import map_leaves


class GreedyEvaluation:
    """Plays complete episodes without exploration.

    The n-th evaluation of a seed always starts from the same episodes, drawn from its `Stream.EVALUATION`:
    strategies are compared on equal starts, and how often one evaluates changes nothing else.

    Args:
        env_id: The environment.
        episodes: Episodes for each replica and evaluation.
        max_steps: Where an episode is cut in an environment without a time limit, in which a policy may walk in circles
            for ever. A limit of the environment's own, however large, counts alone.
        env_options: Arguments of the environment's constructor; for Atari games see `whole_games`.
        autoreset_mode: Autoreset mode of the environments; None: as `make_vector_env` chooses.
    """

    def __init__(
        self,
        env_id: str,
        episodes: int,
        *,
        max_steps: int = 10_000,
        env_options: Mapping[str, Any] | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        self.env_id, self.episodes, self.max_steps = env_id, episodes, max_steps
        self.env_options = whole_games(env_id, env_options or {})
        self._autoreset_mode = autoreset_mode
        self._env: Any = None

    def open(self, replicas: int) -> None:
        """Create the environments for evaluations of this many replicas, if they do not exist.

        Raises:
            ConfigError: They cannot be made.
        """
        total = replicas * self.episodes
        if self._env is None or self._env.num_envs != total:
            self.close()
            self._env = make_vector_env(self.env_id, total, autoreset_mode=self._autoreset_mode, **self.env_options)

    def close(self) -> None:
        """Close the environments; the next evaluation creates new ones."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def __call__(
        self, policy: Policy, seeds: Sequence[int], number: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return each replica's mean return and mean episode length, float64 (R,), in the evaluation with this number.

        Raises:
            NonFiniteError: A return, or the last observation, is NaN or infinite.
        """
        shape = (len(seeds), self.episodes)
        total = len(seeds) * self.episodes
        self.open(len(seeds))
        starts = [start for seed in seeds for start in numbers(seed, Stream.EVALUATION, self.episodes, number)]
        obs, _ = self._env.reset(seed=starts)
        players = [seed for seed in seeds for _ in range(self.episodes)]
        returns, lengths = np.zeros(total), np.zeros(total)
        running = np.ones(total, np.bool_)
        for _ in range(max(self.max_steps, step_limit(self._env) or 0)):
            action = actions_of(
                policy, map_leaves(lambda part: part.reshape(*shape, *part.shape[1:]), obs), *shape, explore=False
            )
            obs, reward, terminated, truncated, _ = self._env.step(action.reshape(total, *action.shape[2:]))
            returns += np.where(running, reward, 0.0)  # whatever comes after the counted episode
            lengths += running
            running &= ~(terminated | truncated)
            if not running.any():
                break
        check_obs(obs, self.env_id, players, f"an evaluation (number {number})")
        check_obs(returns, self.env_id, players, f"an evaluation (number {number})", "reward")
        return returns.reshape(shape).mean(1), lengths.reshape(shape).mean(1)
