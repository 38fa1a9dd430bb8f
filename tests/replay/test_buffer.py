"""The class `ReplayBuffer` itself."""

import inspect
import sys

import numpy as np
import pytest

from replaylab.replay import Field, Oracle, Prioritized, ReplayBuffer, Uniform


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), Oracle(np.negative)], ids=repr)
def test_a_draw_enters_the_file_of_the_buffer_once(sampler):
    buffer = ReplayBuffer(10, {"x": Field()}, sampler=sampler, seed=0)
    buffer.extend(x=np.arange(10.0))
    entered = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename == inspect.getsourcefile(ReplayBuffer):
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        buffer.sample(4)
    finally:
        sys.setprofile(None)
    assert entered == ["sample"]
