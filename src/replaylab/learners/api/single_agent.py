"""A single agent for custom loops: `act` on a state, `learn` from a step."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Env

from replaylab.arguments import flag, instance, takes, whole
from replaylab.learners.api.protocols import Learner, Obs
from replaylab.replay import Batch
from replaylab.trees import map_leaves


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
        self.agents = learner.agents(env.observation_space, env.action_space, [seed])

    @takes(explore=flag)
    def act(self, s: Obs, explore: bool = True) -> Any:
        """Return an action for a state: with exploration, or the best one."""
        action = self.agents.act(map_leaves(lambda part: np.asarray(part)[None, None], s), explore)[0, 0]
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
            s2: The next state; where an episode ended the last one.
            terminated: Whether the task ended there. A time limit is no such end.
            weight: Importance weight of each step.

        Returns:
            The TD errors δ before the update, float (B,).
        """
        columns = {"obs": s, "action": a, "reward": r, "next_obs": s2, "terminated": terminated}
        axes = (None,) if np.ndim(r) else (None, None)  # replicas, and for a single step rows
        batch = {name: map_leaves(lambda part: np.asarray(part)[axes], column) for name, column in columns.items()}
        shape = batch["reward"].shape
        batch["weight"] = np.broadcast_to(np.asarray(weight, np.float32), shape)
        batch |= {"truncated": np.zeros(shape, np.bool_), "id": np.zeros(shape, np.int64)}
        return np.asarray(self.agents.update(Batch(batch)).td_error[0])
