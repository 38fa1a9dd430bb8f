"""Tests of replaylab; the folders mirror `src/replaylab/`, and `oracle/` holds the slow plain truth."""
