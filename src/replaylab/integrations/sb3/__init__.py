"""The replay library under Stable-Baselines3's algorithms: a buffer for ``replay_buffer_class=``, and priorities.

`ReplayLabBuffer` replaces any of the library's own buffers. `WithPriorities` is a mixin by which an off-policy
algorithm weights its loss and feeds its TD errors back; `PrioritizedDQN`, `PrioritizedDDPG`, `PrioritizedTD3` and
`PrioritizedSAC` use it, and those of sb3-contrib are in `replaylab.integrations.sb3_contrib`. `read_pickle` reads a
saved buffer of the library into a plain `replaylab.ReplayBuffer`.
"""

from replaylab.extras import needs

with needs("replaylab.integrations.sb3", "sb3"):
    import stable_baselines3 as _library  # noqa: F401

from replaylab.integrations.sb3.buffer import ReplayLabBuffer
from replaylab.integrations.sb3.pickles import read_pickle
from replaylab.integrations.sb3.priorities import (
    PrioritizedDDPG,
    PrioritizedDQN,
    PrioritizedSAC,
    PrioritizedTD3,
    WithPriorities,
)

__all__ = [
    "PrioritizedDDPG",
    "PrioritizedDQN",
    "PrioritizedSAC",
    "PrioritizedTD3",
    "ReplayLabBuffer",
    "WithPriorities",
    "read_pickle",
]
