"""The complete state of an Atari game with its wrappers, as arrays, for exact checkpoints."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.envs.vector.generators import packed, unpack

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
