import gymnasium as gym
import numpy as np
import pytest

from replaylab.envs import AtariVectorEnv, make_vector_env
from replaylab.envs.vectorize import make_single_env, step_limit, whole_games
from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.replay import FrameStack, ReplayBuffer, Uniform
from tests.learners.calls import train

pytest.importorskip("ale_py")

PONG = "ALE/Pong-v5"
ALE = {"backend": "ale"}


def pong(num_envs, **options):
    return make_vector_env(PONG, num_envs, backend="ale", **options)


def played(env, seeds, steps, actions=6):
    """Return observations (T + 1, E, ...), rewards (T, E), ends (T, E) and the final observations by (t, e)."""
    obs, _ = env.reset(seed=seeds)
    shown, rewards, ends, final = [obs], [], [], {}
    for t in range(steps):
        action = np.array([(t * 7 + seed) // 3 % actions for seed in seeds])
        obs, reward, terminated, truncated, infos = env.step(action)
        shown.append(obs)
        rewards.append(reward)
        ends.append(terminated | truncated)
        final |= {(t, e): infos["final_obs"][e] for e in np.flatnonzero(ends[-1])}
    return np.stack(shown), np.stack(rewards), np.stack(ends), final


def test_it_has_the_single_games_spaces_and_resets_at_once():
    env, single = pong(2), make_single_env(PONG)
    assert isinstance(env, AtariVectorEnv)
    assert env.metadata == {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    assert gym.vector.VectorEnv.metadata.get("autoreset_mode") is None  # which ale-py's own would have set
    assert env.single_observation_space == single.observation_space
    assert env.single_action_space == single.action_space
    assert make_vector_env(PONG, 1, backend="ale", full_action_space=True).single_action_space.n == 18
    assert step_limit(env) == 27_000


def test_each_copy_depends_on_its_seed_only():
    together, alone = played(pong(3), [5, 2**31 + 6, 7], 60), played(pong(1), [2**31 + 6], 60)
    for of_copy, of_single in zip(together[:3], alone[:3], strict=True):
        np.testing.assert_array_equal(of_copy[:, 1], of_single[:, 0])
    assert np.any(together[0][:, 0] != together[0][:, 1])


def test_stacks_move_by_a_frame_and_give_an_episodes_last():
    shown, _, ends, final = played(pong(2, max_episode_steps=60), [1, 2], 150)
    assert ends.sum() == 4
    for t, e in np.argwhere(np.ones_like(ends)):
        after = final.get((t, e), shown[t + 1, e])
        np.testing.assert_array_equal(after[:-1], shown[t, e, 1:])
        if (t, e) in final:
            assert not shown[t + 1, e, :-1].any()
            assert shown[t + 1, e, -1].any()
            assert np.any(after[-1] != shown[t, e, -1])


def test_a_game_lost_gives_the_return_of_its_points():
    _, rewards, ends, _ = played(pong(1, repeat_action_probability=0.0, noop_max=0), [1], 1_100)
    first = np.flatnonzero(ends[:, 0])[0]
    points = rewards[: first + 1, 0]
    assert points.dtype == np.float64
    assert (points == -1).sum() == 21 > (points == 1).sum()


def test_sticky_actions_are_those_of_the_name():
    sticky, plain = (played(pong(1, **options), [3], 40)[0] for options in ({}, {"repeat_action_probability": 0.0}))
    named = played(make_vector_env("PongNoFrameskip-v4", 1, backend="ale"), [3], 40)[0]
    np.testing.assert_array_equal(named, plain)
    assert np.any(sticky != plain)


def test_a_buffer_stores_its_frames_once():
    env = pong(2, max_episode_steps=20)
    stack = FrameStack(4, padding="zero", stacked_input=True)
    replay = ReplayBuffer.for_env(env, 200, transforms=[stack], next_obs="derived", seed=0)
    shown, rewards, ends, _ = played(env, [1, 2], 50)
    for t in range(50):
        zeros = np.zeros(2, np.int64)
        replay.add(
            obs=shown[t], action=zeros, reward=rewards[t], next_obs=shown[t + 1], terminated=np.zeros(2, bool),
            truncated=ends[t], final_obs=shown[t],
        )  # fmt: skip
    np.testing.assert_array_equal(replay.as_batch(np.arange(100)).obs, shown[:50].reshape(100, 4, 84, 84))


def test_training_uses_it_and_refuses_checkpoints(tmp_path):
    learner = DQN(batch_size=4, learning_starts=8, capacity=50, pixel_network="data_efficient")
    options = {"env_options": {**ALE, "clip_rewards": True, "max_episode_steps": 15}, "eval_episodes": 1}
    stack = FrameStack(4, padding="zero", stacked_input=True)
    metrics = train(PONG, learner, Uniform(), [0], 40, transforms=[stack], eval_every=40, **options)
    steps, lengths = metrics.of("rollout/ep_len", seed=0)
    assert steps.tolist() == [15, 30]
    assert lengths.tolist() == [15, 15]
    with pytest.raises(ConfigError, match=f"a checkpoint needs .* but {PONG} has random streams"):
        train(PONG, learner, Uniform(), [0], 40, save=tmp_path, save_every=10, **options)


def test_evaluations_and_videos_play_complete_games():
    assert whole_games(PONG, {**ALE, "clip_rewards": True}) == {**ALE, "clip_rewards": False, "episodic_life": False}
    assert make_single_env(PONG, **ALE, frame_stack=2).observation_space.shape == (2, 84, 84)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"autoreset_mode": "Disabled"}, "resets in SAME_STEP or NEXT_STEP mode, but got DISABLED"),
        ({"episodic_life": True}, "`episodic_life` must be False"),
        ({"frame_skip": 0}, "`frame_skip`"),
        ({"repeat_action_probability": 2.0}, "`repeat_action_probability`"),
    ],
)
def test_what_the_emulator_cannot_do_is_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        pong(1, **options)


def test_other_names_are_refused():
    with pytest.raises(ConfigError, match="steps Atari games such as \"ALE/Pong-v5\", but got 'CartPole-v1'"):
        make_vector_env("CartPole-v1", 1, backend="ale")
    with pytest.raises(ConfigError, match="ALE/Nothing"):
        make_vector_env("ALE/Nothing-v5", 1, backend="ale")


def test_resets_need_a_seed_for_each_copy_and_no_options():
    env = pong(2)
    with pytest.raises(ConfigError, match="a seed for each copy"):
        env.reset(seed=[1, None])
    with pytest.raises(ConfigError, match="`options`"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    env.reset(seed=3)
    assert env.reset()[0].shape == (2, 4, 84, 84)
