"""The oracle of the transforms against examples worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from replaylab.replay import FrameStack, Hindsight, NStep, Sequence, Uniform

from .buffer import OracleReplica
from .transforms import TransformOracle


def story(capacity, ends, envs=None):
    """A replica in which step i has obs i, reward 2^i and reaches goal 100 + i; `ends` holds "", "t" or "c"."""
    replay = OracleReplica(capacity, Uniform())
    for i, end in enumerate(ends):
        step = {
            ("obs", "frame"): np.int64(i),
            ("obs", "desired_goal"): np.float32(-1),
            ("next_obs", "frame"): np.int64(i + 50),
            ("next_obs", "achieved_goal"): np.float32(100 + i),
            ("next_obs", "desired_goal"): np.float32(-1),
            ("reward",): np.float32(2**i),
            ("terminated",): np.bool_(end == "t"),
            ("truncated",): np.bool_(end == "c"),
        }
        replay.add(step, envs[i] if envs else 0)
    return replay


def reached(achieved, desired, info):
    return achieved == desired


def minus_one_until(achieved, desired, info):
    return np.where(achieved == desired, 0.0, -1.0) + info["reward"] / 1024


def hindsight(strategy="future"):
    return Hindsight(minus_one_until, reached, strategy)


class TestNStep:
    def test_it_stops_at_ends_and_at_the_newest_step(self):
        oracle = TransformOracle(story(10, ["", "", "c", "", "t", "", ""]), [NStep(3, 0.5)])
        rows = [oracle.row(i) for i in range(7)]
        assert [row["n_steps",] for row in rows] == [3, 2, 1, 2, 1, 2, 1]
        assert [row["discount",] for row in rows] == [1 / 8, 1 / 4, 1 / 2, 0, 0, 1 / 4, 1 / 2]
        assert [row["reward",] for row in rows] == [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16, 32 + 32, 64]
        assert [row["next_obs", "frame"] for row in rows] == [52, 52, 52, 54, 54, 56, 56]
        assert [row["obs", "frame"] for row in rows] == list(range(7))

    def test_each_environment_goes_its_own_way(self):
        oracle = TransformOracle(story(10, ["", "", "", "t", ""], envs=[0, 1, 0, 1, 0]), [NStep(2, 1.0)])
        assert [oracle.row(i)["reward",] for i in range(5)] == [1 + 4, 2 + 8, 4 + 16, 8, 16]
        assert oracle.row(1)["terminated",]


class TestFrameStack:
    @pytest.mark.parametrize(("padding", "before"), [("repeat", 2), ("zero", 0)])
    def test_it_pads_before_the_first_stored_frame(self, padding, before):
        oracle = TransformOracle(story(4, ["", "t", "", "", "", ""]), [FrameStack(3, ("obs.frame",), padding=padding)])
        assert list(oracle.replay.stored) == [2, 3, 4, 5]
        assert oracle.row(2)["obs", "frame"].tolist() == [before, before, 2]
        assert oracle.row(2)["next_obs", "frame"].tolist() == [before, 2, 52]
        assert oracle.row(3)["obs", "frame"].tolist() == [before, 2, 3]
        assert oracle.row(4)["obs", "frame"].tolist() == [2, 3, 4]
        assert oracle.row(4)["next_obs", "frame"].tolist() == [3, 4, 54]

    def test_a_partly_overwritten_episode(self):
        oracle = TransformOracle(story(3, ["", "", "", "", ""]), [FrameStack(4, ("obs",))])
        assert oracle.row(3)["obs", "frame"].tolist() == [2, 2, 2, 3]

    def test_with_n_step_the_next_stack_is_the_last_step_s(self):
        oracle = TransformOracle(story(9, ["", "", "", "c", ""]), [FrameStack(2, ("obs.frame",)), NStep(2)])
        assert oracle.row(1)["obs", "frame"].tolist() == [0, 1]
        assert oracle.row(1)["next_obs", "frame"].tolist() == [2, 52]
        assert oracle.row(4)["obs", "frame"].tolist() == [4, 4]


class TestHindsight:
    def test_goal_steps(self):
        """Episodes 0 to 3 (0 and 1 are gone) and 4 to 6, which continues."""
        replay = story(5, ["", "", "", "c", "", "", ""])
        steps = {
            strategy: [TransformOracle(replay, [hindsight(strategy)]).goal_steps(i) for i in replay.stored]
            for strategy in ("final", "future", "episode")
        }
        assert steps["final"] == [[3], [3], [6], [6], [6]]
        assert steps["future"] == [[2, 3], [3], [4, 5, 6], [5, 6], [6]]
        assert steps["episode"] == [[2, 3], [2, 3], [4, 5, 6], [4, 5, 6], [4, 5, 6]]

    def test_a_relabelled_step(self):
        oracle = TransformOracle(story(9, ["", "", "t"]), [hindsight()])
        row = oracle.row(1, oracle.goal(1))
        assert row["obs", "desired_goal"] == row["next_obs", "desired_goal"] == 101
        assert row["reward",] == np.float32(2 / 1024)
        assert row["terminated",]
        assert not row["truncated",]

    def test_other_fields_of_a_goal_are_replaced_with_it(self):
        replay = story(9, ["", "", "t"])
        for i, step in enumerate(replay.steps):
            step["true_achieved",], step["true_desired",] = np.float32(1000 + i), np.float32(-1000)
            step["obs", "desired_x"], step["next_obs", "achieved_x"] = np.float32(-2000), np.float32(2000 + i)
        oracle = TransformOracle(replay, [hindsight()])
        row = oracle.row(0, oracle.goal(2))
        assert row["true_desired",] == 1002
        assert row["obs", "desired_x"] == 2002
        assert oracle.row(0)["true_desired",] == -1000

    def test_an_old_termination_becomes_a_truncation(self):
        oracle = TransformOracle(story(9, ["", "", "t"]), [hindsight("episode")])
        row = oracle.row(2, oracle.goal(0))
        assert not row["terminated",]
        assert row["truncated",]

    def test_n_step_returns_stop_where_the_new_goal_is_reached(self):
        oracle = TransformOracle(story(9, ["", "", "", "t", ""]), [NStep(3, 0.5), hindsight()])
        row = oracle.row(0, oracle.goal(1))
        assert row["n_steps",] == 2
        assert row["discount",] == 0
        assert row["reward",] == np.float32((-1 + 1 / 1024) + 0.5 * (2 / 1024))
        assert row["next_obs", "frame"] == 51
        row = oracle.row(2, oracle.goal(0))  # never reached again: up to the real end, now a truncation
        assert row["n_steps",] == 2
        assert row["discount",] == 0.25
        assert row["truncated",]
        assert not row["terminated",]


class TestSequence:
    def test_blocks_windows_and_masks(self):
        """An episode of 7 steps, of which the first 2 are gone, then one of 2."""
        oracle = TransformOracle(story(7, ["", "", "", "", "", "", "c", "", ""]), [Sequence(4, 1, 1)])
        assert [oracle.block(i) for i in range(2, 9)] == [[2], [3, 4, 5], [3, 4, 5], [3, 4, 5], [6], [7, 8], [7, 8]]
        row = oracle.row(2)
        assert row["mask",].tolist() == [False, False, False, True, True]
        assert row["obs", "frame"].tolist() == [0, 0, 0, 2, 3]
        row = oracle.row(3)
        assert row["mask",].tolist() == [True, True, True, True, True]
        assert row["obs", "frame"].tolist() == [2, 3, 4, 5, 6]
        row = oracle.row(7)
        assert row["mask",].tolist() == [False, True, True, False, False]
        assert row["reward",].tolist() == [0, 128, 256, 0, 0]

    def test_the_distribution_of_a_block_is_the_sum_of_its_steps(self):
        oracle = TransformOracle(story(7, ["", "", "", "", "", "", "c", "", ""]), [Sequence(4, 1, 1)])
        assert {i: round(7 * p) for i, p in oracle.distribution(4).items()} == {
            2: 1,
            3: 3,
            4: 0,
            5: 0,
            6: 1,
            7: 2,
            8: 0,
        }

    def test_feedback_goes_to_the_whole_block(self):
        oracle = TransformOracle(story(7, ["", "", "", "", "", "", "c", "", ""]), [Sequence(4, 1, 1)])
        assert oracle.update_priorities([3, 0, 7, 7], [5.0, 9.0, 2.0, 3.0]) == 3
        assert oracle.replay.priorities == {2: 1, 3: 5, 4: 5, 5: 5, 6: 1, 7: 3, 8: 3}

    def test_a_state_is_that_of_the_first_stored_step(self):
        oracle = TransformOracle(story(7, ["", "", "", "", "", "", "c", ""]), [Sequence(4, 1, 1, state=("reward",))])
        assert oracle.row(3)["reward",] == 4
        assert oracle.row(7)["reward",] == 128

    def test_all_at_once(self):
        """Frames reach back over the window's start, returns reach out over its end; one goal for all."""
        transforms = [Sequence(2, 0, 0), NStep(2, 0.5), FrameStack(2, ("obs.frame",), padding="zero"), hindsight()]
        oracle = TransformOracle(story(9, ["", "", "", "", "", "t"]), transforms)
        row = oracle.row(2, oracle.goal(4))
        assert row["mask",].tolist() == [True, True]
        assert row["obs", "frame"].tolist() == [[1, 2], [2, 3]]
        assert row["next_obs", "frame"].tolist() == [[3, 53], [4, 54]]
        assert row["n_steps",].tolist() == [2, 2]
        assert row["discount",].tolist() == [0.25, 0]
        assert row["obs", "desired_goal"].tolist() == [104, 104]
        assert row["terminated",].tolist() == [False, True]
        np.testing.assert_allclose(row["reward",], [-1.5 + (4 + 4) / 1024, -1 + (8 + 8) / 1024])

    def test_goals_are_those_of_the_steps_that_can_be_drawn(self):
        oracle = TransformOracle(story(9, ["", "", "", ""]), [Sequence(2, 0, 0), hindsight()])
        assert oracle.allowed(2, 4) == {2, 3}
        assert oracle.allowed(0, 4) == {0, 1, 2, 3}
        oracle.replay.distribution = lambda batch_size: {0: 0.0, 1: 0.5, 2: 0.25, 3: 0.25}
        assert oracle.allowed(0, 4) == {1, 2, 3}


def test_unknown_transforms_change_nothing():
    replay = story(3, ["", "", ""])
    assert TransformOracle(replay, [SimpleNamespace()]).row(1) == replay.steps[1]
