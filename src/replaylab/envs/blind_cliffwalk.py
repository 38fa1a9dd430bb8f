"""Blind Cliffwalk (Schaul et al. 2016), in which the choice of replayed steps matters most."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab.arguments import checked, whole
from replaylab.envs.batched import BatchedEnv, Bools, Floats, SingleEnv

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class BlindCliffwalkVectorEnv(BatchedEnv):
    """Walk n states in a row; in each, one of two actions leads on and the other ends the episode.

    The right action alternates: in state s it is s mod 2. The right action in the last state ends the episode too,
    with reward 1; all other rewards are 0. Of 2ⁿ action sequences a single one is rewarded, so a random policy sees
    the reward once in 2ⁿ episodes. Observations are int64 (E,); where an episode ends the state stays as it was.
    Source: Schaul et al. 2016, section 3.1 and appendix B.1.

    Args:
        num_envs: E, the number of copies.
        n: The number of states.
        max_episode_steps: Time limit of episodes; None: no limit, as episodes end after n steps.
        autoreset_mode: See `BatchedEnv`.

    Raises:
        ConfigError: n is below 1.

    Example:
        >>> env = BlindCliffwalkVectorEnv(2, n=3)
        >>> obs, _ = env.reset(seed=0)
        >>> obs, reward, terminated, _, infos = env.step(np.array([0, 1]))
        >>> obs.tolist(), terminated.tolist()
        ([1, 0], [False, True])
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        n: int = 10,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        n = checked("n", n, whole(most=2**31 - 1), "BlindCliffwalk")
        states, actions = spaces.Discrete(n), spaces.Discrete(2)
        super().__init__(num_envs, states, actions, ((), np.int64), max_episode_steps, autoreset_mode)
        self.n = n

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> int:  # noqa: ARG002
        return 0

    def _advance(self, action: Any) -> tuple[Floats, Bools]:
        right = action == self._variables % 2
        last = self._variables == self.n - 1
        self._variables += right & ~last
        return (right & last).astype(np.float32), ~right | last


class BlindCliffwalkEnv(SingleEnv):
    """A single `BlindCliffwalkVectorEnv`, with the same arguments but `num_envs`.

    Attributes:
        P: The transitions in the form of Gymnasium's toy-text environments: ``P[state][action]`` is a list of
            (probability, next state, reward, terminated).
        initial_state_distrib: Probability of each state to be the first, float64 (n,).
    """

    def __init__(self, n: int = 10, **kwargs: Any) -> None:
        super().__init__(BlindCliffwalkVectorEnv(1, n=n, autoreset_mode=AutoresetMode.DISABLED, **kwargs))
        self.P = transition_table(n)
        self.initial_state_distrib = np.eye(1, n)[0]


def transition_table(n: int) -> Table:
    """Return P of a Blind Cliffwalk of n states."""
    table: Table = {}
    for state in range(n):
        last = state == n - 1
        on = (1.0, state if last else state + 1, float(last), last)
        off = (1.0, state, 0.0, True)
        table[state] = {state % 2: [on], 1 - state % 2: [off]}
    return table
