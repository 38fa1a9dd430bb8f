"""Sheets of what a replay holds: exactly which steps, in which order, with which numbers."""

import numpy as np
import pytest

from replaylab.envs import Screen, make_vector_env
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners import DQN, Hook, TrainingConfig, train
from replaylab.replay import (
    Dispersed,
    Field,
    FrameStack,
    NStep,
    Online,
    Prioritized,
    Queue,
    RankBased,
    ReplayBuffer,
    Uniform,
)
from replaylab.watch import ReplaySheet, replay_sheet
from replaylab.watch.replay_sheet import standing_out
from tests.learners.dqn import pixels

FIELDS = {
    "obs": Field((2, 3), np.uint8),
    "action": Field((), np.int64),
    "reward": Field(),
    "terminated": Field((), np.bool_),
    "truncated": Field((), np.bool_),
}


def filled(steps, capacity=10, sampler=None, **options):
    """A replay whose step i has the frame i, the reward −i, the action i mod 3, and ends an episode if 4 divides i."""
    replay = ReplayBuffer(
        capacity, FIELDS, sampler=sampler or Prioritized(alpha=1.0, beta=1.0, epsilon=0.0), seed=0, **options
    )
    add(replay, np.arange(steps))
    return replay


def add(replay, numbers):
    lead = () if replay.replicas is None else (replay.replicas,)
    i = np.broadcast_to(numbers, (*lead, len(numbers)))
    ends = i % 4 == 0
    obs = np.broadcast_to(i[..., None, None], (*i.shape, 2, 3)).astype(np.uint8)
    return replay.extend(obs=obs, action=i % 3, reward=-1.0 * i, terminated=ends, truncated=np.zeros_like(ends))


def rows(sheet):
    return {row.title: row.id.tolist() for row in sheet.rows}


def test_known_priorities_give_these_steps_in_this_order():
    replay = filled(8)
    replay.update_priorities(np.arange(8), priority=np.array([3.0, 8, 1, 6, 2, 7, 5, 4]))
    sheet = replay_sheet(replay, places=3)
    assert rows(sheet) == {"Highest priority": [1, 5, 3], "Lowest priority": [2, 4, 0]}
    top, low = sheet.rows
    np.testing.assert_allclose(top.likelihood, 8 * np.array([8, 7, 6]) / 36)
    assert top.age.tolist() == [6, 2, 4]
    assert top.reward.tolist() == [-1, -5, -3]
    assert top.action.tolist() == ["1", "2", "0"]
    assert low.ended.tolist() == [False, True, True]
    assert top.frames.shape == (3, 2, 3)
    assert top.frames[:, 1, 2].tolist() == [1, 5, 3]
    assert np.isnan(top.td_error).all()
    assert top.replays.tolist() == [-1, -1, -1]
    assert (sheet.stored, sheet.waiting) == (8, None)
    assert str(sheet) == "8 steps stored"


def test_an_overwritten_step_is_never_shown():
    replay = filled(8, capacity=5, count_replays=True)
    replay.update_priorities(np.arange(8), priority=np.array([99.0, 98, 97, 6, 2, 7, 5, 4]))
    sheet = replay_sheet(replay, places=10)
    assert rows(sheet) == {"Highest priority": [5, 3, 6, 7, 4], "Lowest priority": [4, 7, 6, 3, 5]}
    assert sheet.rows[0].age.tolist() == [2, 4, 1, 0, 3]
    assert sheet.rows[0].frames[:, 0, 0].tolist() == [5, 3, 6, 7, 4]


@pytest.mark.parametrize("steps", [6, 23])
def test_replays_are_counted_step_by_step_after_a_wrap_too(steps):
    replay = filled(steps, count_replays=True)
    ids = np.arange(max(0, steps - 10), steps)
    for number, times in ((ids[1], 3), (ids[4], 7), (ids[2], 1)):
        replay.update_priorities(ids, priority=np.where(ids == number, 1.0, 0.0))
        replay.sample(times)
    replay.update_priorities(ids, priority=ids + 1.0)
    sheet = replay_sheet(replay, places=4)
    most = sheet.rows[-1]
    assert (most.title, most.replays.tolist()) == ("Replayed most", [7, 3, 1])
    assert most.id.tolist() == ids[[4, 1, 2]].tolist()
    assert most.age.tolist() == (steps - 1 - ids[[4, 1, 2]]).tolist()
    assert sheet.waiting == len(ids) - 3
    assert str(sheet) == f"{len(ids)} steps stored, {len(ids) - 3} of them not replayed yet"
    assert rows(sheet)["Highest priority"] == ids[[4, 2, 1]].tolist()  # steps that were never replayed have none


def test_of_equal_steps_the_newer_come_first_and_many_are_spread():
    assert standing_out(np.array([2, 1, 2]), 5).tolist() == [2, 0, 1]
    assert standing_out(np.array([0, 7, 0, 0, 0, 0]), 4).tolist() == [1, 5, 3, 0]
    assert standing_out(np.array([0, 7, 0, 0, 0, 0]), 2).tolist() == [1, 5]
    assert standing_out(np.zeros(0), 3).tolist() == []


def test_uniform_draws_have_one_row_spread_over_the_ages():
    sheet = replay_sheet(filled(9, sampler=Uniform(), count_replays=True), places=3)
    assert rows(sheet) == {"All equally likely": [8, 4, 0]}
    assert sheet.rows[0].likelihood.tolist() == [1.0, 1.0, 1.0]
    assert sheet.waiting == 9


def test_steps_that_cannot_be_drawn_are_not_the_likeliest():
    assert rows(replay_sheet(filled(9, sampler=Online()), places=3)) == {
        "Highest probability": [8],
        "Lowest probability": [7, 3, 0],
    }


def test_what_a_queue_has_given_is_not_said_to_be_as_likely_as_all():
    replay = filled(9, sampler=Queue(), count_replays=True)
    replay.sample(4)
    assert rows(replay_sheet(replay, places=2, batch_size=2)) == {
        "Highest probability": [5, 4],
        "Lowest probability": [8, 0],
        "Replayed most": [3, 0],
    }


def test_ranks_need_no_more_than_the_batch_size():
    replay = filled(6, sampler=RankBased())
    replay.update_priorities(np.arange(6), priority=np.array([1.0, 6, 2, 5, 3, 4]))
    assert rows(replay_sheet(replay, places=2, batch_size=4, progress=1.0)) == {
        "Highest priority": [1, 3],
        "Lowest priority": [0, 2],
    }


def test_without_a_distribution_the_newest_are_shown_or_those_replayed_most():
    replay = filled(8, sampler=Dispersed(beta=1.0), count_replays=True)
    assert rows(replay_sheet(replay, places=2)) == {"Newest": [7, 6]}
    replay.sample(4)
    sheet = replay_sheet(replay, places=2)
    assert list(rows(sheet)) == ["Replayed most"]
    assert np.isnan(sheet.rows[0].likelihood).all()


def test_of_several_replicas_the_one_asked_for():
    replay = filled(7, replicas=3, count_replays=True)
    add(replay, np.arange(7, 9))
    first = np.arange(9.0) + 1
    replay.update_priorities(np.tile(np.arange(9), (3, 1)), priority=np.stack([first, first[::-1], first % 5]))
    for r, best in enumerate(([8, 7], [0, 1], [8, 3])):
        found = replay_sheet(replay, places=2, replica=r)
        assert rows(found)["Highest priority"] == best
        assert found.rows[0].frames[:, 0, 0].tolist() == best
    with pytest.raises(ConfigError, match="`replica` must be below 3, the replay's replicas, but got 3"):
        replay_sheet(replay, replica=3)


def test_what_is_no_picture_is_refused():
    flat = ReplayBuffer(4, FIELDS | {"obs": Field((2,), np.float32)}, seed=0)
    flat.add(obs=[0.5, 1.0], action=0, reward=0.0, terminated=False, truncated=False)
    with pytest.raises(ConfigError, match="needs observations that are pictures"):
        replay_sheet(flat)
    with pytest.raises(EmptyBufferError, match="the replay is empty"):
        replay_sheet(ReplayBuffer(4, FIELDS, seed=0))
    with pytest.raises(ConfigError, match="needs an InspectableReplay"):
        replay_sheet(object())


def test_a_sheet_comes_back_from_its_bytes():
    replay = filled(8, count_replays=True)
    replay.sample(3)
    for sheet in (replay_sheet(replay, places=3), replay_sheet(filled(5), places=9)):
        again = ReplaySheet.from_bytes(sheet.to_bytes())
        assert (again.stored, again.waiting, len(again.rows)) == (sheet.stored, sheet.waiting, len(sheet.rows))
        for one, other in zip(sheet.rows, again.rows, strict=True):
            for name, column in vars(one).items():
                np.testing.assert_array_equal(column, getattr(other, name), err_msg=name)
        assert sheet.to_bytes() == again.to_bytes()


class AtEnd(Hook):
    """Takes the sheets of all replicas when training ends, and the TD errors of all that is stored."""

    def on_end(self, run, over):
        reported = {"screen": Screen.of(run.env), "agents": run.agents, "batch_size": 4, "progress": 1.0}
        self.sheets = [replay_sheet(run.replay, replica=r, places=5, **reported) for r in range(len(run.seeds))]
        ids = np.stack(run.replay.stored_ids())
        self.ids, self.errors = ids, run.agents.probe(run.replay.as_batch(ids)).td_error
        self.rewards = run.replay.get(ids)["reward"]


@pytest.mark.parametrize("stacked", [True, False])
def test_a_trained_run_shows_its_frames_and_the_td_errors_of_now(stacked):
    learner = DQN(batch_size=4, capacity=40, learning_starts=10, train_period=4)
    transforms = [NStep(2), *([FrameStack(4, stacked_input=True)] if stacked else [])]
    config = TrainingConfig(
        pixels.ENV_ID, learner, Prioritized(), 60, transforms=transforms, eval_every=None, measure_every=30
    )
    end = AtEnd()
    train(config, [0, 1], [end])
    for r, sheet in enumerate(end.sheets):
        assert sheet.stored == 40
        for row in sheet.rows:
            at = np.searchsorted(end.ids[r], row.id)
            np.testing.assert_allclose(row.td_error, end.errors[r, at], rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(row.reward, end.rewards[r, at])  # of the step itself, not its n-step return
            assert row.frames.shape == (5, pixels.SIDE, pixels.SIDE)
            assert ((row.frames == 255).any(2).sum(1) == 1).all()  # the dot of one frame, not of a stack


def test_a_board_is_drawn_in_its_colours():
    env = make_vector_env("replaylab/MinAtar-Breakout-v1", 2)
    screen, (obs, _) = Screen.of(env), env.reset(seed=[0, 1])
    assert screen.actions == ("stay", "left", "right")
    frames = screen.frames(obs)
    assert frames.shape == (2, 10, 10, 3)
    assert frames[0, 2, 0].tolist() == [181, 88, 154]  # a brick
    assert [screen.action(np.int64(one)) for one in (0, 2, 9)] == ["stay", "right", "9"]


@pytest.mark.parametrize(
    ("shape", "drawn"),
    [
        ((5, 4), (5, 4)),
        ((5, 4, 3), (5, 4, 3)),
        ((5, 4, 1), (5, 4)),
        ((2, 5, 4), (5, 4)),
        ((2, 5, 4, 3), (5, 4, 3)),
    ],
)
def test_of_stacks_the_newest_frame_is_drawn(shape, drawn):
    obs = np.zeros((3, *shape), np.uint8)
    if len(shape) - len(drawn) == 1 and shape[-1] != 1:
        obs[:, -1] = 9
    else:
        obs[:] = 9
    frames = Screen().frames(obs)
    assert frames.shape == (3, *drawn)
    assert (frames == 9).all()


@pytest.mark.parametrize("obs", [np.zeros((3, 4)), np.zeros((3, 4, 5, 5), bool), np.zeros((3, 2, 5, 4, 7), np.uint8)])
def test_other_numbers_are_no_pictures(obs):
    assert Screen().frames(obs) is None
