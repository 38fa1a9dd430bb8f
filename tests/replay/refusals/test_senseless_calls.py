"""Every public call of the replay library, with one senseless argument at a time."""

import json
from dataclasses import MISSING, fields, is_dataclass
from itertools import islice

import gymnasium as gym
import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay, research
from replaylab.replay.snapshot import config_from_json, config_to_json
from tests.senseless import ARRAY, NUMBERS, SEED, TRUTH, Call, wrongs

WEIGHTING = {"alpha": "0", "beta": "0"}
PRIORITIZED = WEIGHTING | {"epsilon": "0 3.5 huge", "stratified": TRUTH, "replace": TRUTH}
WINDOW = {"create": "None 0 True"}


def buffer(**options):
    filled = ReplayBuffer(8, {"x": Field(), "y": Field((2,), np.int64)}, seed=0, **options)
    filled.extend(x=np.arange(6.0), y=np.zeros((6, 2), np.int64))
    return filled


def prioritized():
    return buffer(sampler=replay.Prioritized(beta=0.4))


def priorities(**options):
    created = replay.Priorities(8, seed=0, **options)
    if not options:
        created.extend(6)
    return created


def assigned():
    return priorities(retention=replay.Assigned())


def replicas():
    filled = ReplayBuffer(8, {"x": Field()}, replicas=2, sampler=replay.Prioritized(), seed=0)
    filled.extend(x=np.zeros((2, 6)))
    return filled


def warned(unwarned):
    """Return a buffer after its only warning that no `progress` was passed."""
    with pytest.warns(UserWarning, match="`progress` was not passed"):
        unwarned.sample(2)
    return unwarned


def mixed():
    return replay.MixedReplay((buffer(), buffer()))


def two_envs():
    return gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")


def alone():
    env = gym.make("CartPole-v1")
    return {"env": env, "buffer": ReplayBuffer.for_env(env, 8)}


def recorder():
    started = replay.ReplayRecorder.for_env(two_envs(), 20)
    started.reset(seed=0)
    return started


def tape():
    writer = research.TapeWriter()
    writer.append([1, 2])
    return writer


def stream(**options):
    return replay.ReplayStream([{"x": 1.0}] * 9, 8, 2, **options)


ACCEPTED = {
    "Uniform": {"replace": TRUTH, "stratified": TRUTH},
    "Combined": {"distinct": TRUTH},
    **dict.fromkeys(("Prioritized", "ReLo", "AntiPrioritized", "Permuted"), PRIORITIZED),
    "BinnedPrioritized": {"between": "0", "within": "0", "epsilon": "3.5 huge"},
    "LAP": {"alpha": "0"},
    "RankBased": WEIGHTING,
    "Geometric": {"expected_age": "3.5"},
    "EpisodeEnds": {"share": "0", "truncated": TRUTH},
    "NStep": {"gamma": "0", "last": "[]"},
    "FrameStack": {"stacked_input": TRUTH},
    "Sequence": {"state": "[]", "eta": "0", "overlap": "0", "burn_in": "0"},
}
"""Further senseless values that configurations accept, which have no required argument."""


def made_without_arguments(kind):
    of_a_buffer = isinstance(kind, type) and issubclass(kind, (replay.Sampler, replay.Transform, replay.Retention))
    return of_a_buffer and is_dataclass(kind) and all(field.default is not MISSING for field in fields(kind))


CONFIGURATIONS = [
    *(
        Call(kind, {}, ACCEPTED.get(name, {}))
        for name, kind in ((name, getattr(package, name)) for package in (replay, research) for name in package.__all__)
        if made_without_arguments(kind)
    ),
    Call(replay.Mixture, {"parts": (replay.Uniform(), replay.Prioritized())}, {"shares": "None"}),
    Call(
        replay.Aged,
        {"sampler": replay.Uniform(), "half_life": 5.0},
        {"half_life": "3.5 huge", "floor": "0", "window": "None", "clock": "text nul"},
    ),
    Call(replay.FreshFirst, {"sampler": replay.Uniform()}),
    Call(research.Tape, {"path": "x"}, {"path": "text", "shift": "0"}),
    Call(research.ByStepsToEnd, {"path": "x"}, {"path": "text", "shift": "0"}),
    Call(replay.LaBER, {"score": len}),
    Call(replay.Oracle, {"score": len}),
    Call(replay.Constant, {"value": 1.0}, {"value": NUMBERS}),
    Call(replay.Linear, {"start": 1.0, "end": 0.5}, {"start": NUMBERS, "end": NUMBERS, "steps": "None"}),
    Call(replay.Table, {"progress": (0.0, 1.0), "values": (0.1, 0.2)}),
    Call(replay.Exponential, {"start": 1.0, "end": 0.5}, {"start": "3.5 huge", "end": "3.5 huge", "steps": "None"}),
    Call(
        replay.Hindsight,
        {"compute_reward": len, "compute_terminated": len},
        {"ratio": "0 3.5 huge", "achieved": "text nul", "desired": "text nul"},
    ),
    Call(replay.MemoryMap, {"path": "rows"}, WINDOW | {"path": "text"}),
    Call(replay.SharedMemory, {"name": "rows"}, WINDOW | {"name": "text"}),
]
"""Objects that are only created by the call."""


class TestConfigurations:
    @pytest.mark.parametrize("call", CONFIGURATIONS, ids=lambda call: call.name)
    def test_senseless_options(self, call):
        assert wrongs(call, named=True) == []

    @pytest.mark.parametrize("call", CONFIGURATIONS, ids=lambda call: call.name)
    def test_numpys_numbers_become_pythons(self, call):
        """So that equal configurations are equal, have one hash, and can be written down."""
        plain = call()
        options = {field.name: getattr(plain, field.name) for field in fields(plain)}
        kinds = {float: np.float64, int: np.int32, bool: np.bool_, str: np.str_, tuple: list}
        from_numpy = {name: kinds.get(type(value), lambda same: same)(value) for name, value in options.items()}
        config = call(**from_numpy)
        assert config == plain
        assert hash(config) == hash(plain)
        assert {name: type(getattr(config, name)) for name in options} == {n: type(v) for n, v in options.items()}
        if "function" not in str(config_to_json(plain)) and not any(map(callable, options.values())):
            assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == plain

    def test_half_precision_too(self):
        assert replay.Prioritized(alpha=np.float16(0.5), beta=np.array(1.0)) == replay.Prioritized(alpha=0.5, beta=1.0)
        assert repr(replay.Prioritized(alpha=np.float32(0.5))) == repr(replay.Prioritized(alpha=0.5))


def steps(count=3):
    ends = np.zeros(count, bool)
    return {"x": np.zeros(count), "terminated": ends, "truncated": ends}


def ended(**options):
    fields = {"x": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
    return ReplayBuffer(8, fields, seed=0, **options)


def out():
    return {"batch_size": 2, "out": buffer().sample(2)}


def saved(tmp):
    buffer().save(tmp)
    return tmp


NEW = {"capacity": "", "num_envs": "None", "replicas": "None", "sampler": "None", "retention": "None", "seed": SEED}
NEW |= {"transforms": "[]", "storage": "None", "autoreset": "None", "count_replays": TRUTH}
DRAWN = {"progress": "None 0"}

DISTRIBUTION = {"ids": "0 -1 []", "batch_size": "None", "progress": "None 0"}

OF_PRIORITIES = ("num_envs", "sampler", "retention", "count_replays", "seed")
FLAGS = {"terminated": "None", "truncated": "None", "where": "None True"}
ENDS = {"terminated": Field((), bool), "truncated": Field((), bool)}
SEEN = {"obs": Field(), "next_obs": Field()} | ENDS
EPISODE = {"obs": "[]", "terminated": TRUTH, "truncated": TRUTH}
OF_FIELDS = {name: name for name in ("shape", "dtype", "compressed")}
IDS = {"ids": "ids?"}
CALLS = [
    Call(Field, {}, {"shape": "[]", "dtype": "None", "compressed": "0"}, called=OF_FIELDS),
    Call(ReplayBuffer, {"capacity": 8, "fields": {"x": Field()}}, NEW),
    Call("add", {"x": 1.0, "y": [1, 2]}, {"where": "None True", "final_obs": "None", "x": ARRAY}, buffer),
    Call("extend", {"x": [1.0], "y": [[1, 2]]}, {"where": "None", "final_obs": "None"}, buffer, called={"x": "field"}),
    Call("end_episode", {}, {"where": "None True"}, buffer),
    Call("extend_episode", {"obs": [0.0, 1.0]}, EPISODE, lambda: ReplayBuffer(8, SEEN)),
    Call(
        "from_episodes",
        {"episodes": [{"obs": [0.0, 1.0]}], "capacity": 8, "fields": SEEN},
        {"capacity": "None", "fields": "None {}"},
        lambda: ReplayBuffer,
    ),
    Call("sample", {"batch_size": 2}, DRAWN | {"out": "None"}, buffer),
    Call("sample", out, DRAWN | {"out": "None"}, buffer),
    Call(
        "sample", {"batch_size": 2, "progress": 0.5}, {"progress": "None 0", "out": "None"}, lambda: warned(replicas())
    ),
    Call(
        "batches",
        {"batch_size": 2, "total": 2},
        {"prefetch": "0", "total": "None", "progress": "None 0"},
        buffer,
        lambda batches: list(islice(batches, 2)),
        passed_on=("pin_memory", "device"),  # PyTorch's, which is slow to import
    ),
    Call("update_priorities", {"ids": [1], "td_error": [1.0]}, {"priority": "None"}, buffer, called=IDS),
    Call("update_priorities", {"ids": [[1], [1]], "td_error": [[1.0], [1.0]]}, {"priority": "None"}, replicas),
    Call(
        "update_priorities",
        {"ids": [1], "priority": [1.0]},
        {"td_error": "None", "priority": "0 3.5"},
        prioritized,
        called=IDS | {"priority": "priority"},
    ),
    Call("probabilities", {"ids": [1]}, DISTRIBUTION, buffer),
    Call(
        "probabilities",
        {"ids": [1], "progress": 0.5},
        {"ids": "0 -1 []", "batch_size": "None", "progress": "None 0"},
        lambda: warned(buffer(sampler=replay.Recency())),
    ),
    Call("get", {"ids": [1]}, {"ids": "0 []"}, buffer, called=IDS),
    Call("as_batch", {"ids": [1]}, {"ids": "0 []"}, buffer, called=IDS),
    Call("stats", {}, {"batch_size": "None", "progress": "None 0"}, buffer),
    Call("save", {"path": "saved"}, {"path": "text", "state": "None {}"}, buffer),
    Call("part", {"replicas": [1]}, {}, replicas),
    Call(
        replay.Priorities,
        {"capacity": 8},
        {name: NEW[name] for name in OF_PRIORITIES},
    ),
    Call("add", {}, FLAGS | dict.fromkeys(("terminated", "truncated"), "None True"), priorities),
    Call("extend", {"steps": 1}, FLAGS | {"steps": "0", "where": "None"}, priorities),
    Call("assign", {"slots": [1]}, {"slots": "0 []"}, assigned, called={"slots": "slot|ids"}),
    Call("end_episode", {}, {"where": "None True"}, priorities),
    Call("sample", {"batch_size": 2}, DRAWN, priorities),
    Call("update_priorities", {"ids": [1], "td_error": [1.0]}, {"priority": "None"}, priorities, called=IDS),
    Call("probabilities", {"ids": [1]}, DISTRIBUTION, priorities),
    Call("stats", {}, {"batch_size": "None", "progress": "None 0"}, priorities),
    Call(replay.Sequence().priority, {"td_error": np.zeros((2, 80)), "mask": np.ones((2, 80), bool)}),
    Call(replay.MixedReplay, lambda: {"buffers": (buffer(), buffer())}, {"shares": "None"}),
    Call("sample", {"batch_size": 2}, {"progress": "None 0"}, mixed),
    Call(
        "probabilities",
        {"source": [0], "ids": [1], "batch_size": 2},
        {"progress": "None 0"},
        mixed,
        called=IDS | {"source": "source|ids"},
    ),
    Call("update_priorities", {"batch": {"source": [0], "id": [1]}, "td_error": [1.0]}, {"priority": "None"}, mixed),
    Call(replay.ReplayRecorder, lambda: {"env": two_envs(), "buffer": recorder().buffer}, {"reset_ended": TRUTH}),
    Call(replay.ReplayRecorder, alone, {"reset_ended": TRUTH}),
    Call(replay.ReplayRecorder.for_env, lambda: {"env": two_envs(), "capacity": 8}, {"reset_ended": TRUTH}),
    Call(
        ReplayBuffer.for_env,
        lambda: {"env": two_envs(), "capacity": 8, "transforms": (), "sampler": replay.Uniform()},
        {"replicas": "None", "extra_fields": "None {} [] 0", "transforms": "[]", "sampler": "None"},
    ),
    Call("reset", {}, {"options": "None {}", "env_ids": "None"}, recorder, passed_on=("seed",)),
    Call("step", {"actions": np.zeros(2, np.int64)}, {"env_ids": "None"}, recorder, called={"actions": "`action`"}),
    Call(
        replay.ReplayStream,
        lambda: {"source": [{"x": 1.0}] * 9, "buffer": 8, "batch_size": 2},
        {
            "source": "[] {}",
            "warmup": "None",
            "progress": "None 0",
            "seed": SEED,
            "names": "None []",
            "sampler": "None",
        },
        use=list,
        called={"source": "source"},
    ),
    Call(replay.StepWriter, lambda: {"buffer": ReplayBuffer(9, dict.fromkeys(("obs", "next_obs"), Field()) | ENDS)}),
    Call(research.TapeWriter),
    Call("append", {"ids": np.zeros(2, np.int64)}, {}, research.TapeWriter),
    Call(
        "append_ends",
        {"ids": np.zeros(1, int), "terminated": np.zeros(1, bool)},
        {"terminated": TRUTH},
        research.TapeWriter,
    ),
    Call("write", {"path": "tape"}, {"path": "text"}, tape),
    Call(replay.as_schedule, {"value": 0.5}, {"value": NUMBERS}),
    Call(
        replay.Schedules,
        {"sampler": "x", "values": [0.5]},
        {"sampler": "text nul", "values": "[]", "remedy": "text nul", "replicas": "None"},
    ),
    Call(replay.Schedules("x", [0.5]).progress, {"progress": 0.5}, {"progress": "0 None"}),
    Call(replay.Schedules("x", [0.5]).at, {"progress": 0.5}, {"progress": "0 None"}),
    Call(replay.scheduled, {"rule": float}),
    Call("push", {"step": {"x": 1.0}}, {}, stream, called={"step": "step|`fields`"}),
    Call("restore", lambda: {"state": stream().state()}, {}, stream),
    Call("state", {}, {"folder": "None text"}, stream),
]


class TestCalls:
    @pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
    def test_senseless_arguments(self, call, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert wrongs(call, named=True) == []


@pytest.mark.parametrize("value", [None, "x", 3.5, []])
def test_pinning_is_a_matter_of_true_or_false(value):
    with pytest.raises(ValueError, match="`pin_memory` must be True or False, but got"):
        list(islice(buffer().batches(2, pin_memory=value), 1))


BASES = {"CustomSampler", "MappedStorage", "Retention", "Sampler", "Schedule", "TopScores", "Transform"}
"""`require` names what a replay lacks, see tests/replay/collect/test_toy_replay.py."""

PROTOCOLS = {"require"} | {name for name in replay.__all__ if getattr(getattr(replay, name), "_is_protocol", False)}
RETURNED = {"Batch", "Handle", "Progress", "ReplayStats", "SamplingTotals", "View"}
"""Objects that the library creates and returns."""

TYPES = {"FeedbackKind", "ReplayStreamKey", "Seed"}


def test_nothing_is_left_out():
    called = {call.function.__qualname__.split(".")[0] for call in CONFIGURATIONS + CALLS if callable(call.function)}
    assert called | BASES | PROTOCOLS | RETURNED | TYPES == {*replay.__all__, *research.__all__}
