"""Every public call of the replay library, with one senseless argument at a time."""

import json
from dataclasses import fields

import gymnasium as gym
import numpy as np
import pytest

from replaylab.replay import (
    LAP,
    AntiPrioritized,
    Blocks,
    Combined,
    Constant,
    Dispersed,
    Exponential,
    Field,
    Fifo,
    FrameStack,
    Geometric,
    Greedy,
    Hindsight,
    LaBER,
    Linear,
    MemoryMap,
    MixedReplay,
    Mixture,
    NStep,
    Online,
    Oracle,
    Permuted,
    Prioritized,
    RankBased,
    Recency,
    ReLo,
    ReplayBuffer,
    ReplayRecorder,
    ReplayStream,
    Reservoir,
    ReverseSweep,
    Sequence,
    SharedMemory,
    ShuffledEpochs,
    SlidingWindow,
    Sticky,
    Uniform,
)
from replaylab.replay.describe import config_from_json, config_to_json
from tests.senseless import NUMBERS, TRUTH, Call, wrongs

FRACTION = "0 True".replace(" True", "")
WEIGHTING = {"alpha": "0", "beta": "0"}
PRIORITIZED = WEIGHTING | {"epsilon": "0 3.5 huge"}
WINDOW = {"headroom": "None", "create": "None 0 True"}


def buffer(**options):
    made = ReplayBuffer(8, {"x": Field(), "y": Field((2,), np.int64)}, seed=0, **options)
    made.extend(x=np.arange(6.0), y=np.zeros((6, 2)))
    return made


def replicas():
    made = ReplayBuffer(8, {"x": Field()}, replicas=2, sampler=Prioritized(), seed=0)
    made.extend(x=np.zeros((2, 6)))
    return made


def mixed():
    return MixedReplay((buffer(), buffer()))


def two_envs():
    return gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")


def recorder():
    made = ReplayRecorder.for_env(two_envs(), 20)
    made.reset(seed=0)
    return made


def stream(**options):
    return ReplayStream([{"x": 1.0}] * 9, 8, 2, **options)


CONFIGURATIONS = [
    Call(Uniform, {}, {"replace": TRUTH}),
    Call(Online),
    Call(SlidingWindow),
    Call(ShuffledEpochs),
    Call(Greedy),
    Call(Combined),
    Call(Mixture, {"parts": (Uniform(), Prioritized())}, {"shares": "None"}),
    Call(Prioritized, {}, PRIORITIZED),
    Call(ReLo, {}, PRIORITIZED),
    Call(AntiPrioritized, {}, PRIORITIZED),
    Call(Permuted, {}, PRIORITIZED),
    Call(Dispersed, {}, PRIORITIZED),
    Call(LAP, {}, {"alpha": "0"}),
    Call(RankBased, {}, WEIGHTING),
    Call(Recency, {}, {}),
    Call(Geometric, {}, {"expected_age": "3.5"}),
    Call(ReverseSweep),
    Call(Blocks),
    Call(Sticky, {}, {"fraction": "0"}),
    Call(LaBER, {"score": len}),
    Call(Oracle, {"score": len}),
    Call(Constant, {"value": 1.0}, {"value": NUMBERS}),
    Call(Linear, {"start": 1.0, "end": 0.5}, {"start": NUMBERS, "end": NUMBERS}),
    Call(Exponential, {"start": 1.0, "end": 0.5}, {"start": "3.5 huge", "end": "3.5 huge"}),
    Call(NStep, {}, {"gamma": "0"}),
    Call(FrameStack, {}, {"stacked_input": TRUTH}),
    Call(Sequence, {}, {"state": "[]", "eta": "0", "overlap": "0", "burn_in": "0"}),
    Call(
        Hindsight,
        {"compute_reward": len, "compute_terminated": len},
        {"ratio": "0 3.5 huge", "achieved": "text nul", "desired": "text nul"},
    ),
    Call(Fifo),
    Call(Reservoir),
    Call(MemoryMap, {"path": "rows"}, WINDOW | {"path": "text", "after_crash": TRUTH}),
    Call(SharedMemory, {"name": "rows"}, WINDOW | {"name": "text"}),
]
"""What is made, and only made, by the call."""


class TestConfigurations:
    @pytest.mark.parametrize("call", CONFIGURATIONS, ids=lambda call: call.name)
    def test_senseless_options(self, call):
        assert wrongs(call) == []

    @pytest.mark.parametrize("call", CONFIGURATIONS, ids=lambda call: call.name)
    def test_numpys_numbers_become_pythons(self, call):
        """So that equal configurations are equal, have one hash, and can be written down."""
        plain = call()
        options = {one.name: getattr(plain, one.name) for one in fields(plain)}
        kinds = {float: np.float64, int: np.int32, bool: np.bool_, str: np.str_, tuple: list}
        given = {name: kinds.get(type(value), lambda same: same)(value) for name, value in options.items()}
        made = call(**given)
        assert made == plain
        assert hash(made) == hash(plain)
        assert {name: type(getattr(made, name)) for name in options} == {n: type(v) for n, v in options.items()}
        if "function" not in str(config_to_json(plain)) and not any(map(callable, options.values())):
            assert config_from_json(json.loads(json.dumps(config_to_json(made)))) == plain

    def test_half_precision_too(self):
        assert Prioritized(alpha=np.float16(0.5), beta=np.array(1.0)) == Prioritized(alpha=0.5, beta=1.0)
        assert repr(Prioritized(alpha=np.float32(0.5))) == repr(Prioritized(alpha=0.5))
