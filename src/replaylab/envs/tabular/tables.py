"""Environments defined by a transition table, with all copies stepped in one call."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode

from replaylab.arguments import instance, takes
from replaylab.envs.tabular.transition_table import TransitionTable
from replaylab.envs.vector.batched import BatchedEnv, Bools, Floats


class TableVectorEnv(BatchedEnv):
    """A vector environment that steps by a transition table.

    Copy i draws what Gymnasium's toy-text environments draw, one number for each step and each start of an episode, so
    it equals the single environment of the same seed step for step, where outcomes are random, too. Observations are
    states, int64 (E,). Unlike Gymnasium's, the infos hold no probabilities and no action masks.

    Args:
        table: The outcomes.
        num_envs: E, the number of copies.
        max_episode_steps: Time limit of episodes; None: no limit.
        autoreset_mode: See `BatchedEnv`.

    Example:
        >>> env = TableVectorEnv(TransitionTable.of("FrozenLake-v1", is_slippery=False), 2)
        >>> env.reset(seed=[1, 2])[0]
        array([0, 0])
        >>> env.step(np.array([1, 2]))[0]
        array([4, 1])
    """

    @takes(table=instance(TransitionTable, "a TransitionTable"))
    def __init__(
        self,
        table: TransitionTable,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        states, actions, most = table.probability.shape
        spaces_of_one = spaces.Discrete(states), spaces.Discrete(actions)
        super().__init__(num_envs, *spaces_of_one, ((), np.int64), max_episode_steps, autoreset_mode)
        self.table = table
        rows = (states * actions, most)
        self._cumulative = table.probability.cumsum(2).reshape(rows)
        self._next_state = table.next_state.reshape(rows)
        self._reward = table.reward.reshape(rows).astype(np.float32)
        self._terminated = table.terminated.reshape(rows)
        self._start_cumulative = table.start.cumsum()

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:  # noqa: ARG002
        return (self._start_cumulative > generator.random()).argmax()

    def _advance(self, action: npt.NDArray[np.intp]) -> tuple[Floats, Bools]:
        row = self._variables * self.single_action_space.n + action
        ended = self._ended.tolist()  # these only start an episode now, and draw for that
        draw = [0.0 if over else g.random() for g, over in zip(self._generators, ended, strict=True)]
        outcome = (self._cumulative[row] > np.array(draw)[:, None]).argmax(1)
        self._variables[:] = self._next_state[row, outcome]
        return self._reward[row, outcome], self._terminated[row, outcome]


class ToyText:
    """Constructor of the vector environment of a Gymnasium class that has a table.

    Args:
        entry_point: The class, as "module:name".
    """

    def __init__(self, entry_point: str) -> None:
        self._entry_point = entry_point

    def __call__(
        self,
        num_envs: int,
        autoreset_mode: str | AutoresetMode,
        max_episode_steps: int | None = None,
        **kwargs: Any,
    ) -> TableVectorEnv:
        """Return it; `kwargs` are the class's own."""
        env: Any = load_env_creator(self._entry_point)(**kwargs)
        try:
            table = TransitionTable.of(env)
        finally:
            env.close()
        return TableVectorEnv(table, num_envs, max_episode_steps=max_episode_steps, autoreset_mode=autoreset_mode)
