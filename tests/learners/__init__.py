"""Tests of `replaylab.learners`."""
