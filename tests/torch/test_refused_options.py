"""Options and arguments that a `DeviceReplay` refuses, each with the name and the fix."""

import numpy as np
import pytest
import torch

from replaylab.errors import (
    ConfigError,
    DtypeError,
    EmptyBufferError,
    FieldError,
    IdError,
    OverSizeError,
    ReplayError,
    ShapeError,
)
from replaylab.replay import (
    Aged,
    Combined,
    Field,
    FrameStack,
    Hindsight,
    Linear,
    Mixture,
    Prioritized,
    RankBased,
    Sequence,
    Uniform,
)
from replaylab.research import Blocks
from replaylab.torch import DeviceReplay, device_replay
from tests.torch.worlds import FIELDS

X = {"x": Field()}
GOALS = Hindsight(lambda a, d, i: a, lambda a, d, i: a)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"capacity": 10, "num_envs": 3}, ConfigError, r"multiple of `num_envs`.*use 9"),
        ({"capacity": 0}, ConfigError, "`capacity`"),
        ({"sampler": RankBased()}, ConfigError, "`sampler` of DeviceReplay.*RankBased"),
        ({"sampler": Blocks()}, ConfigError, "`sampler`.*Blocks"),
        ({"sampler": Mixture((Uniform(), Prioritized()))}, ConfigError, "`sampler`.*Mixture"),
        ({"sampler": Aged(Prioritized(), half_life=9.0)}, ConfigError, "`sampler` of DeviceReplay.*Aged"),
        ({"sampler": Uniform(replace=False)}, ConfigError, "`replace` of Uniform must be True"),
        ({"sampler": Combined(distinct=True)}, ConfigError, "`distinct` of Combined must be False"),
        ({"sampler": Prioritized(block_length=2)}, ConfigError, "`block_length` of Prioritized must be 1"),
        ({"transforms": [Sequence(2, 0)]}, ConfigError, "NStep or FrameStack, but got Sequence"),
        ({"transforms": [FrameStack(2, ("next_mask",))]}, ConfigError, "inside `obs`"),
        ({"transforms": [FrameStack(2, stacked_input=True)]}, ConfigError, "stacked_input=True"),
        ({"autoreset": "next_step"}, ConfigError, '"next_step"'),
        ({"half": {"tag": "float16"}}, ConfigError, "`half`.*tag"),
        ({"half": {"obs.speed": "int8"}}, ConfigError, "`half`.*int8"),
        ({"final_obs_share": 0}, ConfigError, "`final_obs_share`"),
        ({"kernels": "cuda"}, ConfigError, "`kernels`"),
        ({"device": "no such"}, ConfigError, "`device`"),
        ({"seed": -1}, ConfigError, "`seed`"),
        ({"fields": {"x": Field((64,), np.uint8, compressed=True)}}, FieldError, "compressed"),
        ({"fields": {"x": Field(), "terminated": Field()}}, FieldError, "`terminated`"),
        ({"fields": {"x": Field((), np.longdouble)}}, FieldError, "`x` must have a dtype that PyTorch supports"),
        ({"capacity": 10**13}, OverSizeError, "use a capacity of at most"),
    ],
    ids=str,
)
def test_options(options, error, named):
    with pytest.raises(error, match=named):
        DeviceReplay(**{"capacity": 8, "fields": FIELDS, "device": "cpu"} | options)


def test_nothing_stored_is_refused():
    with pytest.raises(EmptyBufferError, match="`add`"):
        DeviceReplay(8, X, device="cpu").sample(4)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda replay: replay.add(y=torch.zeros(2)), FieldError, "missing `x`.*unknown `y`"),
        (lambda replay: replay.add(x=torch.zeros(3)), ShapeError, r"field `x` must have shape \(2,\)"),
        (lambda replay: replay.extend(x=torch.zeros(3)), ShapeError, r"\(3, 2\) \(steps=3, num_envs=2"),
        (lambda replay: replay.extend(x=0.0), ShapeError, "steps axis"),
        (lambda replay: replay.add(x=torch.zeros(2, dtype=torch.complex64)), DtypeError, "convert it"),
        (lambda replay: replay.add(x="text"), ShapeError, r"field `x` must have shape \(2,\)"),
        (lambda replay: replay.add(x=np.array(["a", "b"])), DtypeError, "field `x` stores float32"),
        (lambda replay: replay.add(x=torch.zeros(2), where=torch.ones(2, dtype=bool)), FieldError, "^`where` of `add`"),
        (lambda replay: replay.extend(x=torch.zeros(1, 2), where=True), FieldError, "^`where` of `extend`"),
        (lambda replay: replay.add(x=torch.zeros(2), final_obs=1), FieldError, "same_step"),
        (lambda replay: replay.sample(0), ConfigError, "`batch_size`"),
        (lambda replay: replay.sample(2, progress=2.0), ConfigError, "`progress`"),
        (lambda replay: replay.get([5]), IdError, "step 5 is not stored"),
        (lambda replay: replay.as_batch(torch.tensor(1)), ShapeError, "`ids` must have shape"),
        (lambda replay: replay.end_episode(torch.ones(3, dtype=torch.bool)), ShapeError, "`where`"),
        (lambda replay: replay.half(), ConfigError, r"DeviceReplay\.load"),
        (lambda replay: replay.sample(2, out=replay.sample(3)), ReplayError, "`out`"),
    ],
    ids=range(17),
)
def test_calls(call, error, named):
    replay = DeviceReplay(8, X, num_envs=2, device="cpu", sampler=Prioritized(0.5, 0.4))
    replay.add(x=torch.zeros(2))
    with pytest.raises(error, match=named):
        call(replay)
    assert len(replay) == 2


def test_probabilities_of_combined_need_a_batch_size():
    replay = DeviceReplay(8, X, device="cpu", sampler=Combined())
    replay.add(x=0.0)
    with pytest.raises(ConfigError, match="`batch_size`"):
        replay.probabilities([0])


def test_a_module_that_holds_a_replay_moves_without_it():
    module = torch.nn.Sequential(torch.nn.Linear(1, 1), DeviceReplay(8, X, device="cpu"))
    module.to("cpu")
    assert list(module.state_dict()) == ["0.weight", "0.bias"]
    with pytest.raises(ConfigError, match="its own dtypes"):
        module.double()


def test_progress_in_a_capture_is_refused(monkeypatch):
    """A graph would set the same number in each replay."""
    replay = DeviceReplay(8, X, device="cpu", sampler=Prioritized(0.5, Linear(0.4, 1.0)), seed=0)
    replay.add(x=0.0)
    monkeypatch.setattr(device_replay, "capturing", lambda device: True)
    scheduled = replay.parts.draws.scheduled.clone()
    for call in (lambda: replay.sample(2, progress=0.5), lambda: replay.set_progress(0.5)):
        with pytest.raises(ConfigError, match="set_progress"):
            call()
    replay.sample(2)  # without a warning, and without a number that replays would set again
    assert replay.parts.scheduled_value is None
    assert torch.equal(replay.parts.draws.scheduled, scheduled)


@pytest.mark.cuda
def test_progress_in_a_captured_graph_is_refused():
    replay = DeviceReplay(8, X, device="cuda", sampler=Prioritized(0.5, 0.4), seed=0)
    replay.add(x=0.0)
    replay.sample(2)
    with pytest.raises(ConfigError, match="set_progress"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        replay.sample(2, progress=0.5)


def test_no_steps_are_stored_and_nothing_is_drawn():
    replay = DeviceReplay(8, X, num_envs=2, device="cpu")
    ids = replay.extend(x=torch.zeros(0, 2))
    assert (ids.shape, ids.dtype) == ((0, 2), torch.int64)
    with pytest.raises(EmptyBufferError):
        replay.sample(2)
    replay.add(x=torch.zeros(2))
    assert replay.extend(x=torch.zeros(0, 2)).shape == (0, 2)
    assert replay.sample(2).id.shape == (2,)
