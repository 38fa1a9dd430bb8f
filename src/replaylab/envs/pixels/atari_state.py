"""What decides the future of a prepared Atari game, as arrays: for exact checkpoints."""

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
"""Numbers that wrappers keep from one step to the next, by the wrapper's class."""


class SavedGame(gym.Wrapper[Any, Any, Any, Any]):
    """An Atari game, with any of `make_atari`'s wrappers, that gives and takes its state.

    Its state is the emulator's own, the random stream of the environment (which draws how many frames a new game
    waits, and when an action sticks), and what each wrapper remembers.
    """

    @property
    def max_episode_steps(self) -> int | None:
        """After how many steps the emulator cuts a game at the latest; None: nowhere."""
        game, skipping = cast("Any", self.unwrapped), cast("Any", _wrapper(self.env, "AtariPreprocessing"))
        frames = int(game.ale.getInt("max_num_frames_per_episode"))
        return -(-frames // int(skipping.frame_skip)) if frames > 0 else None

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything that decides what comes next, copied; the emulator's bytes vary in number."""
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
        """Continue from what `state` of a game made in the same way returned, and return the last observation.

        The game must have been reset before: Gymnasium refuses steps before the first reset.
        """
        from ale_py import ALEState

        game: Any = self.unwrapped
        game.restore_state(ALEState(state["emulator"].tobytes()))
        game.np_random = unpack(state["random"][None])[0]
        for key, wrapper, name in _remembered(self.env):
            kept = getattr(wrapper, name)
            setattr(wrapper, name, type(kept)(state[key]))
        frames: Any = _wrapper(self.env, "AtariPreprocessing")
        for buffer, kept in zip(frames.obs_buffer, state["frames"], strict=True):
            buffer[:] = kept
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
    return next((one for one in _wrappers(env) if type(one).__name__ == kind), None)


def _remembered(env: gym.Env[Any, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield a key, the wrapper and the attribute's name of every number that a wrapper remembers."""
    for one in _wrappers(env):
        for name in REMEMBERED.get(type(one).__name__, ()):
            yield f"{type(one).__name__}.{name.strip('_')}", one, name
