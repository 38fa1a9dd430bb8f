"""Bad input: a specific error, word for word, and a buffer that is exactly as it was before."""

import numpy as np
import pytest

from replaylab.errors import (
    ConfigError,
    DtypeError,
    EmptyBufferError,
    FieldError,
    IdError,
    PriorityError,
    ShapeError,
)
from replaylab.replay import (
    Combined,
    Constant,
    Exponential,
    Field,
    Linear,
    Prioritized,
    ReplayBuffer,
    SlidingWindow,
)
from tests.oracle import flatten

FIELDS = {
    "obs": {"image": Field((2, 2), np.uint8), "speed": Field((), np.float32)},
    "action": Field((), np.int64),
    "reward": Field((), np.float32),
}


def step(lead=(), **changes):
    rng = np.random.default_rng(6)
    good = {
        "obs": {
            "image": rng.integers(0, 255, (*lead, 2, 2), np.uint8),
            "speed": rng.random(lead, np.float32),
        },
        "action": rng.integers(0, 9, lead),
        "reward": rng.random(lead, np.float32),
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


PRIORITIZED = Prioritized(beta=0.4)


def make(replicas=None, num_envs=None, sampler=PRIORITIZED, steps=13):
    buffer = ReplayBuffer(10, FIELDS, replicas=replicas, num_envs=num_envs, sampler=sampler, seed=77)
    R, E = (() if n is None else (n,) for n in (replicas, num_envs))
    if steps:
        ids = buffer.extend(**step((*R, steps, *E)))
        buffer.update_priorities(ids, np.linspace(0, 2, ids.size).reshape(ids.shape))
    return buffer


def state(buffer):
    """All that can be seen of a buffer: contents, ids, laws."""
    ids = np.arange(len(buffer)) + np.zeros((buffer.replicas or 1, 1), np.int64)
    ids = ids if buffer.replicas is not None else ids[0]
    columns = {path: column.tobytes() for path, column in flatten(buffer.columns).items()}
    law = buffer.probabilities(ids, batch_size=2).tobytes() if len(buffer) else b""
    return columns, np.asarray(buffer.size).tolist(), len(buffer), law


def assert_refused(error, message, call, **options):
    """`call` raises `error` with exactly `message`; ever after, a twin that never saw it does the same."""
    buffer, twin = make(**options), make(**options)
    before = state(buffer)
    with pytest.raises(error) as caught:
        call(buffer)
    assert str(caught.value) == message
    assert type(caught.value) is error
    assert state(buffer) == before == state(twin)
    for _ in range(3):
        R, E = (() if n is None else (n,) for n in (buffer.replicas, buffer.num_envs))
        new = step((*R, 2, *E))
        np.testing.assert_array_equal(buffer.extend(**new), twin.extend(**new))
        first, second = buffer.sample(4, progress=0.5), twin.sample(4, progress=0.5)
        np.testing.assert_array_equal(first.id, second.id)
        buffer.update_priorities(first.id, np.ones(first.id.shape))
        twin.update_priorities(second.id, np.ones(second.id.shape))
    assert state(buffer) == state(twin)


AXES = "leading axes are replicas, steps, environments in this order, each only where declared or called for"
CHANGED = "which would change what the values mean; convert it"
WIDER = "declare the field with a wider dtype"
OTHER = "or declare the field with another dtype"
ALL_FIELDS = "the fields are `obs.image`, `obs.speed`, `action`, `reward`"
SHAPES = [(None, None), (3, None), (None, 2), (3, 2)]


class TestShape:
    def test_of_a_number(self):
        message = f"field `reward` must have shape (), that is its own shape (), but got (3,); {AXES}"
        assert_refused(ShapeError, message, lambda b: b.add(**step(reward=np.zeros(3, np.float32))))

    def test_of_a_nested_array(self):
        message = f"field `obs.image` must have shape (2, 2), that is its own shape (2, 2), but got (2, 3); {AXES}"
        bad = {"image": np.zeros((2, 3), np.uint8), "speed": 0.0}
        assert_refused(ShapeError, message, lambda b: b.add(**step(obs=bad)))

    def test_replica_axis(self):
        message = (
            "field `obs.image` must have shape (3, 2, 2), that is the leading axes (replicas=3) and its own "
            f"shape (2, 2), but got (2, 2, 2); {AXES}"
        )
        assert_refused(ShapeError, message, lambda b: b.add(**step((2,))), replicas=3)

    def test_environment_axis(self):
        message = (
            "field `action` must have shape (3, 2), that is the leading axes (replicas=3, num_envs=2) and "
            f"its own shape (), but got (3, 3); {AXES}"
        )
        call = lambda b: b.add(**step((3, 2), action=np.zeros((3, 3), np.int64)))  # noqa: E731
        assert_refused(ShapeError, message, call, replicas=3, num_envs=2)

    def test_missing_environment_axis(self):
        message = (
            "field `obs.image` must have shape (2, 2, 2), that is the leading axes (num_envs=2) and its own "
            f"shape (2, 2), but got (2, 2); {AXES}"
        )
        assert_refused(ShapeError, message, lambda b: b.add(**step()), num_envs=2)

    def test_time_axis_differs(self):
        """The last field is the bad one: nothing of the earlier fields may be left behind."""
        message = (
            "field `reward` must have shape (4,), that is the leading axes (steps=4) and its own shape (), "
            f"but got (5,); {AXES}"
        )
        assert_refused(ShapeError, message, lambda b: b.extend(**step((4,), reward=np.zeros(5, np.float32))))

    def test_no_time_axis(self):
        message = "field `obs.image` of `extend` must have a steps axis at place 1, but got shape (2,)"
        bad = step((2, 4)) | {"obs": {"image": np.zeros(2, np.uint8), "speed": np.zeros((2, 4), np.float32)}}
        assert_refused(ShapeError, message, lambda b: b.extend(**bad), replicas=2)

    def test_where(self):
        message = (
            "field `where` must have shape (2,), that is the leading axes (num_envs=2) and its own shape (), "
            f"but got (3,); {AXES}"
        )
        assert_refused(ShapeError, message, lambda b: b.add(**step((2,)), where=np.ones(3, bool)), num_envs=2)

    @pytest.mark.parametrize(("replicas", "num_envs"), SHAPES)
    def test_in_every_layout(self, replicas, num_envs):
        buffer = make(replicas, num_envs)
        before = state(buffer)
        R, E = (() if n is None else (n,) for n in (replicas, num_envs))
        for lead in [(*R, *E, 1), (1, *R, *E), (*R, 7, *E)]:
            with pytest.raises(ShapeError):
                buffer.add(**step(lead))
        for lead in [(*R, *E), (*R, 4, *E, 1)]:
            with pytest.raises(ShapeError):
                buffer.extend(**step(lead))
        assert state(buffer) == before


class TestDtype:
    def test_a_float_for_an_integer(self):
        message = f'field `action` stores int64, but got float64, {CHANGED} (`.astype("int64")`) {OTHER}'
        assert_refused(DtypeError, message, lambda b: b.add(**step(action=1.5)))
        assert_refused(DtypeError, message, lambda b: b.extend(**step((4,), action=np.ones(4))))

    def test_a_complex_for_a_float(self):
        message = f'field `reward` stores float32, but got complex128, {CHANGED} (`.astype("float32")`) {OTHER}'
        assert_refused(DtypeError, message, lambda b: b.add(**step(reward=1j)))

    def test_text(self):
        message = f'field `action` stores int64, but got <U4, {CHANGED} (`.astype("int64")`) {OTHER}'
        assert_refused(DtypeError, message, lambda b: b.add(**step(action="left")))

    def test_nothing(self):
        message = (
            "field `action` stores int64, which cannot hold NoneType objects, or numbers beyond 64 bits; "
            "pass an array or a number"
        )
        assert_refused(DtypeError, message, lambda b: b.add(**{**step(), "action": None}))

    def test_an_integer_that_does_not_fit(self):
        message = "field `obs.image` stores uint8 (0 to 255), which cannot hold {}; " + WIDER
        for bad in (-1, 256, 2**62):
            image = np.zeros((2, 2), np.int64)
            image[1, 1] = bad
            obs = {"image": image, "speed": 0.0}
            assert_refused(DtypeError, message.format(bad), lambda b, obs=obs: b.add(**step(obs=obs)))
        message = f"field `action` stores int64 ({-(2**63)} to {2**63 - 1}), which cannot hold {2**63}; {WIDER}"
        assert_refused(DtypeError, message, lambda b: b.add(**step(action=2**63)))

    def test_a_float_that_does_not_fit(self):
        message = f"field `reward` stores float32, which cannot hold a value as large as 1e+39; {WIDER}"
        assert_refused(DtypeError, message, lambda b: b.add(**step(reward=-1e39)))
        assert_refused(DtypeError, message, lambda b: b.extend(**step((3,), reward=np.array([0, 1e39, 5]))))

    def test_an_integer_for_a_flag(self):
        fields = {"flag": Field((), np.bool_)}
        message = f'field `flag` stores bool, but got int64, {CHANGED} (`.astype("bool")`) {OTHER}'
        with pytest.raises(DtypeError) as caught:
            ReplayBuffer(5, fields).add(flag=1)
        assert str(caught.value) == message

    def test_unequal_lists(self):
        ragged = {"image": [[1, 2], [3]], "speed": 0.0}
        with pytest.raises(ShapeError) as caught:
            make().add(**step(obs=ragged))
        assert str(caught.value).startswith("field `obs.image` must be an array, but NumPy cannot make one of it: ")


class TestNames:
    def test_missing(self):
        message = f"`add` takes every field exactly once, but got missing `reward`; {ALL_FIELDS}"
        assert_refused(FieldError, message, lambda b: b.add(**step(reward=None)))

    def test_missing_in_a_nested_field(self):
        message = f"`extend` takes every field exactly once, but got missing `obs.speed`; {ALL_FIELDS}"
        bad = {"image": np.zeros((4, 2, 2), np.uint8)}
        assert_refused(FieldError, message, lambda b: b.extend(**step((4,), obs=bad)))

    def test_unknown(self):
        message = f"`add` takes every field exactly once, but got unknown `done`; {ALL_FIELDS}"
        assert_refused(FieldError, message, lambda b: b.add(**step(done=True)))

    def test_misspelt(self):
        message = (
            "`add` takes every field exactly once, but got missing `reward`; unknown `rewards` "
            f"(did you mean `reward`?); {ALL_FIELDS}"
        )
        assert_refused(FieldError, message, lambda b: b.add(**step(reward=None, rewards=1.0)))

    def test_a_final_observation_nobody_asked_for(self):
        message = (
            '`final_obs` belongs to autoreset="same_step", which this buffer does not have; leave it out, '
            'or make the buffer with autoreset="same_step"'
        )
        assert_refused(FieldError, message, lambda b: b.add(**step(), final_obs=np.zeros(2)))


IDS = np.array([5, 6])


class TestPriorities:
    @pytest.mark.parametrize(
        ("values", "entry"),
        [
            ([1, np.nan], "1 (id 6) is nan"),
            ([np.inf, 1], "0 (id 5) is inf"),
            ([0, -np.inf], "1 (id 6) is -inf"),
        ],
    )
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_td_error_is_finite(self, values, entry, dtype):
        message = f"td_error must be finite, but entry {entry}; no priority was changed"
        assert_refused(PriorityError, message, lambda b: b.update_priorities(IDS, np.array(values, dtype)))

    @pytest.mark.parametrize(
        ("values", "entry"),
        [([1, np.nan], "1 (id 6) is nan"), ([-1, 1], "0 (id 5) is -1"), ([0, np.inf], "1 (id 6) is inf")],
    )
    def test_priority_is_finite_and_not_negative(self, values, entry):
        message = f"priority must be finite and not negative, but entry {entry}; no priority was changed"
        assert_refused(PriorityError, message, lambda b: b.update_priorities(IDS, priority=values))

    def test_even_for_a_stale_id(self):
        message = "td_error must be finite, but entry 0 (id 1) is nan; no priority was changed"
        assert_refused(PriorityError, message, lambda b: b.update_priorities([1, 6], [np.nan, 5.0]))

    def test_a_late_error_undoes_the_earlier_entries(self):
        ids = np.tile(np.arange(3, 13), 100)
        td_error = np.full(1000, 9.0)
        td_error[-1] = np.nan
        message = "td_error must be finite, but entry 999 (id 12) is nan; no priority was changed"
        assert_refused(PriorityError, message, lambda b: b.update_priorities(ids, td_error))

    def test_in_the_last_replica(self):
        td_error = np.ones((3, 2))
        td_error[2, 1] = np.nan
        message = "td_error must be finite, but entry 5 (id 6) is nan; no priority was changed"
        assert_refused(
            PriorityError, message, lambda b: b.update_priorities(np.tile(IDS, (3, 1)), td_error), replicas=3
        )

    def test_exactly_one_of_both(self):
        message = "`update_priorities` takes either `td_error` or `priority`; pass exactly one of them"
        assert_refused(ConfigError, message, lambda b: b.update_priorities(IDS))
        assert_refused(ConfigError, message, lambda b: b.update_priorities(IDS, [1, 2], priority=[1, 2]))

    def test_one_value_an_id(self):
        message = "`td_error` must have the shape of ids, (2,), but got (3,); pass one value an id"
        assert_refused(ShapeError, message, lambda b: b.update_priorities(IDS, [1, 2, 3]))
        message = "`priority` must have the shape of ids, (2,), but got (); pass one value an id"
        assert_refused(ShapeError, message, lambda b: b.update_priorities(IDS, priority=1.0))

    def test_numbers(self):
        message = "`td_error` must be real numbers, but got complex128; pass one float an id"
        assert_refused(DtypeError, message, lambda b: b.update_priorities(IDS, np.ones(2, complex)))

    def test_none_positive(self):
        message = (
            "every one of the 10 stored steps has priority 0, so none can be drawn; give at least one a "
            "positive priority with update_priorities"
        )
        buffer = make()
        buffer.update_priorities(np.arange(13), priority=np.zeros(13))
        with pytest.raises(EmptyBufferError) as caught:
            buffer.sample(4)
        assert str(caught.value) == message
        assert buffer.probabilities(np.arange(13)).tolist() == [0] * 13
        buffer.update_priorities(np.array([7]), priority=np.array([1e-30]))
        assert buffer.sample(4).id.tolist() == [7] * 4

    def test_none_positive_in_one_replica(self):
        """No replica's stream moves when one of them cannot draw."""
        buffer, twin = make(3), make(3)
        ids = np.tile(np.arange(13), (3, 1))
        zeros = np.ones((3, 13))
        zeros[2] = 0
        buffer.update_priorities(ids, priority=zeros)
        with pytest.raises(EmptyBufferError):
            buffer.sample(4)
        for both in (buffer, twin):
            both.update_priorities(ids, priority=np.ones((3, 13)))
        np.testing.assert_array_equal(buffer.sample(4).id, twin.sample(4).id)


class TestIds:
    @pytest.mark.parametrize("bad", [13, -2, 2**62, -(2**63)])
    def test_never_given_out(self, bad):
        message = (
            f"id {bad} was never given out: ids so far are 0 to 12 (and -1 for a step that was not stored); "
            "pass the ids that add or sample returned"
        )
        assert_refused(IdError, message, lambda b: b.update_priorities([12, bad], [5.0, 5.0]))
        assert_refused(IdError, message, lambda b: b.probabilities([12, bad]))

    def test_of_another_replica(self):
        """Replica 1 has one step fewer."""

        def call(buffer):
            buffer.update_priorities(np.array([[13], [13]]), np.ones((2, 1)))

        buffer = make(2)
        buffer.add(**step((2,)), where=np.array([True, False]))
        before = buffer.probabilities(np.tile(np.arange(13), (2, 1))).tobytes()
        with pytest.raises(IdError, match="id 13 was never given out: ids so far are 0 to 12"):
            call(buffer)
        assert buffer.probabilities(np.tile(np.arange(13), (2, 1))).tobytes() == before

    def test_replica_axis(self):
        message = (
            "`ids` must have replicas=3 as its first axis, but got shape (2, 4); "
            "pass the ids that add or sample returned"
        )
        assert_refused(
            ShapeError,
            message,
            lambda b: b.update_priorities(np.ones((2, 4), int), np.ones((2, 4))),
            replicas=3,
        )
        assert_refused(ShapeError, message, lambda b: b.probabilities(np.ones((2, 4), int)), replicas=3)

    def test_whole_numbers(self):
        message = "`ids` must be integers, but got {}; pass the ids that add or sample returned"
        for bad, dtype in [(IDS.astype(float), "float64"), (np.array([True, False]), "bool")]:
            text = message.format(dtype)
            assert_refused(DtypeError, text, lambda b, bad=bad: b.update_priorities(bad, [1, 2]))
            assert_refused(DtypeError, text, lambda b, bad=bad: b.probabilities(bad))

    def test_beyond_what_an_id_can_be(self):
        for bad in (2**63, 2**64 - 1):
            text = f"id {bad} was never given out: ids are int64"
            assert_refused(IdError, text, lambda b, bad=bad: b.probabilities(np.array([1, bad], np.uint64)))
        assert make().probabilities(np.array([12], np.uint64)).shape == (1,)

    def test_before_anything_is_stored(self):
        message = "id 0 was never given out: no step was stored yet"
        assert_refused(IdError, message, lambda b: b.probabilities([0]), steps=0)
        assert_refused(IdError, message, lambda b: b.update_priorities([0], [1.0]), steps=0)

    def test_no_ids_are_no_error(self):
        buffer = make()
        assert buffer.update_priorities([], []) == 0
        assert buffer.probabilities([]).shape == (0,)


class TestSample:
    def test_empty(self):
        message = "the buffer is empty; add at least one step before sampling"
        assert_refused(EmptyBufferError, message, lambda b: b.sample(4), steps=0)
        assert_refused(EmptyBufferError, message, lambda b: b.sample(4), steps=0, replicas=3, num_envs=2)

    def test_empty_in_one_replica(self):
        buffer = make(2, steps=0)
        buffer.add(**step((2,)), where=np.array([True, False]))
        with pytest.raises(EmptyBufferError):
            buffer.sample(1)

    def test_too_little_for_the_window(self):
        message = (
            "SlidingWindow gives `batch_size` different steps, but batch_size=11 and only 10 steps are "
            "stored (capacity=10); ask for fewer, or add more steps first"
        )
        assert_refused(EmptyBufferError, message, lambda b: b.sample(11), sampler=SlidingWindow())

    @pytest.mark.parametrize("bad", [0, -1, -(2**62)])
    def test_at_least_one(self, bad):
        message = f"`batch_size` must be at least 1, but got {bad:,}"
        assert_refused(ConfigError, message, lambda b: b.sample(bad))
        assert_refused(ConfigError, message, lambda b: b.probabilities([5], batch_size=bad), sampler=Combined())

    @pytest.mark.parametrize("bad", [2**31, 2**62, 2**70])
    def test_at_most(self, bad):
        message = f"`batch_size` must be at most 2,147,483,647, but got {bad:,}"
        assert_refused(ConfigError, message, lambda b: b.sample(bad))

    @pytest.mark.parametrize("bad", [2.0, 2.5, "4", None, [4]])
    def test_whole_numbers(self, bad):
        assert_refused(ConfigError, f"`batch_size` must be a whole number, but got {bad!r}", lambda b: b.sample(bad))

    def test_numpy_integers_are_whole_numbers(self):
        assert make().sample(np.int32(3)).id.shape == (3,)

    @pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf"), "half"])
    @pytest.mark.parametrize("beta", [Linear(0.4, 1.0), Exponential(0.4, 1.0), Constant(0.4), 0.4])
    def test_progress(self, bad, beta):
        message = f"`progress` must be in [0, 1] (0: the run begins, 1: it ends), but got {bad!r}"
        assert_refused(ConfigError, message, lambda b: b.sample(4, progress=bad), sampler=Prioritized(beta=beta))

    def test_progress_of_each_replica(self):
        message = "`progress` must be in [0, 1] (0: the run begins, 1: it ends)"
        for bad in ([0.1, 0.2, 0.3], [0.1, 1.1], [[0.1, 0.2]], ["half", 0.2]):
            each = f"{message}, one number or one for each of 2 replicas, but got {bad!r}"
            with pytest.raises(ConfigError) as caught:
                make(replicas=2, sampler=Prioritized()).sample(4, progress=bad)
            assert str(caught.value) == each
        assert_refused(ConfigError, f"{message}, but got [0.1]", lambda b: b.sample(4, progress=[0.1]))

    def test_progress_is_needed(self):
        message = (
            "Prioritized has a number that changes over the run (Linear(start=0.4, end=1.0, until=1.0)), so "
            "`progress` in [0, 1] is needed; pass progress=step / total_steps, or make it constant"
        )
        assert_refused(ConfigError, message, lambda b: b.sample(4), sampler=Prioritized())

    @pytest.mark.parametrize("sampler", [Combined(), Combined("replace"), SlidingWindow()])
    def test_the_law_needs_the_batch_size(self, sampler):
        message = f"the law of {type(sampler).__name__} depends on the batch size; pass batch_size=..."
        assert_refused(ConfigError, message, lambda b: b.probabilities([5]), sampler=sampler)

    def test_out_of_another_shape(self):
        out = make().sample(5)
        message = (
            "`out` must hold, for field `obs.image`, a writable C-contiguous uint8 array of shape (4, 2, 2); "
            "pass a batch that an equal call to sample returned"
        )
        assert_refused(ShapeError, message, lambda b: b.sample(4, out=out))

    def test_out_that_is_no_batch(self):
        for bad in ([1], dict(make().sample(4))):
            message = f"`out` must be a Batch that an equal call to sample returned, but got {type(bad).__name__}"
            assert_refused(FieldError, message, lambda b, bad=bad: b.sample(4, out=bad))

    def test_out_that_cannot_be_written(self):
        out = make().sample(4)
        out.id.setflags(write=False)
        message = (
            "`out` must hold, for field `id`, a writable C-contiguous int64 array of shape (4,); "
            "pass a batch that an equal call to sample returned"
        )
        assert_refused(ShapeError, message, lambda b: b.sample(4, out=out))
