"""Tests of `replaylab.envs`."""
