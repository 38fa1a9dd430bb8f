"""Every public call of replay, training and studies on Ray, with one senseless argument at a time."""

import numpy as np
import pytest

from replaylab.distributed import Actors, Shards
from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.distributed.studies import RayExecutor
from replaylab.replay import Prioritized, Uniform
from tests.distributed.replay.conftest import FIELDS, replay, steps
from tests.distributed.replay.in_process import shards_here
from tests.senseless import ARRAY, SEED, Call, misshapen, wrongs


def filled(sampler=Uniform()):  # noqa: B008 - frozen
    remote = replay(20, shards=2, sampler=sampler)
    remote.extend(**steps(0, 10))
    return remote


def prioritized():
    return filled(Prioritized(beta=0.4))


NONE = dict.fromkeys(("num_envs", "sampler", "retention", "autoreset"), "None")
OPTIONS = dict.fromkeys(("placement", "address", "snapshot"), "None")
IDS = np.arange(3)
PRIORITY = {"td_error": "None", "priority": "0 3.5"}
STEP = {name: value[0] for name, value in steps(0, 1).items()}
FLAGS = dict.fromkeys(FIELDS, "True") | {"x": ARRAY, "where": "None True", "final_obs": "None"}
EXECUTOR = {"address": "auto", "workers": 2, "cores": 1.0, "gpus": 0.0}
CALLS = [
    Call(Snapshots, {"folder": "there"}, {"folder": "text", "period": "3.5 huge"}),
    Call(RemoteReplay, {"capacity": 10, "fields": FIELDS}, NONE | {"transforms": "[]", "seed": SEED}),
    Call(RemoteOptions, {}, OPTIONS),
    Call("sample", {"batch_size": 2}, {"progress": "None 0"}, make=filled),
    Call("writer", {}, {"envs": "None"}, make=filled),
    Call("reader", {}, {"rank": "0"}, make=filled),
    Call("update_priorities", {"ids": IDS, "priority": IDS}, PRIORITY, make=prioritized),
    Call("probabilities", {"ids": IDS}, {"ids": "-1 0 []", "batch_size": "None", "progress": "None 0"}, make=filled),
    Call("stats", {}, {"batch_size": "None", "progress": "None 0"}, make=filled),
    Call("add", STEP, FLAGS, make=filled),
    Call(Actors, {"count": 2}, {"alpha": "0 3.5 huge", "cores": "0"}),
    Call(Shards, {"count": 2}, {"placement": "None", "snapshot_period": "3.5 huge"}),
    Call(RayExecutor, EXECUTOR, {"address": "None", "workers": "None", "gpus": "0"}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call):
    with shards_here():
        assert wrongs(call) == []


def test_arrays_of_other_shapes():
    with shards_here():
        assert misshapen(Call("update_priorities", {"ids": IDS, "td_error": IDS * 1.0}, make=filled)) == []
