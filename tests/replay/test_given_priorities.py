"""`update_priorities(ids, priority=...)`: only where a priority decides something; one number stands for all ids."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, PriorityError
from replaylab.replay import CustomSampler, MixedReplay, Priorities, Prioritized, Queue, ShuffledEpochs, Uniform
from tests.replay.buffers import filled
from tests.replay.guarantees.test_conformance import EVERY, kind_of

WITHOUT = [sampler for sampler in EVERY if not sampler.takes_priorities]
WITH = [sampler for sampler in EVERY if sampler.takes_priorities and sampler.has_closed_form]


class Watching(CustomSampler):
    def distribution(self, view, batch_size):
        return view.priorities / view.priorities.sum()


def make(sampler):
    return filled(sampler, 10, 5)


@pytest.mark.parametrize("sampler", WITHOUT, ids=kind_of)
def test_samplers_without_priorities_refuse_them(sampler):
    buffer = make(sampler)
    with pytest.raises(ConfigError, match=r"sampler=Prioritized\(\), or pass `td_error`"):
        buffer.update_priorities([0, 1, 2], priority=np.zeros(3))
    assert buffer.update_priorities([0, 1, 7, -1][:2], [1.0, -2.0]) == 2


@pytest.mark.parametrize("sampler", [Uniform(), ShuffledEpochs()], ids=repr)
def test_so_do_priorities_without_rows(sampler):
    priorities = Priorities(10, sampler=sampler)
    priorities.extend(5)
    with pytest.raises(ConfigError, match="uses priorities"):
        priorities.update_priorities([0], priority=[0.0])
    assert priorities.update_priorities([0], [0.0]) == 1


@pytest.mark.parametrize("sampler", WITH, ids=kind_of)
def test_one_number_is_the_priority_of_all_ids(sampler):
    buffer, other = make(sampler), make(sampler)
    for number in (0.25, np.float32(3.0), np.array(2)):
        assert buffer.update_priorities([[0, 1], [3, 3]], priority=number) == 4
        other.update_priorities([0, 1, 3], priority=np.full(3, float(number)))
        distribution = buffer.probabilities(np.arange(5), batch_size=8, progress=0.5)
        np.testing.assert_array_equal(distribution, other.probabilities(np.arange(5), batch_size=8, progress=0.5))
    with pytest.raises(PriorityError):
        buffer.update_priorities([0, 1], priority=-1.0)


def test_a_custom_sampler_and_a_rowless_replay_take_one_number():
    buffer = make(Watching())
    buffer.update_priorities([0, 1, 2], priority=0)
    np.testing.assert_array_equal(buffer.probabilities(np.arange(5), batch_size=8, progress=0.5), [0, 0, 0, 0.5, 0.5])
    priorities = Priorities(10, sampler=Prioritized(beta=0.4))
    assert priorities.update_priorities(priorities.extend(5)[:3], priority=0) == 3
    np.testing.assert_allclose(priorities.probabilities(np.arange(5)), [0, 0, 0, 0.5, 0.5])


def test_of_several_buffers_those_with_priorities_take_them():
    mixed = MixedReplay((make(Uniform()), make(Prioritized(beta=0.4))))
    rows = {"source": np.array([0, 1, 1]), "id": np.array([0, 0, 1])}
    assert mixed.update_priorities(rows, priority=0.0) == 3
    np.testing.assert_allclose(mixed.buffers[1].probabilities(np.arange(5)), [0, 0, 1 / 3, 1 / 3, 1 / 3])
    with pytest.raises(ConfigError, match="MixedReplay"):
        MixedReplay((make(Uniform()), make(Queue()))).update_priorities(rows, priority=0.0)
