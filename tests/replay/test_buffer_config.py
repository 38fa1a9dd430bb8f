"""A buffer's options are declared and checked in one place, and listed in the constructor once more."""

import inspect
from dataclasses import FrozenInstanceError

import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, Fifo, NStep, Prioritized, ReplayBuffer, Uniform
from replaylab.replay.buffer_config import BufferConfig

ENDS = {"terminated": Field((), bool), "truncated": Field((), bool)}
FIELDS = {"obs": Field(), "reward": Field(), "next_obs": Field(), **ENDS}


def parameters(function):
    return {
        name: (parameter.default, parameter.kind) for name, parameter in inspect.signature(function).parameters.items()
    }


class TestTheConstructor:
    def test_it_lists_every_option_with_its_default(self):
        listed = parameters(ReplayBuffer)
        assert listed.pop("seed") == (None, inspect.Parameter.KEYWORD_ONLY), "not a part of what is declared"
        assert listed == parameters(BufferConfig)

    def test_it_documents_every_option(self):
        reported = inspect.getdoc(ReplayBuffer).partition("Args:")[2].partition("Raises:")[0]
        assert all(f"    {name}: " in reported for name in BufferConfig.names())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num_envs", 2),
            ("replicas", 3),
            ("sampler", Prioritized(beta=0.4)),
            ("transforms", (NStep(2),)),
            ("next_obs", "derived"),
            ("autoreset", "disabled"),
            ("count_replays", True),
            ("min_size", 4),
            ("episodes", "manual"),
        ],
    )
    def test_it_hands_every_option_over(self, name, value):
        buffer = ReplayBuffer(10, FIELDS, **{name: value})
        assert buffer._parts.config.arguments()[name] == value
        assert ReplayBuffer(10, FIELDS)._parts.config.arguments()[name] != value
        if name not in ("count_replays", "episodes"):
            assert getattr(buffer, name) == value

    def test_every_option_is_reported_by_a_property(self):
        shown = {name for name, member in inspect.getmembers(ReplayBuffer) if isinstance(member, property)}
        assert shown >= set(BufferConfig.names()) - {"count_replays", "episodes"}


def test_none_is_the_default_of_sampler_and_retention():
    config = BufferConfig(10, FIELDS, sampler=None, retention=None)
    assert (config.sampler, config.retention) == (Uniform(), Fifo())


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        BufferConfig(10, FIELDS).capacity = 11


def test_json_and_back():
    config = BufferConfig(10, FIELDS, num_envs=2, sampler=Prioritized(beta=0.4), transforms=[NStep(2)], min_size=3)
    again = BufferConfig(**BufferConfig.arguments_from_json(config.to_json(), {}))
    assert again.to_json() == config.to_json()
    assert again.arguments() == config.arguments()


def test_messages_name_the_option_alone():
    with pytest.raises(ConfigError, match=r"^`num_envs` must be at least 1, but got 0$"):
        ReplayBuffer(10, FIELDS, num_envs=0)
