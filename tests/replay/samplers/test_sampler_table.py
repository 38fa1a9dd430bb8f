"""The core's table of sampler kinds, and what the samplers' configurations say of themselves."""

import pytest

from replaylab import _core
from replaylab.errors import ConfigError
from replaylab.replay import Combined, Mixture, Prioritized, Uniform
from tests.replay.guarantees.test_conformance import IN_BLOCKS, ONCE, SAMPLERS

IN_CORE = [sampler for sampler in [*SAMPLERS, *IN_BLOCKS, *ONCE] if sampler.in_core]


@pytest.mark.parametrize("sampler", IN_CORE, ids=lambda sampler: type(sampler).__name__)
def test_core_and_configuration_declare_the_same(sampler):
    core = sampler.core_config()
    assert core.feedback == sampler.wants_feedback
    assert bool(core.priorities) == sampler.keeps_priorities
    assert core.episodes == sampler.needs_episodes


def test_every_kind_of_the_core_has_its_configuration():
    assert {sampler.core_config().kind for sampler in IN_CORE} == set(_core.sampler_kinds())
    assert len(set(_core.sampler_kinds())) == len(_core.sampler_kinds())


def test_capabilities_of_a_mixture_are_those_of_its_parts():
    learns = Mixture((Uniform(), Prioritized())).core_config()
    assert (learns.feedback, learns.priorities, learns.episodes) == (True, "part1.leaves", False)
    plain = Mixture((Uniform(), Combined())).core_config()
    assert (plain.feedback, plain.priorities) == (False, "")


def nbytes(config):
    return _core.replica_nbytes([], 64, 1, config, _core.TransformConfig(), _core.Retention.FIFO, False)[0]


@pytest.mark.parametrize("nested", [False, True])
def test_an_unknown_kind_is_refused_before_its_bytes_are_counted(nested):
    config = _core.SamplerConfig("prioritised")
    if nested:
        config = _core.SamplerConfig("mixture", {"share0": 1.0}, [config])
    with pytest.raises(ConfigError, match="must be one that the core has") as caught:
        nbytes(config)
    assert "prioritised" in str(caught.value)
    assert all(kind in str(caught.value) for kind in _core.sampler_kinds())


def test_an_option_that_is_missing_is_named():
    with pytest.raises(ConfigError, match="kind `recency` needs the option `least`"):
        _core.Replay(
            [], 8, -1, -1, _core.SamplerConfig("recency"), [[1, 2, 3, 4]], False, _core.TransformConfig(),
            _core.Retention.FIFO, False, 1, None, False,
        )  # fmt: skip
