"""The replay library: buffers, fields, samplers and schedules.

What is not named here is private to the library.
"""

from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.recorder import ReplayRecorder
from replaylab.replay.collect.step_writer import StepWriter
from replaylab.replay.collect.streaming import ReplayStream
from replaylab.replay.data.batch import Batch, release_batch_memory
from replaylab.replay.data.fields import Field
from replaylab.replay.data.schedules import Constant, Exponential, Linear, Schedule, as_schedule, scheduled
from replaylab.replay.data.seeding import ReplayStreamKey, Seed
from replaylab.replay.introspection.introspective import LawTotals
from replaylab.replay.introspection.stats import ReplayStats
from replaylab.replay.mixed import MixedReplay
from replaylab.replay.priorities import Priorities
from replaylab.replay.protocols import (
    DivisibleReplay,
    InspectableReplay,
    Replay,
    RestorableReplay,
    SamplerReplay,
    StackedInputReplay,
    require,
)
from replaylab.replay.samplers.correlated import Blocks, Sticky
from replaylab.replay.samplers.custom.sampler import CustomSampler, Oracle, TopScores, View
from replaylab.replay.samplers.laber import LaBER
from replaylab.replay.samplers.mixture import Mixture
from replaylab.replay.samplers.online import Online, Queue, SlidingWindow
from replaylab.replay.samplers.placebos import AntiPrioritized, Dispersed, Permuted
from replaylab.replay.samplers.prioritized import LAP, Prioritized, ReLo
from replaylab.replay.samplers.rank_based import Greedy, RankBased
from replaylab.replay.samplers.recency import Geometric, Recency
from replaylab.replay.samplers.reverse_sweep import ReverseSweep
from replaylab.replay.samplers.sampler import FeedbackKind, Sampler
from replaylab.replay.samplers.shuffled_epochs import ShuffledEpochs
from replaylab.replay.samplers.tape import Tape
from replaylab.replay.samplers.tape_file import TapeWriter
from replaylab.replay.samplers.uniform import Combined, Uniform
from replaylab.replay.storage.mapped import MappedStorage, MemoryMap, SharedMemory
from replaylab.replay.storage.retention import Assigned, Fifo, Reservoir, Retention
from replaylab.replay.storage.storage import Handle, Storage
from replaylab.replay.transforms.frame_stack import FrameStack
from replaylab.replay.transforms.hindsight import Hindsight
from replaylab.replay.transforms.n_step import NStep
from replaylab.replay.transforms.sequence import Sequence
from replaylab.replay.transforms.transform import Transform

__all__ = [
    "AntiPrioritized",
    "Assigned",
    "Batch",
    "Blocks",
    "Combined",
    "Constant",
    "CustomSampler",
    "Dispersed",
    "DivisibleReplay",
    "Exponential",
    "FeedbackKind",
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
    "LawTotals",
    "Linear",
    "MappedStorage",
    "MemoryMap",
    "MixedReplay",
    "Mixture",
    "NStep",
    "Online",
    "Oracle",
    "Permuted",
    "Priorities",
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
    "ReplayStreamKey",
    "Reservoir",
    "RestorableReplay",
    "Retention",
    "ReverseSweep",
    "Sampler",
    "SamplerReplay",
    "Schedule",
    "Seed",
    "Sequence",
    "SharedMemory",
    "ShuffledEpochs",
    "SlidingWindow",
    "StackedInputReplay",
    "StepWriter",
    "Sticky",
    "Storage",
    "Tape",
    "TapeWriter",
    "TopScores",
    "Transform",
    "Uniform",
    "View",
    "as_schedule",
    "release_batch_memory",
    "require",
    "scheduled",
]
