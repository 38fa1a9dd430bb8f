"""Rules for all tests."""

import sys
from functools import cache

import pytest


@cache
def _gpu():
    import torch  # not for the tests that need none

    return torch.cuda.is_available()


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not _gpu():
        pytest.skip("needs a GPU, but PyTorch finds none (torch.cuda.is_available() is False)")


def pytest_collection_finish():
    """Undo what importing rl-zoo3 does: it gives every environment of the process a TimeLimit of its own."""
    if "rl_zoo3.gym_patches" not in sys.modules:
        return
    import gymnasium

    (original,) = sys.modules["rl_zoo3.gym_patches"].PatchedTimeLimit.__bases__
    for module in (gymnasium.wrappers, gymnasium.wrappers.common, gymnasium.envs.registration):
        module.TimeLimit = original
