"""Check that an environment's numbers are finite, once, before anything is stored."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.errors import NonFiniteError
from replaylab.learners.api.protocols import Obs
from replaylab.trees import flatten, map_leaves


def check_obs(obs: Obs, env_id: str, seeds: Sequence[int], when: str, name: str = "obs") -> None:
    """Raise an error that names the seed if an observation, (R, ...) of R seeds, holds NaN or infinity.

    Raises:
        NonFiniteError: It does.
    """
    for path, part in flatten(obs, name):
        if not _finite(part):
            _refuse(part, env_id, seeds, when, path)


def check_step(
    reward: npt.NDArray[Any],
    next_obs: Obs,
    final_obs: Any,
    ended: npt.NDArray[np.bool_],
    env_id: str,
    seeds: Sequence[int],
    step: int,
) -> None:
    """Raise an error that names the seed if a reward or observation of R environments is NaN or infinite.

    Args:
        reward: (R,).
        next_obs: (R, ...).
        final_obs: What an environment that starts a new episode in the same step ended the last one with, for each
            row that ended; or None.
        ended: bool (R,).
        env_id: Environment id for the message.
        seeds: Seeds of the rows.
        step: Step number for the message.

    Raises:
        NonFiniteError: One is.
    """
    if not _finite(reward):
        _refuse(reward, env_id, seeds, f"step {step:,}", "reward")
    if not isinstance(next_obs, np.ndarray) or not _finite(next_obs):
        check_obs(next_obs, env_id, seeds, f"step {step:,}")
    if final_obs is not None:
        for row in ended.nonzero()[0].tolist():
            last = final_obs[row]
            if not isinstance(last, np.ndarray) or not _finite(last):
                alone = map_leaves(lambda part: np.asarray(part)[None], last)
                check_obs(alone, env_id, [seeds[row]], f"step {step:,}", "final_obs")


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
