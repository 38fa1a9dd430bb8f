"""Transforms, which turn drawn steps into the rows of a batch."""

from replaylab.replay.transforms.frame_stack import FrameStack
from replaylab.replay.transforms.hindsight import Hindsight
from replaylab.replay.transforms.n_step import NStep
from replaylab.replay.transforms.sequence import Sequence
from replaylab.replay.transforms.transform import Transform

__all__ = ["FrameStack", "Hindsight", "NStep", "Sequence", "Transform"]
