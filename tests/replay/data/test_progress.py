"""Training progress and schedules stay within their bounds."""

import pickle

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.errors import ConfigError
from replaylab.replay import Exponential, Linear, Prioritized, Progress

INVALID = [(0.2, -30), (0.2, 1.5), (0.2, None), (0.2, True), (-0.1, 3), (1.1, 3), (np.nan, 3), ("x", 3)]


@pytest.mark.parametrize(("share", "steps"), INVALID, ids=str)
def test_invalid_progress_is_refused(share, steps):
    with pytest.raises(ConfigError, match="of Progress must be"):
        Progress(share, steps)


@pytest.mark.parametrize("steps", [-1, 0.5, "x"])
def test_invalid_steps_of_replicas_are_refused(steps):
    with pytest.raises(ConfigError, match="`steps` of Progress must be"):
        Progress.of_each(np.array([0.1, 0.2]), steps)


def test_numbers_of_numpy_are_accepted():
    progress = Progress(np.float64(0.25), np.int64(7))
    assert (float(progress), progress.steps) == (0.25, 7)
    again = pickle.loads(pickle.dumps(progress))
    assert (again, again.steps) == (0.25, 7)
    assert (Progress(0, 0), Progress(1, 10**9)) == (0.0, 1.0)


class Counted(float):
    """Progress of another library, with any number of steps."""

    steps = -30


@pytest.mark.parametrize("schedule", [Linear(0.4, 1.0, steps=10), Exponential(0.4, 1.0, steps=10), Linear(0.4, 1.0)])
def test_schedules_stay_within_their_bounds(schedule):
    moments = [Counted(0.0), Counted(-2.0), 0.0, -0.5, Progress(1.0, 10**9), *([2.0] if schedule.steps is None else [])]
    least, most = schedule.bounds
    for moment in moments:
        assert least <= schedule(moment) <= most


def test_weights_do_not_exceed_those_of_the_first_beta():
    buffer = ReplayBuffer(9, {"x": Field()}, sampler=Prioritized(beta=Linear(0.4, 1.0, steps=10)), seed=0)
    buffer.update_priorities(buffer.extend(x=range(9)), np.arange(9) + 1.0)
    assert (buffer.sample(32, progress=Counted(0.2)).weight <= 1.0).all()
