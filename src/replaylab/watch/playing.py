"""Rendering of one episode of a policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS, function, instance, mapping, optional, shown, takes, whole
from replaylab.envs.transition_table import unknown_env
from replaylab.envs.vectorize import make_single_env, whole_games
from replaylab.errors import ConfigError, MissingExtraError
from replaylab.learners.api.protocols import Policy
from replaylab.trees import map_leaves

ActionOf = Callable[[Any], Any]
"""Takes one observation, returns an action of the environment's action space."""


@dataclass(frozen=True)
class Episode:
    """A rendered episode.

    Attributes:
        frames: The rendered frames, beginning with that after the reset, uint8 (H, W, 3) each.
        episode_return: Sum of the rewards.
        ended: How it ended: ``"terminated"``, ``"truncated"``, or ``"step guard"`` if `max_steps` cut it off.
        fps: Frames a second that the environment declares.
    """

    frames: list[npt.NDArray[np.uint8]]
    episode_return: float
    ended: Literal["terminated", "truncated", "step guard"]
    fps: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.frames) - 1

    def __str__(self) -> str:
        ending = "cut off by the step guard" if self.ended == "step guard" else self.ended
        return f"{self.steps:,} steps, return {self.episode_return:g}, {ending}"


@takes(
    env=instance((str, gym.Env), "the name of an environment, or one of Gymnasium's"),
    policy=optional(function("an observation")),
    seed=whole(0, 2**32 - 1),
    max_steps=whole(),
    env_options=optional(mapping),
)
def play(
    env: str | gym.Env[Any, Any],
    policy: ActionOf | None = None,
    *,
    seed: int = 0,
    max_steps: int = 1_000,
    env_options: Mapping[str, Any] | None = None,
) -> Episode:
    """Play one episode and return its rendered frames.

    Args:
        env: A registered name, also of an Atari game; or an environment made with ``render_mode="rgb_array"``, with
            the wrappers that the policy needs, which is closed at the end.
        policy: Returns an action for an observation; None: random actions.
        seed: Seed of the environment.
        max_steps: The episode is cut off after this many steps: a greedy policy may walk in circles forever.
        env_options: For the constructor, if `env` is a name; `render_mode` is always "rgb_array".

    Raises:
        ConfigError: The environment is unknown, does not render frames, or `max_steps` is below 1.
        MissingExtraError: A package that renders the frames is not installed.
    """
    world = _make(env, env_options or {}) if isinstance(env, str) else env
    try:
        return _play(world, policy, seed, max_steps)
    except gym.error.DependencyNotInstalled as error:
        raise MissingExtraError(
            f'rendering this environment needs another package: {error}. Run: pip install "replaylab[video]"'
        ) from error
    finally:
        world.close()


@takes(replicas=whole(most=LARGEST_AXIS), replica=whole(0))
def greedy(policy: Policy, replicas: int, replica: int = 0) -> ActionOf:
    """Return the greedy policy of one replica, as a function of one observation.

    Args:
        policy: Trained agents of all replicas, as `train` leaves them.
        replicas: Number of replicas, R.
        replica: Index of the replica.
    """
    if not isinstance(policy, Policy):
        raise ConfigError(f"`policy` must be agents, as `train` leaves them, but got {shown(policy)}")
    if replica >= replicas:
        raise ConfigError(f"`replica` must be below `replicas`, but got (replica={replica}, replicas={replicas})")

    def action_of(obs: Any) -> Any:
        rows = map_leaves(lambda x: np.broadcast_to(x, (replicas, 1, *np.shape(x))).copy(), obs)
        return policy.act(rows, explore=False)[replica, 0]

    return action_of


def _make(env_id: str, options: Mapping[str, Any]) -> gym.Env[Any, Any]:
    try:
        return make_single_env(env_id, **{**whole_games(env_id, options), "render_mode": "rgb_array"})
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise unknown_env("env", env_id, error) from error
    except TypeError as error:
        raise ConfigError(
            f"{env_id} cannot be made with render_mode='rgb_array' and {dict(options)}: {error}"
        ) from error


def _play(env: gym.Env[Any, Any], policy: ActionOf | None, seed: int, max_steps: int) -> Episode:
    if env.render_mode != "rgb_array":
        raise ConfigError(f'`env` must be made with render_mode="rgb_array", but it has {env.render_mode!r}')
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    frames, total = [_frame(env)], 0.0
    action_of = policy or (lambda _: env.action_space.sample())
    ended: Literal["terminated", "truncated", "step guard"] = "step guard"
    while ended == "step guard" and len(frames) <= max_steps:
        obs, reward, terminated, truncated, _ = env.step(action_of(obs))
        total += float(reward)
        frames.append(_frame(env))
        if terminated or truncated:
            ended = "terminated" if terminated else "truncated"
    return Episode(frames, total, ended, int(env.metadata.get("render_fps", 30)))


def _frame(env: gym.Env[Any, Any]) -> npt.NDArray[np.uint8]:
    frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise ConfigError(f"`env` must render one array (H, W, 3), but got {type(frame).__name__}")
    return np.array(frame, np.uint8)
