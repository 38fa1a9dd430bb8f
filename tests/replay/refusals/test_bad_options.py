"""Options and places that are wrong beside each other; `test_senseless_calls.py` has those that are wrong alone."""

from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import ConfigError, FieldError, ShapeError, SnapshotError, StorageError
from replaylab.replay import (
    Exponential,
    Field,
    FrameStack,
    LaBER,
    Linear,
    Mixture,
    Oracle,
    Prioritized,
    Recency,
    ReLo,
    ReplayBuffer,
    ReplayStream,
    Sequence,
    Table,
    Uniform,
)
from replaylab.research import Blocks
from tests.replay.buffers import cases, filled, refused

TWO = (Uniform(), Uniform())
STACKS = FrameStack(3, stacked_input=True)


def given_as_stacks(value):
    buffer = ReplayBuffer(10, {"obs": Field((2,))}, transforms=[STACKS], episodes="manual")
    buffer.add(obs=value)


def without_stacks():
    gym = pytest.importorskip("gymnasium")
    ReplayBuffer.for_env(gym.make("CartPole-v1"), 10, transforms=[STACKS])


def beyond(kind, name):
    return lambda: kind(**{name: 2**53 + 1})


def priority(errors, mask):
    return lambda: Sequence(length=3, overlap=1, burn_in=2).priority(np.zeros(errors), np.ones(mask, bool))


OPTIONS = [
    (ConfigError, "`parts` of Mixture must be two or more samplers", lambda: Mixture(Uniform())),
    (
        ConfigError,
        "samplers of this library with a closed form",
        lambda: Mixture((Uniform(), Prioritized(replace=False))),
    ),
    (
        ConfigError,
        "with a closed form, none of them a Mixture",
        lambda: Mixture((Uniform(), LaBER(len))),
    ),
    (ConfigError, "want different feedback", lambda: Mixture((ReLo(), Prioritized()))),
    (ConfigError, "`shares` of Mixture ... each part ... ('a', 1)", lambda: Mixture(TWO, ("a", 1))),
    (ConfigError, "`shares` of Mixture ... sum is finite ... 1e+308", lambda: Mixture(TWO, (1e308, 1e308))),
    (ConfigError, "`stratified` of Uniform must be False", lambda: Uniform(replace=False, stratified=True)),
    (ConfigError, "`beta` of Prioritized ... [0, 1] ... end=1.1", lambda: Prioritized(beta=Linear(0.4, 1.1))),
    (ConfigError, "progress ... Table ... ascend ... (0.5, 0.5)", lambda: Table((0.5, 0.5), (0.1, 0.2))),
    (ConfigError, "values ... Table ... 2 numbers ... (0.1,)", lambda: Table((0.0, 0.5), (0.1,))),
    (ConfigError, "Exponential ... positive ... end=0.0 ... use Linear to reach 0", lambda: Exponential(1.0, 0.0)),
    (ConfigError, "`overlap` of Sequence ... overlap=4, length=4", lambda: Sequence(length=4, overlap=4)),
    (ConfigError, "`least` of Recency must be at most 9,007,199,254,740,992", beyond(Recency, "least")),
    (ConfigError, "`burst` of Recency must be at most 9,007,199,254,740,992", beyond(Recency, "burst")),
    (ConfigError, "`length` of Blocks must be at most 9,007,199,254,740,992", beyond(Blocks, "length")),
    (ConfigError, "must be at most 9,007,199,254,740,992", beyond(Prioritized, "block_length")),
    (ShapeError, "`obs` must be given as stacks of 3 frames ... (2, 2)", lambda: given_as_stacks(np.zeros((2, 2)))),
    (ShapeError, "`obs` must be given as stacks of 3 frames ... (2,)", lambda: given_as_stacks(np.zeros(2))),
    (ShapeError, "`obs` must be given as stacks of 3 frames ... ()", lambda: given_as_stacks(0.0)),
    (FieldError, "stacks of 3 frames, but the environment's `obs` has shape (4,)", without_stacks),
    (SnapshotError, "must be one that `state` returned", lambda: ReplayStream([], 10, 2).restore({"taken": 1})),
    (ShapeError, "`td_error` must be of shape [R] B 5 ... (4, 2) and (4, 5)", priority((4, 2), (4, 5))),
    (ShapeError, "`td_error` must be of shape [R] B 5 ... (4, 3) and (3, 3)", priority((4, 3), (3, 3))),
    (ShapeError, "`td_error` must be of shape [R] B 5 ... () and (4, 5)", priority((), (4, 5))),
]


@pytest.mark.parametrize(("error", "words", "call"), cases(OPTIONS))
def test_what_cannot_be(error, words, call):
    refused(error, words, call)


def test_saving_where_nothing_can_be_written(tmp_path):
    buffer, file = filled(), tmp_path / "file"
    file.write_text("not a folder")
    for place in (file, file / "below", Path("/proc/none")):
        refused(StorageError, f"{place} cannot be written", lambda place=place: buffer.save(place))
    assert file.read_text() == "not a folder"
    buffer.save(tmp_path / "good")


@pytest.mark.parametrize("sampler", [Oracle(len), LaBER(len)], ids=["Oracle", "LaBER"])
def test_loading_with_a_sampler_it_was_not_saved_with(tmp_path, sampler):
    filled().save(tmp_path)
    words = f"saved with sampler=Uniform(replace=True, stratified=False), but sampler={sampler!r} needs data that it"
    refused(SnapshotError, words, lambda: ReplayBuffer.load(tmp_path, sampler=sampler))
