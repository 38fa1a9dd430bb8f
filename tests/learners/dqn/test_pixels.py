"""Learning from pixels: frames stored once, stacks acted on and drawn, networks, values of held-out states."""

import gymnasium as gym
import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.api.random_streams import Stream, generator, numbers
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.learners.evaluation.evaluators import GAP, HeldOut
from replaylab.replay import FrameStack, ReplayBuffer, Uniform
from tests.learners.calls import train
from tests.learners.dqn import pixels
from tests.learners.tabular import corridor

LEARNER = DQN(batch_size=4, learning_starts=8, capacity=500, target_period=10, epsilon=0.5)
STACK = FrameStack(4, stacked_input=True)


@pytest.fixture
def watched(monkeypatch):
    """The buffers of the runs to come, and what their agents acted on and learned from."""
    seen = {"buffers": [], "acted": [], "batches": []}
    make, act, learn = ReplayBuffer.for_env, PerceptronAgents.q_values, PerceptronAgents.update

    def for_env(*args, **kwargs):
        seen["buffers"].append(make(*args, **kwargs))
        return seen["buffers"][-1]

    def q_values(self, obs):
        seen["acted"].append(obs)
        return act(self, obs)

    def update(self, batch):
        seen["batches"].append(batch)
        return learn(self, batch)

    monkeypatch.setattr(ReplayBuffer, "for_env", for_env)
    monkeypatch.setattr(PerceptronAgents, "q_values", q_values)
    monkeypatch.setattr(PerceptronAgents, "update", update)
    return seen


def run(seeds=(3,), steps=60, **options):
    options = {"transforms": [STACK], "eval_every": None} | options
    return train(pixels.ENV_ID, LEARNER, Uniform(), seeds, steps, **options)


def test_the_agent_acts_on_stacks_of_frames_stored_once(watched):
    """Every stack of a batch, before and after the step, is the one that was seen then; padding and ends included."""
    run(seeds=[3, 4])
    (buffer,) = watched["buffers"]
    assert buffer.fields["obs"].shape == (pixels.SIDE, pixels.SIDE)
    assert buffer.next_obs == "derived"
    assert buffer.fields["obs"].compressed
    acted = np.stack(watched["acted"], 1)[:, :, 0]  # (R, T, 4, H, W)
    assert acted.shape == (2, 60, 4, pixels.SIDE, pixels.SIDE)
    ends = 0
    for batch in watched["batches"]:
        for r in range(2):
            for row, step in enumerate(batch.id[r]):
                np.testing.assert_array_equal(batch.obs[r, row], acted[r, step])
                if batch.terminated[r, row]:
                    ends += 1
                    before, after = batch.obs[r, row], batch.next_obs[r, row]
                    np.testing.assert_array_equal(after[:-1], before[1:])
                    assert after[-1].min() == before[-1].min(), "the ended episode's own last frame"
                elif step + 1 < 60:
                    np.testing.assert_array_equal(batch.next_obs[r, row], acted[r, step + 1])
    assert ends > 10


def test_how_frames_are_stored_changes_no_number():
    """The same run with whole stacks in the buffer and with single frames."""
    rows = [run(transforms=transforms, log_every=10).columns for transforms in ([], [STACK])]
    np.testing.assert_array_equal(rows[0]["metric"], rows[1]["metric"])
    np.testing.assert_array_equal(rows[0]["value"], rows[1]["value"])


def test_tiny_images_are_stored_as_they_are(watched):
    space = gym.spaces.Box(0, 255, (1, 4, 4), np.uint8)

    class Tiny(gym.Env):
        observation_space, action_space = space, gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(space.shape, np.uint8), {}

        def step(self, action):
            return np.ones(space.shape, np.uint8), 0.0, False, False, {}

    gym.register("Tiny-v0", Tiny)
    try:
        with pytest.raises(ConfigError, match=r"needs observations .* of at least 36 × 36"):
            train("Tiny-v0", LEARNER, Uniform(), [0], 10)
        learner = DQN(batch_size=4, learning_starts=8, module=_flat)
        train("Tiny-v0", learner, Uniform(), [0], 10, eval_every=None)
    finally:
        del gym.registry["Tiny-v0"]
    assert not watched["buffers"][0].fields["obs"].compressed


def _flat(space, num_actions):
    from torch import nn

    class Flat(nn.Sequential):
        def forward(self, x):
            return super().forward(x.float())

    return Flat(nn.Flatten(), nn.Linear(int(np.prod(space.shape)), num_actions))


def _visited(seed, states):
    """Return the observations of a random policy in the single environment, every ten steps."""
    env, draws = gym.make(corridor.ENV_ID), generator(seed, Stream.HELD_OUT)
    obs, _ = env.reset(seed=numbers(seed, Stream.HELD_OUT, 1, 0)[0])
    seen = []
    for actions in draws.integers(2, size=(states, GAP)):
        for action in actions:
            obs, _, terminated, truncated, _ = env.step(action + 3)
            if terminated or truncated:
                obs, _ = env.reset()
        seen.append(obs)
    return seen


class TestHeldOutStates:
    def test_they_are_those_of_a_random_policy_of_the_seed_alone(self):
        seen = []

        class Agents:
            def q_values(self, obs):
                seen.append(obs)
                return obs.sum(-1, keepdims=True) * np.array([1.0, 2.0])

        both, alone = HeldOut(corridor.ENV_ID, [4, 2], 5), HeldOut(corridor.ENV_ID, [2], 5)
        values = both(Agents(), [2, 4])
        np.testing.assert_array_equal(alone(Agents(), [2]), values[:1])
        np.testing.assert_array_equal(seen[0][:1], seen[1])
        assert seen[0].shape == (2, 5, 2)
        np.testing.assert_allclose(values, 2.0 * seen[0].sum(-1).mean(-1))
        np.testing.assert_array_equal(seen[1][0], _visited(2, 5))

    def test_every_evaluation_reports_values_and_changes_nothing(self):
        options = {"eval_every": 20, "eval_episodes": 1}
        with_them, without = (run(**options, held_out=count).columns for count in (6, 0))
        extra = with_them["metric"] == "eval/held_out_q"
        np.testing.assert_array_equal(with_them["step"][extra], [20, 40, 60])
        assert len(np.unique(with_them["value"][extra])) == 3
        for name in without:
            np.testing.assert_array_equal(with_them[name][~extra], without[name])
