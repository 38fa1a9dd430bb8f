"""The warning about a sampler that depends on feedback and gets none."""

import warnings

import numpy as np
import pytest

from replaylab.replay import (
    LAP,
    CustomSampler,
    Field,
    Greedy,
    Mixture,
    Priorities,
    Prioritized,
    RankBased,
    Recency,
    ReplayBuffer,
    Uniform,
)

ENOUGH = 1000
"""Batches without feedback after which the warning comes."""


class First(CustomSampler):
    """Always the oldest steps; it asks for feedback."""

    wants_feedback = True
    no_closed_form = "it is for this test"

    def draw(self, view, batch_size, rng):
        return view.ids[:batch_size]


def filled(sampler, replicas=None):
    buffer = ReplayBuffer(50, {"x": Field()}, sampler=sampler, replicas=replicas, seed=0)
    rows = np.arange(50.0, dtype=np.float32)
    return buffer, buffer.extend(x=rows if replicas is None else np.stack([rows] * replicas))


def draw(buffer, batches):
    for _ in range(batches):
        buffer.sample(4, progress=0.5)


@pytest.mark.parametrize("sampler", [RankBased(), Prioritized(), LAP(), Greedy(), Mixture((Uniform(), LAP())), First()])
def test_draws_without_feedback_warn_once(sampler):
    buffer, _ = filled(sampler)
    draw(buffer, ENOUGH - 1)
    with pytest.warns(UserWarning, match=f"{type(sampler).__name__} draws by priorities, but 1,000 batches") as raised:
        draw(buffer, 1)
    assert [warning.filename for warning in raised] == [__file__]
    draw(buffer, ENOUGH)


@pytest.mark.parametrize("replicas", [None, 2])
def test_draws_with_feedback_do_not_warn(replicas):
    buffer, ids = filled(RankBased(), replicas)
    draw(buffer, ENOUGH - 1)
    buffer.update_priorities(ids[..., :1], np.ones(ids[..., :1].shape))
    draw(buffer, ENOUGH)


def test_first_priorities_are_feedback():
    buffer, ids = filled(Prioritized())
    buffer.update_priorities(ids, priority=np.arange(1.0, 51.0))
    draw(buffer, ENOUGH)


@pytest.mark.parametrize("sampler", [Uniform(), Recency(), Prioritized(alpha=0.0), RankBased(alpha=0.0)])
def test_samplers_that_need_no_feedback_do_not_warn(sampler):
    draw(filled(sampler)[0], ENOUGH)


@pytest.mark.parametrize("sampler", [Prioritized(), RankBased(), Mixture((Uniform(), RankBased()))])
def test_loaded_priorities_do_not_warn(sampler, tmp_path):
    buffer, ids = filled(sampler)
    buffer.update_priorities(ids[:3], [1.0, 2.0, 3.0])
    buffer.save(tmp_path / "saved")
    draw(ReplayBuffer.load(tmp_path / "saved"), ENOUGH)


def test_priorities_without_rows_warn():
    priorities = Priorities(50, sampler=RankBased(), seed=0)
    priorities.extend(50)
    with pytest.warns(UserWarning, match="RankBased draws by priorities"):
        draw(priorities, ENOUGH)


def test_batches_drawn_ahead_warn():
    buffer, _ = filled(RankBased(beta=0.5))
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        for _ in buffer.batches(4, prefetch=3, total=ENOUGH + 5):
            pass
    assert len(raised) == 1
