"""The three ways Gymnasium's vector environments start a new episode, and what each means for a buffer."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.replay.data.arrays import as_array, cast, fitted
from replaylab.replay.data.fields import Field, need_field

Leading = tuple[int | None, int | None, int | None]
"""Lengths of the leading axes R, T, E; None for a missing axis."""

MODES = {"NextStep": "next_step", "SameStep": "same_step", "Disabled": "disabled"}
"""Gymnasium's `AutoresetMode` values, and this library's words for them."""


def mode_name(mode: Any) -> str:
    """Return "next_step", "same_step" or "disabled" for a name or a Gymnasium `AutoresetMode`.

    Raises:
        ConfigError: It is not one of them.
    """
    value = getattr(mode, "value", mode)
    name = MODES.get(value, value) if isinstance(value, str) else value
    if not isinstance(name, str) or name not in MODES.values():
        raise ConfigError(f'`autoreset` must be None, "next_step", "same_step" or "disabled", but got {mode!r}')
    return str(name)


def checked_mode(mode: Any, fields: Mapping[str, Field]) -> str | None:
    """Return the mode's name after checking that the fields it needs are declared."""
    if mode is None:
        return None
    name = mode_name(mode)
    flags = ENDS if name != "disabled" else ()
    for flag in flags:
        need_field(f'autoreset="{name}"', fields, flag, Field((), np.bool_), ", to see where episodes end")
    if name == "same_step" and not any(path.split(".")[0] == "next_obs" for path in fields):
        raise FieldError('autoreset="same_step" needs the field `next_obs`, to store final observations in')
    return name


def with_final_obs(
    values: dict[str, Any], final_obs: Any, where: Any, fields: Mapping[str, Field], leading: Leading
) -> dict[str, Any]:
    """Return the flat field values with ``next_obs`` of ended environments replaced by `final_obs`.

    `final_obs` is Gymnasium's ``infos["final_obs"]``: an object array holding one whole observation for each
    ended environment; or observations of all environments, batched and nested as `next_obs` is.

    Raises:
        FieldError: An environment ended and its final observation is not there.
        ShapeError, DtypeError: It, or a value it is needed for, does not fit.
    """
    if all(type(values[name]) is np.ndarray and not np.count_nonzero(values[name]) for name in ENDS):
        return values  # whose shapes and dtypes are checked when they are stored
    ended = np.zeros((), np.bool_)
    for name in ENDS:
        ended = ended | fitted(name, values[name], np.dtype(np.bool_), (), *leading)
    if where is not None:
        ended = ended & fitted("where", where, np.dtype(np.bool_), (), *leading)
    if not np.count_nonzero(ended):
        return values
    replaced = dict(values)
    for path, field in fields.items():
        name, *keys = path.split(".")
        if name == "next_obs":
            next_obs = fitted(path, values[path], field.dtype, field.shape, *leading).copy()
            _replace(next_obs, ended, final_obs, keys, field)
            replaced[path] = next_obs
    return replaced


def _replace(next_obs: Any, ended: Any, final_obs: Any, keys: list[str], field: Field) -> None:
    nested = isinstance(final_obs, (Mapping, tuple))
    final = as_array("`final_obs`", _dig(final_obs, keys) if nested else final_obs)
    if final.dtype != object and final.shape == next_obs.shape:
        next_obs[ended] = cast("`final_obs`", final, field.dtype)[ended]
        return
    if final_obs is not None and (final.dtype != object or final.shape != ended.shape):
        raise ShapeError(
            f"`final_obs` must be an object array of shape {ended.shape} with an observation for each ended "
            f'environment, as infos["final_obs"], or observations of shape {next_obs.shape}, but got '
            f"{final.dtype} of shape {final.shape}"
        )
    for place in zip(*ended.nonzero(), strict=True) if ended.ndim else [()]:
        entry = None if final_obs is None else final[place]
        if entry is None:
            raise FieldError(
                f"{int(ended.sum())} environments ended, and in same_step autoreset mode their `next_obs` is already "
                'the next episode\'s first observation; pass final_obs=infos["final_obs"] to `add`, or, with '
                'a ReplayRecorder, `step` of the environments must return infos["final_obs"]'
            )
        next_obs[place] = fitted(
            "final_obs", entry if nested else _dig(entry, keys), field.dtype, field.shape, None, None, None
        )


def _dig(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        try:
            tree = tree[int(key)] if isinstance(tree, tuple) else tree[key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise FieldError(
                f"`final_obs` must be nested as `next_obs` is, but has no `{'.'.join(keys)}`; "
                'pass final_obs=infos["final_obs"]'
            ) from None
    return tree
