"""Options, callbacks and places that are wrong in kind: an error that names field, rule and value."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import (
    ConfigError,
    DtypeError,
    FieldError,
    NonFiniteError,
    OverSizeError,
    SnapshotError,
    StorageError,
)
from replaylab.replay import (
    LAP,
    AntiPrioritized,
    Blocks,
    Constant,
    CustomSampler,
    Dispersed,
    Exponential,
    Field,
    Geometric,
    Hindsight,
    LaBER,
    Linear,
    MemoryMap,
    MixedReplay,
    Mixture,
    NStep,
    Oracle,
    Permuted,
    Prioritized,
    RankBased,
    Recency,
    ReLo,
    ReplayBuffer,
    ReplayRecorder,
    ReplayStream,
    ReverseSweep,
    Sequence,
    SharedMemory,
    Sticky,
    Uniform,
)

GIVEN = (Blocks, Geometric, Sticky, LAP, ReLo, Prioritized, Permuted, Dispersed, AntiPrioritized, RankBased, Recency)


def filled(**options):
    buffer = ReplayBuffer(10, {"x": Field()}, seed=0, **options)
    buffer.extend(x=np.arange(10.0))
    return buffer


def refuses(error, message, call):
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: ReplayBuffer(True, {"x": Field()}), "`capacity` must be a whole number"),
        (lambda: ReplayBuffer(5, {"x": Field()}, num_envs=True), "`num_envs` must be a whole number"),
        (
            lambda: ReplayBuffer(5, {"x": Field()}, seed=True),
            "`seed` must be a whole number that is not negative, or None",
        ),
        (lambda: filled().sample(True), "`batch_size` must be a whole number"),
        (lambda: Blocks(length=True), "`length` of Blocks must be a whole number"),
    ],
)
def test_true_is_no_number(call, name):
    refuses(ConfigError, f"{name}, but got True", call)


class TestSamplers:
    @pytest.mark.parametrize("value", ["a", None, float("nan")])
    @pytest.mark.parametrize(
        ("kind", "name"),
        [(kind, one.name) for kind in (*GIVEN, ReverseSweep) for one in dataclasses.fields(kind)],
        ids=lambda one: getattr(one, "__name__", one),
    )
    def test_numbers(self, kind, name, value):
        refuses(ConfigError, f"`{name}` of {kind.__name__} must be", lambda: kind(**{name: value}))

    @pytest.mark.parametrize(("kind", "name"), [(Blocks, "length"), (ReverseSweep, "stride"), (Recency, "least")])
    def test_counts_are_whole(self, kind, name):
        message = f"`{name}` of {kind.__name__} must be a whole number, but got 1.5"
        refuses(ConfigError, message, lambda: kind(**{name: 1.5}))

    def test_mixtures(self):
        refuses(ConfigError, "`parts` of Mixture must be two or more samplers", lambda: Mixture(Uniform()))
        shares = "`shares` of Mixture must be one positive number for each part, but got ('a', 1)"
        refuses(ConfigError, shares, lambda: Mixture((Uniform(), Uniform()), ("a", 1)))
        shares = "`shares` of Mixture must be numbers whose sum is finite, but got (1e+308, 1e+308)"
        refuses(ConfigError, shares, lambda: Mixture((Uniform(), Uniform()), (1e308, 1e308)))

    @pytest.mark.parametrize("wrong", ["a", None, float("nan"), float("inf")])
    def test_schedules(self, wrong):
        for kind, given in ((Linear, (0.0, wrong)), (Exponential, (0.1, wrong))):
            message = f"`end` of {kind.__name__} must be a finite number, but got {wrong!r}"
            refuses(ConfigError, message, lambda kind=kind, given=given: kind(*given))
        refuses(ConfigError, f"`value` of Constant must be a finite number, but got {wrong!r}", lambda: Constant(wrong))


class TestTransforms:
    @pytest.mark.parametrize("given", [NStep(), None])
    def test_a_list_of_them(self, given):
        message = f"`transforms` must be a list or tuple of transforms, but got {given!r}"
        refuses(ConfigError, message, lambda: ReplayBuffer(3, {"x": Field()}, transforms=given))

    def test_numbers(self):
        refuses(ConfigError, "`gamma` of NStep must be in [0, 1], but got 'a'", lambda: NStep(gamma="a"))
        refuses(ConfigError, "`eta` of Sequence must be in [0, 1], but got None", lambda: Sequence(eta=None))
        ratio = "`ratio` of Hindsight must be finite and not negative, but got 'a'"
        refuses(ConfigError, ratio, lambda: Hindsight(len, len, ratio="a"))

    @pytest.mark.parametrize("dtype", ["U1", "complex128", "object"])
    def test_rewards_are_real(self, dtype):
        goals = {"achieved_goal": Field(), "desired_goal": Field()}
        ends = {"terminated": Field((), bool), "truncated": Field((), bool)}
        transform = Hindsight(lambda a, *_: np.zeros(len(a), dtype), lambda a, *_: a > 9)
        fields = {"obs": goals, "next_obs": goals, "reward": Field(), **ends}
        buffer = ReplayBuffer(9, fields, transforms=(transform,), seed=0)
        obs = dict.fromkeys(goals, 0.0)
        buffer.add(obs=obs, next_obs=obs, reward=0, terminated=False, truncated=False)
        message = f"`compute_reward` of Hindsight must return real numbers, but returned {np.dtype(dtype)}"
        refuses(ConfigError, message, lambda: buffer.sample(64))

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
    def test_rewards_can_be_held(self, wrong):
        goals = {"achieved_goal": Field(), "desired_goal": Field()}
        ends = {"terminated": Field((), bool), "truncated": Field((), bool)}
        transform = Hindsight(lambda a, *_: np.full(len(a), wrong), lambda a, *_: a > 9)
        fields = {"obs": goals, "next_obs": goals, "reward": Field(), **ends}
        buffer = ReplayBuffer(9, fields, transforms=(transform,), seed=0)
        obs = dict.fromkeys(goals, 0.0)
        buffer.add(obs=obs, next_obs=obs, reward=0, terminated=False, truncated=False)
        message = (
            f"`compute_reward` of Hindsight must return finite numbers that float32 can hold, but returned {wrong}"
        )
        refuses(NonFiniteError, message, lambda: buffer.sample(64))

    def test_batches_that_do_not_fit(self):
        """However few rows they have."""
        fields = {"x": Field(), "terminated": Field((), bool), "truncated": Field((), bool), "reward": Field()}
        buffer = ReplayBuffer(3, fields, transforms=(Sequence(2**31, 0, 0),))
        buffer.add(x=0, terminated=False, truncated=False, reward=0)
        refuses(OverSizeError, "a batch of 1,024 rows needs ", lambda: buffer.sample(1024))


class TestFields:
    @pytest.mark.parametrize("shape", [None, ("a",), (2.5,)])
    def test_shapes(self, shape):
        refuses(
            FieldError, f"a field's shape must be whole numbers of at least 1, but got {shape!r}", lambda: Field(shape)
        )

    def test_dtypes(self):
        refuses(FieldError, "a field's dtype must be one of NumPy's, but got 'nope'", lambda: Field((), "nope"))

    def test_one_step_that_does_not_fit(self):
        with pytest.raises(OverSizeError, match="use a smaller shape, smaller dtypes or fewer fields"):
            ReplayBuffer(3, {"x": Field((2**62,))})

    @pytest.mark.parametrize("call", ["get", "probabilities", "update_priorities"])
    def test_no_ids(self, call):
        more = ([1.0],) if call == "update_priorities" else ()
        refuses(DtypeError, "`ids` must be integers, but got object", lambda: getattr(filled(), call)(None, *more))


@dataclass(frozen=True)
class Drawn(CustomSampler):
    """Draws what it is told to."""

    ids: object
    no_law = "it has none"

    def draw(self, view, batch_size, rng):
        return self.ids


@dataclass(frozen=True)
class Lawful(CustomSampler):
    """Has the law it is told to have."""

    chances: object

    def law(self, view, batch_size):
        return self.chances


class TestCustomSamplers:
    @pytest.mark.parametrize("ids", [None, [], [0], [0, 1, 2], [0.0, 1.0], ["a", "b"]])
    def test_draws(self, ids):
        message = "`draw` of Drawn must return the ids of stored steps, int64 (B,), but returned"
        refuses(ConfigError, message, lambda: filled(sampler=Drawn(ids)).sample(2))

    @pytest.mark.parametrize("chances", ["a", None, [0.1j] * 10])
    def test_laws(self, chances):
        message = "`law` of Lawful must return 10 chances that sum to 1, but returned"
        refuses(ConfigError, message, lambda: filled(sampler=Lawful(chances)).sample(2))

    @pytest.mark.parametrize("scores", [[1.0], [np.nan] * 10, ["a"] * 10])
    def test_scores(self, scores):
        message = "`score` of Oracle must return one number for each of 10 ids, none of them NaN, but returned"
        refuses(ConfigError, message, lambda: filled(sampler=Oracle(lambda _: scores)).sample(2))
        refuses(ConfigError, "`score` of Oracle must be a function of ids, but got None", lambda: Oracle(None))


class TestPlaces:
    def test_saving_where_nothing_can_be_written(self, tmp_path):
        buffer, file = filled(), tmp_path / "file"
        file.write_text("not a folder")
        for place in (file, file / "below", Path("/proc/none")):
            refuses(
                StorageError, f"the snapshot cannot be written to {place}: ", lambda place=place: buffer.save(place)
            )
        assert file.read_text() == "not a folder"
        buffer.save(tmp_path / "good")

    @pytest.mark.parametrize("sampler", [Oracle(len), LaBER(len)], ids=["Oracle", "LaBER"])
    def test_loading_with_a_sampler_it_was_not_saved_with(self, tmp_path, sampler):
        filled().save(tmp_path)
        saved = "Uniform(replace=True, stratified=False)"
        message = f"the snapshot was saved with {saved}, and has no records for {type(sampler).__name__}"
        refuses(SnapshotError, message, lambda: ReplayBuffer.load(tmp_path, sampler=sampler))

    def test_storage(self):
        for path in (None, 3, "a\0b"):
            message = f"`path` of MemoryMap must be the path of a file, but got {path!r}"
            refuses(ConfigError, message, lambda path=path: MemoryMap(path))
        refuses(ConfigError, "`name` of SharedMemory must be a file name", lambda: SharedMemory("a\0b"))
        message = "`create` of SharedMemory must be True or False, but got 'yes'"
        refuses(ConfigError, message, lambda: SharedMemory("a", create="yes"))

    @pytest.mark.parametrize("source", [None, 5])
    def test_streams(self, source):
        message = f"`source` must be an iterable of steps or of lists of them, but got {source}"
        refuses(ConfigError, message, lambda: ReplayStream(source, 10, 2))

    def test_buffers_of_streams(self):
        message = "`buffer` must be a capacity, a ReplayBuffer or another Replay, but got 100.0"
        refuses(ConfigError, message, lambda: ReplayStream([], 100.0, 2))

    @pytest.mark.parametrize("state", [None, {}, {"taken": 1, "drawn": 1}, {"taken": 1, "drawn": 1, "buffer": {}}])
    def test_states(self, state):
        message = "the state must be one that `state` returned, but "
        refuses(SnapshotError, message, lambda: ReplayStream([], 10, 2).restore(state))

    @pytest.mark.parametrize("env", [None, 5])
    def test_environments(self, env):
        message = f"`env` must be an environment or a vector environment of Gymnasium's, but got {env}"
        refuses(ConfigError, message, lambda: ReplayBuffer.for_env(env, 10))
        refuses(ConfigError, message, lambda: ReplayRecorder.for_env(env, 10))
        refuses(
            ConfigError,
            "`buffer` must be a ReplayBuffer or another Replay, but got None",
            lambda: ReplayRecorder(env, None),
        )

    def test_mixtures_of_buffers(self):
        refuses(
            ConfigError,
            "`buffers` must hold two or more ReplayBuffers, or other Replays, but got None",
            lambda: MixedReplay(None),
        )
        parts = filled(), filled()
        for shares in (0.5, ("a", "b")):
            message = f"`shares` must be one positive number for each of the 2 buffers, but got {shares!r}"
            refuses(ConfigError, message, lambda shares=shares: MixedReplay(parts, shares))
        message = "`shares` must be numbers whose sum is finite, but got (1e+308, 1e+308)"
        refuses(ConfigError, message, lambda: MixedReplay(parts, (1e308, 1e308)))
        for batch in ([0], {"id": [0]}):
            message = f"`batch` must hold the columns `source` and `id`, but got {batch!r}; pass one of sample()"
            refuses(FieldError, message, lambda batch=batch: MixedReplay(parts).update_priorities(batch, [1.0]))
