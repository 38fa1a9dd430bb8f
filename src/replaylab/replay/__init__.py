"""The replay library: buffers, fields, samplers and schedules."""

from replaylab.replay.age_samplers import Geometric, Queue, Recency, ReverseSweep
from replaylab.replay.batch import Batch, release_batch_memory
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.custom import CustomSampler, Oracle, View
from replaylab.replay.dial_samplers import Blocks, Sticky
from replaylab.replay.fields import Field
from replaylab.replay.hindsight import Hindsight
from replaylab.replay.laber import LaBER
from replaylab.replay.mixed import MixedReplay
from replaylab.replay.priority_samplers import (
    LAP,
    AntiPrioritized,
    Dispersed,
    Greedy,
    Permuted,
    Prioritized,
    RankBased,
    ReLo,
)
from replaylab.replay.recorder import ReplayRecorder
from replaylab.replay.retention import Fifo, Reservoir, Retention
from replaylab.replay.samplers import (
    Combined,
    Mixture,
    Online,
    Sampler,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.replay.schedules import Constant, Exponential, Linear, Schedule
from replaylab.replay.stats import ReplayStats
from replaylab.replay.step_writer import StepWriter
from replaylab.replay.storage import Handle, MemoryMap, SharedMemory, Storage
from replaylab.replay.streaming import ReplayStream
from replaylab.replay.transforms import FrameStack, NStep, Sequence, Transform

__all__ = [
    "AntiPrioritized",
    "Batch",
    "Blocks",
    "Combined",
    "Constant",
    "CustomSampler",
    "Dispersed",
    "Exponential",
    "Field",
    "Fifo",
    "FrameStack",
    "Geometric",
    "Greedy",
    "Handle",
    "Hindsight",
    "LAP",
    "LaBER",
    "Linear",
    "MemoryMap",
    "MixedReplay",
    "Mixture",
    "NStep",
    "Online",
    "Oracle",
    "Permuted",
    "Prioritized",
    "Queue",
    "RankBased",
    "ReLo",
    "Recency",
    "ReplayBuffer",
    "ReplayRecorder",
    "ReplayStats",
    "ReplayStream",
    "Reservoir",
    "Retention",
    "ReverseSweep",
    "Sampler",
    "Schedule",
    "Sequence",
    "SharedMemory",
    "ShuffledEpochs",
    "SlidingWindow",
    "StepWriter",
    "Sticky",
    "Storage",
    "Transform",
    "Uniform",
    "View",
    "release_batch_memory",
]
