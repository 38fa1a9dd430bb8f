"""Mixed replay: shares, the joint distribution, feedback to the right buffers. False alarms: see `chi2.py`."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, FieldError, IdError, PriorityError, ShapeError
from replaylab.replay import (
    Combined,
    Field,
    FrameStack,
    MixedReplay,
    Mixture,
    NStep,
    Online,
    Prioritized,
    Queue,
    Recency,
    ReplayBuffer,
    Uniform,
)
from tests.replay.buffers import cases, refused, transition
from tests.replay.guarantees.chi2 import assert_distribution

FIELDS = {"x": Field((), np.int64), "obs": {"a": Field((2,)), "b": (Field((), np.uint8),)}}


def buffer(steps, sampler=None, capacity=30, replicas=None, start=0, fields=FIELDS, seed=0):
    filled = ReplayBuffer(capacity, fields, sampler=sampler, replicas=replicas, seed=seed)
    lead = (steps,) if replicas is None else (replicas, steps)
    x = np.broadcast_to(start + np.arange(steps), lead)
    obs = {"a": np.zeros((*lead, 2), np.float32), "b": (np.full(lead, start, np.uint8),)}
    if steps:
        filled.extend(x=x, **({"obs": obs} if "obs" in fields else {}))
    return filled


@pytest.mark.parametrize("replicas", [None, 1, 3])
@pytest.mark.parametrize("shares", [None, (1, 3), (0.5, 0.1)])
def test_rows_follow_the_joint_distribution(shares, replicas):
    """With a prioritized and a wrapped buffer, distinguished by the source."""
    parts = buffer(20, Prioritized(beta=0.4), replicas=replicas), buffer(70, replicas=replicas, start=100, seed=1)
    mixed = MixedReplay(parts, shares)
    ids = np.concatenate([np.arange(20), np.arange(40, 70)])
    source = np.repeat([0, 1], [20, 30])
    if replicas:
        ids, source = np.tile(ids, (replicas, 1)), np.tile(source, (replicas, 1))
    of_source = np.where(source == 0, ids, -1)
    parts[0].update_priorities(of_source, priority=np.random.default_rng(0).random(ids.shape))
    distribution = mixed.probabilities(source, ids, batch_size=8).reshape(replicas or 1, -1)
    np.testing.assert_allclose(distribution.sum(axis=1), 1.0, rtol=1e-12)
    counts = np.zeros(distribution.shape, np.int64)
    for _ in range(500):
        batch = mixed.sample(8)
        place = np.where(batch.source == 0, batch.id, batch.id - 20).reshape(replicas or 1, -1)
        probability = batch.probability.reshape(replicas or 1, -1)
        for r in range(replicas or 1):
            counts[r] += np.bincount(place[r], minlength=50)
            np.testing.assert_allclose(probability[r], distribution[r, place[r]], rtol=1e-12)
    for r in range(replicas or 1):
        assert_distribution(counts[r], distribution[r])


@pytest.mark.parametrize(
    "samplers",
    [
        (Combined(), Online()),
        (Combined(mode="replace"), Queue()),
        (Recency(least=4), Mixture((Online(), Combined()), (1, 2))),
    ],
    ids=str,
)
def test_the_distribution_counts_the_rows_that_samplers_give(samplers):
    mixed = MixedReplay([buffer(20, sampler) for sampler in samplers], (0.4, 0.6))
    source, ids = np.repeat([0, 1], 20), np.tile(np.arange(20), 2)
    distribution = mixed.probabilities(source, ids, batch_size=10, progress=0.5)
    assert distribution.sum() == pytest.approx(1.0, rel=1e-12)
    batch = mixed.sample(10, progress=0.5)
    np.testing.assert_allclose(batch.probability, distribution[batch.source * 20 + batch.id], rtol=1e-12)


class TestTheBatch:
    @pytest.mark.parametrize("replicas", [None, 2])
    def test_rows_are_the_buffers_own(self, replicas):
        mixed = MixedReplay([buffer(20, replicas=replicas, start=start) for start in (0, 100, 200)], (2, 1, 1))
        batch = mixed.sample(8)
        lead = (8,) if replicas is None else (replicas, 8)
        assert batch.x.shape == batch.source.shape == batch.weight.shape == lead
        assert batch.obs["a"].shape == (*lead, 2)
        assert np.array_equal(batch.source, np.broadcast_to([0, 0, 0, 0, 1, 1, 2, 2], lead))
        np.testing.assert_array_equal(batch.x, batch.source * 100 + batch.id)
        np.testing.assert_array_equal(batch.obs["b"][0], batch.source * 100)
        assert batch.source.dtype == np.int64
        assert batch.obs["b"][0].dtype == np.uint8

    def test_shares_are_rounded_so_that_all_rows_are_given(self):
        for shares in ((1, 1, 1), (0.7, 0.2, 0.1), (1e-9, 1, 1)):
            mixed = MixedReplay([buffer(20) for _ in shares], shares)
            for batch_size in range(1, 40):
                counts = np.bincount(mixed.sample(batch_size).source, minlength=3)
                assert counts.sum() == batch_size
                assert (np.abs(counts - np.array(mixed.shares) * batch_size) <= 1).all()

    def test_weights_are_the_buffers_own(self):
        parts = buffer(2, Prioritized(alpha=1.0, beta=1.0)), buffer(2)
        parts[0].update_priorities([0, 1], priority=[1.0, 4.0])
        batch = MixedReplay(parts).sample(32)
        np.testing.assert_allclose(batch.weight, np.where((batch.source == 0) & (batch.id == 1), 0.25, 1.0))

    def test_progress_reaches_every_buffer(self):
        mixed = MixedReplay((buffer(20, Prioritized()), buffer(20)))
        with pytest.raises(ConfigError, match="`progress` must be in"):
            mixed.sample(4, progress=1.5)
        assert mixed.sample(4, progress=0.5).x.shape == (4,)


class TestFeedback:
    def mixed(self, replicas=None):
        sampler = Prioritized(alpha=1.0, beta=0.0)
        return MixedReplay([buffer(4, sampler, capacity=4, replicas=replicas, seed=seed) for seed in (0, 1)])

    @pytest.mark.parametrize("replicas", [None, 3])
    def test_reaches_the_rows_buffer(self, replicas):
        mixed, rng = self.mixed(replicas), np.random.default_rng(0)
        lead = (1,) if replicas is None else (replicas,)
        priority = np.ones((2, *lead, 4))
        for _ in range(10):
            batch = mixed.sample(6)
            td_error = rng.normal(size=batch.id.shape)
            assert mixed.update_priorities(batch, td_error) == batch.id.size
            for r, k in np.ndindex(lead[0], 6):
                at = k if replicas is None else (r, k)
                priority[batch.source[at], r, batch.id[at]] = abs(td_error[at]) + 1e-6
        for j, part in enumerate(mixed.buffers):
            ids = np.tile(np.arange(4), lead)[..., :4] if replicas is None else np.tile(np.arange(4), (replicas, 1))
            wanted = priority[j] / priority[j].sum(axis=1, keepdims=True)
            np.testing.assert_allclose(part.probabilities(ids).reshape(wanted.shape), wanted, rtol=1e-6)

    def test_of_dropped_steps_changes_nothing(self):
        mixed = self.mixed()
        batch = mixed.sample(8)
        mixed.buffers[1].extend(x=np.arange(4), obs={"a": np.zeros((4, 2)), "b": (np.zeros(4, np.uint8),)})
        assert mixed.update_priorities(batch, priority=np.full(8, 9.0)) == 4
        np.testing.assert_allclose(mixed.buffers[1].probabilities(np.arange(4, 8)), 0.25)

    def test_a_wrong_value_changes_no_buffer(self):
        mixed = self.mixed()
        with pytest.raises(PriorityError, match="td_error must be finite"):
            mixed.update_priorities({"source": [0, 1], "id": [2, 2]}, [5.0, np.nan])
        for part in mixed.buffers:
            np.testing.assert_allclose(part.probabilities(np.arange(4)), 0.25)

    @pytest.mark.parametrize("unknown", [4, -2])
    @pytest.mark.parametrize("place", [0, 1])
    @pytest.mark.parametrize("replicas", [None, 3])
    def test_an_unknown_id_changes_no_buffer(self, replicas, place, unknown):
        mixed = self.mixed(replicas)
        lead = () if replicas is None else (replicas,)
        ids = np.full((*lead, 2), 3)
        ids[..., place].flat[-1] = unknown
        source = np.broadcast_to([0, 1], ids.shape)
        with pytest.raises(IdError, match=f"id {unknown} was never given out: ids so far are 0 to 3"):
            mixed.update_priorities({"source": source, "id": ids}, priority=np.full(ids.shape, 9.0))
        for part in mixed.buffers:
            np.testing.assert_allclose(part.probabilities(np.broadcast_to(np.arange(4), (*lead, 4))), 0.25)

    @pytest.mark.parametrize("ids", [[0, 0], [[0], [0]], 0, np.zeros((3, 0), int)])
    def test_of_a_shape_without_replicas(self, ids):
        mixed, feedback = self.mixed(3), {"source": np.zeros_like(ids), "id": ids}
        if np.shape(ids)[:1] == (3,):
            assert mixed.update_priorities(feedback, np.zeros(np.shape(ids))) == 0
        else:
            with pytest.raises(ShapeError):
                mixed.update_priorities(feedback, np.zeros(np.shape(ids)))


def of_transforms(transforms):
    parts = [ReplayBuffer(3, transition(), transforms=transform) for transform in transforms]
    for part in parts:
        part.add(obs=0, reward=0, next_obs=0, terminated=False, truncated=False)
    return lambda: MixedReplay(parts).sample(4)


def of_stacks():
    fields = {name: {"a": (Field((3,)),)} for name in ("obs", "next_obs")}
    parts = [ReplayBuffer(3, fields, transforms=[FrameStack(k)], episodes="manual") for k in (2, 4)]
    for part in parts:
        part.add(obs={"a": (np.zeros(3),)}, next_obs={"a": (np.zeros(3),)})
    MixedReplay(parts).sample(4)


def two(shares=None, **more):
    return MixedReplay([buffer(3), buffer(3, **more)], shares)


ROW = {"source": [2], "id": [0]}
REFUSED = [
    (ConfigError, "`buffers` must hold two or more ReplayBuffers", lambda: MixedReplay([buffer(3)])),
    *(
        (ConfigError, f"`shares` must be one positive number for each of the 2 ... {s}", lambda s=s: two(s))
        for s in ((1,), (1, 0), (1, -1), (1, float("nan")), (1, float("inf")), 0.5, ("a", "b"))
    ),
    (ConfigError, "`shares` must be numbers whose sum is finite ... 1e+308", lambda: two((1e308, 1e308))),
    (FieldError, "same fields, but buffer 0 has", lambda: two(fields={"x": Field((), np.int64)})),
    (FieldError, "column `source` itself", lambda: MixedReplay([ReplayBuffer(3, {"source": Field()}) for _ in "ab"])),
    (ConfigError, "same `replicas`, but buffer 0 has None and buffer 1 has 2", lambda: two(replicas=2)),
    (FieldError, "same columns ... use equal transforms", of_transforms([(), (NStep(),)])),
    (FieldError, "the column `obs.a.0` has another shape ... use equal transforms", of_stacks),
    (IdError, "`source` must be 0 to 1, the buffers' places", lambda: two().update_priorities(ROW, [1.0])),
    (ShapeError, "one shape, but got (1,) and (2,)", lambda: two().probabilities([0], [0, 1], batch_size=2)),
    *(
        (
            FieldError,
            "`batch` must hold the columns `source` and `id`",
            lambda batch=batch: two().update_priorities(batch, [1]),
        )
        for batch in ([0], {"id": [0]})
    ),
]


@pytest.mark.parametrize(("error", "words", "call"), cases(REFUSED))
def test_what_cannot_be_mixed(error, words, call):
    refused(error, words, call)


class TestTooLittle:
    def test_an_empty_buffer_draws_nothing_from_the_others(self):
        mixed, twin = MixedReplay([buffer(9), buffer(0)]), buffer(9)
        with pytest.raises(EmptyBufferError, match="buffer 1 of the MixedReplay is empty; add at least one step"):
            mixed.sample(4)
        np.testing.assert_array_equal(mixed.buffers[0].sample(4).id, twin.sample(4).id)

    @pytest.mark.parametrize("lacking", [{"sampler": Queue()}, {"min_size": 5}])
    def test_a_buffer_with_too_little_draws_nothing_from_others(self, lacking):
        """A queue gives each row once: those of a draw that fails must come again."""
        fields = {"x": FIELDS["x"]}
        first, second = ReplayBuffer(30, fields, sampler=Queue(), seed=0), ReplayBuffer(30, fields, seed=0, **lacking)
        first.extend(x=np.arange(10))
        second.extend(x=[0])
        mixed = MixedReplay([first, second])
        for _ in range(3):
            with pytest.raises(EmptyBufferError):
                mixed.sample(4)
        second.extend(x=np.zeros(5, int))
        drawn = mixed.sample(4)
        assert drawn.source.tolist() == [0, 0, 1, 1]
        assert drawn.id[:2].tolist() == [0, 1]
        assert first.stats().samples == 2


def test_repr():
    assert repr(MixedReplay([buffer(3), buffer(3)])).startswith("MixedReplay(0.5 of ReplayBuffer(3 of 30 steps")
    assert MixedReplay([buffer(3, Uniform()), buffer(3)], (1, 3)).shares == (0.25, 0.75)


def test_a_queue_gives_nothing_where_another_buffer_refuses():
    queue, prioritized = buffer(6, Queue()), buffer(6, Prioritized())
    for mixed in (MixedReplay((queue, prioritized)), MixedReplay((prioritized, queue))):
        with pytest.raises(ConfigError, match="progress"):
            mixed.sample(4, progress=1.5)
    further, other = (
        ReplayBuffer(9, transition(), sampler=Queue(), transforms=transforms) for transforms in ((), [NStep(2)])
    )
    for part in (further, other):
        part.extend(**{name: np.zeros(6, field.dtype) for name, field in transition().items()})
    with pytest.raises(FieldError, match="use equal transforms"):
        MixedReplay((further, other)).sample(4)
    assert [part.sample(2).id.tolist() for part in (queue, further, other)] == [[0, 1]] * 3
