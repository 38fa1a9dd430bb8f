"""Buffers of every shape, random steps for them, and their comparison with the oracle."""

import math

import numpy as np

from replaylab.replay import (
    Combined,
    Field,
    Linear,
    Online,
    Prioritized,
    ReplayBuffer,
    SlidingWindow,
    Uniform,
)
from tests.oracle import OracleBuffer, flatten, map_leaves, unflatten

CAPACITIES = (1, 2, 5, 64, 1000)

FIELDS = {
    "scalar": {"x": Field((), np.float32)},
    "bytes": {"frame": Field((3, 5), np.uint8), "flag": Field((), np.bool_), "count": Field((), np.int64)},
    "transition": {
        "obs": Field((3,), np.float32),
        "action": Field((), np.int64),
        "reward": Field((), np.float64),
        "next_obs": Field((3,), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    },
    "nested": {
        "obs": {
            "image": Field((2, 2, 1), np.uint8),
            "joints": (Field((2,), np.float64), Field((), np.bool_)),
        },
        "action": (Field((), np.int64), Field((3,), np.float32)),
        "next_obs": {
            "image": Field((2, 2, 1), np.uint8),
            "joints": (Field((2,), np.float64), Field((), np.bool_)),
        },
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    },
}

SAMPLERS = (
    Online(),
    SlidingWindow(),
    Uniform(),
    Combined(),
    Combined(mode="replace"),
    Prioritized(),
    Prioritized(alpha=1.0, beta=1.0, normalize="batch"),
    Prioritized(alpha=0.5, beta=Linear(0.2, 0.9, until=0.5), epsilon=0.01, normalize="none"),
)


def random_leaf(rng, field, lead):
    """Draw random bits (so also NaN and infinity) of a field's dtype, with leading axes `lead`."""
    shape = (*lead, *field.shape)
    dtype = np.dtype(field.dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.25
    count = math.prod(shape)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype, count).reshape(shape).copy()


def rows_kept(batch_size, sampler):
    """Rows in a batch asked for with `batch_size`."""
    match sampler:
        case Online():
            return 1
        case Combined(mode="plus"):
            return batch_size + 1
    return batch_size


def bits(array):
    """Bytes of an array, so that NaNs compare too."""
    return np.ascontiguousarray(array).tobytes()


class World:
    """A buffer and its oracle, fed the same steps.

    Inside, arrays always have the axes R, T, E; `outward` drops those the buffer was not declared with.
    """

    def __init__(
        self,
        capacity,
        fields="transition",
        *,
        num_envs=None,
        replicas=None,
        sampler=None,
        autoreset=None,
        seed=0,
    ):
        self.fields, self.num_envs, self.replicas = FIELDS[fields], num_envs, replicas
        self.sampler = sampler or Uniform()
        options = {
            "num_envs": num_envs,
            "replicas": replicas,
            "sampler": self.sampler,
            "autoreset": autoreset,
        }
        self.buffer = ReplayBuffer(capacity, self.fields, seed=seed, **options)
        self.oracle = OracleBuffer(capacity, **options)
        self.rng = np.random.default_rng(seed)

    @property
    def rtol(self):
        """Relative tolerance of probabilities: p^alpha is rounded to float32, all else is float64."""
        return 3e-7 if isinstance(self.sampler, Prioritized) else 1e-12

    @property
    def R(self):  # noqa: N802
        return self.replicas or 1

    @property
    def E(self):  # noqa: N802
        return self.num_envs or 1

    def outward(self, array, *, time):
        """Drop the axes R, T, E that the caller does not have."""
        keep = [self.replicas is not None, time, self.num_envs is not None]
        lead = tuple(n for n, kept in zip(array.shape[:3], keep, strict=True) if kept)
        return array.reshape(lead + array.shape[3:])

    def per_replica(self, array):
        """Give an array from the buffer its R axis."""
        return np.asarray(array) if self.replicas is not None else np.asarray(array)[None]

    def random_tree(self, T):
        lead = (self.R, T, self.E)
        return map_leaves(lambda field: random_leaf(self.rng, field, lead), self.fields)

    def give(self, T=None, *, masked=False, object_final=False):
        """Give random steps to both: `add` when T is None, else `extend`; check the ids."""
        time = T is not None
        tree = self.random_tree(T if time else 1)
        where = self.rng.random((self.R, T if time else 1, self.E)) < (0.6 if masked else 2)
        options = {"where": self.outward(where, time=time)} if masked else {}
        final = None
        if self.oracle.autoreset == "same_step":
            lead = where.shape
            final = map_leaves(lambda field: random_leaf(self.rng, field, lead), self.fields["next_obs"])
            options["final_obs"] = map_leaves(lambda leaf: self.outward(leaf, time=time), final)
            if object_final and (time or self.num_envs or self.replicas):
                ended = tree["terminated"] | tree["truncated"]
                options["final_obs"] = self.outward(object_rows(final, ended), time=time)
        method = self.buffer.extend if time else self.buffer.add
        ids = method(**map_leaves(lambda leaf: self.outward(leaf, time=time), tree), **options)
        expected = self.outward(self.oracle.extend(tree, where, final), time=time)
        if expected.ndim:
            assert ids.dtype == np.int64
            assert ids.shape == expected.shape
        else:
            assert type(ids) is int
        np.testing.assert_array_equal(ids, expected)
        return ids

    def clear(self):
        """Drop everything."""
        self.buffer.clear()
        self.oracle.clear()

    def known_ids(self):
        """All ids ever given (R, n); shorter replicas are padded with -1."""
        counts = [len(replay.steps) for replay in self.oracle.replay]
        ids = np.arange(max(counts)) * np.ones((self.R, 1), np.int64)
        return np.where(ids < np.array(counts)[:, None], ids, -1)

    def drawable(self, batch_size):
        """Whether every replica can answer `sample(batch_size)`."""
        least = batch_size if isinstance(self.sampler, SlidingWindow) else 1
        if any(len(replay.stored) < least for replay in self.oracle.replay):
            return False
        return all(sum(replay.law(batch_size).values()) > 0 for replay in self.oracle.replay)

    def check_contents(self):
        """Sizes, and every stored step in its slot, bit for bit."""
        sizes = [len(replay.stored) for replay in self.oracle.replay]
        np.testing.assert_array_equal(self.buffer.size, sizes if self.replicas is not None else sizes[0])
        assert len(self.buffer) == min(sizes)
        for path, column in flatten(self.buffer.columns).items():
            assert not column.flags.writeable
            for replay, slots in zip(self.oracle.replay, self.per_replica(column), strict=True):
                assert slots.shape == (replay.capacity, *flatten(self.fields)[path].shape)
                if replay.stored:
                    where = np.array(replay.stored) % replay.capacity
                    assert bits(slots[where]) == bits([replay.steps[i][path] for i in replay.stored])

    def check_probabilities(self, batch_size=4):
        """Probabilities of every id ever given."""
        ids = self.known_ids()
        if ids.size and self.drawable(batch_size):
            given = ids if self.replicas is not None else ids[0]
            found = self.buffer.probabilities(given, batch_size=batch_size)
            assert found.dtype == np.float64
            assert found.shape == given.shape
            expected = self.oracle.probabilities(ids, batch_size)
            np.testing.assert_allclose(self.per_replica(found), expected, rtol=self.rtol, atol=0)

    def check_batch(self, batch, batch_size, progress):
        """Each row is its id's step; probability, weight and the sampler's fixed rows are right."""
        n = rows_kept(batch_size, self.sampler)
        lead = (n,) if self.replicas is None else (self.replicas, n)
        assert batch.id.dtype == np.int64
        assert batch.weight.dtype == np.float32
        assert batch.probability.dtype == np.float64
        assert batch.id.shape == batch.weight.shape == batch.probability.shape == lead
        leaves = flatten(unflatten({(name,): batch[name] for name in self.fields}))
        for r, replay in enumerate(self.oracle.replay):
            ids = self.per_replica(batch.id)[r].tolist()
            assert set(ids) <= set(replay.stored)
            for path, array in leaves.items():
                field = flatten(self.fields)[path]
                assert array.shape == (*lead, *field.shape)
                assert array.dtype == field.dtype
                assert bits(self.per_replica(array)[r]) == bits([replay.steps[i][path] for i in ids])
            law = replay.law(batch_size)
            expected = [law[i] for i in ids]
            np.testing.assert_allclose(self.per_replica(batch.probability)[r], expected, rtol=self.rtol)
            beta = self.sampler.beta if isinstance(self.sampler, Prioritized) else 0.0
            beta = beta(progress) if callable(beta) else beta
            expected = replay.weights(ids, batch_size, beta)
            np.testing.assert_allclose(self.per_replica(batch.weight)[r], expected, rtol=2e-6, atol=1e-37)
            self.check_fixed_rows(replay, ids, batch_size, law)

    def check_fixed_rows(self, replay, ids, batch_size, law):
        """What is certain about a batch whatever the random numbers."""
        newest = replay.stored[-1]
        match self.sampler:
            case Online():
                assert ids == [newest]
            case SlidingWindow():
                assert ids == list(replay.stored)[: -batch_size - 1 : -1]  # newest first
            case Combined():
                assert ids[-1] == newest
            case Prioritized():
                for i in set(ids):
                    # B P segments long, it touches at most ceil(B P) + 1 of them and covers floor(B P) - 1.
                    share = batch_size * law[i]
                    assert law[i] > 0
                    assert math.floor(share * (1 - 1e-6)) - 1 <= ids.count(i) <= math.ceil(share * (1 + 1e-6)) + 1


def object_rows(tree, wanted):
    """Make the object array Gymnasium has in `info["final_obs"]`: for each env an observation or None."""
    rows = np.full(wanted.shape, None, object)
    for index in zip(*np.nonzero(wanted), strict=True):
        rows[index] = map_leaves(lambda leaf, index=index: leaf[index], tree)
    return rows
