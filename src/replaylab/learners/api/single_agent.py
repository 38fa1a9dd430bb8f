"""A single agent for custom loops: `act` on a state, `learn` from a step."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Env, spaces

from replaylab.arguments import ArrayOf, InvalidArgument, checked, flag, instance, takes, whole
from replaylab.errors import FieldError, ShapeError
from replaylab.learners.api.protocols import Learner, Obs
from replaylab.replay import Batch
from replaylab.trees import flatten, flatten_as, map_leaves, unflatten


class SingleAgent:
    """An agent of one environment: `act` on a state, `learn` from a step, or from arrays of steps.

    For custom loops; `train`, which trains many seeds at once, is faster. A schedule keeps its start value: set
    `agents.epsilon` yourself, or call ``agents.set_progress``.

    Args:
        learner: `QLearning`, `DQN` or another learner.
        env: The environment; only its spaces are used.
        seed: Seed of its first values and its exploration.

    Attributes:
        agents: The agents, of one replica.

    Example:
        >>> import gymnasium as gym
        >>> from replaylab.learners import QLearning
        >>> env = gym.make("CliffWalking-v1")
        >>> agent = SingleAgent(QLearning(alpha=0.5, gamma=1.0), env, seed=0)
        >>> s, _ = env.reset(seed=0)
        >>> a = agent.act(s)
        >>> s2, r, terminated, truncated, _ = env.step(a)
        >>> agent.learn(s, a, r, s2, terminated).tolist()
        [-1.0]
    """

    @takes(learner=instance(Learner, "a learner such as QLearning()"), env=instance(Env, "a Gymnasium environment"))
    @takes(seed=whole(0))
    def __init__(self, learner: Learner, env: Env[Any, Any], seed: int = 0) -> None:
        self._states, self._actions = _leaves(env.observation_space), _leaves(env.action_space)
        self.agents = learner.agents(env.observation_space, env.action_space, [seed])

    @takes(explore=flag)
    def act(self, s: Obs, explore: bool = True) -> Any:
        """Return an action for a state: with exploration, or the best one.

        Raises:
            ConfigError, FieldError, ShapeError, DtypeError: The state does not fit the environment's space.
        """
        state = map_leaves(lambda part: part[None, None], _fitted("s", s, self._states, ()))
        action = self.agents.act(state, explore)[0, 0]
        return action.item() if action.ndim == 0 else action

    def learn(
        self,
        s: Obs,
        a: npt.ArrayLike,
        r: npt.ArrayLike,
        s2: Obs,
        terminated: npt.ArrayLike,
        weight: npt.ArrayLike = 1.0,
    ) -> npt.NDArray[Any]:
        """Learn from one step, or from B steps with a leading axis B; tables learn from them in order.

        Args:
            s: The state.
            a: Action.
            r: Reward.
            s2: The next state; the last one if the episode ended.
            terminated: Whether the task ended there; a time limit does not count.
            weight: Importance weight of each step.

        Returns:
            The TD errors δ before the update, float (B,).

        Raises:
            ConfigError, FieldError, ShapeError, DtypeError: An argument does not fit the environment's spaces, or has
                another number of rows.
        """
        rewards = checked("r", r, _one_or_rows)
        rows = rewards.shape
        numbers = ArrayOf(rows, f"numbers of shape {rows}, as `r`")
        weights = checked("weight", weight, _one_or_rows)
        weights = checked("weight", weights if weights.ndim else np.broadcast_to(weights, rows), numbers)
        columns = {
            "obs": _fitted("s", s, self._states, rows),
            "action": _fitted("a", a, self._actions, rows),
            "reward": rewards,
            "next_obs": _fitted("s2", s2, self._states, rows),
            "terminated": checked("terminated", terminated, numbers),
            "weight": weights.astype(np.float32),
        }
        axes = (None,) if rows else (None, None)  # replicas, and for a single step rows
        batch = {name: map_leaves(lambda part: part[axes], column) for name, column in columns.items()}
        shape = batch["reward"].shape
        batch |= {"truncated": np.zeros(shape, np.bool_), "id": np.zeros(shape, np.int64)}
        return np.asarray(self.agents.update(Batch(batch)).td_error[0])


def _one_or_rows(value: Any) -> npt.NDArray[Any]:
    """A number, or an array of one for each row; as a rule for `replaylab.arguments`."""
    numbers = ArrayOf((), "a number, or an array (B,) of numbers", leading=True)(value)
    if numbers.ndim > 1:
        raise InvalidArgument("a number, or an array (B,) of numbers", ShapeError, f"shape {numbers.shape}")
    return numbers


def _leaves(space: Any) -> Any:
    """Return a space as the tree of the spaces that it consists of."""
    if isinstance(space, spaces.Dict):
        return {key: _leaves(part) for key, part in space.items()}
    return tuple(map(_leaves, space)) if isinstance(space, spaces.Tuple) else space


def _fitted(name: str, value: Any, template: Any, rows: tuple[int, ...]) -> Any:
    """Return a value of a space, with leading axes, as arrays.

    Args:
        name: Name of the argument.
        value: A tree of array-likes.
        template: The space's leaves.
        rows: The leading axes.
    """
    parts, values = dict(flatten(template)), dict(flatten_as(template, value))
    if parts.keys() != values.keys():
        raise FieldError(f"`{name}` must have the parts {', '.join(parts)}, but got {', '.join(values) or type(value)}")
    paths = {path: f"{name}.{path}" if path else name for path in parts}
    return unflatten(template, (checked(paths[path], values[path], _rule(part, rows)) for path, part in parts.items()))


def _rule(space: Any, rows: tuple[int, ...]) -> ArrayOf:
    """Return the rule of values of a space that has no parts."""
    shape = (*rows, *(space.shape or ()))
    if not isinstance(space, spaces.Discrete):
        return ArrayOf(shape, f"numbers of shape {shape}")
    first, last = int(space.start), int(space.start + space.n) - 1
    words = f"whole numbers of shape {shape}" if rows else "a whole number"
    words += f" from {first} to {last}"
    return ArrayOf(shape, words, "iu", holds=lambda numbers: (numbers >= first) & (numbers <= last))
