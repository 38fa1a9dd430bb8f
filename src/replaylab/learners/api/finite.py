"""Check that an environment's numbers are finite, once, as they come and before anything is stored."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from replaylab.envs.batched import BatchedEnv
from replaylab.errors import NonFiniteError
from replaylab.learners.api.hooks import EnvStep
from replaylab.learners.api.protocols import Obs
from replaylab.trees import flatten, map_leaves


def check_obs(obs: Obs, env_id: str, seeds: Sequence[int], when: str, name: str = "obs") -> None:
    """Raise an error that names the seed if an observation, (R, ...) of R seeds, holds NaN or infinity.

    Raises:
        NonFiniteError: The observation does.
    """
    for path, part in flatten(obs, name):
        if not _finite(part):
            _refuse(part, env_id, seeds, when, path)


def check_step(step: EnvStep, env_id: str, seeds: Sequence[int], number: int) -> None:
    """Raise an error that names the seed if a reward or observation of a step is NaN or infinite.

    Args:
        step: Step of R environments.
        env_id: Environment id for the message.
        seeds: Seeds of the rows.
        number: Step number for the message.

    Raises:
        NonFiniteError: A reward or an observation is.
    """
    if not _finite(step.reward):
        _refuse(step.reward, env_id, seeds, f"step {number:,}", "reward")
    if not isinstance(step.next_obs, np.ndarray) or not _finite(step.next_obs):
        check_obs(step.next_obs, env_id, seeds, f"step {number:,}")
    if step.final_obs is not None:
        for row in step.ended.nonzero()[0].tolist():
            last = step.final_obs[row]
            if not isinstance(last, np.ndarray) or not _finite(last):
                alone = map_leaves(lambda part: np.asarray(part)[None], last)
                check_obs(alone, env_id, [seeds[row]], f"step {number:,}", "final_obs")


def finite_step(
    env: VectorEnv[Any, Any, Any], obs: Obs, action: npt.NDArray[Any], env_id: str, seeds: Sequence[int], number: int
) -> EnvStep:
    """Take an action in every environment, (R, ...), and return the step, checked by `check_step`."""
    obs = _not_reused(env, obs)
    next_obs, reward, terminated, truncated, infos = env.step(action)
    next_obs = _not_reused(env, next_obs)
    ended = terminated | truncated
    step = EnvStep(obs, action, reward, next_obs, terminated, truncated, infos.get("final_obs"), ended)
    check_step(step, env_id, seeds, number)
    return step


def _not_reused(env: VectorEnv[Any, Any, Any], obs: Obs) -> Obs:
    """Return observations that the environment cannot overwrite: the library's and Gymnasium's return new arrays."""
    inner: Any = env.unwrapped
    return obs if isinstance(inner, BatchedEnv) or getattr(inner, "copy", False) else map_leaves(np.copy, obs)


def _finite(values: npt.NDArray[Any]) -> bool:
    """Whether no number is NaN or infinite; a third of the time of ``np.isfinite(found).all()``."""
    return values.dtype.kind != "f" or b"\0" not in np.isfinite(values).tobytes()


def _refuse(values: npt.NDArray[Any], env_id: str, seeds: Sequence[int], when: str, name: str) -> None:
    wrong = ~np.isfinite(values)
    row = int(wrong.reshape(len(values), -1).any(1).argmax())
    value = values[row][wrong[row]].flat[0] if values.ndim > 1 else values[row]
    raise NonFiniteError(
        f"`{name}` of {env_id} must be finite, but seed {seeds[row]} got {value} in {when}; fix the environment, or "
        f"wrap it so that such a value does not occur"
    )
