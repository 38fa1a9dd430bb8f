"""The replay library: buffers, fields, samplers and schedules.

Other names are private to the library.
"""

from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.recorder import ReplayRecorder
from replaylab.replay.collect.step_writer import StepWriter
from replaylab.replay.collect.streaming import ReplayStream
from replaylab.replay.common_members import SamplingTotals
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field
from replaylab.replay.data.progress import Progress
from replaylab.replay.data.schedules import (
    Constant,
    Exponential,
    Linear,
    Schedule,
    Schedules,
    Table,
    as_schedule,
    scheduled,
)
from replaylab.replay.data.seeding import ReplayStreamKey, Seed
from replaylab.replay.introspection import ReplayStats
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
from replaylab.replay.samplers.aged import Aged
from replaylab.replay.samplers.custom_sampler import CustomSampler, Oracle, TopScores, View
from replaylab.replay.samplers.episode_ends import EpisodeEnds
from replaylab.replay.samplers.laber import LaBER
from replaylab.replay.samplers.mixture import FreshFirst, Mixture
from replaylab.replay.samplers.online import Online, Queue, SlidingWindow
from replaylab.replay.samplers.prioritized import LAP, Greedy, Prioritized, RankBased, ReLo
from replaylab.replay.samplers.recency import Geometric, Recency
from replaylab.replay.samplers.sampler import FeedbackKind, Sampler
from replaylab.replay.samplers.uniform import Combined, ShuffledEpochs, Uniform
from replaylab.replay.storage import (
    Assigned,
    Fifo,
    Handle,
    MappedStorage,
    MemoryMap,
    Reservoir,
    Retention,
    SharedMemory,
    Storage,
)
from replaylab.replay.transforms import FrameStack, Hindsight, NStep, Sequence, Transform

__all__ = [
    "Aged",
    "Assigned",
    "Batch",
    "Combined",
    "Constant",
    "CustomSampler",
    "DivisibleReplay",
    "EpisodeEnds",
    "Exponential",
    "FeedbackKind",
    "Field",
    "Fifo",
    "FrameStack",
    "FreshFirst",
    "Geometric",
    "Greedy",
    "Handle",
    "Hindsight",
    "InspectableReplay",
    "LAP",
    "LaBER",
    "Linear",
    "MappedStorage",
    "MemoryMap",
    "MixedReplay",
    "Mixture",
    "NStep",
    "Online",
    "Oracle",
    "Priorities",
    "Prioritized",
    "Progress",
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
    "Sampler",
    "SamplerReplay",
    "SamplingTotals",
    "Schedule",
    "Schedules",
    "Seed",
    "Sequence",
    "SharedMemory",
    "ShuffledEpochs",
    "SlidingWindow",
    "StackedInputReplay",
    "StepWriter",
    "Storage",
    "Table",
    "TopScores",
    "Transform",
    "Uniform",
    "View",
    "as_schedule",
    "require",
    "scheduled",
]
