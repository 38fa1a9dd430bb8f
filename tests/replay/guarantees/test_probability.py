"""Guarantee 2: every sampler draws from exactly the distribution `probabilities` states. False alarms: see `chi2.py`.

Here stand the extremes: buffers of one step, of five and of a million. Every sampler in every state, with replicas and
environments, stands in `test_conformance.py`.
"""

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Online, Prioritized, ReplayBuffer, SlidingWindow, Uniform
from replaylab.research import Blocks
from tests.replay.guarantees.chi2 import ALARM, assert_distribution, p_value
from tests.replay.guarantees.test_conformance import SAMPLERS as EVERY_SAMPLER

SAMPLERS = {
    "online": Online(),
    "sliding window": SlidingWindow(),
    "uniform": Uniform(),
    "combined plus": Combined(),
    "combined replace": Combined(mode="replace"),
    "prioritized": Prioritized(alpha=0.6, beta=0.4),
    "prioritized alpha 1": Prioritized(alpha=1.0, beta=1.0),
}

STATES = ["one", "one short", "full", "wrapped"]


def steps_added(state, capacity):
    laps = 3.5 if capacity < 1000 else 1.5
    return {"one": 1, "one short": capacity - 1, "full": capacity, "wrapped": int(capacity * laps)}[state]


def fill(capacity, steps, sampler, replicas, chunk=500_000):
    """Make a buffer of `steps` steps with, if it takes them, priorities with many zeros among them."""
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, replicas=replicas, sampler=sampler, seed=20240607)
    lead = () if replicas is None else (replicas,)
    for start in range(0, steps, chunk):
        x = np.arange(start, min(start + chunk, steps))
        buffer.extend(x=np.broadcast_to(x, (*lead, len(x))))
    ids = stored_ids(buffer, steps)
    if isinstance(sampler, Prioritized):
        rng = np.random.default_rng(5)
        priority = rng.gamma(0.5, size=ids.shape) * (rng.random(ids.shape) < 0.8)
        priority[..., -1] = 2.0  # never all zero
        buffer.update_priorities(ids, priority=priority)
    return buffer, ids


def stored_ids(buffer, steps):
    ids = np.arange(max(0, steps - buffer.capacity), steps)
    return ids if buffer.replicas is None else np.tile(ids, (buffer.replicas, 1))


def count_draws(buffer, ids, batch_size, batches):
    """Counts of each stored id (R, N) over many batches, and the sampling distribution's probabilities (R, N)."""
    rows, first = ids.reshape(-1, ids.shape[-1]), ids.flat[0]
    batches_of_ids = [buffer.sample(batch_size, progress=0.5).id for _ in range(batches)]
    drawn = np.reshape(batches_of_ids, (batches, len(rows), -1)) - first
    assert drawn.min() >= 0
    counts = np.stack([np.bincount(drawn[:, r].ravel(), minlength=rows.shape[1]) for r in range(len(rows))])
    return counts, buffer.probabilities(ids, batch_size=batch_size).reshape(rows.shape)


def check(buffer, ids, batch_size, batches):
    counts, distribution = count_draws(buffer, ids, batch_size, batches)
    for r in range(len(counts)):
        assert_distribution(counts[r], distribution[r])


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


MILLIONS = [
    pytest.param(name, state, None, marks=[] if state == "wrapped" else pytest.mark.slow)  # smaller rings have all
    for name in SAMPLERS
    for state in STATES
]
MILLIONS += [(name, "wrapped", 3) for name in ("uniform", "combined plus", "prioritized")]


@pytest.mark.parametrize(("name", "state", "replicas"), MILLIONS)
def test_a_million_slots(name, state, replicas):
    capacity = 1_048_577
    buffer, ids = fill(capacity, steps_added(state, capacity), SAMPLERS[name], replicas)
    batch_size = min(250_000, ids.shape[-1])
    check(buffer, ids, batch_size, batches=2)


class TestTheTestCanFail:
    """A wrong sampling distribution is rejected by the same comparison."""

    def test_wrong_exponent(self):
        buffer, ids = fill(1000, 3500, Prioritized(alpha=0.6, beta=0.4), None)
        other, _ = fill(1000, 3500, Prioritized(alpha=0.7, beta=0.4), None)
        counts, _ = count_draws(buffer, ids, 32, 2000)
        distribution = other.probabilities(ids)
        assert p_value(counts[0], distribution) < ALARM

    def test_off_by_one_slot(self):
        buffer, ids = fill(1000, 1000, Prioritized(alpha=0.6, beta=0.4), None)
        counts, distribution = count_draws(buffer, ids, 32, 2000)
        shifted = np.roll(distribution[0], 1)
        positive = shifted > 0
        assert p_value(counts[0][positive], shifted[positive] / shifted[positive].sum()) < ALARM

    def test_empty_slots_drawn(self):
        counts, distribution = np.array([3, 1]), np.array([1.0, 0.0])
        with pytest.raises(AssertionError, match="probability zero"):
            p_value(counts, distribution)


def test_stratified_draws_scatter_less_than_independent_ones():
    """With B = N equal priorities, a step's count in a batch is 0, 1 or 2 (independent draws reach 6)."""
    buffer = ReplayBuffer(1000, {"x": Field()}, sampler=Prioritized(beta=0.4), seed=3)
    buffer.extend(x=np.zeros(1000, np.float32))
    counts = np.stack([np.bincount(buffer.sample(1000).id, minlength=1000) for _ in range(50)])
    assert counts.max() <= 2
