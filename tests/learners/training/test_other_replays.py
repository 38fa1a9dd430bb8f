"""Training takes any replay: one of Python lists gives the rows that a ReplayBuffer gives."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN, QLearning
from replaylab.replay import Online, Prioritized, Replay, RestorableReplay
from tests.learners.calls import train
from tests.learners.training.list_replay import ListReplay, RestorableListReplay

TABLE = QLearning(batch_size=3, learning_starts=3, epsilon=0.3, online=False)
DEEP = DQN(hidden=(8,), batch_size=4, learning_starts=10, capacity=100)
OPTIONS = {"eval_every": None, "log_every": 20}


def equal(left, right):
    for name, column in left.columns.items():
        np.testing.assert_array_equal(column, right.columns[name])


@pytest.mark.parametrize(("env_id", "learner"), [("CliffWalking-v1", TABLE), ("CartPole-v1", DEEP)])
def test_the_rows_are_those_of_a_buffer_that_draws_the_same(env_id, learner):
    made = []

    def make(**given):
        made.append(ListReplay(**given))
        return made[-1]

    own = train(env_id, learner, Online(), [3, 5], 150, make_replay=make, **OPTIONS)
    equal(own, train(env_id, learner, Online(), [3, 5], 150, **OPTIONS))
    (replay,) = made
    assert isinstance(replay, Replay)
    assert not isinstance(replay, RestorableReplay)
    assert replay.next_id.tolist() == [150, 150]
    assert replay.told == 0


def test_feedback_goes_back_to_it():
    made = []

    def make(**given):
        made.append(ListReplay(**given))
        return made[-1]

    train("CliffWalking-v1", TABLE, Prioritized(), [3], 50, make_replay=make, **OPTIONS)
    assert made[0].told == 48


def test_a_checkpoint_goes_on_where_the_replay_can(tmp_path):
    options = OPTIONS | {"make_replay": RestorableListReplay}
    whole = train("CliffWalking-v1", TABLE, Online(), [3, 5], 150, save=tmp_path, save_every=70, **options)
    equal(train("CliffWalking-v1", TABLE, Online(), [3, 5], 150, resume=tmp_path, **options), whole)


@pytest.mark.parametrize(
    ("more", "ability"),
    [
        ({"save": "kept", "save_every": 10}, "RestorableReplay"),
        ({"total_steps": None, "total_episodes": 3}, "DivisibleReplay"),
        ({"measure_every": 10}, "InspectableReplay"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused_before_anything_is_trained(more, ability, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replaylab.learners.training.loop.turn", lambda *_: pytest.fail("trained"))

    def make(**given):
        return ListReplay(**given | {"count_replays": False})

    options = {"total_steps": 50, "make_replay": make} | OPTIONS | more
    with pytest.raises(ConfigError, match=f"needs a {ability}, but ListReplay has no"):
        train("CliffWalking-v1", TABLE, Online(), [3, 5], **options)
