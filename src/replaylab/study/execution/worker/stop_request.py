"""A request to stop training at the next step, after writing a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


class TrainingStopped(BaseException):
    """Training ended early, with a checkpoint if one could be written.

    It is no `Exception`, so that custom code does not catch it.
    """


@dataclass
class StopRequest:
    """The state that a training loop and the thread which receives the request share."""

    requested: bool = False
    heeded: bool = False
    """Whether a training loop that writes checkpoints is at work; otherwise nothing can be kept."""
