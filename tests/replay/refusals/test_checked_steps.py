"""Steps that are only checked, as those of a `RemoteReplay`: what `extend` would raise, and nothing is stored."""

import numpy as np
import pytest

from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.replay import ReplayBuffer
from tests.replay.refusals.test_bad_input import make, state, step


class TestStepsThatAreOnlyChecked:
    WHERE = np.array([[True, False], [True, True], [True, True]])
    BAD = (
        {"reward": np.zeros(5, np.float32)},
        {"action": np.ones((3, 2))},
        {"reward": np.array([[0, 1e39], [5, 5], [5, 5]])},
        {"reward": None},
        {"where": np.ones(4, bool)},
        {"where": np.ones((3, 2))},
        {"final_obs": np.zeros((3, 2, 2, 2))},
    )

    @pytest.mark.parametrize("bad", BAD, ids=lambda bad: next(iter(bad)))
    def test_raise_what_extend_raises(self, bad):
        steps = {name: value for name, value in (step((3, 2)) | bad).items() if value is not None}
        messages = []
        for method in (ReplayBuffer.extend, ReplayBuffer._check_steps):
            with pytest.raises((FieldError, ShapeError, DtypeError)) as caught:
                method(make(num_envs=2), **steps)
            messages.append((type(caught.value), str(caught.value)))
        assert messages[0] == messages[1]

    @pytest.mark.parametrize("where", [None, WHERE, WHERE.tolist()], ids=["all", "array", "list"])
    def test_leave_no_trace(self, where):
        buffer, twin = make(num_envs=2), make(num_envs=2)
        assert buffer._check_steps(**step((3, 2)), where=where) is None
        assert state(buffer) == state(twin)
        np.testing.assert_array_equal(buffer.extend(**step((2, 2))), twin.extend(**step((2, 2))))
        np.testing.assert_array_equal(buffer.sample(4, progress=0.5).id, twin.sample(4, progress=0.5).id)
