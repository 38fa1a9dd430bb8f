"""Atari games of the Arcade Learning Environment, with the preprocessing of DQN."""

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, TimeLimit

from replaylab.arguments import FRACTION, checked, flag, optional, takes, text, whole
from replaylab.envs.pixels.atari_state import SavedGame
from replaylab.errors import ConfigError, MissingExtraError


def is_atari(name: str) -> bool:
    """Return whether a registered name, without its module, is that of an Atari game."""
    return name.startswith("ALE/") or "NoFrameskip-v" in name


GAME_OPTIONS = {
    "env_id": text,
    "frame_skip": whole(),
    "frame_stack": whole(),
    "screen_size": whole(),
    "noop_max": whole(0),
    "fire_on_reset": flag,
    "clip_rewards": flag,
    "episodic_life": flag,
    "max_episode_steps": optional(whole()),
}
"""What arguments of a game must be, by their names."""


@takes(**GAME_OPTIONS)
def make_atari(
    env_id: str,
    *,
    frame_skip: int = 4,
    frame_stack: int = 4,
    screen_size: int = 84,
    noop_max: int = 30,
    fire_on_reset: bool = True,
    clip_rewards: bool = False,
    episodic_life: bool = False,
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> gym.Env[Any, Any]:
    """Return an Atari game with grey, small, stacked frames. Source: Mnih et al. 2015, Machado et al. 2018.

    Observations are uint8 (frame_stack, size, size), oldest frame first, or (size, size) with ``frame_stack=1``. A
    buffer stores each frame once, given the stacks, with ``FrameStack(4, stacked_input=True)``.

    Args:
        env_id: "ALE/Pong-v5" (which repeats the last action with a chance of 1/4, see `StickyActions`) or
            "PongNoFrameskip-v4" (which never does); ``repeat_action_probability`` sets another chance.
        frame_skip: Frames that an action lasts; the last two are seen, as their maximum.
        frame_stack: Frames in an observation; before an episode's first, the first is repeated.
        screen_size: Pixels of a side.
        noop_max: Largest number of frames without action before an episode starts, at least 1; 0: none.
        fire_on_reset: Press FIRE at an episode's start, in games that have it first after NOOP.
        clip_rewards: Clip rewards to −1 and 1.
        episodic_life: A life lost terminates the episode; the next one continues with the same game.
        max_episode_steps: Time limit of episodes, in steps of `frame_skip` frames. The game has its own limit
            beside it, of 108,000 frames (`max_num_frames_per_episode`).
        **kwargs: For the game, such as render_mode, repeat_action_probability, mode, difficulty. Not ``obs_type``.

    Raises:
        MissingExtraError: The emulator or OpenCV is not installed.
        ConfigError: No game has this name, it cannot be loaded, or an option is out of its range.
    """
    if "obs_type" in kwargs:
        raise ConfigError(f"`obs_type` must be left out: observations are grey frames, but got {kwargs['obs_type']!r}")
    need_emulator(env_id)
    try:
        sticky = kwargs.pop("repeat_action_probability", gym.spec(env_id).kwargs.get("repeat_action_probability", 0.0))
        env = gym.make(env_id, obs_type="grayscale", frameskip=1, repeat_action_probability=0.0, **kwargs)
        env = StickyActions(env, checked("repeat_action_probability", sticky, FRACTION)) if sticky else env
        env = AtariPreprocessing(env, noop_max=noop_max, frame_skip=frame_skip, screen_size=screen_size)
    except gym.error.DependencyNotInstalled as error:
        raise missing_emulator(env_id, error) from error
    except (gym.error.Error, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"`env_id` must name an Atari game, but {env_id!r} cannot be made: {error}") from error
    if episodic_life:
        env = EpisodicLife(env)
    if fire_on_reset and env.unwrapped.get_action_meanings()[1] == "FIRE":  # type: ignore[attr-defined]
        env = FireReset(env)
    if clip_rewards:
        env = ClipReward(env, -1, 1)
    if frame_stack > 1:
        env = FrameStackObservation(env, frame_stack)
    return SavedGame(env if max_episode_steps is None else TimeLimit(env, max_episode_steps))


class StickyActions(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats the action of the last frame with some probability. Source: Machado et al. 2018.

    The emulator can do the same, but what it repeats is not in the state that it gives away, so that a restored game
    would sometimes continue differently. Here the chance is drawn from the environment's `np_random`.

    Args:
        env: A game whose every step is one frame.
        chance: Probability of repeating the last action, in [0, 1].

    Attributes:
        last: The action of the last frame.
    """

    def __init__(self, env: gym.Env[Any, Any], chance: float) -> None:
        super().__init__(env)
        self.chance, self.last = chance, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game, before which nothing (NOOP) was done."""
        self.last = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step by one frame, by this action or the last."""
        if self.unwrapped.np_random.random() >= self.chance:
            self.last = int(action)
        return self.env.step(self.last)


class FireReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE (action 1) at an episode's start: some games wait for it forever."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return what is seen after FIRE."""
        self.env.reset(seed=seed, options=options)
        obs, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any]):
    """Lets a lost life terminate the episode, though the game continues in the next one. Source: Mnih et al. 2015.

    Unlike `AtariPreprocessing`'s ``terminal_on_life_loss``, which begins a new game after each life, so that what comes
    late in a game is never seen. A reset with a seed always begins a new game.
    """

    _lives = 0
    _over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game if the last one is over, else continue with it by doing nothing for one step."""
        new = self._over or seed is not None
        if not new:
            obs, _, terminated, truncated, info = self.env.step(0)
            new = terminated or truncated
        if new:
            obs, info = self.env.reset(seed=seed, options=options)
        self._over = False
        self._lives = self._lives_left()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; a life lost terminates."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._over = terminated or truncated
        lost = self._lives_left() < self._lives
        self._lives = self._lives_left()
        return obs, reward, terminated or lost, truncated, info

    def _lives_left(self) -> int:
        return int(self.unwrapped.ale.lives())  # type: ignore[attr-defined]


def need_emulator(env_id: str) -> None:
    """Register the emulator's games.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import ale_py
    except ImportError as error:
        raise missing_emulator(env_id, error) from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
    gym.register_envs(ale_py)


def missing_emulator(env_id: str, error: Exception) -> MissingExtraError:
    """Return the error for an environment without the emulator."""
    return MissingExtraError(f'{env_id} needs the Atari emulator; run: pip install "replaylab[atari]" ({error})')
