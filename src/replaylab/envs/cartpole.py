"""CartPole, vectorised, with one random generator for each sub-environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.envs.classic_control import cartpole, utils
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

from replaylab.errors import ConfigError, ShapeError

Bools = npt.NDArray[np.bool_]


class CartPoleVectorEnv(cartpole.CartPoleVectorEnv):
    """Gymnasium's vectorised CartPole, in every autoreset mode, with sub-environment i on seed i alone.

    Gymnasium's class draws all start states from one generator, so an episode's start depends on when the
    neighbours' episodes ended, and it knows NEXT_STEP only. Here sub-environment i equals
    ``gym.make("CartPole-v1")`` of the same seed, step for step, and the whole equals `SyncVectorEnv`. The
    dynamics are Gymnasium's; only the starts of episodes are new.

    Args:
        num_envs: E, the number of sub-environments.
        autoreset_mode: NEXT_STEP: the step after an end resets. SAME_STEP: the step that ends also resets;
            ``infos["final_obs"]`` holds the true last observations. DISABLED: the caller resets, with
            ``reset(options={"reset_mask": mask})``.
        **kwargs: Of Gymnasium's class: max_episode_steps, render_mode, sutton_barto_reward.
    """

    state: Any  # float64 (4, E): position, velocity, angle, angular velocity; None before the first reset

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_envs, **kwargs)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self._generators = [np.random.Generator(np.random.PCG64()) for _ in range(num_envs)]
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start an episode in every sub-environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: One for each sub-environment; an int s means s, s + 1, ...; None goes on with the
                generators as they are.
            options: ``reset_mask``, bool (E,), and the bounds ``low`` and ``high`` of the start states.

        Returns:
            Observations float32 (E, 4), and no infos.

        Raises:
            ShapeError: There is not one seed for each sub-environment, or the mask is not bool (E,).
        """
        options = dict(options or {})
        mask = self._checked_mask(options.pop("reset_mask", None))
        for i, one in enumerate(self._seeds(seed)):
            if one is not None and mask[i]:
                self._generators[i] = seeding.np_random(one)[0]
        self.low, self.high = utils.maybe_parse_reset_bounds(options, -0.05, 0.05)
        if self.state is None:
            self.state = np.zeros((4, self.num_envs))
        self._start_episodes(mask)
        return self._observe(), {}

    def step(
        self, action: npt.NDArray[np.integer[Any]]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], Bools, Bools, dict[str, Any]]:
        """Step every sub-environment.

        Args:
            action: Integers (E,), 0: push left, 1: push right.

        Returns:
            Observations float32 (E, 4), rewards float32 (E,), terminated and truncated bool (E,), infos.

        Raises:
            ResetNeeded: In DISABLED mode, an episode that has ended was not reset.
        """
        ended_before = self._ended.copy()
        if self.autoreset_mode is AutoresetMode.DISABLED and ended_before.any():
            raise ResetNeeded(
                "in DISABLED mode an ended episode must be reset before the next step, but environments "
                f"{np.flatnonzero(ended_before).tolist()} were not; call "
                "reset(options={'reset_mask': mask})"
            )
        self.prev_done[:] = False  # the parent's own autoreset, from its shared generator, never fires
        _, reward, terminated, truncated, infos = super().step(action)
        if ended_before.any():  # NEXT_STEP: this step only starts the next episode
            self._start_episodes(ended_before)
            for values in (reward, terminated, truncated):
                values[ended_before] = 0
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._ended.any():
            infos = self._final_infos(self._ended)
            self._start_episodes(self._ended)
        return self._observe(), reward, terminated, truncated, infos

    def _start_episodes(self, mask: Bools) -> None:
        for i in np.flatnonzero(mask):
            self.state[:, i] = self._generators[i].uniform(self.low, self.high, size=4)
        self.steps[mask] = 0
        self._ended = self._ended & ~mask

    def _observe(self) -> npt.NDArray[np.float32]:
        return np.ascontiguousarray(self.state.T, dtype=np.float32)

    def _final_infos(self, ended: Bools) -> dict[str, Any]:
        """Return what `SyncVectorEnv` reports of the episodes that ended in this step."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        obs = self._observe()
        for i in np.flatnonzero(ended):
            final_obs[i] = obs[i]
        return {"final_obs": final_obs, "_final_obs": ended, "final_info": {}, "_final_info": ended.copy()}

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ShapeError(f"`seed` must hold one seed for each of the {self.num_envs} environments, got {len(seed)}")
        if any(one is not None and one < 0 for one in seed):
            raise ConfigError(f"`seed` must not be negative, but got {list(seed)}")
        return seed

    def _checked_mask(self, mask: Any) -> Bools:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(mask, np.ndarray) or mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            got = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else repr(mask)
            raise ShapeError(f"`options['reset_mask']` must be a bool array of shape ({self.num_envs},), but got {got}")
        return mask
