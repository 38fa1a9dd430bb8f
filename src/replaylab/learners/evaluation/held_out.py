"""Held-out states: a fixed set of states whose mean value is recorded during training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.envs import make_vector_env
from replaylab.learners.api.actions import random_actions
from replaylab.learners.api.answers import q_values_of
from replaylab.learners.api.finite import check_obs
from replaylab.learners.api.protocols import Obs, ValueAgents
from replaylab.learners.api.random_streams import Stream, generator, numbers
from replaylab.trees import stack, take

GAP = 10
"""Steps between two held-out states, so that they differ."""


class HeldOut:
    """States that a random policy visits before training, in separate environments.

    The mean over them of max_a Q(s, a) is the steadier curve of learning that Mnih et al. 2013 (section 5.1) draw
    beside the noisy returns. No agent learns from them.

    Args:
        env_id: The environment.
        seeds: One for each replica, whose `Stream.HELD_OUT` draws its starts and actions.
        states: N for each replica.
        env_options: Arguments of the environment's constructor.
        autoreset_mode: Autoreset mode of the environments; None: as `make_vector_env` chooses.

    Raises:
        NonFiniteError: A state is NaN or infinite.
    """

    def __init__(
        self,
        env_id: str,
        seeds: Sequence[int],
        states: int,
        env_options: Mapping[str, Any] | None = None,
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        self._row = {seed: r for r, seed in enumerate(seeds)}
        env = make_vector_env(env_id, len(seeds), autoreset_mode=autoreset_mode, **dict(env_options or {}))
        draws = [generator(seed, Stream.HELD_OUT) for seed in seeds]
        actions = np.stack([random_actions(env.single_action_space, draw, (states, GAP)) for draw in draws], 2)
        starts: Any = [numbers(seed, Stream.HELD_OUT, 1, 0)[0] for seed in seeds]
        obs, _ = env.reset(seed=starts)
        states_seen = []
        for turns in actions:
            for action in turns:
                obs = env.step(action)[0]
            check_obs(obs, env_id, seeds, "a held-out state")
            states_seen.append(obs)
        env.close()
        self._obs: Obs = stack(states_seen, 1)  # (R, N, ...)
        self._states = len(states_seen)

    def __call__(self, agents: ValueAgents, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the mean of max_a Q(s, a) over the states of each of these seeds, float64 (R,)."""
        rows = np.array([self._row[seed] for seed in seeds])
        q = q_values_of(agents, take(self._obs, rows), (len(rows), self._states))
        mean: npt.NDArray[np.float64] = q.max(-1).mean(-1, dtype=np.float64)
        return mean
