"""Fixtures of several files."""

from tests.replay.conftest import _nothing_is_brought_to_disk  # noqa: F401 - a fixture, which every module here uses
