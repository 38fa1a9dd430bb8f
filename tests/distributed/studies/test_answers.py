"""Ray's answers in place of an event, as the study receives them."""

import pytest

from replaylab.distributed.studies.executor import _next_event
from replaylab.errors import ConfigError
from replaylab.study.execution.executor import Lost

ray = pytest.importorskip("ray")


def answer(monkeypatch, error):
    def get(_):
        raise error

    monkeypatch.setattr(ray, "get", get)
    return _next_event(iter([None]))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ray.exceptions.WorkerCrashedError(), "The Ray worker was killed or crashed (The worker died unexpectedly"),
        (ray.exceptions.NodeDiedError("node 7 died.\nlong"), "The node of the Ray worker died (node 7 died)"),
        (ray.exceptions.OutOfMemoryError("too much."), "The node of the Ray worker ran out of memory (too much)"),
        (ray.exceptions.ObjectLostError("ab", None, "x"), "Ray lost the task ("),
    ],
)
def test_what_came_from_outside_is_tried_again(monkeypatch, error, reason):
    event = answer(monkeypatch, error)
    assert isinstance(event, Lost)
    assert event.retriable
    assert event.reason.startswith(reason)
    assert "\n" not in event.reason


def test_a_node_with_a_full_disk_is_not_asked_alone(monkeypatch):
    error = ray.exceptions.RayTaskError("perform_task", "Traceback", OSError(28, "No space left on device"))
    reason = "The node of the Ray worker could not begin ([Errno 28] No space left on device)"
    assert answer(monkeypatch, error) == Lost(reason, retriable=True)


def test_a_stream_that_ends_without_an_answer():
    assert _next_event(iter([])) == Lost("The Ray worker ended without an answer", retriable=True)


@pytest.mark.parametrize(
    ("words", "cause", "sentence"),
    [
        (
            "The remote function failed to import on the worker.\nModuleNotFoundError: No module named 'replaylab'",
            RuntimeError("x"),
            r"^Every node of the Ray cluster needs replaylab \S+, but one cannot import it; install it there",
        ),
        (
            "Traceback\nModuleNotFoundError: No module named 'replaylab_of_mine'",
            ModuleNotFoundError("No module named 'replaylab_of_mine'"),
            "^A Ray worker could not perform a task: ModuleNotFoundError: No module named 'replaylab_of_mine'$",
        ),
        ("Traceback", ConfigError("Node a has another version"), "^Node a has another version$"),
        ("Traceback\nKeyError: 'x'", KeyError("x"), "^A Ray worker could not perform a task: KeyError: 'x'$"),
    ],
)
def test_a_node_that_can_perform_nothing_ends_the_study(monkeypatch, words, cause, sentence):
    with pytest.raises(ConfigError, match=sentence):
        answer(monkeypatch, ray.exceptions.RayTaskError("perform_task", words, cause))
