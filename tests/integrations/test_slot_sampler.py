"""Feedback by slot belongs to the steps that were drawn, whichever steps the slots hold by now."""

import numpy as np
import pytest

from replaylab.integrations.slot_sampler import KEPT, DrawnSteps


def array(*numbers):
    return np.array(numbers, np.int64)


def known(capacity=8):
    """Steps 0 to 7 in slots 0 to 7."""
    drawn = DrawnSteps(capacity)
    drawn.stored(np.arange(capacity), np.arange(capacity))
    drawn.drew(array(), array())
    return drawn


def ids(drawn, *slots):
    return drawn.ids_of(array(*slots)).tolist()


class TestDrawn:
    def test_stored_steps(self):
        assert ids(known(), 3, 1, -1) == [3, 1, -1]

    def test_overwritten_since(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.stored(array(2), array(8))
        assert ids(drawn, 2, 5) == [2, 5]
        assert ids(drawn, 5, 2) == [5, 2]  # in another order, slot by slot
        assert ids(drawn, 2) == [2]

    def test_first_priorities(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.stored(array(2), array(8))
        assert ids(drawn, 2) == [8]

    def test_first_priorities_come_at_once_or_not_at_all(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.stored(array(2), array(8))
        assert ids(drawn, 5) == [5]
        assert ids(drawn, 2) == [2]

    def test_a_batch_may_be_drawn_ahead_before_first_priorities_come(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.stored(array(2, 3), array(8, 9))
        drawn.drew(array(6, 2), array(6, 8))
        assert ids(drawn, 2, 3) == [8, 9]
        assert ids(drawn, 6, 2) == [6, 8]

    def test_drawn_again_before_the_feedback_came(self):
        """As where batches are drawn ahead: two batches of one slot, which was written to in between."""
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.stored(array(2), array(8))
        drawn.drew(array(2, 6), array(8, 6))
        assert ids(drawn, 2, 5) == [2, 5]
        assert ids(drawn, 2, 6) == [8, 6]

    def test_batches_are_forgotten(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        for _ in range(KEPT):
            drawn.drew(array(2, 6), array(8, 6))
        assert ids(drawn, 2, 5) == [8, 5]

    @pytest.mark.parametrize("batches", [0, 1, 3])
    def test_saved(self, batches):
        drawn, other = known(), DrawnSteps(8)
        for k in range(batches):
            drawn.drew(array(k, 5), array(k, 5))
            drawn.stored(array(k), array(8 + k))
        other.restore(drawn.arrays())
        for k in range(batches):
            assert ids(other, k, 5) == [k, 5]
        assert ids(other, 7) == [7]

    def test_cleared(self):
        drawn = known()
        drawn.drew(array(2, 5), array(2, 5))
        drawn.clear()
        assert ids(drawn, 2, 5) == [-1, -1]


def test_arrays_of_the_caller_are_his_own():
    steps, slots, ids = DrawnSteps(8), np.array([1, 2, 3]), np.array([11, 12, 13])
    steps.drew(slots, ids)
    slots[:], ids[:] = 0, 0
    assert steps.ids_of(np.array([1, 2, 3])).tolist() == [11, 12, 13]


def test_a_batch_may_be_fed_back_in_parts():
    drawn = known()
    drawn.drew(array(3, 1, 2, 0), array(3, 1, 2, 0))
    drawn.stored(array(0, 1, 2, 3), array(8, 9, 10, 11))
    drawn.drew(array(0, 2, 1, 3), array(8, 10, 9, 11))
    assert ids(drawn, 3, 1) == [3, 1]
    assert ids(drawn, 2, 0) == [2, 0]
    assert ids(drawn, 2, 1, 3) == [10, 9, 11]
    assert ids(drawn, 1) == [9]  # as it was drawn last
