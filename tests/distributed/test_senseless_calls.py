"""Every public call of studies on Ray, with one senseless argument at a time."""

from replaylab.distributed.studies import RayExecutor
from tests.senseless import Call, wrongs


def test_senseless_makings():
    accepts = {"address": "None", "workers": "None", "gpus": "0"}
    arguments = {"address": "auto", "workers": 2, "cores": 1.0, "gpus": 0.0}
    assert wrongs(Call(RayExecutor, arguments, accepts)) == []
