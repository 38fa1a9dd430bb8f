"""Every public call of what looks at a run, with one senseless argument at a time."""

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.figure import Figure

from replaylab import watch
from replaylab.learners.metrics import Metrics
from tests.senseless import Call, wrongs

GRID = watch.Grid((2, 2))
FRAME = np.zeros((4, 4, 3), np.uint8)
METRICS = Metrics(
    {"seed": np.zeros(2, np.int64), "step": np.arange(2), "metric": np.array(["m", "m"]), "value": np.ones(2)}
)


class Agent:
    def act(self, obs, explore):
        return np.zeros(obs.shape[:2], np.int64)


def stand(_):
    return 0


def mountain_car():
    return gym.make("MountainCar-v0", render_mode="rgb_array")


CALLS = [
    Call(watch.Grid, {"shape": (2, 2)}, {"labels": "{}", "closed": "[]"}),
    Call(watch.Grid.of, {"env_id": "CliffWalking-v1"}),
    Call(watch.by_episode, {"metrics": METRICS, "metric": "m"}),
    Call(watch.ewma, {"values": [1.0, 2.0]}, {"span": "3.5 huge True".replace(" True", "")}),
    Call(watch.running_mean, {"values": [1.0, 2.0]}),
    Call(watch.greedy, {"policy": Agent(), "replicas": 2}, {"replica": "0"}),
    Call(
        watch.learning_curves,
        {"returns": {"a": [1.0, 2.0]}},
        {"baseline": "None", "span": "3.5 huge", "unit": "text nul"},
    ),
    Call(watch.visit_map, {"visits": {"a": np.ones(4)}, "grid": GRID}, {"unit": "text nul"}),
    Call(watch.value_map, {"values": np.ones(4), "grid": GRID}, {"title": "text nul"}),
    Call(
        watch.TensorBoard,
        {"folder": "events", "seeds": [0]},
        {"folder": "text", "seeds": "[]"},
        use=lambda writer: writer.close(),
    ),
    Call(watch.write_frames, {"folder": "frames", "frames": [FRAME]}, {"folder": "text"}),
    Call(watch.write_video, {"path": "video.gif", "frames": [FRAME, FRAME + 1]}, {"path": "text"}),
    Call(
        watch.play,
        lambda: {"env": mountain_car(), "policy": stand, "max_steps": 1},
        {"policy": "None", "seed": "0", "env_options": "None {}"},
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert wrongs(call) == []


@pytest.mark.parametrize("path", [None, 3, "", "a\0b.svg"])
def test_a_figure_needs_a_path(path):
    with pytest.raises(ValueError, match="`paths` must be the path of a file, but got"):
        watch.save(Figure(), path)


def test_nothing_is_left_out():
    others = {"Episode", "save"}
    assert {call.name.split(".")[0] for call in CALLS} | others == set(watch.__all__)
