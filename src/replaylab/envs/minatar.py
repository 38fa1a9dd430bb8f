"""MinAtar: five Atari games on a board of 10 × 10 cells, all copies stepped by the compiled core."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab._core import MinAtar
from replaylab.arguments import FRACTION, flag, one_of, optional, takes, text
from replaylab.envs.batched import BatchedEnv, Bools, Floats, SingleEnv
from replaylab.errors import ConfigError

SIDE = 10  # cells
ACTIONS = 6  # stay, left, up, right, down, fire
METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}


class MinAtarVectorEnv(BatchedEnv):
    """A game of MinAtar, equal to the published package frame by frame under the same random numbers.

    Observations are bool (E, channels, y, x) of 10 × 10 cells: whether there is a thing of the channel's kind. The
    package has the channels last; here they come first, as convolutions of PyTorch and of the core take them. They
    are bool, as in the package, so that a network sees 0 and 1 and nothing is scaled by 1/255. Actions are 0: stay,
    1: left, 2: up, 3: right, 4: down, 5: fire, or those of them that do something in the game. What each game
    is about is in the documentation. Source: Young & Tian 2019.

    A copy's random numbers come from its own stream, which its generator starts again at each episode. As in the
    package, the action that may stick to an episode's first frame is the last one of the episode before; a
    seed forgets it.

    Args:
        num_envs: E, the number of copies.
        game: "asterix", "breakout", "freeway", "seaquest" or "space_invaders".
        sticky_action_prob: Chance that the action of the frame before is done once more instead of the one chosen.
        difficulty_ramping: Whether asterix, seaquest and space_invaders become harder during play.
        minimal_actions: Whether only actions that do something in the game are there; else all six.
        max_episode_steps: Time limit of episodes; None: no limit, as in the package.
        autoreset_mode: See `BatchedEnv`.
        render_mode: "rgb_array": `render` returns pictures.

    Attributes:
        channels: Name of each channel of an observation.

    Raises:
        ConfigError: The game, the chance or the render mode is not a valid one.

    Example:
        >>> env = MinAtarVectorEnv(2, game="breakout")
        >>> obs, _ = env.reset(seed=0)
        >>> obs.shape, env.channels, env.single_action_space
        ((2, 4, 10, 10), ('paddle', 'ball', 'trail', 'brick'), Discrete(3))
    """

    @takes(
        game=text,
        sticky_action_prob=FRACTION,
        difficulty_ramping=flag,
        minimal_actions=flag,
        render_mode=optional(one_of("rgb_array")),
    )
    def __init__(
        self,
        num_envs: int = 1,
        *,
        game: str,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        minimal_actions: bool = True,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        self._rules = MinAtar(game)
        self.channels = tuple(self._rules.channels)
        self._actions = np.array(self._rules.minimal_actions if minimal_actions else range(ACTIONS))
        obs_space = spaces.Box(0, 1, (len(self.channels), SIDE, SIDE), np.bool_)  # type: ignore[arg-type]
        actions, variables = spaces.Discrete(len(self._actions)), ((self._rules.words,), np.uint64)
        super().__init__(num_envs, obs_space, actions, variables, max_episode_steps, autoreset_mode)
        self.metadata |= METADATA
        self.render_mode = render_mode
        self._sticky_action_prob, self._difficulty_ramping = sticky_action_prob, difficulty_ramping
        self._variables = np.asfortranarray(self._variables)  # one copy's words lie together, for the core

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        """Continue from what `state` returned; see `BatchedEnv.restore`.

        Raises:
            ConfigError: The state is damaged.
        """
        variables = state["variables"]
        if variables.ndim == 2 and variables.shape[1] == self._rules.words:
            unsound = self._rules.find_unsound(np.ascontiguousarray(variables, np.uint64))
            if unsound >= 0:
                raise ConfigError(f"copy {unsound} of the state to restore is damaged: the game cannot be in it")
        return super().restore(state)  # type: ignore[no-any-return]

    def render(self) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """Return a picture of each copy, uint8 (160, 160, 3), or None without a render mode."""
        return None if self.render_mode is None else tuple(pictures(self._observe(), self.channels))

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> npt.NDArray[np.uint64]:  # noqa: ARG002
        stream: Any = generator.bit_generator.random_raw(4)
        return self._rules.start(stream)

    def _start_episodes(self, mask: Bools, options: dict[str, Any]) -> None:
        last_action = self.last_action()
        super()._start_episodes(mask, options)
        self.set_last_action(last_action)

    def last_action(self) -> npt.NDArray[np.uint64]:
        """Return each copy's previous action, (E,), which is kept from one episode to the next."""
        actions: npt.NDArray[np.uint64] = self._variables[MinAtar.last_action].copy()
        return actions

    def set_last_action(self, actions: npt.NDArray[np.uint64]) -> None:
        """Take over what `last_action` returned."""
        self._variables[MinAtar.last_action] = actions

    def _advance(self, action: npt.NDArray[np.intp]) -> tuple[Floats, Bools]:
        chosen, chance = self._actions[action], self._sticky_action_prob
        return self._rules.step(self._variables.T, chosen, self._ended, chance, self._difficulty_ramping)

    def _observe(self) -> npt.NDArray[np.bool_]:
        return self._rules.observe(self._variables.T)


class MinAtarEnv(SingleEnv):
    """A single `MinAtarVectorEnv`, with the same arguments but `num_envs`.

    Attributes:
        channels: Name of each channel of an observation.
    """

    metadata = METADATA

    def __init__(self, **kwargs: Any) -> None:
        games = MinAtarVectorEnv(1, autoreset_mode=AutoresetMode.DISABLED, **kwargs)
        super().__init__(games)
        self.render_mode, self.channels = games.render_mode, games.channels
        self._games = games

    def own_state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the action that may stick to the next episode's first frame."""
        return {"last_action": self._games.last_action()}

    def restore_own(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Take over what `own_state` returned, with the random stream as it is."""
        self._games.use_generators([self.np_random])
        self._games.set_last_action(state["last_action"])

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return a picture, uint8 (160, 160, 3), or None without a render mode."""
        seen = self._games.render()
        return None if seen is None else seen[0]


CELL = 16  # pixels of a side
WATER = "#10141a"
"""Of cells where nothing is."""

COLOURS = {
    # What lies below, first: a cell has the colour of the last channel of these that is set in it.
    "trail": "#3c4653",
    "speed1": "#8a3b1c",
    "speed2": "#74381f",
    "speed3": "#5f3523",
    "speed4": "#4b3126",
    "speed5": "#392c28",
    "oxygen_gauge": "#58b1ea",
    "diver_gauge": "#e597c8",
    "brick": "#b5589a",
    "car": "#ff8f4a",
    "alien": "#35c99c",
    "alien_left": "#35c99c",
    "alien_right": "#9ad4f7",
    "gold": "#f0b840",
    "diver": "#e597c8",
    "enemy": "#d55e00",
    "enemy_fish": "#d55e00",
    "enemy_sub": "#35c99c",
    "enemy_bullet": "#ff5a5a",
    "friendly_bullet": "#f7f3c8",
    "ball": "#f7f3c8",
    "paddle": "#58b1ea",
    "sub_back": "#0072b2",
    "sub_front": "#58b1ea",
    "cannon": "#58b1ea",
    "chicken": "#f7f3c8",
    "player": "#58b1ea",
}
"""Colour of each channel, the hues those of the library's figures."""


def pictures(boards: npt.NDArray[np.bool_], channels: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return boards as pictures, uint8 (N, H, W, 3).

    Args:
        boards: bool (N, K, S, S).
        channels: Their K names.

    Example:
        >>> board = np.zeros((1, 2, 10, 10), bool)
        >>> board[0, 1, 3, 4] = True
        >>> pictures(board, ["trail", "gold"])[0, 3 * CELL, 4 * CELL].tolist()
        [240, 184, 64]
    """
    drawn = np.empty((len(boards), *boards.shape[2:], 3), np.uint8)
    drawn[:] = _rgb(WATER)
    for name in (name for name in COLOURS if name in channels):
        drawn[boards[:, channels.index(name)]] = _rgb(COLOURS[name])
    return drawn.repeat(CELL, 1).repeat(CELL, 2)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))
