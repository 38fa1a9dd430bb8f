"""Replay on a device of PyTorch, for training loops that leave nothing on the host."""

from replaylab.extras import needs

with needs("replaylab.torch", "torch"):
    import torch as _torch  # noqa: F401

from replaylab.torch.device_replay import DeviceReplay
from replaylab.torch.figures import DeviceStats

__all__ = ["DeviceReplay", "DeviceStats"]
