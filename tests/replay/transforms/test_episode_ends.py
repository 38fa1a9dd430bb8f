"""`terminated` and `truncated` of any dtype end episodes where they are not 0, in the core and for custom samplers."""

import numpy as np
import pytest

from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.replay import EpisodeEnds, Field, FrameStack, Hindsight, NStep, ReplayBuffer, Sequence
from tests.replay.buffers import GOALS, Seeing, seen

DTYPES = (bool, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.float16, np.float32, np.float64, np.longdouble)
ENDS = [0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0]


def make(field, name="terminated", **options):
    return ReplayBuffer(30, {"obs": Field(), name: field}, seed=0, **options)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype_ends_episodes_as_bool_does(dtype, shape, name):
    obs = np.arange(len(ENDS), dtype=np.float32)
    stacks, episodes = [], []
    for field in (Field((), bool), Field(shape, dtype)):
        flags = np.array(ENDS, field.dtype).reshape(-1, *field.shape)
        buffer = make(field, name, transforms=[FrameStack(3)])
        sequences = make(field, name, transforms=[Sequence(2, 1, 1)])
        seen.clear()
        custom = make(field, name, sampler=Seeing())
        for each in (buffer, sequences, custom):
            each.extend(obs=obs, **{name: flags})
        custom.sample(1)
        stacks.append((buffer.as_batch(np.arange(11)).obs, sequences.as_batch(np.arange(11)).obs))
        episodes.append(seen[0])
        last = make(field, name, transforms=[FrameStack(3)])
        for k in range(len(ENDS)):
            last.add(obs=obs[k], **{name: flags[k]})
        np.testing.assert_array_equal(last.as_batch(np.arange(11)).obs, stacks[-1][0])
    for mine, other in zip(*stacks, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert episodes[0] == episodes[1]
    assert stacks[0][0][3].tolist() == [3, 3, 3]  # the fourth step begins an episode
    assert seen[0][1] == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize(("value", "ends"), [(-0.0, False), (0.0, False), (np.nan, True), (6e-8, True), (-1, True)])
def test_what_is_not_zero(dtype, value, ends):
    for sampler in (None, Seeing()):
        buffer = make(Field((), dtype), transforms=[FrameStack(2)], sampler=sampler)
        buffer.add(obs=1.0, terminated=np.array(value, dtype))
        buffer.add(obs=2.0, terminated=0)
        assert buffer.as_batch([1]).obs.tolist() == [[2.0 if ends else 1.0, 2.0]]
        if sampler is not None:
            seen.clear()
            buffer.sample(1)
            assert seen[0][1] == [0, 0 if ends else 1]


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize(
    "bad", [Field((2,), bool), Field((), complex), {"a": Field((), bool)}, (Field((), bool),)], ids=repr
)
def test_flags_that_say_nothing_of_a_step(name, bad):
    fields = {"obs": Field(), name: bad}
    path = name + (".a" if isinstance(bad, dict) else ".0" if isinstance(bad, tuple) else "")
    leaf = next(iter(bad.values())) if isinstance(bad, dict) else bad[0] if isinstance(bad, tuple) else bad
    for asks, options in [
        ("FrameStack", {"transforms": [FrameStack(2)]}),
        ("Sequence", {"transforms": [Sequence(2, 1)]}),
        ("Seeing", {"sampler": Seeing()}),
        ("EpisodeEnds", {"sampler": EpisodeEnds(truncated=True)}),
    ]:
        with pytest.raises(FieldError) as caught:
            ReplayBuffer(10, fields, **options)
        assert str(caught.value) == (
            f"`{name}` must be one number a step, which ends its episode where it is not 0, since {asks} needs "
            f"episodes, but `{path}` is {leaf}; declare `{name}` as Field((), bool), and this under another name"
        )
    ReplayBuffer(10, fields)  # nothing asks


def test_hindsight_needs_no_truncations():
    fields = {"obs": GOALS, "reward": Field(), "next_obs": GOALS, "terminated": Field((), bool)}
    hindsight = Hindsight(lambda *a: np.ones(len(a[0])), lambda *a: np.zeros(len(a[0]), bool))
    assert ReplayBuffer(10, fields, transforms=[hindsight]).transforms == (hindsight,)


@pytest.mark.parametrize(
    "bad", [[0, 1], "x", object(), [[1], [1, 2]], {}], ids=["two", "text", "object", "ragged", "mapping"]
)
def test_a_custom_samplers_record_stays_with_the_rows(bad):
    buffer = make(Field((), bool), sampler=Seeing())
    buffer.add(obs=1.0, terminated=True)
    with pytest.raises((ShapeError, DtypeError, FieldError)):
        buffer.add(obs=2.0, terminated=bad)
    assert len(buffer) == 1
    seen.clear()
    buffer.add(obs=3.0, terminated=False)
    buffer.sample(1)
    assert seen == [([0, 1], [0, 0])]


STEPS = {"obs": Field(), "reward": Field(), "next_obs": Field()}


@pytest.mark.parametrize(
    "transform", [FrameStack(2), NStep(2, 1.0), Sequence(2, 0, 0)], ids=lambda transform: type(transform).__name__
)
class TestWithoutFlags:
    """Nothing but `end_episode` says where an episode ends: that must be meant."""

    def test_that_is_refused(self, transform):
        with pytest.raises(FieldError, match=r'neither `terminated` nor `truncated`; .*episodes="manual"'):
            ReplayBuffer(20, STEPS, transforms=[transform])

    def test_unless_it_is_meant(self, transform, tmp_path):
        buffer = ReplayBuffer(20, STEPS, transforms=[transform], episodes="manual", seed=0)
        for start in (0, 10):
            n = np.arange(start, start + 3)
            buffer.extend(obs=n, reward=np.ones(3), next_obs=n + 1)
            buffer.end_episode()
        buffer.save(tmp_path)
        for each in (buffer, ReplayBuffer.load(tmp_path)):
            batch = each.as_batch(range(6))
            match transform:
                case FrameStack():
                    assert batch.obs.tolist() == [[0, 0], [0, 1], [1, 2], [10, 10], [10, 11], [11, 12]]
                case NStep():
                    assert batch.reward.tolist() == [2, 2, 1, 2, 2, 1]
                    assert batch.discount.tolist() == [1.0] * 6
                case Sequence():
                    assert batch.obs[2].tolist() == [2, 0]
