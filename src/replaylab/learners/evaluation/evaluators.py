"""Values recorded at evaluations: returns of the greedy policy, values of held-out states, distances from the optimum.

Shapes: R replicas, N states, S states of the table, A actions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode

from replaylab.envs import TransitionTable, make_vector_env
from replaylab.envs.vectorize import step_limit, whole_games
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import actions_of, discount_of, q_values_of
from replaylab.learners.api.finite import check_obs
from replaylab.learners.api.protocols import Learner, Obs, Policy, ValueAgents
from replaylab.learners.api.random_streams import Stream, generator, numbers
from replaylab.learners.tabular.dynamic_programming import acting_states, optimal_values
from replaylab.trees import map_leaves, stack, take


class GreedyEvaluation:
    """Plays complete episodes without exploration.

    The n-th evaluation of a seed always starts from the same episodes, drawn from its `Stream.EVALUATION`:
    strategies are compared on equal starts, and the frequency of evaluations changes nothing else.

    Args:
        env_id: The environment.
        episodes: Episodes for each replica and evaluation.
        max_steps: Steps after which an episode is cut in an environment without a time limit, in which a policy may
            walk in circles for ever. If the environment has a limit, however large, only that applies.
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


def random_actions(space: Space[Any], draws: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Draw actions uniformly from the space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, or a Box with bounds.
        draws: Generator of the random numbers.
        shape: Shape of the array of actions.

    Returns:
        `shape` followed by the space's own shape, in its dtype.

    Raises:
        ConfigError: The space is of another kind, or a Box without bounds.
    """
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + draws.integers(space.n, size=shape)).astype(space.dtype, copy=False)
    full_shape = (*shape, *(space.shape or ()))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start + draws.integers(space.nvec, size=full_shape)).astype(space.dtype, copy=False)
    if isinstance(space, spaces.MultiBinary):
        return draws.integers(2, size=full_shape).astype(space.dtype)
    if isinstance(space, spaces.Box) and space.is_bounded() and np.dtype(space.dtype).kind == "f":
        return draws.uniform(space.low, space.high, size=full_shape).astype(space.dtype)
    raise ConfigError(
        "random actions need a space that is Discrete, MultiDiscrete, MultiBinary, or a bounded floating-point Box, "
        f"but got {space}"
    )
