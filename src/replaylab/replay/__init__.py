"""The replay library: buffers, fields, samplers and schedules."""

from replaylab.replay.batch import Batch
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.fields import Field
from replaylab.replay.samplers import Combined, Online, Prioritized, Sampler, SlidingWindow, Uniform
from replaylab.replay.schedules import Constant, Exponential, Linear, Schedule

__all__ = [
    "Batch",
    "Combined",
    "Constant",
    "Exponential",
    "Field",
    "Linear",
    "Online",
    "Prioritized",
    "ReplayBuffer",
    "Sampler",
    "Schedule",
    "SlidingWindow",
    "Uniform",
]
