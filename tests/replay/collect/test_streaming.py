"""A replay in a data pipeline: its content guarantee, its coverage guarantee, its counters and its state."""

import re
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, FieldError, ShapeError, SnapshotError
from replaylab.replay import (
    Batch,
    Field,
    Hindsight,
    LaBER,
    Linear,
    NStep,
    Prioritized,
    ReplayBuffer,
    ReplayStream,
    ShuffledEpochs,
    Uniform,
)
from replaylab.replay.collect.streaming import fields_of_step
from tests.oracle import flatten
from tests.replay.buffers import Even, transition
from tests.same import same

FIELDS = {"obs": {"image": Field((3, 2), np.uint8), "joints": (Field((2,)),)}, "reward": Field()}


def pipeline(seed, steps=None):
    """Random steps without end, or so many."""
    rng = np.random.default_rng(seed)
    while steps is None or steps > 0:
        yield {
            "obs": {"image": rng.integers(0, 256, (3, 2), np.uint8), "joints": (rng.random(2, np.float32),)},
            "reward": np.float32(rng.random()),
        }
        steps = None if steps is None else steps - 1


def in_lists(steps, lengths):
    """The same steps, some in lists."""
    steps = iter(steps)
    for length in lengths:
        part = list(islice(steps, length))
        yield part[0] if length == 1 else part


def make(capacity=10, sampler=None, **options):
    return ReplayBuffer(capacity, FIELDS, sampler=sampler, seed=5, **options)


def assert_same_batches(batches, two):
    assert same(tuple(map(dict, batches)), tuple(map(dict, two)))


@pytest.mark.parametrize("memory", ["buffer", "capacity"])
@pytest.mark.parametrize("capacity", [1, 7, 10, 64])
class TestContentDistribution:
    """The memory equals the last `capacity` steps of the same pipeline without a memory, slot by slot."""

    @pytest.mark.parametrize("taken", [1, 6, 7, 33, 100])
    def test_after_any_number_of_steps(self, memory, capacity, taken):
        buffer = make(capacity) if memory == "buffer" else capacity
        stream = ReplayStream(pipeline(3), buffer, batch_size=min(4, capacity), warmup=1)
        for _ in islice(stream, taken):
            pass
        assert stream.taken == taken
        self.compare(stream, taken)

    def test_with_lists_among_the_steps(self, memory, capacity):
        buffer = make(capacity) if memory == "buffer" else capacity
        stream = ReplayStream(
            in_lists(pipeline(3), [1, 5, 0, 2, 1, 30, 3]), buffer, batch_size=min(4, capacity), warmup=1
        )
        assert len(list(stream)) == 42
        self.compare(stream, 42)

    def compare(self, stream, taken):
        columns = flatten(stream.buffer.columns)
        newest = list(enumerate(pipeline(3, taken)))[-len(columns["reward",]) :]
        for i, step in newest:
            for path, value in flatten(step).items():
                stored = columns[path][i % len(columns[path])]
                assert stored.dtype == value.dtype
                np.testing.assert_array_equal(stored, value)
        assert stream.size == len(newest)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), ShuffledEpochs()], ids=repr)
def test_coverage_distribution_every_stored_step_can_be_drawn(sampler):
    """20 steps, 400 batches of 8: a uniform draw misses one with a chance of 20·(19/20)^3200 < 1e-69."""
    stream = ReplayStream(pipeline(0, 53), make(20, sampler), batch_size=8)
    for _ in stream:
        pass
    seen = np.concatenate([stream.buffer.sample(8).id for _ in range(400)])
    assert set(seen.tolist()) == set(range(33, 53))


class TestBatches:
    def test_one_for_each_step_once_enough_are_stored(self):
        for warmup, first in ((None, 8), (1, 1), (20, 20)):
            stream = ReplayStream(pipeline(0, 50), make(30), 8, warmup=warmup)
            batches = list(stream)
            assert len(batches) == stream.drawn == 50 - first + 1
            assert all(isinstance(batch, Batch) and batch.reward.shape == (8,) for batch in batches)

    def test_a_list_counts_as_its_steps(self):
        stream = ReplayStream(pipeline(0, 40), make(), 4)
        two = ReplayStream(in_lists(pipeline(0), [1, 9, 30]), make(), 4)
        assert_same_batches(list(stream), list(two))

    def test_they_are_the_buffers_own_draws(self):
        buffer = make()
        expected = []
        for step in pipeline(0, 30):
            buffer.add(**step)
            if len(buffer) >= 4:
                expected.append(buffer.sample(4))
        assert_same_batches(list(ReplayStream(pipeline(0, 30), make(), 4)), expected)

    def test_no_step_is_taken_before_its_batch_is_asked_for(self):
        taken = []
        stream = ReplayStream((taken.append(i) or step for i, step in enumerate(pipeline(0))), make(), 4)
        batches = iter(stream)
        assert taken == []
        for count in (4, 5, 6):
            next(batches)
            assert len(taken) == count

    def test_ids_lead_back_to_the_stream_s_steps(self):
        steps = list(pipeline(0, 30))
        for batch in ReplayStream(steps, make(), 4):
            for i, reward in zip(batch.id, batch.reward, strict=True):
                assert steps[i]["reward"] == reward

    @pytest.mark.parametrize("memory", [2, make(2)], ids=["capacity", "buffer"])
    def test_a_batch_is_no_larger_than_the_memory(self, memory):
        assert len(list(ReplayStream(pipeline(0, 5), memory, 2))) == 4
        message = (
            "`batch_size` must be at most the capacity, or every batch repeats rows, but got (batch_size=3, capacity"
        )
        with pytest.raises(ConfigError, match=re.escape(message)):
            ReplayStream(pipeline(0, 5), memory, 3)

    def test_a_second_pass_keeps_the_memory(self):
        stream = ReplayStream(list(pipeline(0, 12)), make(), 8)
        assert len(list(stream)) == 5
        assert len(list(stream)) == 12
        assert stream.taken == 24

    def test_progress(self):
        sampler = Prioritized(beta=Linear(0.0, 1.0))
        weights = [
            batch.weight
            for batch in ReplayStream(pipeline(0, 11), make(sampler=sampler), 1, progress=lambda drawn: drawn / 10)
        ]
        plain = make(sampler=sampler)
        for i, step in enumerate(pipeline(0, 11)):
            plain.add(**step)
            np.testing.assert_array_equal(plain.sample(1, progress=i / 10).weight, weights[i])

    def test_the_learner_feeds_back_to_the_buffer_it_was_handed(self):
        stream = ReplayStream(pipeline(0, 40), make(10, Prioritized(alpha=1.0, beta=1.0)), 4)
        buffer = stream.buffer
        for batch in stream:
            assert buffer.update_priorities(batch.id, priority=np.full(4, 2.0 + stream.taken)) == 4
        distribution = buffer.probabilities(np.arange(30, 40))
        assert distribution.max() > distribution.min()

    def test_transforms_environments_and_replicas(self):
        fields = transition()
        buffer = ReplayBuffer(10, fields, num_envs=2, replicas=3, transforms=[NStep(3)], seed=0)
        step = {name: np.ones((3, 2), field.dtype) for name, field in fields.items()}
        batches = list(ReplayStream([step] * 7, buffer, 4))
        assert len(batches) == 6  # each step stores two in each replica
        assert batches[0].discount.shape == (3, 4)


class Step(NamedTuple):
    obs: object
    reward: float


@dataclass
class Record:
    obs: object
    reward: float


class TestFormsOfSteps:
    STEPS = tuple({"obs": np.full(2, i, np.float32), "reward": float(i)} for i in range(9))

    @pytest.mark.parametrize(
        ("form", "options"),
        [
            (lambda step: Step(**step), {}),
            (lambda step: Record(**step), {}),
            (lambda step: tuple(step.values()), {"names": ("obs", "reward")}),
            (lambda step: (step["reward"], step["obs"]), {"names": ["reward", "obs"]}),
        ],
        ids=["NamedTuple", "dataclass", "tuple", "tuple in another order"],
    )
    @pytest.mark.parametrize("together", [False, True], ids=["one by one", "in tuples"])
    def test_named_tuples_dataclasses_and_tuples(self, form, options, together):
        steps = [form(step) for step in self.STEPS]
        source = [tuple(steps[i : i + 2]) for i in range(0, 8, 2)] + steps[8:] if together else steps
        assert_same_batches(
            list(ReplayStream(source, 5, 3, seed=1, **options)), list(ReplayStream(self.STEPS, 5, 3, seed=1))
        )

    def test_a_buffer_says_what_a_tuple_is(self):
        stream = ReplayStream([], ReplayBuffer(9, {"obs": Field((2,)), "reward": Field()}), 1)
        assert stream.push((np.ones(2), 3.0)).reward == 3.0
        assert stream.push(Step(np.ones(2), 3.0)).obs.shape == (1, 2)

    def test_what_is_none_of_them(self):
        for stream in (ReplayStream([(1.0, 2.0)], 5, 1), ReplayStream([(1.0, 2.0)], 5, 1, names=("x", "y", "z"))):
            with pytest.raises(FieldError, match=r"or tuples where `names` says .* but gave \(1\.0, 2\.0\)"):
                next(iter(stream))
        with pytest.raises(FieldError, match="`push` takes one step"):
            ReplayStream([], 5, 1).push([{"x": 1.0}, {"x": 2.0}])


class TestSampling:
    def test_a_sampler_for_a_capacity(self):
        stream = ReplayStream(pipeline(0, 9), 5, 5, sampler=Uniform(replace=False))
        assert all(len(set(batch.id)) == 5 for batch in stream)
        with pytest.raises(ConfigError, match="`sampler` is for a buffer made here"):
            ReplayStream(pipeline(0, 9), make(), 5, sampler=Uniform())

    def test_more_draws_take_no_step(self):
        stream = ReplayStream(pipeline(0), make(10, Prioritized(beta=Linear(0.4, 1.0))), 4, progress=lambda _: 0.1)
        assert len(stream) == 0
        next(iter(stream))
        assert stream.sample().reward.shape == (4,)
        assert stream.sample(7).reward.shape == (7,)
        assert (len(stream), stream.taken, stream.drawn) == (4, 4, 1)

    def test_before_the_first_step(self):
        with pytest.raises(EmptyBufferError, match="take a batch first"):
            ReplayStream(pipeline(0), 10, 4).sample()


class TestCounters:
    def test_size_position_and_cycles(self):
        stream = ReplayStream(pipeline(0), make(10), 4, warmup=1)
        assert (stream.size, stream.position, stream.cycles) == (0, 0, 0)
        for taken, _ in enumerate(islice(stream, 35), 1):
            assert (stream.size, stream.position, stream.cycles) == (min(taken, 10), taken % 10, taken // 10)

    def test_with_replicas_an_entry_each(self):
        buffer = ReplayBuffer(4, {"x": Field()}, replicas=2)
        stream = ReplayStream([{"x": np.zeros(2)}] * 9, buffer, 2)
        list(stream)
        assert [stream.size.tolist(), stream.position.tolist(), stream.cycles.tolist()] == [[4, 4], [1, 1], [2, 2]]

    def test_before_the_first_step_of_a_capacity(self):
        stream = ReplayStream(pipeline(0), 10, 4)
        assert (stream.size, stream.position, stream.cycles) == (0, 0, 0)
        with pytest.raises(EmptyBufferError, match="take a batch first, or pass a ReplayBuffer"):
            stream.buffer  # noqa: B018

    def test_the_repr_tells_them(self):
        stream = ReplayStream(pipeline(0, 35), 10, 4, warmup=5)
        assert repr(stream) == (
            "ReplayStream(batches of 4 from 5 steps on; taken 0, position 0, cycles 0; capacity 10)"
        )
        list(stream)
        assert repr(stream) == (
            "ReplayStream(batches of 4 from 5 steps on; taken 35, position 5, cycles 3; " + repr(stream.buffer) + ")"
        )


class TestFieldsOfTheFirstStep:
    def test_nested_arrays_keep_their_dtypes(self):
        assert fields_of_step(next(pipeline(0))) == FIELDS

    def test_python_numbers(self):
        step = {"f": 1.5, "i": 3, "b": True, "l": [1.0, 2.0], "d": np.float64(1), "a": np.zeros(2)}
        assert fields_of_step(step) == {
            "f": Field(),
            "i": Field((), np.int64),
            "b": Field((), bool),
            "l": Field((2,)),
            "d": Field((), np.float64),
            "a": Field((2,), np.float64),
        }

    def test_the_seed_is_the_buffer_s(self):
        batches, two, three = (list(ReplayStream(pipeline(0, 30), 10, 4, seed=seed)) for seed in (1, 1, 2))
        assert_same_batches(batches, two)
        assert any((a.id != b.id).any() for a, b in zip(batches, three, strict=True))


class TestState:
    """A restored stream continues exactly as the saved one would have."""

    @pytest.fixture(params=["bytes", "folder"])
    def folder(self, request, tmp_path):
        return tmp_path / "memory" if request.param == "folder" else None

    @pytest.mark.parametrize("memory", ["buffer", "capacity"])
    def test_goes_on(self, folder, memory):
        def stream(source):
            return ReplayStream(source, make(sampler=Prioritized(beta=0.4)) if memory == "buffer" else 10, 4)

        steps = list(pipeline(0, 60))
        unbroken = stream(steps)
        for batch in islice(unbroken, 20):
            unbroken.buffer.update_priorities(batch.id, batch.reward)
        state = unbroken.state(folder)
        again = stream(steps[unbroken.taken :])
        again.restore(state)
        assert (again.taken, again.drawn, again.position) == (unbroken.taken, unbroken.drawn, unbroken.position)
        rest = ReplayStream(steps[unbroken.taken :], unbroken.buffer, 4)
        assert_same_batches(list(again), list(rest))

    def test_the_buffer_stays_the_same_object(self, folder):
        stream = ReplayStream(pipeline(0), make(), 4)
        held = stream.buffer
        for _ in islice(stream, 15):
            pass
        state, expected = stream.state(folder), held.get(np.arange(8, 18))
        for _ in islice(stream, 15):
            pass
        stream.restore(state)
        assert stream.buffer is held
        assert len(held) == 10
        np.testing.assert_array_equal(held.get(np.arange(8, 18))["reward"], expected["reward"])
        held.add(**next(pipeline(1)))
        assert stream.position == 9

    def test_before_the_first_step(self, folder):
        state = ReplayStream(pipeline(0), 10, 4).state(folder)
        stream = ReplayStream(pipeline(0, 12), 10, 4)
        stream.restore(state)
        list(stream)
        with pytest.raises(SnapshotError, match="before the first step"):
            stream.restore(state)

    def test_with_a_sampler_of_ones_own(self, folder):
        stream = ReplayStream(pipeline(0), make(sampler=Even()), 4)
        for _ in islice(stream, 15):
            pass
        again = ReplayStream(pipeline(0), make(sampler=stream.buffer.sampler), 4)
        again.restore(stream.state(folder))
        np.testing.assert_array_equal(again.buffer.sample(8).id, stream.buffer.sample(8).id)

    def test_with_goals_whose_functions_no_snapshot_holds(self, folder):
        goals = Hindsight(lambda got, wanted, info: -np.abs(got - wanted), lambda got, wanted, info: got == wanted)
        fields = transition({"achieved_goal": Field(), "desired_goal": Field()})

        def stream():
            steps = (
                {
                    "obs": {"achieved_goal": float(t), "desired_goal": 9.0},
                    "next_obs": {"achieved_goal": t + 1.0, "desired_goal": 9.0},
                    "reward": -1.0,
                    "terminated": False,
                    "truncated": t % 8 == 7,
                }
                for t in range(40)
            )
            return ReplayStream(steps, ReplayBuffer(20, fields, transforms=[NStep(3), goals], seed=0), 4)

        original, two = stream(), stream()
        list(original)
        two.restore(original.state(folder))
        assert_same_batches([original.buffer.sample(16)], [two.buffer.sample(16)])

    def test_another_kind_of_memory_is_refused(self, folder):
        stream = ReplayStream(pipeline(0), make(), 4)
        next(iter(stream))
        for other in (make(11), 11, make(sampler=Prioritized(beta=0.4))):
            with pytest.raises(SnapshotError, match=r"the snapshot is of a buffer with .*, but this one has"):
                ReplayStream(pipeline(0), other, 4).restore(stream.state(folder))

    def test_while_batches_are_drawn_ahead_it_is_refused(self, folder):
        stream = ReplayStream(pipeline(0), make(), 4)
        next(iter(stream))
        state, ahead = stream.state(folder), stream.buffer.batches(4, prefetch=1)
        next(ahead)
        with pytest.raises(ConfigError, match="close the iterators"):
            stream.restore(state)
        ahead.close()
        stream.restore(state)


def test_a_folder_that_was_saved_to_since_is_refused(tmp_path):
    stream = ReplayStream(pipeline(0), make(), 4)
    next(iter(stream))
    state = stream.state(tmp_path)
    next(iter(stream))
    stream.state(tmp_path)
    with pytest.raises(SnapshotError, match="holds a later snapshot than the state's; use the latest state"):
        stream.restore(state)


class TestRefusals:
    @pytest.mark.parametrize("item", [3, [1, 2], "obs", None])
    def test_an_item_that_is_no_step(self, item):
        with pytest.raises(FieldError, match=r"the source must give steps .* or lists of them, but gave"):
            list(ReplayStream([item], make(), 4))

    def test_a_step_that_does_not_fit_leaves_the_rest_as_it_was(self):
        steps = list(pipeline(0, 3))
        stream = ReplayStream(chain(steps, [{**steps[0], "reward": np.zeros(3)}]), make(), 4)
        with pytest.raises(ShapeError):
            list(stream)
        assert (stream.taken, stream.size) == (3, 3)

    def test_a_warmup_that_never_comes(self):
        with pytest.raises(ConfigError, match="or no batch is ever drawn, but got"):
            ReplayStream([], make(10), 4, warmup=11)

    def test_a_seed_beside_a_buffer(self):
        with pytest.raises(ConfigError, match="seed that one"):
            ReplayStream([], make(10), 4, seed=1)


class TestStatesThatWereChanged:
    def stream(self, **options):
        stream = ReplayStream([], ReplayBuffer(10, {"x": Field()}, seed=1, **options), batch_size=2)
        for x in range(5):
            stream.push({"x": x})
        return stream

    @pytest.mark.parametrize("name", ["{outside}/file", "../file", "a/../../file", "/", "..", "", 3])
    def test_no_file_outside_is_written(self, tmp_path, name):
        stream = self.stream()
        state = stream.state()
        name = name.format(outside=tmp_path) if isinstance(name, str) else name
        state["buffer"]["files"][name] = b"x"
        with pytest.raises(SnapshotError, match="must be one that `state` returned"):
            stream.restore(state)
        assert not list(tmp_path.iterdir())
        assert stream.taken == 5

    @pytest.mark.parametrize(
        "change",
        [
            {"taken": "x"},
            {"drawn": -1},
            {"buffer": {}},
            {"buffer": 3},
            {"buffer": {"folder": "x"}},
            {"buffer": {"files": []}},
            {"buffer": {"files": {"manifest.json": "text"}}},
        ],
        ids=str,
    )
    def test_members_of_another_type(self, change):
        stream = self.stream()
        with pytest.raises(SnapshotError, match="must be one that `state` returned"):
            stream.restore(stream.state() | change)
        assert stream.taken == 5

    def test_a_sampler_with_functions(self):
        original, two = (self.stream(sampler=LaBER(lambda pool: pool.x)) for _ in range(2))
        two.restore(original.state())
        np.testing.assert_array_equal(original.buffer.sample(4).id, two.buffer.sample(4).id)
