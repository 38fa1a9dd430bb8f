"""Five public notebooks, translated line by line, with their own settings and assertions.

`docs/start/from-your-notebook.md` shows the same translations, with every intended difference.
"""

from itertools import cycle, islice
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, measures
from replaylab.envs import VisitCounts, make_vector_env
from replaylab.learners import DQN, DQNAsPublished, QLearning, SingleAgent, TrainingConfig, train
from replaylab.replay import Combined, FrameStack, Linear, Prioritized, ReplayStream, SlidingWindow, Uniform
from replaylab.watch import Grid, play, running_mean, visit_map, write_video

NAMES = ("obs", "action", "reward", "next_obs", "terminated")


class TestTaxi:
    """Q-learning with and without 32 replayed updates a step."""

    def test_the_buffer_s_own_checks(self):
        replay = ReplayBuffer(2, {name: Field((), np.int64) for name in NAMES}, seed=0)
        first, second = (dict(zip(NAMES, values, strict=True)) for values in (range(5), range(5, 10)))

        def sampled(count):
            return [set(replay.sample(count)[name]) for name in NAMES]

        replay.add(**first)
        assert sampled(1) == [{value} for value in first.values()], "one object must be retrieved"
        replay.add(**second)
        assert len(replay) == 2
        replay.add(**second)
        assert len(replay) == 2, "at the maximum new objects replace old ones"
        assert sampled(100) == [{value} for value in second.values()]
        replay.add(**first)
        assert max(map(len, sampled(100))) == 2
        replay.add(**first)
        assert sampled(100) == [{value} for value in first.values()]

    def test_training(self):
        def play_and_train(env, agent, replay=None, t_max=10**4, replay_batch_size=32):
            total_reward, (s, _) = 0.0, env.reset()
            for _ in range(t_max):
                a = agent.act(s)
                s2, r, terminated, truncated, _ = env.step(a)
                agent.learn(s, a, r, s2, terminated)
                if replay is not None:
                    replay.add(obs=s, action=a, reward=r, next_obs=s2, terminated=terminated)
                    batch = replay.sample(replay_batch_size)
                    agent.learn(*(batch[name] for name in NAMES))
                s = s2
                total_reward += r
                if terminated or truncated:
                    break
            return total_reward

        env = gym.make("Taxi-v4")
        env.reset(seed=0)
        learner = QLearning(alpha=0.5, epsilon=0.25, gamma=0.99)
        agent_baseline, agent_replay = SingleAgent(learner, env, seed=0), SingleAgent(learner, env, seed=1)
        fields = {name: Field((), bool if name == "terminated" else np.int64) for name in NAMES}
        replay = ReplayBuffer(1_000, fields, seed=0)
        rewards_replay, rewards_baseline = [], []
        for _ in range(1000):
            rewards_replay.append(play_and_train(env, agent_replay, replay))
            rewards_baseline.append(play_and_train(env, agent_baseline))
            for agent in (agent_replay, agent_baseline):
                agent.agents.epsilon *= 0.99
        assert agent_replay.agents.epsilon == pytest.approx(0.25 * 0.99**1000)
        assert np.mean(rewards_replay[:100]) > np.mean(rewards_baseline[:100]) + 50, "faster at the beginning"
        assert abs(np.mean(rewards_replay[-100:]) - np.mean(rewards_baseline[-100:])) < 2, "alike at the end"
        assert running_mean(np.array([rewards_replay]), 100).shape == (1, 1000)


def test_cliff_walking(tmp_path):
    """A vectorized update of 32 replayed rows; visits, a greedy run, a video."""
    episodes, guard = 100, 100
    env = VisitCounts(make_vector_env("CliffWalking-v1", 1))
    learner = QLearning(alpha=0.9, gamma=1.0, epsilon=0.1, online=False, batch_size=32)
    agents = learner.agents(env.single_observation_space, env.single_action_space, [0])
    replay = ReplayBuffer.for_env(env, 2_000, replicas=1, sampler=Uniform(replace=False), seed=[0])
    obs, _ = env.reset(seed=[0])
    done = steps = 0
    while done < episodes:
        action = agents.act(obs[:, None], explore=True)[:, 0]
        next_obs, reward, terminated, truncated, info = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated, "final_obs": info.get("final_obs")}
        replay.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        if len(replay) > 32:
            agents.update(replay.sample(32))
        obs, done, steps = next_obs, done + int(terminated[0] or truncated[0]), steps + 1
    visit_count = env.visits[0].reshape(4, 12)
    assert visit_count.sum() == steps + episodes + 1
    assert visit_count[3, 11] == episodes, "each episode ends at the goal"
    assert visit_map({"visits": env.visits}, Grid.of("CliffWalking-v1")).axes
    images = play("CliffWalking-v1", lambda obs: int(agents.q[0, obs].argmax()), max_steps=guard)
    assert len(images.frames) == 14, "the shortest way, and the picture of its end"
    assert write_video(tmp_path / "Q-Learning-with-experience.mp4", images.frames, images.fps).exists()


class TestComparativeStudy:
    """Four memories under one learner, with the study's flaws."""

    MEMORIES = (
        ("none", SlidingWindow(), 150_000),
        ("uniform", Uniform(replace=False), 150_000),
        ("prioritized", Prioritized(alpha=0.6, epsilon=0.01, beta=0.0), 10_000),
        ("combined", Combined("replace", distinct=True), 150_000),
    )

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "memory", "capacity"), MEMORIES)
    def test_a_run(self, name, memory, capacity):
        learner = DQNAsPublished(
            hidden=(128,),
            learning_rate=1e-3,
            gamma=0.8,
            batch_size=64,
            capacity=capacity,
            learning_starts=64,
            loss="squared",
            double=False,
            max_grad_norm=None,
            epsilon=Linear(1.0, 0.05, steps=950),
            end_reward=-10.0,
            truncation_terminates=True,
            insertion_priorities=name == "prioritized",
            target_each_episode=True,
            explores_first_action=True,
        )
        limit = {"max_episode_steps": 200}  # as CartPole-v0
        settings = {
            "total_episodes": 300,
            "eval_every": 300,
            "env_options": limit,
            "log_every": 50,
            "measure_every": 50,
        }
        metrics = train(TrainingConfig("CartPole-v1", learner, memory, **settings), seeds=[0])
        durations = metrics.of("rollout/ep_len")[1]
        assert durations.shape == (300,)
        assert durations.max() <= 200
        assert durations[:20].mean() < 20, "one action only, at first"
        for statistic in ("mean", "median", "max", "std"):
            assert np.isfinite(metrics.of(f"train/td_error_{statistic}")[1]).all()
        assert 0 < metrics.of("replay/legacy_correlated_pairs")[1].mean() < 64 * 63 / 2

    def test_pairs_of_correlated_states(self):
        def correlation_count(state, threshold=0.8):  # the study's own
            cov = np.cov(state)
            size = np.sqrt(np.diag(cov))
            return (np.sum(np.abs(cov / size[:, None] / size) > threshold) - len(cov)) / 2

        states = np.random.default_rng(0).normal(size=(64, 4))
        assert measures.legacy_correlated_pairs(states) == correlation_count(states) > 0


def test_pong():
    """Frames, stacks, prioritized draws without repetition, and the notebook's network for some frames."""
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    learner = DQN(
        learning_rate=1e-5,
        gamma=0.99,
        batch_size=32,
        capacity=100_000,
        learning_starts=300,  # the notebook's 10,000, so that a short run learns
        target_period=10_000,
        loss="huber",
        double=False,
        max_grad_norm=None,
        epsilon=Linear(1.0, 0.01, steps=100_000),
    )
    memory = Prioritized(alpha=0.5, epsilon=1e-4, beta=0.0, replace=False)
    transforms = [FrameStack(4, stacked_input=True)]
    settings = {"transforms": transforms, "total_steps": 320, "eval_every": None, "log_every": 10}
    metrics = train(TrainingConfig("PongNoFrameskip-v4", learner, memory, **settings), seeds=[0])
    assert metrics.of("train/updates")[1].max() >= 20
    assert np.isfinite(metrics.of("train/loss")[1]).all()
    assert metrics.of("rollout/exploration_rate")[1][-1] == pytest.approx(1 - 0.99 * 320 / 100_000, abs=2e-4)


class StepType(NamedTuple):
    state: np.ndarray
    next_state: np.ndarray


def gym_stepper(seed=0):
    """Yield the steps of CartPole, one episode after another, by actions of the same seed."""
    env, actions = gym.make("CartPole-v1"), np.random.default_rng(seed)
    for reset_seed in cycle([seed]):
        state, ended = env.reset(seed=reset_seed)[0], False
        while not ended:
            next_state, _, terminated, truncated, _ = env.step(int(actions.integers(2)))
            yield StepType(state, next_state)
            state, ended = next_state, terminated or truncated


class TestStreamingMemory:
    def test_filling_it_up(self):
        """Sizes, positions, cycles and contents after 0, 10, 20, 30 and 40 steps."""
        memory = ReplayStream(gym_stepper(), 20, batch_size=1, sampler=Uniform(replace=False), seed=0)
        baseline = list(islice(gym_stepper(), 40))
        batches = iter(memory)
        assert len(memory) == 0
        for taken, position, cycles in ((10, 10, 0), (20, 0, 1), (30, 10, 1), (40, 0, 2)):
            list(islice(batches, 10))
            assert (memory.size, memory.position, memory.cycles) == (min(taken, 20), position, cycles)
            assert len(memory) == memory.size
            columns = memory.buffer.columns
            for number, step in list(enumerate(baseline[:taken]))[-20:]:
                np.testing.assert_array_equal(columns["state"][number % 20], step.state)
                np.testing.assert_array_equal(columns["next_state"][number % 20], step.next_state)

    def test_no_step_comes_twice_in_a_batch(self):
        memory = ReplayStream(gym_stepper(), 1000, batch_size=300, sampler=Uniform(replace=False), seed=0)
        for batch in islice(memory, 100):
            assert len(set(batch.id)) == 300

    def test_everything_is_sampled(self):
        memory = ReplayStream(islice(gym_stepper(), 1000), 30, batch_size=1, seed=0)
        for _ in memory:
            pass
        hits = {int(memory.sample().id[0]) % 30 for _ in range(400)}
        assert hits == set(range(30))
