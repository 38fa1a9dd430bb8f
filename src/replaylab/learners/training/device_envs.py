"""The environments of a run on a device: E of them, which one learner steps together."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab.envs import env_state
from replaylab.envs.batched import autoreset_of
from replaylab.errors import ConfigError
from replaylab.learners.api.finite import check_obs, finite_step
from replaylab.learners.api.hooks import EnvStep
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.factories import environments

Floats = npt.NDArray[np.float64]


class EnvSteps:
    """E environments, with their current episodes.

    Args:
        configuration: Configuration of the run.
        envs: E.
        seed: Seed of the first episodes.

    Attributes:
        env: The vector environment.
        obs: Current observations, (E, ...).
        returns: Returns of the current episodes so far, (E,).
        lengths: Lengths of the current episodes so far, (E,).

    Raises:
        ConfigError: They cannot be made, or their steps cannot be stored on a device.
    """

    def __init__(self, configuration: TrainingConfig, envs: int, seed: int) -> None:
        self._env_id, self._seeds = configuration.env_id, [seed] * envs
        self.env = environments(configuration, envs)
        space, mode = self.env.single_observation_space, autoreset_of(self.env)
        if not isinstance(space, spaces.Box):
            raise ConfigError(f'with replay="device" observations must be in a Box, but are in {space}')
        if mode is AutoresetMode.NEXT_STEP:
            raise ConfigError(
                f'with replay="device" `autoreset_mode` must be None, SAME_STEP or DISABLED, but got {mode.name}'
            )
        self._disabled = mode is AutoresetMode.DISABLED
        env_state.prepare(self.env)
        self.returns, self.lengths = np.zeros(envs), np.zeros(envs)
        starts: Any = numbers(seed, Stream.ENV_RESET, envs)  # vector environments take a list
        self.obs: npt.NDArray[Any]
        self.obs, _ = self.env.reset(seed=starts)

    def check(self, when: str) -> None:
        """Raise `NonFiniteError` if an observation is NaN or infinite."""
        check_obs(self.obs, self._env_id, self._seeds, when)

    def step(self, action: npt.NDArray[Any], number: int) -> tuple[EnvStep, Floats, Floats]:
        """Step every environment with its action, (E,).

        Args:
            action: The actions.
            number: Number of the step, for messages.

        Returns:
            The step; and of the episodes that ended with it the returns and lengths, (n,).

        Raises:
            NonFiniteError: A reward or an observation is NaN or infinite.
        """
        step = finite_step(self.env, self.obs, action, self._env_id, self._seeds, number)
        ended = step.ended
        self.returns += step.reward
        self.lengths += 1
        returns, lengths = self.returns[ended], self.lengths[ended]
        self.returns[ended] = self.lengths[ended] = 0.0
        self.obs = step.next_obs
        if self._disabled and ended.any():
            self.obs, _ = self.env.reset(options={"reset_mask": ended})
            self.check(f"the reset after step {number:,}")
        return step, returns, lengths

    def state(self) -> dict[str, Any]:
        """Return everything that decides what comes next, as nested arrays."""
        episodes = {"returns": self.returns.copy(), "lengths": self.lengths.copy()}
        return {"env": env_state.state_of(self.env), "obs": {"": self.obs}, "episodes": episodes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.returns, self.lengths = state["episodes"]["returns"], state["episodes"]["lengths"]
        env_state.restore(self.env, state["env"])
        self.obs = state["obs"][""]
        env_state.compare(self.env, self.obs)
