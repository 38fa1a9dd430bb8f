"""Buffers that cannot be made: a specific error, word for word, before any memory is taken."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, FieldError, OverSizeError
from replaylab.replay import (
    Dispersed,
    Field,
    FrameStack,
    Greedy,
    Mixture,
    Prioritized,
    RankBased,
    ReplayBuffer,
    Sequence,
    SlidingWindow,
    Uniform,
)
from replaylab.replay.data import memory


def refusal(error, **options):
    """The message with which a buffer is refused at its making."""
    options = {"capacity": 5, "fields": {"x": Field()}} | options
    with pytest.raises(error) as caught:
        ReplayBuffer(options.pop("capacity"), options.pop("fields"), **options)
    assert type(caught.value) is error
    return str(caught.value)


class TestMaking:
    @pytest.mark.parametrize("name", ["capacity", "num_envs", "replicas"])
    def test_counts(self, name):
        for bad in (0, -3):
            assert refusal(ConfigError, **{name: bad}) == f"`{name}` must be at least 1, but got {bad}"
        for bad in (2.5, 1e6, "5"):
            assert refusal(ConfigError, **{name: bad}) == f"`{name}` must be a whole number, but got {bad!r}"

    def test_counts_have_an_end(self):
        for name, most in [("capacity", 2**62), ("num_envs", 2**31 - 1), ("replicas", 2**31 - 1)]:
            for bad in (most + 1, 2**80):
                assert refusal(ConfigError, **{name: bad}) == f"`{name}` must be at most {most:,}, but got {bad:,}"

    def test_one_step_of_every_environment_fits(self):
        message = (
            "`capacity` must hold one step of every environment, but got (capacity=5, num_envs=6); "
            "use a larger capacity"
        )
        assert refusal(ConfigError, num_envs=6) == message

    def test_nested_fields(self):
        for empty in ({}, ()):
            message = "field `x` is nested but holds no Field; give it one or leave it out"
            assert refusal(FieldError, fields={"y": Field(), "x": empty}) == message
        message = "the key 'a.b' in field `x` must not hold a dot, which separates keys in a path"
        assert refusal(FieldError, fields={"x": {"a.b": Field(), "a": {"b": Field()}}}) == message

    def test_fields(self):
        for bad in ({}, [Field()], None):
            message = f"`fields` must be a mapping of at least one name to a Field, but got {bad!r}"
            assert refusal(FieldError, fields=bad) == message
        message = "field `x.y` must be a Field, or a mapping or tuple of them, but got 3"
        assert refusal(FieldError, fields={"x": {"y": 3}}) == message
        message = "field `x` must be a Field, or a mapping or tuple of them, but got <class 'numpy.float32'>"
        assert refusal(FieldError, fields={"x": np.float32}) == message

    def test_names(self):
        assert refusal(FieldError, fields={"a b": Field()}) == "a field's name must be an identifier, but got 'a b'"
        for bad in ("weight", "probability", "id", "where", "final_obs"):
            message = refusal(FieldError, fields={bad: Field()})
            assert message.startswith(f"`{bad}` is reserved (with weight, probability, id, where, final_obs")
            assert message.endswith("); give the field another name")

    def test_sampler(self):
        message = "`sampler` must be a Sampler such as Uniform(), but got 'uniform'"
        assert refusal(ConfigError, sampler="uniform") == message
        message = f"`sampler` must be a Sampler such as Uniform(), but got {SlidingWindow!r}"
        assert refusal(ConfigError, sampler=SlidingWindow) == message

    def test_seed(self):
        for bad in (-1, 1.5):
            message = f"`seed` must be a whole number that is not negative, or None, but got {bad!r}"
            assert refusal(ConfigError, seed=bad) == message
        message = (
            "`seed` as a sequence must hold one seed for each replica (replicas=3), but has 2; "
            "pass one int to seed them all"
        )
        assert refusal(ConfigError, seed=[1, 2], replicas=3) == message

    @pytest.mark.parametrize("mode", ["next_step", "same_step"])
    def test_autoreset_needs_the_ends(self, mode):
        needed = f'autoreset="{mode}" needs the field `{{}}` declared as Field((), bool), to see where episodes end'
        message = needed.format("terminated")
        assert refusal(FieldError, autoreset=mode) == message
        fields = {"terminated": Field(), "truncated": Field((), np.bool_), "next_obs": Field()}
        assert refusal(FieldError, autoreset=mode, fields=fields) == message
        message = needed.format("truncated")
        fields = {"terminated": Field((), np.bool_), "next_obs": Field()}
        assert refusal(FieldError, autoreset=mode, fields=fields) == message

    def test_autoreset_is_one_of_three(self):
        message = '`autoreset` must be None, "next_step", "same_step" or "disabled", but got \'nextstep\''
        assert refusal(ConfigError, autoreset="nextstep") == message

    def test_same_step_needs_next_obs(self):
        fields = {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}
        message = 'autoreset="same_step" needs the field `next_obs`, to store final observations in'
        assert refusal(FieldError, autoreset="same_step", fields=fields) == message


class TestMemory:
    """More than the machine has is refused before any of it is taken, with a capacity that would do."""

    def test_the_message(self, monkeypatch):
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 2**30)
        message = (
            "capacity=1,000,000 needs 6.6 GiB (7,060 bytes a step), but this machine has 1.0 GiB; "
            "use a capacity of at most 150,567, smaller dtypes or fewer fields"
        )
        fields = {"image": Field((84, 84), np.uint8), "reward": Field()}
        assert refusal(OverSizeError, capacity=1_000_000, fields=fields) == message

    def test_replicas_count(self, monkeypatch):
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 2**30)
        fields = {"x": Field((250,))}
        ReplayBuffer(1000, fields, replicas=1)
        message = refusal(OverSizeError, capacity=1000, fields=fields, replicas=2000)
        assert message.startswith(
            "capacity=1,000 needs 1.9 GiB (1,000 bytes a step, 2,000 replicas), but this machine has 1.0 GiB"
        )

    def test_the_sampler_counts(self, monkeypatch):
        buffer = ReplayBuffer(100_000, {"x": Field()}, sampler=Prioritized())
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 600_000)
        ReplayBuffer(100_000, {"x": Field()})
        assert buffer.nbytes > 600_000
        refusal(OverSizeError, capacity=100_000, sampler=Prioritized())

    def test_replicas_that_fit_one_by_one(self, monkeypatch):
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 10**6)
        message = refusal(OverSizeError, capacity=1000, fields={"x": Field((25,))}, replicas=30)
        most = int(message.split("use at most ")[1].split(" replicas")[0])
        assert 1 <= most < 30
        ReplayBuffer(1000, {"x": Field((25,))}, replicas=most)
        refusal(OverSizeError, capacity=1000, fields={"x": Field((25,))}, replicas=most + 1)

    @pytest.mark.parametrize("capacity", [10**12, 2**62])
    def test_on_this_machine(self, capacity):
        message = refusal(OverSizeError, capacity=capacity)
        assert message.startswith(f"capacity={capacity:,} needs ")
        refusal(OverSizeError, capacity=capacity, fields={"x": Field((2**20,))})
        refusal(OverSizeError, capacity=capacity, sampler=Prioritized(), replicas=7)

    @pytest.mark.parametrize("shape", [(2**31, 2**33), (2**32, 2**32), (2**40, 2**40), (2**61,), (2**62, 3)])
    def test_sizes_beyond_64_bits(self, shape):
        refusal(OverSizeError, fields={"x": Field(shape)})
        refusal(OverSizeError, fields={"x": Field(shape), "y": Field()}, replicas=3)

    def test_the_capacity_it_names_is_accepted(self, monkeypatch):
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 10**6)
        message = refusal(OverSizeError, capacity=10**6, sampler=Prioritized())
        most = int(message.split("use a capacity of at most ")[1].split(", s")[0].replace(",", ""))
        assert ReplayBuffer(most, {"x": Field()}, sampler=Prioritized()).nbytes <= 10**6


class TestThisMachinesMemory:
    def test_a_container_may_have_less(self, monkeypatch, tmp_path):
        for text, expected in [("4096\n", 4096), ("max\n", memory.machine_memory())]:
            (tmp_path / "memory.max").write_text(text)
            with monkeypatch.context() as patch:
                patch.setattr(memory, "Path", lambda _: tmp_path / "memory.max")
                assert memory.machine_memory() <= expected
                if text.strip().isdigit():
                    assert memory.machine_memory() == expected

    def test_it_may_be_unknown(self, monkeypatch, tmp_path):
        def unknown(name):
            raise ValueError(name)

        monkeypatch.setattr(memory, "Path", lambda _: tmp_path / "none")
        assert memory.machine_memory() > 2**20
        monkeypatch.setattr(memory.os, "sysconf", unknown)
        assert memory.machine_memory() == 2**62

    def test_sizes_are_said_in_the_unit_a_person_would_use(self):
        sizes = {0: "0 bytes", 1023: "1,023 bytes", 1024: "1.0 KiB", 3 * 2**29: "1.5 GiB", 2**53: "8,192.0 TiB"}
        assert {size: memory.size_text(size) for size in sizes} == sizes


class TestNumbersOfStepsOf32Bits:
    """Refused before any memory is asked for or taken."""

    MOST = 2**32 - 1

    @pytest.mark.parametrize(
        "options",
        [
            {"sampler": RankBased()},
            {"sampler": Greedy()},
            {"sampler": Mixture((Uniform(), RankBased()))},
            {"sampler": Dispersed()},
            {"transforms": [Sequence()]},
            {"transforms": [FrameStack(2, fields=("x",))]},
        ],
        ids=str,
    )
    def test_are_not_enough(self, monkeypatch, options):
        monkeypatch.setattr("replaylab.replay.data.memory.machine_memory", lambda: 2**60)
        message = refusal(ConfigError, capacity=self.MOST, fields={"x": Field((), bool)}, **options)
        assert message.startswith("`capacity` must be below 4294967295 for samplers that go by rank, for transforms, ")
        assert message.endswith("but got 4294967295; use a smaller capacity, or several buffers and MixedReplay")

    def test_where_they_are_it_is_only_memory(self, monkeypatch):
        refusal(OverSizeError, capacity=self.MOST - 1, sampler=RankBased())
        refusal(OverSizeError, capacity=2**33, sampler=Prioritized())
