"""Rules for all tests."""

from functools import cache

import pytest


@cache
def _gpu():
    import torch  # not for the tests that need none

    return torch.cuda.is_available()


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not _gpu():
        pytest.skip("needs a GPU, but PyTorch finds none (torch.cuda.is_available() is False)")
