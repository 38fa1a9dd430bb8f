"""Every public call of training by actors, with one senseless argument at a time."""

import pytest

from replaylab.distributed import Actors, Shards
from tests.senseless import ANY, Call, wrongs

CALLS = [
    Call(Actors, {"count": 2}, {"alpha": "0 3.5 huge", "cores": "0"}),
    Call(Shards, {"count": 2}, {"placement": ANY, "snapshot_period": "3.5 huge"}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call):
    assert wrongs(call) == []
