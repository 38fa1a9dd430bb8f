"""Fixtures of tests in several folders."""

import pytest

from tests.study import tiny


@pytest.fixture
def undrawn():
    """Reports have empty figures: words, tables and numbers are looked at, and drawing is most of the work."""
    with tiny.undrawn():
        yield


@pytest.fixture
def no_sections():
    """Reports are a summary, contrasts and methods."""
    with tiny.sections():
        yield
