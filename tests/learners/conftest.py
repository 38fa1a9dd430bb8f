import pytest
import torch

from replaylab.replay import ReplayBuffer


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Let each product run on one thread: at these sizes a second one only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def buffers(monkeypatch):
    """The buffers of the runs to come."""
    made, make = [], ReplayBuffer.for_env

    def for_env(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(ReplayBuffer, "for_env", for_env)
    return made
