"""Grants, counts and weights of the hub."""

import numpy as np

from replaylab.distributed.training import hub as module
from replaylab.distributed.training.hub import Hub, Report

WEIGHTS = {"w": np.ones(8, np.float32)}


def hub(actors=2, envs=2, allowed=20, is_end=False, stored=0):
    new = Hub(actors, envs, stored)
    new.publish(0, WEIGHTS, 0.25, allowed, is_end, {})
    return new


def ask(hub, number, wanted=4, report=None, life=0, version=-1):
    return hub.exchange(number, life, report or Report(), version, wanted)


def test_grants_stay_within_the_allowed_steps(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.5)
    new = hub(actors=3)
    counts = [ask(new, number).length for number in range(3)]
    assert counts == [4, 4, 0]  # 8 + 8 of 20 steps; an unroll of 8 more does not fit
    assert ask(new, 2).pause == 1.5  # all three together call every 0.5 s
    assert ask(new, 0, report=Report(steps=8)).length == 0
    new.publish(1, None, 0.5, 24, False, {})
    assert ask(new, 2).length == 4
    without_weights = Hub(1, 1)
    without_weights.publish(-1, None, 0.0, 100, False, {})
    assert ask(without_weights, 0).length == 0


def test_last_grants_are_short_and_reach_the_end():
    new = hub(allowed=13, is_end=True, stored=2)
    assert [ask(new, 0).length, ask(new, 1).length] == [4, 2]
    assert ask(new, 0, report=Report(steps=6)).length == 1  # two of its steps were resets
    ask(new, 0, report=Report(steps=2))
    ask(new, 1, report=Report(steps=4))
    assert new.publish(1, None, 1.0, 13, True, {})[0].steps == 12  # of 11: fewer than E too many
    assert ask(new, 0).length == 0


def test_weights_are_sent_once_and_large_ones_less_often(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "BYTES", 32)
    new = hub(actors=2, allowed=1000)  # 32 bytes for each of two actors: 2 s
    first = ask(new, 0)
    assert (first.version, first.weights, first.progress) == (0, WEIGHTS, 0.25)
    assert ask(new, 0, version=0).weights is None
    newest = {"w": np.zeros(8, np.float32)}
    new.publish(5, newest, 0.5, 1000, False, {})
    now[0] += 1.0
    assert ask(new, 0, version=0)[3:] == (0, None)
    assert ask(new, 1, version=-1)[3:] == (5, newest)
    now[0] += 1.0
    assert ask(new, 0, version=0)[2:] == (0.5, 5, newest)


def test_restarted_actor_loses_its_grant_to_others(monkeypatch):
    new = hub(allowed=8)
    assert ask(new, 0, life=3).length == 4
    assert ask(new, 1).length == 0
    assert ask(new, 0, life=4, report=Report(0, 1, (2.0,), (3.0,))).length == 4
    assert new.publish(0, None, 0.0, 8, False, {})[0] == Report(0, 9, (2.0,), (3.0,))  # passed on once
    assert ask(new, 0, life=3, report=Report(steps=8)) is None  # the node of the previous life was cut off
    assert new.publish(0, None, 0.0, 8, False, {})[0].steps == 0
    monkeypatch.setattr(module, "SILENCE", -1.0)  # it hangs
    assert new.publish(0, None, 0.0, 8, False, {})[1] == [0, 1]
    assert ask(new, 1).length == 4
