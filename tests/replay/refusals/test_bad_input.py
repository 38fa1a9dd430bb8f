"""Bad input: a specific error that names field and value, and a buffer that is exactly as it was before."""

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
from replaylab.replay import Combined, Constant, Exponential, Field, Linear, Prioritized, ReplayBuffer, SlidingWindow
from tests.oracle import flatten
from tests.replay.buffers import cases, refused

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
    """All that can be seen of a buffer: contents, ids, sampling distributions."""
    ids = np.arange(len(buffer)) + np.zeros((buffer.replicas or 1, 1), np.int64)
    ids = ids if buffer.replicas is not None else ids[0]
    columns = {path: column.tobytes() for path, column in flatten(buffer.columns).items()}
    distribution = buffer.probabilities(ids, batch_size=2).tobytes() if len(buffer) else b""
    return columns, np.asarray(buffer.size).tolist(), len(buffer), distribution


def assert_refused(error, words, call, **options):
    """`call` raises `error` with these words; ever after, a twin that never saw it does the same."""
    buffer, twin = make(**options), make(**options)
    before = state(buffer)
    refused(error, words, lambda: call(buffer))
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


def add(lead=(), **changes):
    return lambda buffer: buffer.add(**step(lead, **changes))


def extend(lead, **changes):
    return lambda buffer: buffer.extend(**step(lead, **changes))


def obs(image, speed=0.0):
    return {"image": image, "speed": speed}


def pixel(value):
    return obs(np.array([[0, 0], [0, value]]))


def update(ids, td_error=None, priority=None):
    return lambda buffer: buffer.update_priorities(ids, td_error, priority=priority)


def distribution(ids, **options):
    return lambda buffer: buffer.probabilities(ids, **options)


def sample(*args, **options):
    return lambda buffer: buffer.sample(*args, **options)


def frozen():
    batch = make().sample(4)
    batch.id.setflags(write=False)
    return batch


ZEROS = np.zeros((3, 3), np.int64)
LATE = np.append(np.full(999, 9.0), np.nan)
IDS, THREE = np.array([5, 6]), np.array([[5, 6]] * 3)
SHAPES = [
    (ShapeError, "`reward` must have shape () ... (3,)", add(reward=np.zeros(3, np.float32)), {}),
    (ShapeError, "`obs.image` must have shape (2, 2) ... (2, 3)", add(obs=obs(np.zeros((2, 3), np.uint8))), {}),
    (ShapeError, "`obs.image` ... (3, 2, 2) ... replicas=3 ... (2, 2, 2)", add((2,)), {"replicas": 3}),
    (
        ShapeError,
        "`action` ... shape (3, 2) ... replicas=3, num_envs=2 ... (3, 3)",
        add((3, 2), action=ZEROS),
        {"replicas": 3, "num_envs": 2},
    ),
    (ShapeError, "`obs.image` ... (2, 2, 2) ... num_envs=2 ... got (2, 2);", add(), {"num_envs": 2}),
    # The last field is the bad one: nothing of the earlier fields may be left behind.
    (ShapeError, "`reward` ... (4,) ... steps=4 ... (5,)", extend((4,), reward=np.zeros(5, np.float32)), {}),
    (
        ShapeError,
        "`obs.image` of `extend` must have a steps axis at place 1 ... (2,)",
        extend((2, 4), obs=obs(np.zeros(2, np.uint8), np.zeros((2, 4), np.float32))),
        {"replicas": 2},
    ),
    (ShapeError, "`where` ... (2,) ... num_envs=2 ... (3,)", add((2,), where=np.ones(3, bool)), {"num_envs": 2}),
    (ShapeError, "`obs.image` must be an array, but NumPy cannot make one", add(obs=obs([[1, 2], [3]])), {}),
]
DTYPES = [
    (DtypeError, "`action` stores int64, but got float64 ... convert the values, or declare", add(action=1.5), {}),
    (DtypeError, "`action` stores int64, but got float64", extend((4,), action=np.ones(4)), {}),
    (DtypeError, "`reward` stores float32, but got complex128", add(reward=1j), {}),
    (DtypeError, "`action` stores int64, but got <U4", add(action="left"), {}),
    (DtypeError, "`action` ... cannot hold NoneType", lambda b: b.add(**{**step(), "action": None}), {}),
    *((DtypeError, f"`obs.image` stores uint8 (0 to 255) ... {n};", add(obs=pixel(n)), {}) for n in (-1, 256, 2**62)),
    (DtypeError, f"`action` ... {2**63 - 1}) ... {2**63}; ... wider dtype", add(action=2**63), {}),
    (DtypeError, "`reward` stores float32 ... 1e+39", add(reward=-1e39), {}),
    (DtypeError, "`reward` stores float32 ... 1e+39", extend((3,), reward=np.array([0, 1e39, 5])), {}),
]
NAMES = [
    (FieldError, "`add` is missing `reward`; ... `obs.image`, `obs.speed`, `action`", add(reward=None), {}),
    (FieldError, "`extend` ... missing `obs.speed`", extend((4,), obs={"image": np.zeros((4, 2, 2), np.uint8)}), {}),
    (FieldError, "`add` ... unknown `done`", add(done=True), {}),
    (
        FieldError,
        "missing `reward` and got unknown `rewards` (did you mean `reward`?)",
        add(reward=None, rewards=1.0),
        {},
    ),
    (FieldError, '`final_obs` belongs to autoreset="same_step"', add(final_obs=np.zeros(2)), {}),
]
PRIORITIES = [
    *(
        (PriorityError, f"td_error must be finite ... {words}", update(IDS, np.array(values, dtype)), {})
        for values, words in (
            ([1, np.nan], "1 (id 6) is nan"),
            ([np.inf, 1], "0 (id 5) is inf"),
            ([0, -np.inf], "-inf"),
        )
        for dtype in (np.float32, np.float64)
    ),
    (PriorityError, "priority must be ... 1 (id 6) is nan", update(IDS, priority=[1, np.nan]), {}),
    (PriorityError, "priority must be finite and not negative ... 0 (id 5) is -1", update(IDS, priority=[-1, 1]), {}),
    (PriorityError, "priority must be ... 1 (id 6) is inf", update(IDS, priority=[0, np.inf]), {}),
    (PriorityError, "entry 0 (id 1) is nan", update([1, 6], [np.nan, 5.0]), {}),  # even for a stale id
    (PriorityError, "entry 999 (id 12) is nan", update(np.tile(np.arange(3, 13), 100), LATE), {}),
    (PriorityError, "entry 5 (id 6) is nan", update(THREE, LATE[-6:].reshape(3, 2)), {"replicas": 3}),
    (ConfigError, "either `td_error` or `priority`", update(IDS), {}),
    (ConfigError, "either `td_error` or `priority`", update(IDS, [1, 2], [1, 2]), {}),
    (ShapeError, "`td_error` must have the shape of ids, (2,), but got (3,)", update(IDS, [1, 2, 3]), {}),
    (ShapeError, "`priority` must have the shape of ids, (2,), but got (1,)", update(IDS, priority=[1.0]), {}),
    (DtypeError, "`td_error` must be real numbers, but got complex128", update(IDS, np.ones(2, complex)), {}),
]
BAD_IDS = [
    *(
        (IdError, f"id {bad} was never given out: ids so far are 0 to 12", call([12, bad]), {})
        for bad in (13, -2, 2**62, -(2**63))
        for call in (lambda ids: update(ids, [5.0, 5.0]), distribution)
    ),
    *(
        (
            ShapeError,
            "`ids` must have replicas=3 as its first axis ... (2, 4)",
            call(np.ones((2, 4), int)),
            {"replicas": 3},
        )
        for call in (lambda ids: update(ids, np.ones((2, 4))), distribution)
    ),
    *(
        (DtypeError, f"`ids` must be integers, but got {bad.dtype}", call(bad), {})
        for bad in (IDS.astype(float), np.array([True, False]))
        for call in (lambda ids: update(ids, [1, 2]), distribution)
    ),
    *(
        (IdError, f"id {bad} was never given out: ids are int64", distribution(np.array([1, bad], np.uint64)), {})
        for bad in (2**63, 2**64 - 1)
    ),
    (IdError, "id 0 was never given out: no step was stored yet", distribution([0]), {"steps": 0}),
    (IdError, "id 0 was never given out: no step was stored yet", update([0], [1.0]), {"steps": 0}),
]
SAMPLES = [
    (EmptyBufferError, "the buffer is empty", sample(4), {"steps": 0}),
    (EmptyBufferError, "the buffer is empty", sample(4), {"steps": 0, "replicas": 3, "num_envs": 2}),
    (EmptyBufferError, "batch_size=11 and only 10 steps ... capacity=10", sample(11), {"sampler": SlidingWindow()}),
    *((ConfigError, f"`batch_size` must be at least 1, but got {n:,}", sample(n), {}) for n in (0, -1, -(2**62))),
    *(
        (
            ConfigError,
            f"`batch_size` ... at least 1 ... {n:,}",
            distribution([5], batch_size=n),
            {"sampler": Combined()},
        )
        for n in (0, -1, -(2**62))
    ),
    *((ConfigError, f"at most 2,147,483,647, but got {n:,}", sample(n), {}) for n in (2**31, 2**62, 2**70)),
    *((ConfigError, f"`batch_size` ... but got {n!r}", sample(n), {}) for n in (2.0, 2.5, "4", None, [4])),
    *(
        (
            ConfigError,
            f"`progress` must be in [0, 1] ... {n!r}",
            sample(4, progress=n),
            {"sampler": Prioritized(beta=beta)},
        )
        for n in (-0.1, 1.1, float("nan"), float("inf"), "half")
        for beta in (Linear(0.4, 1.0), Exponential(0.4, 1.0), Constant(0.4), 0.4)
    ),
    *(
        (ConfigError, f"one for each of 2 replicas, but got {n!r}", sample(4, progress=n), {"replicas": 2})
        for n in ([0.1, 0.2, 0.3], [0.1, 1.1], [[0.1, 0.2]], ["half", 0.2])
    ),
    (ConfigError, "`progress` must be in [0, 1] ... [0.1]", sample(4, progress=[0.1]), {}),
    *(
        (ConfigError, f"{type(sampler).__name__} depends on the batch size", distribution([5]), {"sampler": sampler})
        for sampler in (Combined(), Combined("replace"), SlidingWindow())
    ),
    (ShapeError, "`out` ... `obs.image` ... uint8 ... (4, 2, 2)", lambda b: b.sample(4, out=make().sample(5)), {}),
    (FieldError, "`out` must be a Batch ... list", sample(4, out=[1]), {}),
    (FieldError, "`out` must be a Batch ... dict", lambda b: b.sample(4, out=dict(make().sample(4))), {}),
    (ShapeError, "`out` ... `id`, a writable", lambda b: b.sample(4, out=frozen()), {}),
]


@pytest.mark.parametrize(
    ("error", "words", "call", "options"), cases([*SHAPES, *DTYPES, *NAMES, *PRIORITIES, *BAD_IDS, *SAMPLES])
)
def test_is_refused_and_leaves_no_trace(error, words, call, options):
    assert_refused(error, words, call, **options)


@pytest.mark.parametrize(("replicas", "num_envs"), [(None, None), (3, None), (None, 2), (3, 2)])
def test_shapes_in_every_layout(replicas, num_envs):
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


def test_an_integer_for_a_flag():
    buffer = ReplayBuffer(5, {"flag": Field((), np.bool_)})
    refused(DtypeError, "`flag` stores bool, but got int64", lambda: buffer.add(flag=1))


def test_where_no_priority_is_positive_nothing_can_be_drawn():
    buffer = make()
    buffer.update_priorities(np.arange(13), priority=np.zeros(13))
    refused(EmptyBufferError, "every one of the 10 stored steps has priority 0", lambda: buffer.sample(4))
    assert buffer.probabilities(np.arange(13)).tolist() == [0] * 13
    buffer.update_priorities(np.array([7]), priority=np.array([1e-30]))
    assert buffer.sample(4).id.tolist() == [7] * 4


def test_none_positive_in_one_replica():
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


def test_an_id_of_another_replica():
    """Replica 1 has one step fewer."""
    buffer = make(2)
    buffer.add(**step((2,)), where=np.array([True, False]))
    before = buffer.probabilities(np.tile(np.arange(13), (2, 1))).tobytes()
    call = update(np.array([[13], [13]]), np.ones((2, 1)))
    refused(IdError, "id 13 was never given out: ids so far are 0 to 12", lambda: call(buffer))
    assert buffer.probabilities(np.tile(np.arange(13), (2, 1))).tobytes() == before


def test_empty_in_one_replica():
    buffer = make(2, steps=0)
    buffer.add(**step((2,)), where=np.array([True, False]))
    with pytest.raises(EmptyBufferError):
        buffer.sample(1)


def test_numpy_integers_are_whole_numbers():
    assert make().sample(np.int32(3)).id.shape == (3,)
    assert make().probabilities(np.array([12], np.uint64)).shape == (1,)
