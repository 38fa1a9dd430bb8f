import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from replaylab.envs import make_atari, make_vector_env
from replaylab.envs.atari import EpisodicLife, FireReset, StickyActions
from replaylab.errors import ConfigError, MissingExtraError
from replaylab.replay import FrameStack, ReplayBuffer


def test_a_missing_emulator_is_reported_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for env_id in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        with pytest.raises(MissingExtraError, match=r'pip install "replaylab\[atari\]"'):
            make_vector_env(env_id, 1)


class Game(gym.Env):
    """Three lives of two steps each; tells which actions came."""

    observation_space, action_space = gym.spaces.Discrete(100), gym.spaces.Discrete(3)

    class Emulator:
        def lives(self):
            return self.left

    ale = Emulator()

    def reset(self, *, seed=None, options=None):
        self.actions, self.ale.left = ["new"], 3
        return 0, {}

    def step(self, action):
        self.actions.append(action)
        self.ale.left = 3 - (len(self.actions) - 1) // 2
        return len(self.actions), 1.0, self.ale.left == 0, False, {}


def test_fire_is_pressed_at_an_episodes_start():
    env = FireReset(Game())
    assert env.reset()[0] == 2
    assert env.unwrapped.actions == ["new", 1]


def test_a_lost_life_ends_the_episode_and_not_the_game():
    env = EpisodicLife(Game())
    assert env.reset()[0] == 0
    ends = []
    while len(ends) < 3:
        obs, _, terminated, _, _ = env.step(2)
        if terminated:
            ends.append((obs, env.unwrapped.ale.lives()))
            env.reset()
    assert ends == [(3, 2), (5, 1), (7, 0)]
    assert env.unwrapped.actions == ["new"]
    env.step(2)
    env.reset(seed=3)
    assert env.unwrapped.actions == ["new"]


class Frames(gym.Env):
    """Remembers the action of every frame."""

    observation_space, action_space = gym.spaces.Discrete(1), gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.actions = []
        return 0, {}

    def step(self, action):
        self.actions.append(action)
        return 0, 0.0, False, False, {}


def test_actions_stick_with_their_chance_and_duration():
    """Given 1 and 2 in turn, a frame that does not do what is given repeats the frame before; NOOP at the start."""
    env = StickyActions(Frames(), 0.25)
    env.reset(seed=0)
    for _ in range(10_000):
        env.step(1)
        env.step(2)
    done = np.array(env.unwrapped.actions)
    actions_given = np.tile([1, 2], 10_000)
    before = np.concatenate([[0], done[:-1]])
    stuck = done != actions_given
    np.testing.assert_array_equal(done[stuck], before[stuck])
    # A frame shows that it stuck where the one before did otherwise than given now: never if that one stuck to this.
    could = before != actions_given
    assert abs(stuck[could].mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / could.sum())
    env.reset()
    env.chance = 1.0
    env.step(1)
    assert env.unwrapped.actions == [0]


@pytest.fixture
def atari():
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")


@pytest.mark.usefixtures("atari")
class TestWithTheEmulator:
    def test_copies_depend_on_seeds_alone_and_equal_the_single_game(self):
        env = make_vector_env("ALE/Pong-v5", 2, frame_stack=4)
        single = make_atari("ALE/Pong-v5")
        assert isinstance(env, SyncVectorEnv)
        assert env.single_observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        obs, _ = env.reset(seed=[1, 2])
        np.testing.assert_array_equal(obs[1], single.reset(seed=2)[0])
        actions = np.random.default_rng(0)
        for _ in range(30):
            action = actions.integers(6, size=2)
            obs = env.step(action)[0]
            np.testing.assert_array_equal(obs[1], single.step(action[1])[0])
        assert not np.array_equal(obs[0], obs[1])
        assert obs.std() > 1

    def test_an_action_lasts_four_frames_and_shows_the_last_two(self):
        import cv2

        skipping = make_atari("PongNoFrameskip-v4", frame_stack=1, noop_max=0, fire_on_reset=False)
        plain = gym.make("PongNoFrameskip-v4", obs_type="grayscale")
        skipping.reset(seed=0)
        plain.reset(seed=0)
        for action in [0, 2, 3, 2, 0, 3] * 5:
            obs, reward, *_ = skipping.step(action)
            frames = [plain.step(action) for _ in range(4)]
            seen = np.maximum(frames[2][0], frames[3][0])
            np.testing.assert_array_equal(obs, cv2.resize(seen, (84, 84), interpolation=cv2.INTER_AREA))
            assert reward == sum(frame[1] for frame in frames)

    def test_rewards_are_clipped_if_asked_for(self):
        """Ms. Pac-Man's dots are worth 10."""
        rewards = {}
        for clip in (False, True):
            env = make_atari("MsPacmanNoFrameskip-v4", clip_rewards=clip, noop_max=0)
            env.reset(seed=0)
            rewards[clip] = np.array([env.step(3)[1] for _ in range(120)])
        assert rewards[False].max() >= 10
        np.testing.assert_array_equal(rewards[True], np.clip(rewards[False], -1, 1))

    def test_breakout_fires_and_loses_a_life_an_episode(self):
        env = make_atari("BreakoutNoFrameskip-v4", episodic_life=True, frame_stack=1)
        env.reset(seed=0)
        lives = []
        while len(lives) < 6:
            *_, terminated, truncated, info = env.step(0)  # FIRE at the start is all that moves the ball
            if terminated or truncated:
                lives.append(info["lives"])
                env.reset()
        assert lives == [4, 3, 2, 1, 0, 4]

    def test_a_buffer_stores_each_frame_of_the_stacks_once(self):
        env = make_vector_env("ALE/Pong-v5", 2)
        buffer = ReplayBuffer.for_env(
            env, 100, transforms=[FrameStack(4, stacked_input=True)], next_obs="derived", seed=0
        )
        obs, _ = env.reset(seed=0)
        stacks = {}
        for _ in range(20):
            action = env.action_space.sample()
            next_obs, reward, terminated, truncated, infos = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated, "final_obs": infos.get("final_obs")}
            ids = buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
            stacks.update(zip(ids.tolist(), zip(obs, next_obs, strict=True), strict=True))
            obs = next_obs
        assert buffer.columns["obs"].shape[1:] == (84, 84)
        batch = buffer.sample(50)
        for number, then, after in zip(batch.id.tolist(), batch.obs, batch.next_obs, strict=True):
            np.testing.assert_array_equal(then, stacks[number][0])
            np.testing.assert_array_equal(after, stacks[number][1])

    def test_bad_games_and_options_are_reported(self):
        with pytest.raises(ConfigError, match="`env_id` must name an Atari game, but 'ALE/Pung-v5' cannot be made"):
            make_vector_env("ALE/Pung-v5", 1)
        with pytest.raises(ConfigError, match="`frame_stack` must be at least 1, but got 0"):
            make_atari("ALE/Pong-v5", frame_stack=0)
        with pytest.raises(ConfigError, match="frame_skip"):
            make_atari("ALE/Pong-v5", frame_skip=0)
        with pytest.raises(ConfigError, match=r"`obs_type` must be left out: .* but got 'ram'"):
            make_vector_env("ALE/Pong-v5", 1, obs_type="ram")

    def test_a_missing_rom_is_reported(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
        with pytest.raises(ConfigError, match=r"'ALE/Pong-v5' cannot be made: .*pong\.bin"):
            make_vector_env("ALE/Pong-v5", 1)


SHORT = {"max_num_frames_per_episode": 160}
GAMES = {
    "sticky": ("ALE/Pong-v5", SHORT),
    "lives": ("ALE/Breakout-v5", {"episodic_life": True, "clip_rewards": True}),
    "frame by frame": ("ALE/SpaceInvaders-v5", {"frame_stack": 1, "frame_skip": 1, **SHORT}),
    "no frame skipped by the game": ("PongNoFrameskip-v4", {"noop_max": 5, **SHORT}),
}


@pytest.mark.usefixtures("atari")
@pytest.mark.parametrize("name", GAMES)
def test_a_restored_game_goes_on_bit_for_bit_into_later_episodes(name):
    env_id, options = GAMES[name]
    frames = 3_600 if "episodic_life" in options else 400  # of SHORT episodes two and more
    game, other = make_atari(env_id, **options), make_atari(env_id, **options)
    actions = np.random.default_rng(1)
    game.reset(seed=3)
    other.reset(seed=4)

    def step(env, action):
        obs, reward, terminated, truncated, _ = env.step(action)
        return (env.reset()[0] if terminated or truncated else obs), reward, terminated, truncated

    for _ in range(2):  # in an episode's middle, and beyond its end
        for _ in range(111):
            last = step(game, actions.integers(game.action_space.n))[0]
        np.testing.assert_array_equal(other.restore(game.state()), last)
        ends = 0
        for action in actions.integers(game.action_space.n, size=frames // options.get("frame_skip", 4)):
            mine, result = step(game, action), step(other, action)
            np.testing.assert_array_equal(mine[0], result[0])
            assert mine[1:] == result[1:]
            ends += mine[2] or mine[3]
            if ends == (6 if "episodic_life" in options else 2):  # of five lives, so that a game ends, too
                break
        assert ends >= 2


@pytest.mark.usefixtures("atari")
def test_a_state_stays_as_it_was_taken():
    env = make_atari("ALE/Pong-v5")
    env.reset(seed=3)
    state = env.state()
    before = {name: part.copy() for name, part in state.items()}
    for _ in range(20):
        env.step(2)
    assert all(np.array_equal(part, before[name]) for name, part in state.items())
    env.restore(state)
    assert all(np.array_equal(part, before[name]) for name, part in env.state().items())


@pytest.mark.usefixtures("atari")
@pytest.mark.parametrize("limit", [5, 20])
def test_a_time_limit_is_in_steps_and_beside_the_games_own(limit):
    """60 frames are 15 steps. Noise in the rewards changes nothing of it, in either form."""
    options = {"max_num_frames_per_episode": 60, "noop_max": 0, "screen_size": 21, "max_episode_steps": limit}
    noisy = {"env": "PongNoFrameskip-v4", "clip_rewards": True, **options}
    for env in (
        make_vector_env("PongNoFrameskip-v4", 1, **options),
        make_vector_env("replaylab/NoisyRewards-v0", 1, **noisy),
        SyncVectorEnv([lambda: gym.make("replaylab/NoisyRewards-v0", **noisy)], autoreset_mode="SameStep"),
    ):
        obs, _ = env.reset(seed=0)
        assert obs.shape == (1, 4, 21, 21)
        ends = [bool(env.step(np.zeros(1, np.int64))[3][0]) for _ in range(15)]
        assert ends.index(True) + 1 in ((5,) if limit == 5 else (14, 15))
