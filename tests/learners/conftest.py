import pytest
import torch

from replaylab.replay import ReplayBuffer


@pytest.fixture
def buffers(monkeypatch):
    """The buffers of the runs to come."""
    made, make = [], ReplayBuffer.for_env

    def for_env(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(ReplayBuffer, "for_env", for_env)
    return made


@pytest.fixture
def full_precision():
    """Convolutions on a GPU in float32, not in the shorter TF32, which is the default there."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
