"""Traps 3, 4, 5, 11 and 12: places where libraries mix up steps that belong to different times.

Worked out by hand; `test_transforms_against_oracle.py` holds the same against every combination.
"""

import numpy as np
import pytest

from replaylab.replay import Field, FrameStack, Hindsight, NStep, Prioritized, ReplayBuffer, Sequence

FLAGS = {"terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}
FRAMES = {"obs": Field((), np.int64), "reward": Field(), "next_obs": Field((), np.int64), **FLAGS}


def frames(ends, capacity=20, **options):
    """A buffer of steps i from obs 10 i to next_obs 10 i + 1, or to the next step's obs if the episode goes on.

    `ends` has one of "" (the episode goes on), "t" (terminated) and "c" (truncated, cut) a step.
    """
    buffer = ReplayBuffer(capacity, FRAMES, seed=0, **options)
    for i, end in enumerate(ends):
        buffer.add(
            obs=10 * i,
            reward=2.0**i,
            next_obs=10 * i + 1 if end else 10 * i + 10,
            terminated=end == "t",
            truncated=end == "c",
        )
    return buffer


def rows(buffer, *names, draws=400):
    """Map every id that is drawn to its values of these columns."""
    batch = buffer.sample(draws, progress=0.5)
    found = {i: tuple(batch[name][k].tolist() for name in names) for k, i in enumerate(batch.id.tolist())}
    assert len(found) == len(buffer)
    return found


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
class TestTrap3NStepTails:
    def test_at_a_truncation_next_obs_is_the_true_last_and_the_bootstrap_lives(self, next_obs):
        found = rows(
            frames(["", "", "c", "", ""], transforms=[NStep(3, 0.5)], next_obs=next_obs), "next_obs", "discount"
        )
        assert found[1] == (21, 0.25)
        assert found[2] == (21, 0.5)

    def test_the_tail_is_drawn_too(self, next_obs):
        found = rows(frames(["", "", "c", "", ""], transforms=[NStep(3)], next_obs=next_obs), "n_steps")
        assert found == {0: (3,), 1: (2,), 2: (1,), 3: (2,), 4: (1,)}

    def test_an_episode_of_one_step_does_not_run_into_the_next(self, next_obs):
        found = rows(frames(["c", "", ""], transforms=[NStep(3, 1.0)], next_obs=next_obs), "reward", "next_obs")
        assert found[0] == (1.0, 1)

    def test_it_stops_at_the_write_head_of_a_full_ring(self, next_obs):
        buffer = frames([""] * 9, capacity=5, transforms=[NStep(3, 1.0)], next_obs=next_obs)
        found = rows(buffer, "reward", "next_obs", "n_steps")
        assert found[8] == (2.0**8, 90, 1)
        assert found[7] == (2.0**7 + 2.0**8, 90, 2)
        assert found[4] == (2.0**4 + 2.0**5 + 2.0**6, 70, 3)


class TestTrap4DerivedNextObs:
    def check(self, buffer, expected):
        assert {i: v for i, (v,) in rows(buffer, "next_obs").items()} == expected
        assert buffer.get(np.array(list(expected)))["next_obs"].tolist() == list(expected.values())

    def test_a_truncated_last_step_keeps_its_own(self):
        self.check(frames(["", "c", "", ""], next_obs="derived"), {0: 10, 1: 11, 2: 30, 3: 40})

    def test_the_write_head_keeps_its_own(self):
        buffer = frames([""] * 7, capacity=4, next_obs="derived")
        self.check(buffer, {3: 40, 4: 50, 5: 60, 6: 70})

    @pytest.mark.parametrize("capacity", [1, 2, 3])
    def test_a_closing_step_is_kept_while_the_next_episode_passes_it(self, capacity):
        buffer = frames(["", "t"] + [""] * (capacity - 1), capacity=capacity, next_obs="derived")
        self.check(buffer, {1: 11} | {i: 10 * i + 10 for i in range(2, capacity + 1)})

    def test_the_next_row_of_another_environment_is_not_the_next_step(self):
        buffer = ReplayBuffer(6, FRAMES, num_envs=2, next_obs="derived", seed=0)
        for t in range(3):
            obs = np.array([100 + t, 200 + t])
            buffer.add(obs=obs, reward=np.zeros(2), next_obs=obs + 1, terminated=[False] * 2, truncated=[False] * 2)
        self.check(buffer, {0: 101, 1: 201, 2: 102, 3: 202, 4: 103, 5: 203})

    def test_an_observation_that_is_not_the_next_ones_is_kept_whatever_the_flags_say(self):
        buffer = ReplayBuffer(6, FRAMES, next_obs="derived", seed=0)
        for obs, next_obs in [(1, 2), (2, 3), (7, 8), (8, 9)]:
            buffer.add(obs=obs, reward=0, next_obs=next_obs, terminated=False, truncated=False)
        self.check(buffer, {0: 2, 1: 3, 2: 8, 3: 9})

    def test_equal_numbers_of_other_bytes_are_told_apart(self):
        """-0.0 equals 0.0 and NaN does not equal itself; what is returned has the bytes that were given."""
        fields = {"obs": Field(), "next_obs": Field()}
        buffer = ReplayBuffer(6, fields, next_obs="derived", seed=0)
        given = np.array([-0.0, np.nan, 0.0, 1.0], np.float32)
        stored = np.array([2.0, 0.0, np.nan, -0.0], np.float32)
        buffer.extend(obs=stored, next_obs=given)
        assert buffer.get(np.arange(4))["next_obs"].tobytes() == given.tobytes()

    def test_same_step_autoreset_keeps_the_final_observation(self):
        buffer = ReplayBuffer(6, FRAMES, next_obs="derived", autoreset="same_step", seed=0)
        buffer.add(obs=1, reward=0, next_obs=50, terminated=False, truncated=True, final_obs=2)
        buffer.add(obs=50, reward=0, next_obs=51, terminated=False, truncated=False, final_obs=0)
        self.check(buffer, {0: 2, 1: 51})


def test_trap_04_closing_rows_are_used_again():
    fields = {"obs": Field((50,), np.uint8), "next_obs": Field((50,), np.uint8)}
    buffer = ReplayBuffer(100, fields, next_obs="derived", seed=0)
    rng = np.random.default_rng(0)
    held = []
    for _ in range(6):
        given = rng.integers(0, 256, (2, 100, 50), np.uint8)  # no step follows another
        ids = buffer.extend(obs=given[0], next_obs=given[1])
        np.testing.assert_array_equal(buffer.get(ids)["next_obs"], given[1])
        held.append(buffer.nbytes)
    assert set(held[1:]) == {held[1]}
    assert held[1] < 100 * 50 * 3


GOAL = {"achieved_goal": Field((1,)), "desired_goal": Field((1,))}
GOALS = {"obs": GOAL, "action": Field((), np.int64), "reward": Field(), "next_obs": GOAL, **FLAGS}


def reached(achieved, desired, info):
    return (achieved == desired).all(axis=-1)


def reward(achieved, desired, info):
    return reached(achieved, desired, info) - 1.0


def goals(ends, strategy, capacity=20, others=(), **options):
    """A buffer of steps i that achieve goal 100 + i, all relabelled but one in a million."""
    hindsight = Hindsight(reward, reached, strategy, ratio=1e6)
    buffer = ReplayBuffer(capacity, GOALS, transforms=[hindsight, *others], seed=0, **options)
    for i, end in enumerate(ends):
        buffer.add(
            obs={"achieved_goal": [99 + i], "desired_goal": [-1]},
            action=i,
            reward=-1,
            next_obs={"achieved_goal": [100 + i], "desired_goal": [-1]},
            terminated=end == "t",
            truncated=end == "c",
        )
    return buffer


def goal_steps(buffer, draws=3000):
    """Map every drawn id to the steps whose goals its relabelled rows got."""
    found = {}
    batch = buffer.sample(draws, progress=0.5)
    assert batch.relabelled.mean() > 0.99
    for i, goal, next_goal, picked in zip(
        batch.id.tolist(),
        batch.obs["desired_goal"][:, 0].tolist(),
        batch.next_obs["desired_goal"][:, 0].tolist(),
        batch.relabelled.tolist(),
        strict=True,
    ):
        assert goal == next_goal
        if picked:
            found.setdefault(i, set()).add(int(goal) - 100)
    return found


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
class TestTrap5Hindsight:
    def test_an_episode_that_wraps_the_ring(self, next_obs):
        """Steps 4 to 8 lie in slots 4, 5, 0, 1, 2 of six; slot 3 still holds step 3 of the episode before."""
        buffer = goals(["", "", "", "c", "", "", "", "", ""], "episode", capacity=6, next_obs=next_obs)
        later = {4, 5, 6, 7, 8}
        assert goal_steps(buffer) == {3: {3}} | dict.fromkeys(later, later)

    def test_future_goals_of_an_episode_that_wraps_the_ring(self, next_obs):
        buffer = goals([""] * 8, "future", capacity=5, next_obs=next_obs)
        assert goal_steps(buffer) == {i: set(range(i, 8)) for i in range(3, 8)}

    def test_a_partly_overwritten_episode_gives_only_goals_that_are_stored(self, next_obs):
        buffer = goals(["", "", "", "t", "", "t"], "episode", capacity=4, next_obs=next_obs)
        assert goal_steps(buffer) == {2: {2, 3}, 3: {2, 3}, 4: {4, 5}, 5: {4, 5}}

    def test_no_goal_comes_from_a_slot_s_earlier_steps(self, next_obs):
        """The same slots are filled three times over by episodes of different lengths."""
        ends = ["", "", "t", "", "", "", "", "c", "t", "", "", "", "", "", "t", ""]
        buffer = goals(ends, "random", capacity=5, next_obs=next_obs)
        assert goal_steps(buffer) == {i: set(range(11, 16)) for i in range(11, 16)}

    def test_final_is_the_last_step_of_the_episode(self, next_obs):
        buffer = goals(["", "", "t", "c", "", ""], "final", next_obs=next_obs)
        assert goal_steps(buffer) == {0: {2}, 1: {2}, 2: {2}, 3: {3}, 4: {5}, 5: {5}}

    def test_unfinished_episodes_are_drawn(self, next_obs):
        assert goal_steps(goals([""], "future", next_obs=next_obs)) == {0: {0}}
        assert goal_steps(goals(["t", "", ""], "future", next_obs=next_obs)) == {0: {0}, 1: {1, 2}, 2: {2}}

    def test_an_episode_s_goals_grow_with_it(self, next_obs):
        buffer = goals(["", ""], "final", next_obs=next_obs)
        assert goal_steps(buffer) == {0: {1}, 1: {1}}
        step = {"action": 0, "reward": -1, "terminated": False, "truncated": False}
        obs = {"achieved_goal": [101], "desired_goal": [-1]}
        buffer.add(obs=obs, next_obs={"achieved_goal": [102], "desired_goal": [-1]}, **step)
        assert goal_steps(buffer) == {0: {2}, 1: {2}, 2: {2}}

    def test_terminated_is_recomputed_with_the_reward(self, next_obs):
        batch = goals(["", "", "t", "c"], "future", next_obs=next_obs).sample(2000)
        picked = batch.relabelled
        hit = (batch.obs["desired_goal"] == batch.next_obs["achieved_goal"])[:, 0]
        np.testing.assert_array_equal(batch.reward[picked], hit[picked] - 1.0)
        np.testing.assert_array_equal(batch.terminated[picked], hit[picked])
        np.testing.assert_array_equal(batch.truncated[picked], (batch.id == 3)[picked])

    def test_an_end_that_is_none_any_more_counts_as_a_truncation(self, next_obs):
        batch = goals(["", "", "t"], "episode", next_obs=next_obs).sample(2000)
        hit = (batch.obs["desired_goal"] == batch.next_obs["achieved_goal"])[:, 0]
        last = batch.relabelled & (batch.id == 2)
        assert 0 < hit[last].sum() < last.sum()
        np.testing.assert_array_equal(batch.truncated[last], ~hit[last])

    def test_n_step_returns_stop_where_the_new_goal_is_reached(self, next_obs):
        others = [NStep(3, 0.5)]
        buffer = goals(["", "", "", "t"], "future", others=others, next_obs=next_obs, sampler=Prioritized(beta=0.5))
        batch = buffer.sample(2000)
        goal = batch.obs["desired_goal"][:, 0] - 100
        picked = batch.relabelled
        steps = np.minimum(goal - batch.id + 1, np.minimum(3, 4 - batch.id))[picked]
        hit = (goal - batch.id < 3)[picked]
        np.testing.assert_array_equal(batch.n_steps[picked], steps)
        np.testing.assert_array_equal(batch.terminated[picked], hit)
        np.testing.assert_array_equal(batch.discount[picked], np.where(hit, 0, 0.5**steps))
        np.testing.assert_array_equal(batch.reward[picked], -2 * (1 - 0.5 ** (steps - hit)))
        np.testing.assert_array_equal(batch.next_obs["achieved_goal"][picked, 0], 100 + batch.id[picked] + steps - 1)


class TestTrap11Autoreset:
    """No transform looks through a reset, in any mode."""

    def make(self, autoreset, transforms):
        """Episodes 1 → 2 → 3 (truncated) and 50 → 51, as an environment in this mode gives them."""
        buffer = ReplayBuffer(9, FRAMES, transforms=transforms, autoreset=autoreset, next_obs="derived", seed=0)
        same = autoreset == "same_step"
        steps = [(1, 2, False, 0), (2, 50 if same else 3, True, 3)]
        steps += [(3, 50, False, 0)] if autoreset == "next_step" else []
        steps += [(50, 51, False, 0)]
        for obs, next_obs, truncated, final in steps:
            more = {"final_obs": final} if same else {}
            buffer.add(obs=obs, reward=1, next_obs=next_obs, terminated=False, truncated=truncated, **more)
        return buffer

    @pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled", None])
    def test_n_step(self, autoreset):
        found = rows(self.make(autoreset, [NStep(3, 0.5)]), "reward", "next_obs", "discount")
        assert found == {0: (1.5, 3, 0.25), 1: (1, 3, 0.5), 2: (1, 51, 0.5)}

    @pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled", None])
    def test_stacks(self, autoreset):
        found = rows(self.make(autoreset, [FrameStack(2)]), "obs", "next_obs")
        assert found == {0: ([1, 1], [1, 2]), 1: ([1, 2], [2, 3]), 2: ([50, 50], [50, 51])}

    @pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled", None])
    def test_sequences(self, autoreset):
        batch = self.make(autoreset, [Sequence(3, 0, 0)]).sample(100)
        found = {i: (batch.obs[k].tolist(), batch.mask[k].tolist()) for k, i in enumerate(batch.id.tolist())}
        assert found == {0: ([1, 2, 0], [True, True, False]), 2: ([50, 0, 0], [True, False, False])}


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
class TestTrap12FrameStacks:
    def stacks(self, buffer):
        return rows(buffer, "obs", "next_obs")

    @pytest.mark.parametrize(("padding", "before"), [("repeat", 20), ("zero", 0)])
    def test_none_reaches_over_an_episode_s_start(self, next_obs, padding, before):
        buffer = frames(["", "t", "", ""], transforms=[FrameStack(3, padding=padding)], next_obs=next_obs)
        found = self.stacks(buffer)
        assert found[2] == ([before, before, 20], [before, 20, 30])
        assert found[3] == ([before, 20, 30], [20, 30, 40])

    def test_the_last_next_stack_ends_with_the_true_last_frame(self, next_obs):
        buffer = frames(["", "", "c", ""], transforms=[FrameStack(3)], next_obs=next_obs)
        assert self.stacks(buffer)[2] == ([0, 10, 20], [10, 20, 21])

    @pytest.mark.parametrize(("padding", "before"), [("repeat", 40), ("zero", 0)])
    def test_none_reaches_over_the_write_head(self, next_obs, padding, before):
        """Step 4 is the oldest stored; the slot before it holds step 8, the newest of the same episode."""
        buffer = frames([""] * 9, capacity=5, transforms=[FrameStack(3, padding=padding)], next_obs=next_obs)
        found = self.stacks(buffer)
        assert found[4] == ([before, before, 40], [before, 40, 50])
        assert found[5] == ([before, 40, 50], [40, 50, 60])
        assert found[8] == ([60, 70, 80], [70, 80, 90])

    def test_none_reaches_into_another_environment(self, next_obs):
        buffer = ReplayBuffer(6, FRAMES, num_envs=2, transforms=[FrameStack(2)], next_obs=next_obs, seed=0)
        for t in range(3):
            obs = np.array([100 + t, 200 + t])
            buffer.add(obs=obs, reward=np.zeros(2), next_obs=obs + 1, terminated=[False] * 2, truncated=[False] * 2)
        found = self.stacks(buffer)
        assert found[0] == ([100, 100], [100, 101])
        assert found[3] == ([200, 201], [201, 202])

    def test_frames_are_stored_once_in_their_dtype(self, next_obs):
        fields = {"obs": Field((8, 8), np.uint8), "next_obs": Field((8, 8), np.uint8)}
        options = {"next_obs": next_obs, "seed": 0}
        stacked = ReplayBuffer(1000, fields, transforms=[FrameStack(4)], **options)
        image = np.full((8, 8), 255, np.uint8)
        stacked.add(obs=image, next_obs=image)
        batch = stacked.sample(2)
        assert batch.obs.dtype == batch.next_obs.dtype == np.uint8
        assert batch.obs.shape == batch.next_obs.shape == (2, 4, 8, 8)
        assert stacked.columns["obs"].shape == (1000, 8, 8)
        assert stacked.nbytes < 1000 * (3 if next_obs == "stored" else 2) * 64


class TestTrap5SequencesAndHindsight:
    def test_the_goal_follows_the_drawn_step_not_the_block_s_first(self):
        """Only the last step of the block can be drawn, so only its future is allowed."""
        sampler = Prioritized(alpha=1.0, beta=1.0)
        buffer = goals([""] * 4, "future", others=[Sequence(4, 0, 0)], sampler=sampler)
        buffer.update_priorities(np.array([0]), priority=np.array([0.0]))
        step = {"action": 0, "reward": -1, "terminated": True, "truncated": False}
        for i in (4, 5):  # a second block, of two steps; 4 is given its priority before 5 comes
            buffer.add(
                obs={"achieved_goal": [99 + i], "desired_goal": [-1]},
                next_obs={"achieved_goal": [100 + i], "desired_goal": [-1]},
                **(step | {"terminated": i == 5}),
            )
            if i == 4:
                buffer.update_priorities(np.array([4]), priority=np.array([0.0]))
        batch = buffer.sample(200)
        assert set(batch.id.tolist()) == {4}
        goal = batch.obs["desired_goal"][:, :2, 0]
        assert (goal[batch.relabelled] == 105).all()
