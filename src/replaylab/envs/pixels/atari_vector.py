"""Many copies of an Atari game, stepped by the threads of the Arcade Learning Environment."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.arguments import FRACTION, flag, optional, takes, whole
from replaylab.envs.pixels.atari import GAME_OPTIONS, missing_emulator, need_emulator
from replaylab.envs.vector.batched import Array, autoreset, each_seed
from replaylab.errors import ConfigError

MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
"""Those of ale-py 0.12."""


class AtariVectorEnv(VectorEnv[Any, Array, Array]):
    """E copies of an Atari game, stepped by ale-py's class of this name; copy i depends only on seed i.

    The options are those of `make_atari`, but the games are others than its: the emulator repeats sticky actions
    itself, its random numbers are its own, and before an episode's first frame a stack is zeros
    (``FrameStack(4, padding="zero", stacked_input=True)``). In SAME_STEP mode ``infos["final_obs"]`` holds the true
    last observations of the copies that ended. The emulator does not give away the state of its copies, so that
    checkpoints are refused; the games of `make_vector_env` without a backend have them.

    Args:
        env_id: As for `make_atari`.
        num_envs: E.
        autoreset_mode: SAME_STEP or NEXT_STEP.
        frame_skip: As for `make_atari`, as are the following.
        frame_stack: Frames in an observation.
        screen_size: Pixels of a side.
        noop_max: The most frames of doing nothing at an episode's start.
        fire_on_reset: Whether to press FIRE at an episode's start, where a game needs it.
        clip_rewards: Whether to clip rewards to −1 and 1.
        episodic_life: False: after a lost life the emulator would start a new game.
        max_episode_steps: Time limit of episodes, in steps of `frame_skip` frames; None: 108,000 frames.
        repeat_action_probability: Probability of sticky actions; None: that of `env_id`.
        full_action_space: Whether all 18 actions can be taken.

    Raises:
        MissingExtraError: The emulator is not installed, or older than 0.12.
        ConfigError: No game has this name, or the emulator does not have an option.
    """

    @takes(
        **GAME_OPTIONS,
        num_envs=whole(most=2**31 - 1),
        autoreset_mode=autoreset,
        repeat_action_probability=optional(FRACTION),
        full_action_space=flag,
    )
    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        frame_skip: int = 4,
        frame_stack: int = 4,
        screen_size: int = 84,
        noop_max: int = 30,
        fire_on_reset: bool = True,
        clip_rewards: bool = False,
        episodic_life: bool = False,
        max_episode_steps: int | None = None,
        repeat_action_probability: float | None = None,
        full_action_space: bool = False,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        if mode not in MODES:
            raise ConfigError(
                f'the backend "ale" resets in SAME_STEP or NEXT_STEP mode, but got {mode.name}; leave out the backend'
            )
        if episodic_life:
            raise ConfigError(
                'the backend "ale" starts a new game after each lost life, so `episodic_life` must be False, but got '
                "True; leave out the backend"
            )
        need_emulator(env_id)
        registered = self._registered(env_id)
        if repeat_action_probability is None:
            repeat_action_probability = registered["repeat_action_probability"]
        frames = 108_000 if max_episode_steps is None else max_episode_steps * frame_skip
        self.max_episode_steps = -(-frames // frame_skip)
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": mode}
        self._games = _games_class(env_id)(
            registered["game"],
            num_envs,
            autoreset_mode=mode,
            frameskip=frame_skip,
            stack_num=frame_stack,
            img_height=screen_size,
            img_width=screen_size,
            noop_max=noop_max,
            use_fire_reset=fire_on_reset,
            reward_clipping=clip_rewards,
            max_num_frames_per_episode=frames,
            repeat_action_probability=repeat_action_probability,
            full_action_space=full_action_space,
        )
        self.single_observation_space = self._games.single_observation_space
        self.single_action_space = self._games.single_action_space
        self.observation_space, self.action_space = self._games.observation_space, self._games.action_space

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every copy.

        Args:
            seed: One for each copy, of which the lowest 31 bits are used; an int s means s, s + 1, ...; None continues
                with the current random streams.
            options: Must be None.

        Raises:
            ConfigError: There are options, or only some copies have seeds.
        """
        if options:
            raise ConfigError(f'`options` of a reset must be left out with the backend "ale", but got {options}')
        seeds = each_seed(seed, self.num_envs)
        if seed is None:
            obs, infos = self._games.reset()
            return obs, infos
        if None in seeds:
            raise ConfigError(f'`seed` must hold a seed for each copy with the backend "ale", but got {seeds}')
        obs, infos = self._games.reset(seed=np.array([int(value or 0) % 2**31 for value in seeds]))
        return obs, infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every copy."""
        obs, reward, terminated, truncated, infos = self._games.step(np.ascontiguousarray(actions, np.int64))
        return obs, reward.astype(np.float64), terminated, truncated, infos

    @staticmethod
    def _registered(env_id: str) -> dict[str, Any]:
        """Return the arguments that a registered game is made with."""
        try:
            return gym.spec(env_id).kwargs
        except gym.error.Error as error:
            raise ConfigError(f"`env_id` must name an Atari game, but got {env_id!r}: {error}") from error


def _games_class(env_id: str) -> Any:
    """Return ale-py's class, with its own `metadata`: the class writes into that of Gymnasium's base."""
    try:
        from ale_py import vector_env
    except ImportError as error:
        raise missing_emulator(env_id, error) from error

    return type("Games", (vector_env.AtariVectorEnv,), {"metadata": {}})
