"""Ray's answers in place of an event, as the study receives them."""

import pytest

from replaylab.distributed.studies.executor import _next_event
from replaylab.errors import ConfigError
from replaylab.study.execution.executor import Lost

ray = pytest.importorskip("ray")
LACKS = "The remote function failed to import on the worker.\nModuleNotFoundError: No module named 'replaylab'"
MINE = "Traceback\nModuleNotFoundError: No module named 'replaylab_of_mine'"
UNABLE = "^A Ray worker could not perform a task: "


def task_error(words, cause):
    return ray.exceptions.RayTaskError("perform_task", words, cause)


def answer(monkeypatch, error):
    def get(_):
        raise error

    monkeypatch.setattr(ray, "get", get)
    return _next_event(iter([None]))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ray.exceptions.WorkerCrashedError(), "Ray lost the task (WorkerCrashedError: The worker died unexpectedly"),
        (ray.exceptions.NodeDiedError("node 7 died.\nlong"), "Ray lost the task (NodeDiedError: node 7 died)"),
        (task_error("Traceback", OSError(28, "no space")), "The node of the Ray worker could not begin ([Errno 28] no"),
    ],
)
def test_what_came_from_outside_is_tried_again(monkeypatch, error, reason):
    event = answer(monkeypatch, error)
    assert isinstance(event, Lost)
    assert event.retriable
    assert event.reason.startswith(reason)
    assert "\n" not in event.reason


def test_a_stream_that_ends_without_an_answer():
    assert _next_event(iter([])) == Lost("The Ray worker ended without an answer", retriable=True)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (task_error(LACKS, RuntimeError("x")), r"^Every node of the Ray cluster needs replaylab \S+, but one cannot"),
        (task_error(MINE, KeyError()), f"{UNABLE}ModuleNotFoundError: No module named 'replaylab_of_mine'$"),
        (task_error("Traceback", ConfigError("Node a has another version")), "^Node a has another version$"),
        (task_error("Traceback\nKeyError: 'x'", KeyError("x")), f"{UNABLE}KeyError: 'x'$"),
    ],
)
def test_a_node_that_can_perform_nothing_ends_the_study(monkeypatch, error, sentence):
    with pytest.raises(ConfigError, match=sentence):
        answer(monkeypatch, error)
