"""Senseless arguments: a `DeviceReplay` refuses what a `ReplayBuffer` refuses, by the same errors."""

import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError, DtypeError, FieldError, IdError, PriorityError, ReplayError
from replaylab.replay import Combined, Field, Linear, Prioritized, Recency, ReplayBuffer
from replaylab.torch import DeviceReplay

FLAG, PAIR = Field((), bool), Field((2,))
FIELDS = {
    "x": Field((), np.int32),
    "obs": PAIR,
    "reward": Field(),
    "next_obs": PAIR,
    "terminated": FLAG,
    "truncated": FLAG,
}
STEP = {
    "x": np.int32(0),
    "obs": np.zeros(2, np.float32),
    "reward": np.float32(1.0),
    "next_obs": np.zeros(2, np.float32),
    "terminated": np.bool_(False),
    "truncated": np.bool_(False),
}
STEPS = {name: np.asarray(value)[None] for name, value in STEP.items()}
VALUES = {
    "None": None,
    "text": "text",
    "bytes": b"bytes",
    "[]": [],
    "{}": {},
    "ragged": [[1], [2, 3]],
    "object": object(),
    "1.5": 1.5,
    "-1": -1,
    "0": 0,
    "huge": 10**30,
    "2^64": 2**64 - 1,
    "True": True,
    "nan": float("nan"),
    "complex": 3.0 + 4.0j,
    "array of complex": np.array([1.0 + 2.0j]),
    "tensor of complex": torch.tensor([1.0 + 2.0j]),
    "array of text": np.array(["a"]),
    "array of objects": np.array([None]),
    "array of floats": np.array([0.5]),
    "array of ints": np.array([0]),
    "array of bools": np.array([True]),
    "tensor of bools": torch.tensor([True]),
    "class": Prioritized,
}
CALLS = {
    "add x": lambda replay, value: replay.add(**STEP | {"x": value}),
    "add obs": lambda replay, value: replay.add(**STEP | {"obs": value}),
    "add terminated": lambda replay, value: replay.add(**STEP | {"terminated": value}),
    "add final_obs": lambda replay, value: replay.add(**STEP, final_obs=value),
    "extend x": lambda replay, value: replay.extend(**STEPS | {"x": value}),
    "extend obs": lambda replay, value: replay.extend(**STEPS | {"obs": value}),
    "end_episode": lambda replay, value: replay.end_episode(value),
    "sample batch_size": lambda replay, value: replay.sample(value),
    "sample progress": lambda replay, value: replay.sample(2, progress=value),
    "sample out": lambda replay, value: replay.sample(2, out=value),
    "update_priorities ids": lambda replay, value: replay.update_priorities(value, 1.0),
    "update_priorities td_error": lambda replay, value: replay.update_priorities([0], value),
    "update_priorities td_error of one": lambda replay, value: replay.update_priorities(0, value),
    "update_priorities priority": lambda replay, value: replay.update_priorities([0], priority=value),
    "update_priorities both": lambda replay, value: replay.update_priorities([0], value, priority=[1.0]),
    "probabilities ids": lambda replay, value: replay.probabilities(value),
    "probabilities batch_size": lambda replay, value: replay.probabilities([0], batch_size=value),
    "probabilities progress": lambda replay, value: replay.probabilities([0], progress=value),
    "stats batch_size": lambda replay, value: replay.stats(batch_size=value),
    "stats progress": lambda replay, value: replay.stats(progress=value),
    "get": lambda replay, value: replay.get(value),
    "as_batch": lambda replay, value: replay.as_batch(value),
}
UNCHECKED = (IdError, PriorityError)
"""Errors of values that a `DeviceReplay` does not look at: ids that were never given out, and invalid feedback."""
PRIORITIZED = Prioritized(0.6, 0.4)


def filled(kind, sampler=PRIORITIZED, **options):
    replay = kind(8, FIELDS, sampler=sampler, seed=0, **options)
    for _ in range(3):
        replay.add(**STEP)
    return replay


def outcome(replay, call, value):
    """The class of the library's error that a call raises, None if it raises none."""
    try:
        call(replay, value)
    except ReplayError as error:
        return type(error)
    return None


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", VALUES)
def test_device_replay_raises_what_replay_buffer_raises(call, value):
    host = outcome(filled(ReplayBuffer), CALLS[call], VALUES[value])
    device = outcome(filled(DeviceReplay, device="cpu"), CALLS[call], VALUES[value])
    single = call in ("get", "as_batch") and value in ("0", "-1")  # only a ReplayBuffer takes a single id
    assert device is host or (device is None and host in UNCHECKED) or single


@pytest.mark.parametrize("batch_size", [-3, 0, 1.5, "2"])
@pytest.mark.parametrize("method", ["probabilities", "stats"])
def test_batch_size_below_1_is_refused(method, batch_size):
    replay = filled(DeviceReplay, Combined(), device="cpu")
    with pytest.raises(ConfigError):
        getattr(replay, method)(*[[0]] * (method == "probabilities"), batch_size=batch_size)


@pytest.mark.parametrize("td_error", [torch.tensor([3.0 + 4.0j]), np.array([3.0 + 4.0j]), [3.0 + 4.0j]])
def test_complex_td_errors_are_refused(td_error):
    replay = filled(DeviceReplay, device="cpu")
    before = replay.probabilities([0, 1, 2])
    with pytest.raises(DtypeError):
        replay.update_priorities([1], td_error)
    assert torch.equal(replay.probabilities([0, 1, 2]), before)


def test_same_step_takes_scalar_final_obs_without_num_envs():
    fields = {"obs": Field(), "next_obs": Field(), "terminated": FLAG, "truncated": FLAG}
    replay = DeviceReplay(8, fields, autoreset="same_step", device="cpu", seed=0)
    for terminated in (False, True):
        step = {"terminated": torch.tensor(terminated), "truncated": torch.tensor(False)}
        replay.add(obs=torch.tensor(0.0), next_obs=torch.tensor(1.0), final_obs=torch.tensor(9.0), **step)
    assert replay.get([0, 1])["next_obs"].tolist() == [1.0, 9.0]


def test_missing_final_obs_is_refused():
    fields = {"obs": PAIR, "next_obs": PAIR, "terminated": FLAG, "truncated": FLAG}
    replay = DeviceReplay(8, fields, autoreset="same_step", device="cpu", seed=0)
    row, no = torch.zeros(2), torch.tensor(False)
    with pytest.raises(FieldError):
        replay.add(obs=row, next_obs=row, terminated=no, truncated=no)


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch finds a GPU")
@pytest.mark.parametrize("options", [{}, {"device": "cuda"}, {"device": "cuda:7"}])
def test_device_without_cuda_names_the_cpu(tmp_path, options):
    filled(DeviceReplay, device="cpu").save(tmp_path / "saved")
    for make in (lambda: DeviceReplay(8, FIELDS, **options), lambda: DeviceReplay.load(tmp_path / "saved", **options)):
        with pytest.raises(ConfigError, match='device="cpu"'):
            make()


@pytest.mark.parametrize("options", [{"kernels": "cuda"}, {"final_obs_share": 0}, {"seed": -1}, {"device": "no such"}])
def test_load_raises_the_constructors_errors(tmp_path, options):
    filled(DeviceReplay, device="cpu").save(tmp_path / "saved")
    with pytest.raises(ConfigError):
        DeviceReplay.load(tmp_path / "saved", **{"device": "cpu"} | options)


def test_no_feedback_changes_nothing():
    replay = filled(DeviceReplay, device="cpu")
    for ids in ([], torch.zeros(0, dtype=torch.int64)):
        assert int(replay.update_priorities(ids, torch.zeros(0))) == 0


@pytest.mark.filterwarnings("error")
def test_looking_at_another_progress_changes_no_draw():
    replay = filled(DeviceReplay, Prioritized(0.6, Linear(0.4, 1.0)), device="cpu")
    replay.update_priorities([0, 1], td_error=[1.0, 5.0])
    replay.sample(2, progress=0.25)
    twin_weights = replay.parts.scheduled_value
    replay.probabilities([0], progress=1.0)
    replay.stats(progress=1.0)
    assert replay.parts.scheduled_value == twin_weights == float(replay.parts.draws.scheduled)
    recent = filled(DeviceReplay, Recency(Linear(0.9, 1.0)), device="cpu")
    recent.probabilities([0], progress=1.0)
    assert recent.parts.scheduled_value is None
