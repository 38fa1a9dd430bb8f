import pytest
import torch

from replaylab.replay import ReplayBuffer


@pytest.fixture
def buffers(monkeypatch):
    """The buffers of the runs to come."""
    created, make = [], ReplayBuffer.for_env

    def for_env(*args, **kwargs):
        created.append(make(*args, **kwargs))
        return created[-1]

    monkeypatch.setattr(ReplayBuffer, "for_env", for_env)
    return created


@pytest.fixture
def full_precision():
    """Convolutions on a GPU in float32, not in the shorter TF32, which is the default there."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield
