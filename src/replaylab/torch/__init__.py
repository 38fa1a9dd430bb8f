"""Replay on a device of PyTorch, and prioritized sampling of its data sets."""

from replaylab.extras import needs

with needs("replaylab.torch", "torch"):
    import torch as _torch  # noqa: F401

from replaylab.torch.captured import Captured
from replaylab.torch.dataset_sampler import PrioritizedDatasetSampler
from replaylab.torch.device_replay import DeviceReplay
from replaylab.torch.figures import DeviceStats

__all__ = ["Captured", "DeviceReplay", "DeviceStats", "PrioritizedDatasetSampler"]
