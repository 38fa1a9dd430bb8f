"""Rewards and terminations under other goals, for hindsight, from Stable-Baselines3's vector environment."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from replaylab.arguments import ArrayOf, InvalidArgument, checked, returned
from replaylab.errors import ConfigError, NonFiniteError
from replaylab.replay import Hindsight

ComputeTerminated = Callable[[Any, Any, Mapping[str, Any]], npt.ArrayLike] | Literal["env", "stored"]


def _terminated_rule(value: Any) -> Any:
    """Rule of `compute_terminated`, which determines the ends of episodes under another goal."""
    if not callable(value) and (not isinstance(value, str) or value not in ("env", "stored")):
        raise InvalidArgument('"env", "stored" or a function of (achieved_goal, desired_goal, info)')
    return value


class Goals:
    """Rewards and terminations under given goals, from an environment.

    Attributes:
        env: The environment; it is not pickled.
        normalizing: Normalizes rewards before they are summed over n steps; None: they are not normalized.
    """

    def __init__(self, terminated: ComputeTerminated) -> None:
        self._terminated = checked("compute_terminated", terminated, _terminated_rule)
        self._by_rows: bool | None = None  # whether the environment's function takes single goals; None: not known yet
        self.env: VecEnv | None = None
        self.normalizing: VecNormalize | None = None

    def hindsight(self, strategy: str, ratio: float) -> Hindsight:
        """Return the transform that uses these functions."""
        return Hindsight(self.reward, self.terminated, strategy, ratio)  # type: ignore[arg-type] # it checks the word

    def set_env(self, env: VecEnv | None) -> None:
        """Set the environment.

        Raises:
            ConfigError: The environment does not define which goals end an episode, and nothing else does.
        """
        if env is not None and self._terminated == "env" and not env.has_attr("compute_terminated"):
            raise ConfigError(
                "hindsight recomputes which steps end an episode, but the environment has no `compute_terminated`; "
                "give replay_buffer_kwargs a function compute_terminated(achieved_goal, desired_goal, info) of arrays, "
                'or compute_terminated="stored" to keep the ends as they were played, as HerReplayBuffer does'
            )
        self.env = env

    def reward(self, achieved: Any, desired: Any, info: Mapping[str, Any]) -> npt.NDArray[np.float32]:  # noqa: ARG002
        """Return the environment's rewards (n,)."""
        values = self._checked_env().env_method(
            "compute_reward", achieved, desired, [{} for _ in achieved], indices=[0]
        )[0]
        rewards = returned("`compute_reward` of the environment", _flat(values), _rewards(len(achieved)))
        if self.normalizing is not None:
            rewards = self.normalizing.normalize_reward(rewards.astype(np.float32))
        return rewards.astype(np.float32)

    def terminated(self, achieved: Any, desired: Any, info: Mapping[str, Any]) -> npt.ArrayLike:
        """Return which steps end their episode (n,); the result of a custom function is returned unchanged."""
        if callable(self._terminated):
            ends: npt.ArrayLike = self._terminated(achieved, desired, info)
            return ends
        if self._terminated == "stored":
            return np.asarray(info["terminated"])
        if self._by_rows is None:
            self._by_rows = not self._takes_rows(achieved, desired)
        if not self._by_rows:
            values = self._ends(achieved, desired, [{} for _ in achieved])
        else:
            values = [self._ends(reached, goal, {}) for reached, goal in zip(achieved, desired, strict=True)]
        words = f"True or False for each of {len(achieved)} goals"
        rule = ArrayOf((len(achieved),), words, holds=lambda array: (array == 0) | (array == 1))
        return returned("`compute_terminated` of the environment", _flat(values), rule).astype(np.bool_)

    def _takes_rows(self, achieved: Any, desired: Any) -> bool:
        """Whether the environment's function takes many goals at once."""
        if len(achieved) in np.shape(achieved)[1:]:  # a goal has as many numbers: one for each may come back
            achieved, desired = np.concatenate([achieved, achieved]), np.concatenate([desired, desired])
        try:
            ends = self._ends(achieved, desired, [{} for _ in achieved])
        except (EOFError, OSError) as error:  # the process of the environment has ended
            raise ConfigError(
                "`compute_terminated` of an environment in its own process must take many goals at once, but it "
                "ended its process; write it for arrays, or take DummyVecEnv"
            ) from error
        except Exception:
            return False
        return bool(np.shape(ends) == (len(achieved),))

    def _ends(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self._checked_env().env_method("compute_terminated", achieved, desired, info, indices=[0])[0]

    def _checked_env(self) -> VecEnv:
        if self.env is None:
            raise ConfigError(
                "hindsight asks the environment for rewards, but the buffer has none; give it one with "
                "replay_buffer.set_env(model.get_env())"
            )
        return self.env

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"env": None, "normalizing": None}


def _rewards(rows: int) -> ArrayOf:
    return ArrayOf((rows,), f"one finite number for each of {rows} goals", holds=np.isfinite, error=NonFiniteError)


def _flat(values: Any) -> Any:
    """Return an array (n, 1), as some environments return, as (n,), and other values unchanged."""
    return values[:, 0] if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1 else values
