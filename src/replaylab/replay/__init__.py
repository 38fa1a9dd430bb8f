"""The replay library: buffers, fields, samplers and schedules."""

from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.recorder import ReplayRecorder
from replaylab.replay.collect.step_writer import StepWriter
from replaylab.replay.collect.streaming import ReplayStream
from replaylab.replay.data.batch import Batch, release_batch_memory
from replaylab.replay.data.fields import Field
from replaylab.replay.data.schedules import Constant, Exponential, Linear, Schedule
from replaylab.replay.mixed import MixedReplay
from replaylab.replay.protocols import (
    DivisibleReplay,
    InspectableReplay,
    Replay,
    RestorableReplay,
    SamplerReplay,
    StackedInputReplay,
)
from replaylab.replay.samplers.age import Geometric, Queue, Recency, ReverseSweep
from replaylab.replay.samplers.basic import (
    Combined,
    Mixture,
    Online,
    Sampler,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.replay.samplers.custom import CustomSampler, Oracle, View
from replaylab.replay.samplers.dials import Blocks, Sticky
from replaylab.replay.samplers.laber import LaBER
from replaylab.replay.samplers.priority import (
    LAP,
    AntiPrioritized,
    Dispersed,
    Greedy,
    Permuted,
    Prioritized,
    RankBased,
    ReLo,
)
from replaylab.replay.stats import ReplayStats
from replaylab.replay.storage.mapped import Handle, MemoryMap, SharedMemory, Storage
from replaylab.replay.storage.retention import Fifo, Reservoir, Retention
from replaylab.replay.transforms.hindsight import Hindsight
from replaylab.replay.transforms.transforms import FrameStack, NStep, Sequence, Transform

__all__ = [
    "AntiPrioritized",
    "Batch",
    "Blocks",
    "Combined",
    "Constant",
    "CustomSampler",
    "Dispersed",
    "DivisibleReplay",
    "Exponential",
    "Field",
    "Fifo",
    "FrameStack",
    "Geometric",
    "Greedy",
    "Handle",
    "Hindsight",
    "InspectableReplay",
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
    "Replay",
    "ReplayBuffer",
    "ReplayRecorder",
    "ReplayStats",
    "ReplayStream",
    "Reservoir",
    "RestorableReplay",
    "Retention",
    "ReverseSweep",
    "Sampler",
    "SamplerReplay",
    "Schedule",
    "Sequence",
    "SharedMemory",
    "ShuffledEpochs",
    "SlidingWindow",
    "StackedInputReplay",
    "StepWriter",
    "Sticky",
    "Storage",
    "Transform",
    "Uniform",
    "View",
    "release_batch_memory",
]
