"""Atari games of the Arcade Learning Environment, with the preprocessing of DQN: one by one, or by its threads."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, TimeLimit

from replaylab.arguments import FRACTION, checked, flag, optional, takes, text, whole
from replaylab.envs.batched import Array, autoreset, each_seed, packed, unpack
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
"""Rules of a game's arguments, by name."""


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


REMEMBERED: dict[str, tuple[str, ...]] = {
    "AtariPreprocessing": ("lives", "game_over"),
    "EpisodicLife": ("_lives", "_over"),
    "StickyActions": ("last",),
    "TimeLimit": ("_elapsed_steps",),
}
"""Attributes of wrappers that are part of the state, by the wrapper's class."""


class SavedGame(gym.Wrapper[Any, Any, Any, Any]):
    """An Atari game, with any of `make_atari`'s wrappers, whose state can be saved and restored.

    The state is that of the emulator, the random stream of the environment (which draws the number of no-ops at the
    start and the sticky actions), and the attributes of the wrappers.
    """

    @property
    def max_episode_steps(self) -> int | None:
        """Largest number of steps before the emulator cuts off a game; None: no limit."""
        game, skipping = cast("Any", self.unwrapped), cast("Any", _wrapper(self.env, "AtariPreprocessing"))
        frames = int(game.ale.getInt("max_num_frames_per_episode"))
        return -(-frames // int(skipping.frame_skip)) if frames > 0 else None

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the complete state; the number of the emulator's bytes varies."""
        game: Any = self.unwrapped
        emulator = game.clone_state(include_rng=True).serialize()
        state = {"emulator": np.frombuffer(emulator, np.uint8).copy(), "random": packed([game.np_random])[0]}
        for key, wrapper, name in _remembered(self.env):
            state[key] = np.asarray(getattr(wrapper, name)).copy()
        if (frames := _wrapper(self.env, "AtariPreprocessing")) is not None:
            state["frames"] = np.stack(frames.obs_buffer)
        if (stack := _wrapper(self.env, "FrameStackObservation")) is not None:
            state["stack"] = np.stack(stack.obs_queue)
        return state

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore what `state` of a game with the same options returned, and return the last observation.

        The game must have been reset before: Gymnasium does not allow steps before the first reset.
        """
        from ale_py import ALEState

        game: Any = self.unwrapped
        game.restore_state(ALEState(state["emulator"].tobytes()))
        game.np_random = unpack(state["random"][None])[0]
        for key, wrapper, name in _remembered(self.env):
            previous = getattr(wrapper, name)
            setattr(wrapper, name, type(previous)(state[key]))
        frames: Any = _wrapper(self.env, "AtariPreprocessing")
        for buffer, frame in zip(frames.obs_buffer, state["frames"], strict=True):
            buffer[:] = frame
        if (stack := _wrapper(self.env, "FrameStackObservation")) is None:
            return frames._get_obs()
        stack.obs_queue = deque(state["stack"].copy(), maxlen=stack.stack_size)
        return state["stack"].copy()


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[Any]:
    """Yield the wrappers, outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _wrapper(env: gym.Env[Any, Any], kind: str) -> Any:
    return next((wrapper for wrapper in _wrappers(env) if type(wrapper).__name__ == kind), None)


def _remembered(env: gym.Env[Any, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield a key, the wrapper and the attribute's name for every attribute in `REMEMBERED`."""
    for wrapper in _wrappers(env):
        for name in REMEMBERED.get(type(wrapper).__name__, ()):
            yield f"{type(wrapper).__name__}.{name.strip('_')}", wrapper, name


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
