"""Guarantee 5: rows drawn never exceed what the limiter allows for the steps stored, whatever the order of calls."""

from threading import Thread

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from replaylab.distributed.replay import Limiter
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import Uniform
from tests.distributed.replay.conftest import load, replay, steps
from tests.distributed.replay.in_process import InProcess

CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30)),
        st.tuples(st.just("sample"), st.integers(1, 60)),
        st.tuples(st.just("kill"), st.integers(0, 2)),
        st.tuples(st.just("save"), st.just(0)),
    ),
    max_size=16,
)


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example([("kill", 1), ("sample", 39), ("kill", 1), ("add", 6)], 1.0, 7.0, 0)  # twice before a writer comes to it
@given(CALLS, st.sampled_from([0.3, 1.0, 4.0]), st.sampled_from([0.0, 7.0]), st.integers(0, 3))
def test_the_bound_is_kept_under_random_schedules(tmp_path_factory, calls, ratio, slack, prefetch):
    folder = tmp_path_factory.mktemp("limiter")
    limiter = Limiter(ratio, slack, timeout=0.01)
    options = {"shards": 3, "limiter": limiter, "sampler": Uniform(), "prefetch": prefetch}
    made, transport = replay(100, **options)
    added = got = 0
    for call, number in calls:
        if call == "add":
            made.extend(**steps(0, number))
            added += number
        elif call == "kill":
            if shard := transport.shard(number):
                shard.die()
        elif call == "save":
            made.stats(), made.tend()  # the shards that are lost come back
            made.save(folder)
            transport = InProcess()
            made = load(folder, limiter=limiter, prefetch=prefetch, transport=transport, shards=3)
        else:
            try:
                got += len(made.sample(number).id)
            except EmptyBufferError:
                assert made._draws.drawn + number > limiter.allowed(added) or not len(made)
        assert got <= made._draws.drawn <= limiter.allowed(added)
        assert made._pool.inserted <= added


def test_a_draw_waits_until_writers_have_stored_enough():
    made, _ = replay(limiter=Limiter(2.0, timeout=0.05), sampler=Uniform())
    made.extend(**steps(0, 10))
    assert len(made.sample(20).id) == 20
    with pytest.raises(EmptyBufferError, match=r"allows 20 rows for the 10 steps .* 20 are drawn and 2 more asked for"):
        made.sample(2)
    made.extend(**steps(0, 1))
    made.sample(2)


def test_another_thread_stores_while_a_draw_waits():
    made, _ = replay(limiter=Limiter(1.0, timeout=20.0), sampler=Uniform())
    drawn = []
    thread = Thread(target=lambda: drawn.append(made.sample(5)))
    thread.start()
    made.extend(**steps(0, 5))
    thread.join(20.0)
    assert len(drawn[0].id) == 5


def test_what_a_lost_shard_had_stored_still_counts():
    made, transport = replay(limiter=Limiter(1.0, timeout=0.05), sampler=Uniform(), shards=2)
    made.extend(**steps(0, 40))
    transport.shard(0).die()
    for _ in range(4):
        made.sample(10)
    assert made.stats().added == 40
    assert made.stats().lost_steps == 20


def test_batches_on_their_way_count():
    made, _ = replay(limiter=Limiter(1.0), sampler=Uniform(), prefetch=3)
    made.extend(**steps(0, 25))
    made.sample(10)
    assert made._draws.drawn == 20
    made.sample(5)  # another batch size: those on their way are left
    assert made._draws.drawn <= 25


def test_no_deadlock_after_restoring(tmp_path):
    """Draws under a looser limiter do not block a stricter one."""
    made, _ = replay(limiter=Limiter(100.0), sampler=Uniform())
    made.extend(**steps(0, 10))
    made.sample(1000)
    made.save(tmp_path)
    for shards in (2, 3):
        loaded = load(tmp_path, shards=shards, limiter=Limiter(1.0, timeout=0.05))
        assert loaded.stats().added == 10
        loaded.extend(**steps(0, 5))
        assert len(loaded.sample(5).id) == 5


@pytest.mark.parametrize(
    "options", [{"samples_per_insert": 0}, {"samples_per_insert": -1}, {"slack": -1}, {"timeout": 0}]
)
def test_a_limiter_that_can_never_be_met(options):
    with pytest.raises(ConfigError, match="of Limiter must be"):
        Limiter(**{"samples_per_insert": 1.0} | options)


def test_batches_that_are_left_on_their_way_stay_counted():
    """The shards draw them, whether anybody takes them or not."""
    made, _ = replay(100, shards=2, limiter=Limiter(1.0, timeout=0.05), sampler=Uniform(), prefetch=3)
    made.extend(**steps(0, 40))
    counted = []
    for number in (4, 5, 4, 5, 4, 5):
        try:
            made.sample(number)
        except EmptyBufferError:
            break
        counted.append(made.stats().samples)
    assert counted == sorted(counted)
    assert sum(shard.drawn for shard in made.stats().shards) <= 40


def test_a_batch_that_can_never_be_drawn():
    with pytest.raises(ConfigError, match="`min_size` must be at most the capacity, or nothing could ever be drawn"):
        replay(100, min_size=101)
    assert np.isnan(replay()[0].stats().samples_per_insert)
