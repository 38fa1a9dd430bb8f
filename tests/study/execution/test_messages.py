"""Tasks and events come out of a pipe, and out of a pickle, as they went in."""

import io
import pickle

import pytest

from replaylab.study.execution.executor import CheckTask, Finished, Lost, Progress, Raised, Stopped, TimeTask, TrainTask
from replaylab.study.execution.local.messages import Stop, read_message, write_message
from replaylab.study.results.provenance import this_machine
from tests.study.execution.executor_conformance import chunks

HERE = this_machine()
(ONE, *_) = chunks(env_options={"FrozenLake-v1": {"is_slippery": False, "x": float("inf")}})
MESSAGES = [
    TrainTask(ONE),
    TrainTask(ONE, record=True, tape="tapes/a.tape"),
    TrainTask(ONE, tape=bytes(range(256))),
    Finished(b"rows\n", 1.5, HERE, b"\n tape"),
    CheckTask(ONE),
    TimeTask(ONE, 0.5),
    Stop(),
    Stopped(),
    Progress(7),
    Finished(b"", 1.5, HERE),
    Finished(bytes(range(256)) * 1000 + b"\n", 1.5, HERE),
    Raised('Traceback\n  "ü\udc80"\x00', HERE),
    Raised("Traceback", HERE, "SpecError", "no\nluck"),
    Lost("The worker process was killed by SIGKILL", machine=HERE),
    Lost("The node went away", retriable=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message):
    stream = io.BytesIO()
    write_message(stream, message)
    write_message(stream, Progress(1))
    stream.seek(0)
    assert read_message(stream) == message
    assert read_message(stream) == Progress(1)
    assert read_message(stream) is None
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_message_cut_off_anywhere_is_the_end():
    stream = io.BytesIO()
    write_message(stream, Finished(b"0123456789", 1.5, HERE))
    content = stream.getvalue()
    for length in range(len(content)):
        assert read_message(io.BytesIO(content[:length])) is None


NO_MESSAGES = [b"hello", b"{}", b"[]", b"3", b"null", b'{"message": "X", "fields": {}, "bytes": {}}', b"\xff"]


@pytest.mark.parametrize("line", NO_MESSAGES)
def test_what_is_no_message_is_an_error(line):
    with pytest.raises(ValueError, match=r"."):
        read_message(io.BytesIO(line + b"\n"))
