"""Prioritized replay for the off-policy algorithms of sb3-contrib: QR-DQN, TQC and CrossQ."""

from replaylab.errors import MissingExtraError

try:
    from sb3_contrib import QRDQN, TQC, CrossQ
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "replaylab.integrations.sb3_contrib needs sb3-contrib, which is not installed. Run: "
        'pip install "replaylab[sb3]"'
    ) from error

from replaylab.integrations.sb3 import WithPriorities

__all__ = ["PrioritizedCrossQ", "PrioritizedQRDQN", "PrioritizedTQC"]


class PrioritizedQRDQN(WithPriorities, QRDQN):
    """`QRDQN` with priorities; see `WithPriorities`."""


class PrioritizedTQC(WithPriorities, TQC):
    """`TQC` with priorities; see `WithPriorities`."""


class PrioritizedCrossQ(WithPriorities, CrossQ):
    """`CrossQ` with priorities; see `WithPriorities`."""
