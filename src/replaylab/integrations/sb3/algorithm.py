"""The algorithm that a buffer serves. Stable-Baselines3 does not tell its buffers, so they look for it."""

import sys
from types import FrameType

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

MAKES = ("_setup_model", "load_replay_buffer")
"""Where the library makes a buffer, and where it reads one in."""


def algorithm_calling(*methods: str) -> OffPolicyAlgorithm | None:
    """Return the algorithm that is in one of these methods of its own at this moment; None: none is.

    The library hands a buffer neither its γ and n nor its progress and its environment. So they are found where the
    call comes from.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods and isinstance(caller := frame.f_locals.get("self"), OffPolicyAlgorithm):
            return caller
        frame = frame.f_back
    return None
