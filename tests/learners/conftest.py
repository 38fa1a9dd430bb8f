import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Let each product run on one thread: at these sizes a second one only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
