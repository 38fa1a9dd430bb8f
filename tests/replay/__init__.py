"""Tests of `replaylab.replay`."""
