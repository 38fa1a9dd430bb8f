"""Prioritized replay for the off-policy algorithms of sb3-contrib: QR-DQN, TQC and CrossQ."""

from replaylab.extras import needs

with needs("replaylab.integrations.sb3_contrib", "sb3"):
    from sb3_contrib import QRDQN, TQC, CrossQ

from replaylab.integrations.sb3 import WithPriorities

__all__ = ["PrioritizedCrossQ", "PrioritizedQRDQN", "PrioritizedTQC"]


class PrioritizedQRDQN(WithPriorities, QRDQN):
    """`QRDQN` with priorities; see `WithPriorities`."""


class PrioritizedTQC(WithPriorities, TQC):
    """`TQC` with priorities; see `WithPriorities`."""


class PrioritizedCrossQ(WithPriorities, CrossQ):
    """`CrossQ` with priorities; see `WithPriorities`."""
