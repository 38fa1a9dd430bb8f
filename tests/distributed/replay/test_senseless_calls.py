"""Every public call of a replay in shards, with one senseless argument at a time."""

import numpy as np
import pytest

from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.replay import Prioritized, Uniform
from tests.distributed.replay.conftest import FIELDS, replay, steps
from tests.senseless import ANY, ARRAY, SEED, TRUTH, Call, misshapen, wrongs


def filled(sampler=Uniform()):  # noqa: B008 - frozen
    remote = replay(20, shards=2, sampler=sampler)
    remote.extend(**steps(0, 10))
    return remote


def prioritized():
    return filled(Prioritized(beta=0.4))


NONE = dict.fromkeys(("num_envs", "replicas", "storage", "sampler", "retention", "autoreset"), "None")
OPTIONS = {"placement": ANY, "address": "None", "snapshot": "None", "strict": TRUTH}
IDS = np.arange(3)
PRIORITY = {"td_error": "None", "priority": "0 3.5"}
STEP = {name: value[0] for name, value in steps(0, 1).items()}
FLAGS = dict.fromkeys(FIELDS, "True") | {"x": ARRAY, "where": "None True", "final_obs": "None"}
CALLS = [
    Call(Snapshots, {"folder": "there"}, {"folder": "text", "period": "3.5 huge"}),
    Call(
        RemoteReplay,
        {"capacity": 10, "fields": FIELDS},
        NONE | {"transforms": "[]", "count_replays": TRUTH, "seed": SEED},
    ),
    Call(RemoteOptions, {}, OPTIONS),
    Call("sample", {"batch_size": 2}, {"progress": "None 0"}, make=filled),
    Call("writer", {}, {"envs": "None"}, make=filled),
    Call("reader", {}, {"rank": "0"}, make=filled),
    Call("update_priorities", {"ids": IDS, "priority": IDS}, PRIORITY, make=prioritized),
    Call("probabilities", {"ids": IDS}, {"ids": "-1 0 []", "batch_size": "None", "progress": "None 0"}, make=filled),
    Call("stats", {}, {"batch_size": "None", "progress": "None 0"}, make=filled),
    Call("add", STEP, FLAGS, make=filled),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call):
    assert wrongs(call) == []


def test_arrays_of_other_shapes():
    given = {"ids": IDS, "td_error": IDS * 1.0}
    assert misshapen(Call("update_priorities", given, make=filled)) == []
