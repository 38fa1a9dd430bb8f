"""Guarantee 2: every sampler draws from exactly the distribution `probabilities` states. False alarms: see `chi2.py`.

Here stand the extremes: buffers of one step and of a million. Every sampler in every state, with replicas and
environments, stands in `test_conformance.py`.
"""

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Online, Prioritized, ReplayBuffer, SlidingWindow, Uniform
from replaylab.research import Blocks
from tests.replay.guarantees.chi2 import ALARM, assert_distribution, p_value
from tests.replay.guarantees.test_conformance import SAMPLERS as EVERY_SAMPLER

MILLION = 1_048_577
SAMPLERS = {
    "online": Online(),
    "sliding window": SlidingWindow(),
    "uniform": Uniform(),
    "combined plus": Combined(),
    "combined replace": Combined(mode="replace"),
    "prioritized": Prioritized(alpha=0.6, beta=0.4),
    "prioritized alpha 1": Prioritized(alpha=1.0, beta=1.0),
}


def fill(capacity, steps, sampler, chunk=500_000):
    """Make a buffer of `steps` steps with, if it takes them, priorities with many zeros among them."""
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=sampler, seed=20240607)
    for start in range(0, steps, chunk):
        buffer.extend(x=np.arange(start, min(start + chunk, steps)))
    ids = np.arange(max(0, steps - capacity), steps)
    if isinstance(sampler, Prioritized):
        rng = np.random.default_rng(5)
        priority = rng.gamma(0.5, size=ids.shape) * (rng.random(ids.shape) < 0.8)
        priority[-1] = 2.0  # never all zero
        buffer.update_priorities(ids, priority=priority)
    return buffer, ids


def count_draws(buffer, ids, batch_size, batches):
    """Return the count of each stored id (N,) over many batches, and its probability (N,)."""
    drawn = np.concatenate([buffer.sample(batch_size, progress=0.5).id for _ in range(batches)]) - ids[0]
    assert drawn.min() >= 0
    return np.bincount(drawn, minlength=len(ids)), buffer.probabilities(ids, batch_size=batch_size)


@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize(
    "sampler",
    [sampler for sampler in EVERY_SAMPLER if sampler != Combined(distinct=True)],  # which draws two different steps
    ids=lambda sampler: type(sampler).__name__,
)
def test_the_only_step_is_certain(sampler, capacity, replicas):
    """Before the ring has wrapped and, in a ring of one, after."""
    fields = {"x": Field()} | {name: Field((), bool) for name in sampler.end_fields}
    buffer = ReplayBuffer(capacity, fields, replicas=replicas, sampler=sampler, seed=0)
    rows = 4 if isinstance(sampler, Blocks) else 1
    for step in range(1 if capacity > 1 else 4):
        buffer.add(**dict.fromkeys(fields, False if replicas is None else np.zeros(replicas, bool)))
        batch = buffer.sample(rows, progress=0.5)
        assert (batch.id == step).all()
        if sampler.has_closed_form:
            assert (batch.probability == 1).all()
            assert (buffer.probabilities(batch.id, batch_size=rows, progress=0.5) == 1).all()


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(
    "steps",
    [pytest.param(steps, marks=pytest.mark.slow) for steps in (1, MILLION - 1, MILLION)] + [int(1.5 * MILLION)],
)
def test_a_million_slots(name, steps):
    """Smaller rings, in which every state is tried, are in `test_conformance.py`."""
    buffer, ids = fill(MILLION, steps, SAMPLERS[name])
    assert_distribution(*count_draws(buffer, ids, min(250_000, len(ids)), batches=2))


class TestTheTestCanFail:
    """A wrong sampling distribution is rejected by the same comparison."""

    def test_wrong_exponent(self):
        buffer, ids = fill(1000, 3500, Prioritized(alpha=0.6, beta=0.4))
        other, _ = fill(1000, 3500, Prioritized(alpha=0.7, beta=0.4))
        counts, _ = count_draws(buffer, ids, 32, 2000)
        distribution = other.probabilities(ids)
        assert p_value(counts, distribution) < ALARM

    def test_off_by_one_slot(self):
        buffer, ids = fill(1000, 1000, Prioritized(alpha=0.6, beta=0.4))
        counts, distribution = count_draws(buffer, ids, 32, 2000)
        shifted = np.roll(distribution, 1)
        positive = shifted > 0
        assert p_value(counts[positive], shifted[positive] / shifted[positive].sum()) < ALARM

    def test_empty_slots_drawn(self):
        counts, distribution = np.array([3, 1]), np.array([1.0, 0.0])
        with pytest.raises(AssertionError, match="probability zero"):
            p_value(counts, distribution)
