"""Random calls of buffers and their oracle; `make fuzz` makes fifty times as many."""

from . import calls


def test_random_calls_agree_with_the_oracle():
    assert calls.run(2_000, seed=0) == 34
