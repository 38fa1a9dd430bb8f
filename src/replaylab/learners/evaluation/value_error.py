"""Errors of agents' values against exact optimal values.

Shapes: R replicas, N states, S states of the table, A actions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.envs import TransitionTable
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import discount_of, q_values_of
from replaylab.learners.api.protocols import Learner, ValueAgents
from replaylab.learners.tabular.dynamic_programming import acting_states, optimal_values


class OptimumDistance:
    """Root mean square of Q(s, a) − Q*(s, a) over all actions in the states where an episode can act.

    These are the states that can be reached from a first one; the terminal ones are not among them. Q* is that of the
    learner's γ and of the environment's rewards, without time limits, by value iteration. A learner that stores other
    rewards, such as `end_reward` of `DQNAsPublished`, is compared with the optimum of the true ones.

    Args:
        env_id: An environment that is a table, see `TransitionTable.of`, and shows its states.
        learner: The learner, which has γ.
        env_options: Arguments of the environment's constructor.

    Raises:
        ConfigError: The environment has no table or shows something else, or the learner has no γ or one by which
            values do not settle.
    """

    def __init__(self, env_id: str, learner: Learner, env_options: Mapping[str, Any] | None = None) -> None:
        gamma = discount_of(learner, "value_error")
        env = gym.make(env_id, **dict(env_options or {}))
        try:
            table, space = TransitionTable.of(env), env.observation_space
        except ConfigError as error:
            raise ConfigError(f"`value_error` needs exact values, but {error}; leave it out") from error
        finally:
            env.close()
        if not isinstance(space, spaces.Discrete) or int(space.n) != table.num_states:
            raise ConfigError(
                f"`value_error` needs observations that are the {table.num_states} states of the table, but those of "
                f"{env_id} are in {space}; leave it out"
            )
        states = np.flatnonzero(acting_states(table))
        self._obs = states + int(space.start)
        self._optimal = optimal_values(table, gamma)[states]

    def __call__(self, agents: ValueAgents, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the distance of each replica, float64 (R,)."""
        shape = (len(seeds), len(self._obs))
        q = q_values_of(agents, np.broadcast_to(self._obs, shape), shape)
        distance: npt.NDArray[np.float64] = np.sqrt(((q - self._optimal) ** 2).mean((1, 2)))
        return distance
