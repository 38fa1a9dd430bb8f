"""By `sampling_totals` the sampling distributions of several buffers join into one."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.replay import LAP, Prioritized, Sequence, Uniform
from tests.replay.buffers import FLAGS
from tests.replay.guarantees.test_conformance import EVERY, kind_of

PROPORTIONAL = [
    sampler
    for sampler in EVERY
    if (isinstance(sampler, (Prioritized, LAP)) and sampler.has_closed_form)
    or (isinstance(sampler, Uniform) and sampler.replace)
]
OTHERS = [sampler for sampler in EVERY if sampler not in PROPORTIONAL]


def filled(sampler, capacity=13, **options):
    fields = {"x": Field(), **FLAGS}
    buffer = ReplayBuffer(capacity, fields, sampler=sampler, seed=3, **options)
    steps = np.arange(17)
    ids = buffer.extend(x=steps, terminated=steps % 5 == 4, truncated=np.zeros(17, bool))
    buffer.update_priorities(ids, np.abs(np.sin(ids)))
    return buffer


@pytest.mark.parametrize("sampler", PROPORTIONAL, ids=kind_of)
def test_the_distribution_is_a_proportion_of_the_total(sampler):
    buffer = filled(sampler)
    total, least, rows = buffer.sampling_totals()
    distribution = buffer.probabilities(buffer.stored_ids()[0])
    assert rows == 13
    assert distribution.min() * total == pytest.approx(least)
    assert total == pytest.approx(13 if isinstance(sampler, Uniform) else buffer.stats().total_priority)


def test_of_sequences_the_least_is_that_of_a_whole_one():
    buffer = filled(Prioritized(beta=0.4), transforms=[Sequence(3, overlap=0, burn_in=0)])
    total, least, rows = buffer.sampling_totals()
    drawn = buffer.sample(400)
    assert rows == len(np.unique(drawn.id))
    assert drawn.probability.min() * total == pytest.approx(least)


def test_each_replica_has_its_own():
    buffer = ReplayBuffer(5, {"x": Field()}, replicas=2, sampler=Prioritized(alpha=1.0), seed=0)
    ids = buffer.extend(x=np.zeros((2, 3)))
    buffer.update_priorities(ids, priority=[[1.0, 2.0, 3.0], [4.0, 0.0, 1.0]])
    assert [column.tolist() for column in buffer.sampling_totals()] == [[6.0, 5.0], [1.0, 1.0], [3, 3]]


def test_an_empty_buffer_has_none_to_draw():
    assert ReplayBuffer(5, {"x": Field()}, sampler=Prioritized()).sampling_totals() == (0.0, np.inf, 0)


@pytest.mark.parametrize("sampler", OTHERS, ids=kind_of)
def test_other_distributions_have_none(sampler):
    assert filled(sampler).sampling_totals() is None
