"""Conversion of the ``done`` flags of other libraries to `terminated` and `truncated`.

Other libraries record that an episode ended, and separately whether it was cut off, for example by a time limit. An
episode that was cut off is truncated; one that ended otherwise has terminated.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, truths

ENDS = ("terminated", "truncated")

Flags = npt.NDArray[np.bool_]


def terminated_and_truncated(ended: Flags, cut_off: Flags) -> tuple[Flags, Flags]:
    """Return `terminated` and `truncated` from flags of episode ends and of cut-offs, bool arrays of one shape.

    Example:
        >>> terminated_and_truncated(np.array([True, True, False]), np.array([True, False, True]))
        (array([False,  True, False]), array([ True, False,  True]))
    """
    return ended & ~cut_off, cut_off


def truncated_at_the_end(terminated: Flags) -> Flags:
    """Return `truncated` (T,) of a recorded episode: True at its last step, unless that terminates it."""
    truncated = np.zeros(len(terminated), np.bool_)
    truncated[-1] = not terminated[-1]
    return truncated


def truncated_by_time_limit(info: Mapping[str, Any]) -> bool:
    """Return what ``info["TimeLimit.truncated"]`` holds, False if it is missing.

    Raises:
        ConfigError: It is not True, False, or an array or list of one of them.
    """
    value = info.get("TimeLimit.truncated", False)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return checked('info["TimeLimit.truncated"]', value, _one_truth)


def _one_truth(value: Any) -> bool:
    rule = "True or False, alone or in an array or list of length 1"
    try:
        flags = truths(value)
    except InvalidArgument:
        raise InvalidArgument(rule) from None
    if flags.size != 1:
        raise InvalidArgument(rule)
    return bool(flags.item())
