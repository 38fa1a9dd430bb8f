"""Rules for all tests: which need a GPU, which slow ones run, and which may be skipped in continuous integration."""

import gc
import os
import re
import zlib
from functools import cache

import pytest

# Before NumPy, PyTorch and Numba are imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # at the sizes of the tests a second thread only waits
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # compiling Tianshou's functions takes longer than the tests

MAY_BE_SKIPPED_IN_CI = (
    "needs a GPU",
    "needs a machine without a GPU",
    "the worker is this process",  # of one executor in the conformance tests of all
    "EnvPool has no wheel for every machine",  # in none of the extras that `make test` installs
    "pip install rliable",  # needs an older pandas than the extras
    "written for gym, before Gymnasium",
    "the superuser may write everywhere",
    "Triton takes 1 GB",
)
"""First words of the reasons, as regular expressions. .ci/run installs the packages of the other tests."""


def pytest_addoption(parser):
    parser.addoption("--slow-tenth", type=int, choices=range(10), help="of the slow tests run only this tenth")


def tenth(nodeid):
    """Return which tenth of the slow tests a test belongs to, the same wherever and beside whichever others it runs."""
    return zlib.crc32(nodeid.encode()) % 10


def pytest_collection():
    gc.disable()  # until the end of the collection: it makes a million objects, all of which stay


def _rotates(item):
    """Whether a test of draws has numbers of replicas and environments that other pairs of the same test have, too."""
    from replaylab.testing import NUM_ENVS, REPLICAS  # not before the settings above

    numbers = getattr(getattr(item, "callspec", None), "params", {})
    pair = numbers.get("replicas"), numbers.get("num_envs")
    named = getattr(item, "originalname", "") == "test_draws_follow_the_distribution"
    return named and "num_envs" in numbers and pair not in zip(REPLICAS, NUM_ENVS, strict=True)


def pytest_collection_modifyitems(config, items):
    for item in filter(_rotates, items):
        item.add_marker("slow")
    chosen = config.getoption("--slow-tenth")
    if chosen is None:
        return
    left_out = [item for item in items if item.get_closest_marker("slow") and tenth(item.nodeid) != chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@cache
def _gpu():
    import torch  # not for the tests that need none

    return torch.cuda.is_available()


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not _gpu():
        pytest.skip("needs a GPU, but PyTorch finds none (torch.cuda.is_available() is False)")


def _fail_unlisted_skip(report):
    """In continuous integration, turn a skip into a failure unless its reason is listed."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not any(re.match(pattern, reason) for pattern in MAY_BE_SKIPPED_IN_CI):
        report.outcome = "failed"
        report.longrepr = (
            f"Skipped in continuous integration: {reason}\n"
            "Install what the test needs in .ci/run, or add the reason to MAY_BE_SKIPPED_IN_CI in tests/conftest.py."
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _fail_unlisted_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _fail_unlisted_skip((yield))


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # or every later garbage collection would go through all tests and modules again
    gc.enable()
