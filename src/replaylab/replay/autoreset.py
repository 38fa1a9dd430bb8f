"""The three ways Gymnasium's vector environments start a new episode, and what each means for a buffer."""

from typing import Any

import numpy as np

from replaylab.errors import FieldError

MODES = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}
"""Gymnasium's `AutoresetMode` values, and this library's words for them."""


def mode_name(mode: Any) -> str:
    """Return "next_step", "same_step" or "disabled" for a name or a Gymnasium `AutoresetMode`.

    Raises:
        FieldError: It is none of them.
    """
    value = getattr(mode, "value", mode)
    name = MODES.get(value, value)
    if name not in MODES.values():
        raise FieldError(f'`autoreset` must be None, "next_step", "same_step" or "disabled", but got {mode!r}')
    return str(name)


def with_final_obs(values: dict[str, Any], final_obs: Any, where: Any, mode: str | None) -> dict[str, Any]:
    """Return the flat field values with ``next_obs`` of ended environments replaced by `final_obs`.

    `final_obs` is nested as the observation is; each leaf is an array of all environments, or an object array
    with an entry for each ended one, as Gymnasium's ``infos["final_obs"]``.

    Raises:
        FieldError: An environment ended in "same_step" mode without its final observation, or one is given
            in another mode.
    """
    if mode != "same_step":
        raise FieldError(
            f'`final_obs` belongs to autoreset="same_step", but this buffer has autoreset={mode!r}; leave it out'
        )
    ended = np.logical_or(values["terminated"], values["truncated"])
    if where is not None:
        ended = ended & np.asarray(where)
    if not ended.any():
        return values
    replaced = dict(values)
    for path in values:
        if path == "next_obs" or path.startswith("next_obs."):
            leaf = _leaf(final_obs, path.split(".")[1:])
            replaced[path] = _replace(np.array(values[path]), ended, leaf, path)
    return replaced


def _leaf(final_obs: Any, keys: list[str]) -> Any:
    for key in keys:
        final_obs = None if final_obs is None else final_obs[int(key) if isinstance(final_obs, tuple) else key]
    return final_obs


def _replace(next_obs: Any, ended: Any, final: Any, path: str) -> Any:
    final = np.asarray(final)
    missing = FieldError(
        f"{int(ended.sum())} environments ended, and in same_step autoreset mode their `{path}` is already the next "
        'episode\'s first observation; pass final_obs=infos["final_obs"]'
    )
    if final.shape[: ended.ndim] != ended.shape:
        raise missing
    if final.dtype != object:
        next_obs[ended] = final[ended]
        return next_obs
    for place in zip(*np.nonzero(ended), strict=True):
        if final[place] is None:
            raise missing
        next_obs[place] = final[place]
    return next_obs
