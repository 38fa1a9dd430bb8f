"""Buffers that cannot be made: a specific error that names field and value, before any memory is taken."""

import numpy as np
import pytest

from replaylab import machine
from replaylab.errors import ConfigError, FieldError, OverSizeError
from replaylab.replay import (
    Aged,
    Combined,
    EpisodeEnds,
    Field,
    FrameStack,
    FreshFirst,
    Greedy,
    Hindsight,
    Mixture,
    NStep,
    Prioritized,
    RankBased,
    Recency,
    ReplayBuffer,
    Reservoir,
    Sequence,
    SlidingWindow,
    Uniform,
)
from replaylab.research import Blocks, Permuted, Tape
from tests.replay.buffers import FLAGS, GOALS, Even, cases, refused, transition

FIELDS = transition(Field((2,)), action=Field((), np.int64))
GOAL_FIELDS = FIELDS | {"obs": GOALS, "next_obs": GOALS}


def ones(achieved, desired, info):
    return np.ones(len(achieved))


def never(achieved, desired, info):
    return np.zeros(len(achieved), bool)


def refusal(error, words="", **options):
    """The message with which a buffer is refused at its making."""
    options = {"capacity": 5, "fields": {"x": Field()}} | options
    return refused(error, words, lambda: ReplayBuffer(**options))


def without(*names, **more):
    return {"fields": {name: field for name, field in (FIELDS | more).items() if name not in names}}


def stacking(*fields, **more):
    return {"fields": FIELDS | more, "transforms": [FrameStack(fields=fields)]}


HINDSIGHT = Hindsight(ones, never)
BUFFERS = [
    (ConfigError, "`capacity` must hold one step of every environment ... capacity=5, num_envs=6", {"num_envs": 6}),
    *(
        (ConfigError, f"`{name}` must be at most {most:,}, but got {most + 1:,}", {name: most + 1})
        for name, most in (("capacity", 2**62), ("num_envs", 2**31 - 1), ("replicas", 2**31 - 1))
    ),
    *((FieldError, "field `x` is nested but holds no Field", {"fields": {"y": Field(), "x": x}}) for x in ({}, ())),
    (
        FieldError,
        "key 'a.b' in field `x` must not hold a dot",
        {"fields": {"x": {"a.b": Field(), "a": {"b": Field()}}}},
    ),
    (FieldError, "`fields` must be a mapping ... [Field", {"fields": [Field()]}),
    (FieldError, "field `x.y` must be a Field ... 3", {"fields": {"x": {"y": 3}}}),
    (FieldError, "field `x` must be a Field ... <class 'numpy.float32'>", {"fields": {"x": np.float32}}),
    (FieldError, "name must be an identifier, but got 'a b'", {"fields": {"a b": Field()}}),
    *(
        (FieldError, f"`{name}` is reserved ... give the field another name", {"fields": {name: Field()}})
        for name in ("weight", "probability", "id", "where", "final_obs", "torch", "jax", "pin_memory")
    ),
    (ConfigError, f"`sampler` must be a Sampler ... {SlidingWindow!r}", {"sampler": SlidingWindow}),
    (ConfigError, "`seed` ... one seed for each replica (replicas=3), but has 2", {"seed": [1, 2], "replicas": 3}),
    *(
        (FieldError, f'autoreset="{mode}" needs the field `{missing}`', {"autoreset": mode, "fields": fields})
        for mode in ("next_step", "same_step")
        for missing, fields in (
            ("terminated", {"x": Field()}),
            ("terminated", FLAGS | {"terminated": Field(), "next_obs": Field()}),
            ("truncated", {"terminated": Field((), np.bool_), "next_obs": Field()}),
        )
    ),
    (FieldError, 'autoreset="same_step" needs the field `next_obs`', {"autoreset": "same_step", "fields": FLAGS}),
]
TRANSFORMS = [
    *(
        (ConfigError, f"`transforms` must hold transforms, at most one of a kind ... {some[0]!r}", {"transforms": some})
        for some in ([NStep(2), NStep(3)], [Uniform()])
    ),
    *(
        (FieldError, f"{type(part).__name__} needs the field `{name}` ... {dtype})", {"transforms": [part], **fields})
        for part, names in ((NStep(), ("reward", "terminated", "truncated")), (HINDSIGHT, ("reward", "terminated")))
        for name in names
        for dtype in ("float32" if name == "reward" else "bool",)
        for fields in (without(name), without(**{name: Field((2,))}))
    ),
    # Where outcomes are computed, they are declared in one way.
    (FieldError, "NStep needs the field `truncated` ... bool", without(truncated=Field()) | {"transforms": [NStep()]}),
    (
        FieldError,
        "Hindsight needs the field `truncated` ... bool",
        {"fields": GOAL_FIELDS | {"truncated": Field()}, "transforms": [HINDSIGHT]},
    ),
    (FieldError, "NStep needs the field `next_obs`", without("next_obs") | {"transforms": [NStep()]}),
    *(
        (
            FieldError,
            f"{type(part).__name__} makes the column `{name}`",
            without(**{name: Field()}) | {"transforms": [part]},
        )
        for part, name in ((NStep(), "discount"), (NStep(), "n_steps"), (Sequence(), "mask"))
    ),
    (FieldError, "FrameStack stacks the field `frame`, which is not declared", stacking("frame")),
    (FieldError, "`next_obs` must be declared as `obs` is", stacking("obs", next_obs=Field((3,)))),
    *((FieldError, f"FrameStack cannot stack `{name}`", stacking(name)) for name in ("reward", "terminated")),
    *(
        (FieldError, "FrameStack cannot stack `obs.", {"fields": GOAL_FIELDS, "transforms": transforms})
        for transforms in ([FrameStack(), HINDSIGHT], [HINDSIGHT, FrameStack()])
    ),
    (
        FieldError,
        "FrameStack cannot stack `action`",
        {"fields": FIELDS, "transforms": [Sequence(state=("action",)), FrameStack(fields=("action",))]},
    ),
    *(
        (FieldError, f"`state` of Sequence ... `{name}`", {"fields": FIELDS, "transforms": [Sequence(state=(name,))]})
        for name in ("hidden", "reward", "next_obs")
    ),
    (FieldError, "Hindsight needs ... `obs.desired_goal` is missing", {"fields": FIELDS, "transforms": [HINDSIGHT]}),
    (
        FieldError,
        "`next_obs.achieved_goal` is Field((3,), float32)",
        {"fields": GOAL_FIELDS | {"next_obs": GOALS | {"achieved_goal": Field((3,))}}, "transforms": [HINDSIGHT]},
    ),
]
PAIR = {"a": Field(), "b": Field()}
DERIVED = [
    (FieldError, 'next_obs="derived" needs the fields `obs` and `next_obs`', {**fields, "next_obs": "derived"})
    for fields in (
        without("next_obs"),
        without("obs"),
        without(next_obs=Field((3,))),
        without(next_obs=Field((2,), np.float64)),
        without(obs=PAIR, next_obs={"a": Field()}),
        without(obs={"a": Field()}, next_obs=PAIR),
    )
]
IN_A_RESERVOIR = [
    (ConfigError, "a Reservoir keeps single transitions", {"fields": FIELDS, "transforms": [NStep()]}),
    (ConfigError, "a Reservoir keeps single transitions", {"fields": FIELDS, "next_obs": "derived"}),
    *(
        (ConfigError, f"{type(sampler).__name__} needs the order of the steps", {"sampler": sampler})
        for sampler in (
            *(Recency(), Permuted(bins=2), Mixture((Uniform(), Recency())), Combined(), Even(), Blocks(2)),
            *(Prioritized(block_length=2), Permuted(block_length=2), Tape("x")),
            *(Aged(Uniform(), half_life=5.0), FreshFirst(Uniform())),
        )
    ),
]
REFUSED = [*BUFFERS, *TRANSFORMS, *DERIVED]
REFUSED += [(error, words, options | {"retention": Reservoir()}) for error, words, options in IN_A_RESERVOIR]


@pytest.mark.parametrize(("error", "words", "options"), cases(REFUSED))
def test_a_buffer_that_cannot_be(error, words, options):
    refusal(error, words, **options)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), Permuted(beta=0.4)], ids=repr)
def test_samplers_that_need_no_order(sampler):
    buffer = ReplayBuffer(10, FIELDS, sampler=sampler, retention=Reservoir(), seed=0)
    assert buffer.retention == Reservoir()


class TestMemory:
    """More than the machine has is refused before any of it is taken, with a capacity that would do."""

    @pytest.fixture
    def has(self, monkeypatch):
        return lambda size: monkeypatch.setattr("replaylab.replay.buffer_memory.machine_memory", lambda: size)

    def test_the_message(self, has):
        has(2**30)
        fields = {"image": Field((84, 84), np.uint8), "reward": Field()}
        words = "capacity=1,000,000 needs 6.6 GiB (7,060 bytes a step) ... has 1.0 GiB; ... at most 121,670, "
        words += " ... compressed=True ... storage=MemoryMap(path)"
        refusal(OverSizeError, words, capacity=1_000_000, fields=fields)

    def test_replicas_count(self, has):
        has(2**30)
        fields = {"x": Field((250,))}
        ReplayBuffer(1000, fields, replicas=1)
        words = "capacity=1,000 needs 1.9 GiB (1,000 bytes a step, 2,000 replicas) ... has 1.0 GiB"
        refusal(OverSizeError, words, capacity=1000, fields=fields, replicas=2000)

    def test_the_sampler_counts(self, has):
        buffer = ReplayBuffer(100_000, {"x": Field()}, sampler=Prioritized())
        has(600_000)
        ReplayBuffer(100_000, {"x": Field()})
        assert buffer.nbytes > 600_000
        refusal(OverSizeError, capacity=100_000, sampler=Prioritized())

    def test_replicas_that_fit_one_by_one(self, has):
        has(10**6)
        message = refusal(OverSizeError, capacity=1000, fields={"x": Field((25,))}, replicas=30)
        most = int(message.split("use at most ")[1].split(" replicas")[0])
        assert 1 <= most < 30
        ReplayBuffer(1000, {"x": Field((25,))}, replicas=most)
        refusal(OverSizeError, capacity=1000, fields={"x": Field((25,))}, replicas=most + 1)

    @pytest.mark.parametrize("capacity", [10**12, 2**62])
    def test_on_this_machine(self, capacity):
        refusal(OverSizeError, f"capacity={capacity:,} needs ", capacity=capacity)
        refusal(OverSizeError, capacity=capacity, fields={"x": Field((2**20,))})
        refusal(OverSizeError, capacity=capacity, sampler=Prioritized(), replicas=7)

    @pytest.mark.parametrize("shape", [(2**31, 2**33), (2**32, 2**32), (2**40, 2**40), (2**61,), (2**62, 3)])
    def test_sizes_beyond_64_bits(self, shape):
        refusal(OverSizeError, "use a smaller shape, smaller dtypes or fewer fields", fields={"x": Field(shape)})
        refusal(OverSizeError, fields={"x": Field(shape), "y": Field()}, replicas=3)

    def test_the_capacity_it_names_is_accepted(self, has):
        has(10**6)
        message = refusal(OverSizeError, capacity=10**6, sampler=Prioritized())
        most = int(message.split("use a capacity of at most ")[1].split(", s")[0].replace(",", ""))
        assert 0.75 * 10**6 < ReplayBuffer(most, {"x": Field()}, sampler=Prioritized()).nbytes <= 0.85 * 10**6

    DERIVED = 'next_obs="derived"'
    STACKS, PACKED, DISK = "FrameStack(4, stacked_input=True)", "compressed=True", "storage=MemoryMap(path)"

    @pytest.mark.parametrize(
        ("shape", "dtype", "options", "named"),
        [
            ((4, 84, 84), np.uint8, {}, (DERIVED, STACKS, PACKED, DISK)),
            ((4, 84, 84), np.uint8, {"transforms": [NStep(3, 0.9)]}, (DERIVED, STACKS, PACKED, DISK)),
            ((84, 84), np.uint8, {"transforms": [FrameStack(4)], "next_obs": "derived"}, (PACKED,)),
            ((84, 84, 3), np.uint8, {"retention": Reservoir()}, (PACKED,)),
            ((2000,), np.float32, {}, (DERIVED, DISK)),
            ((2000,), np.float32, {"next_obs": "derived"}, ()),
        ],
        ids=str,
    )
    def test_it_names_the_options_that_apply_and_no_others(self, shape, dtype, options, named, has):
        has(2**20)
        message = refusal(OverSizeError, capacity=10**6, fields=transition(Field(shape, dtype)), **options)
        assert [text for text in (self.DERIVED, self.STACKS, self.PACKED, self.DISK) if text in message] == list(named)


class TestThisMachinesMemory:
    def test_a_container_may_have_less(self, monkeypatch, tmp_path):
        for text, expected in [("4096\n", 4096), ("max\n", machine.machine_memory())]:
            (tmp_path / "memory.max").write_text(text)
            with monkeypatch.context() as patch:
                patch.setattr(machine, "Path", lambda _: tmp_path / "memory.max")
                assert machine.machine_memory() <= expected
                if text.strip().isdigit():
                    assert machine.machine_memory() == expected

    def test_it_may_be_unknown(self, monkeypatch, tmp_path):
        def unknown(name):
            raise ValueError(name)

        monkeypatch.setattr(machine, "Path", lambda _: tmp_path / "none")
        assert machine.machine_memory() > 2**20
        monkeypatch.setattr(machine.os, "sysconf", unknown)
        assert machine.machine_memory() == 2**62

    def test_sizes_are_said_in_the_unit_a_person_would_use(self):
        sizes = {0: "0 bytes", 1023: "1,023 bytes", 1024: "1.0 KiB", 3 * 2**29: "1.5 GiB", 2**53: "8,192.0 TiB"}
        assert {size: machine.size_text(size) for size in sizes} == sizes


class TestNumbersOfStepsOf32Bits:
    """Refused before any memory is asked for or taken."""

    MOST = 2**32 - 1

    @pytest.mark.parametrize(
        "options",
        [
            {"sampler": RankBased()},
            {"sampler": Greedy()},
            {"sampler": Mixture((Uniform(), RankBased()))},
            {"sampler": EpisodeEnds(truncated=True)},
            {"transforms": [Sequence()]},
            {"transforms": [FrameStack(2, fields=("x",))]},
        ],
        ids=str,
    )
    def test_are_not_enough(self, monkeypatch, options):
        monkeypatch.setattr("replaylab.replay.buffer_memory.machine_memory", lambda: 2**60)
        options |= {"capacity": self.MOST, "fields": {"x": Field((), bool)}, "episodes": "manual"}
        refusal(ConfigError, "`capacity` must be below 4294967295 ... but got 4294967295; use a smaller", **options)

    def test_where_they_are_it_is_only_memory(self):
        refusal(OverSizeError, capacity=self.MOST - 1, sampler=RankBased())
        refusal(OverSizeError, capacity=2**33, sampler=Prioritized())
