"""Goals of an environment: the functions that hindsight asks, answered by Stable-Baselines3's vector environment."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from replaylab.arguments import Unfit, checked
from replaylab.errors import ConfigError
from replaylab.replay import Hindsight

ComputeTerminated = Callable[[Any, Any, Mapping[str, Any]], npt.ArrayLike] | Literal["env", "stored"]


def _says(value: Any) -> Any:
    """What ends an episode under another goal."""
    if not callable(value) and (not isinstance(value, str) or value not in ("env", "stored")):
        raise Unfit('"env", "stored" or a function of (achieved_goal, desired_goal, info)')
    return value


class Goals:
    """What an environment says of goals.

    Attributes:
        env: The environment that is asked; it is not pickled.
        normalizing: What normalizes rewards before they are summed over n steps, None: nothing does.
    """

    def __init__(self, terminated: ComputeTerminated) -> None:
        self._terminated = checked("compute_terminated", terminated, _says)
        self._by_rows: bool | None = None  # whether the environment's takes one goal at a time; None: not known yet
        self.env: VecEnv | None = None
        self.normalizing: VecNormalize | None = None

    def hindsight(self, strategy: str, ratio: float) -> Hindsight:
        """Return the transform that asks here."""
        return Hindsight(self.reward, self.terminated, strategy, ratio)  # type: ignore[arg-type] # it checks the word

    def set_env(self, env: VecEnv | None) -> None:
        """Take the environment that is to be asked.

        Raises:
            ConfigError: It does not say whether a goal ends an episode, and nothing else does.
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
        found = self._asked().env_method("compute_reward", achieved, desired, [{} for _ in achieved], indices=[0])[0]
        rewards = np.asarray(found, np.float32).reshape(len(achieved))
        return rewards if self.normalizing is None else self.normalizing.normalize_reward(rewards).astype(np.float32)

    def terminated(self, achieved: Any, desired: Any, info: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Return which steps end their episode (n,)."""
        if callable(self._terminated):
            return np.asarray(self._terminated(achieved, desired, info))
        if self._terminated == "stored":
            return np.asarray(info["terminated"])
        if self._by_rows is None:
            self._by_rows = not self._takes_rows(achieved, desired)
        if not self._by_rows:
            return np.asarray(self._ends(achieved, desired, [{} for _ in achieved]), np.bool_)
        return np.array([self._ends(one, goal, {}) for one, goal in zip(achieved, desired, strict=True)], np.bool_)

    def _takes_rows(self, achieved: Any, desired: Any) -> bool:
        """Whether the environment's function takes many goals at once."""
        if len(achieved) in np.shape(achieved)[1:]:  # a goal has as many numbers: one for each may come back
            achieved, desired = np.concatenate([achieved, achieved]), np.concatenate([desired, desired])
        try:
            found = self._ends(achieved, desired, [{} for _ in achieved])
        except (EOFError, OSError) as error:  # the process of the environment has ended
            raise ConfigError(
                "`compute_terminated` of an environment in a process of its own must take many goals at once, but it "
                "ended its process; write it for arrays, or take DummyVecEnv"
            ) from error
        except Exception:
            return False
        return bool(np.shape(found) == (len(achieved),))

    def _ends(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self._asked().env_method("compute_terminated", achieved, desired, info, indices=[0])[0]

    def _asked(self) -> VecEnv:
        if self.env is None:
            raise ConfigError(
                "hindsight asks the environment for rewards, but the buffer has none; give it one with "
                "replay_buffer.set_env(model.get_env())"
            )
        return self.env

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"env": None, "normalizing": None}
