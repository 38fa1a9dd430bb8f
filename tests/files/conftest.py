"""Fixtures of several files."""

import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_brought_to_disk():
    """No test cuts the power, and waiting for the disk is what most saves take their time for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
