"""Episodes with their pictures, and the files made of them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from replaylab.errors import ConfigError, MissingExtraError
from replaylab.watch import Episode, greedy, play, video, write_frames, write_video

BEST = {36: 0, 35: 2} | dict.fromkeys(range(24, 35), 1)
"""CliffWalking's shortest way: up, along the cliff, down."""


class Counter(gym.Env):
    """Shows its step as a colour; actions begin at 5."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012
    action_space = spaces.Discrete(2, start=5)
    observation_space = spaces.Discrete(100)

    def __init__(self, last=100, *, truncate=False, render_mode="rgb_array", missing=False):
        self.last, self.truncate, self.render_mode, self.missing = last, truncate, render_mode, missing
        self.actions, self.closed = [], False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.t, {}

    def step(self, action):
        self.t += 1
        self.actions.append(action)
        end = self.t == self.last
        return self.t, 0.5, end and not self.truncate, end and self.truncate, {}

    def render(self):
        if self.missing:
            raise gym.error.DependencyNotInstalled("pygame is not installed")
        return np.full((6, 4, 3), self.t, np.uint8)

    def close(self):
        self.closed = True


def test_the_shortest_way_over_the_cliff():
    episode = play("CliffWalking-v1", BEST.__getitem__)
    assert (episode.steps, episode.episode_return, episode.ended, episode.fps) == (13, -13.0, "terminated", 4)
    assert str(episode) == "13 steps, return -13, terminated"
    assert episode.frames[0].shape == (256, 768, 3)
    changed = [np.any(a != b) for a, b in zip(episode.frames, episode.frames[1:], strict=False)]
    assert all(changed), "the agent moves in every picture"


def test_a_render_mode_among_the_options_is_the_films_own():
    episode = play("CliffWalking-v1", BEST.__getitem__, env_options={"render_mode": "ansi"})
    assert episode.frames[0].shape == (256, 768, 3)


def test_the_step_guard_says_that_it_struck():
    episode = play("CliffWalking-v1", lambda obs: 3, max_steps=20)  # into the wall, for ever
    assert (episode.steps, episode.ended) == (20, "step guard")
    assert str(episode) == "20 steps, return -20, cut off by the step guard"


@pytest.mark.parametrize(("truncate", "ended"), [(False, "terminated"), (True, "truncated")])
def test_an_end_in_the_last_step_allowed_is_an_end(truncate, ended):
    env = Counter(last=9, truncate=truncate)
    episode = play(env, lambda obs: 5 + obs % 2, max_steps=9)
    assert (episode.steps, episode.ended, episode.episode_return) == (9, ended, 4.5)
    assert env.actions == [5, 6, 5, 6, 5, 6, 5, 6, 5]
    assert [int(frame[0, 0, 0]) for frame in episode.frames] == list(range(10))
    assert env.closed


def test_the_greedy_policy_of_one_replica():
    class Agents:
        def act(self, obs, explore):
            assert obs["x"].shape == (3, 1, 2)
            assert not explore
            return np.array([[1], [0], [1 + (obs["x"][2].sum() < 0.6)]])

    obs = {"x": np.array([0.5, 0.5])}
    assert [greedy(Agents(), 3, r)(obs) for r in range(3)] == [1, 0, 1]
    assert greedy(Agents(), 3, 2)({"x": np.array([0.1, 0.1])}) == 2


def test_errors():
    with pytest.raises(ConfigError, match="`max_steps` must be at least 1, but got 0"):
        play(Counter(), lambda obs: 0, max_steps=0)
    with pytest.raises(ConfigError, match="must name a Gymnasium environment, but got 'NoSuch-v0'"):
        play("NoSuch-v0", lambda obs: 0)
    with pytest.raises(ConfigError, match='must be made with render_mode="rgb_array", but it has None'):
        play(Counter(render_mode=None), lambda obs: 0)
    with pytest.raises(MissingExtraError, match=r'pip install "replaylab\[video\]"'):
        play(Counter(missing=True), lambda obs: 0)


def test_a_noisy_game_is_filmed_as_the_game_itself():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    game, options = "SpaceInvadersNoFrameskip-v4", {"screen_size": 21}
    training = {"env": game, "scale": 3.0, "clip_rewards": True, "episodic_life": True}
    noisy = play("replaylab/NoisyRewards-v0", lambda obs: 1, max_steps=100, env_options=options | training)
    assert noisy.episode_return == play(game, lambda obs: 1, max_steps=100, env_options=options).episode_return > 4


def squares(shape=(40, 60)):
    """A white square that moves to the right."""
    frames = np.zeros((6, *shape, 3), np.uint8)
    for t, frame in enumerate(frames):
        frame[10:20, 8 * t : 8 * t + 10] = 255
    return list(frames)


@pytest.mark.parametrize("shape", [(40, 60), (41, 59)], ids=["even", "odd"])
def test_mp4_holds_every_frame(tmp_path, shape):
    av = pytest.importorskip("av")
    path = write_video(tmp_path / "new" / "a", squares(shape), fps=5)
    assert path == tmp_path / "new" / "a.mp4"
    with av.open(str(path)) as file:
        assert file.streams.video[0].average_rate == 5
        assert file.streams.video[0].codec_context.pix_fmt == "yuv420p"
        frames_read = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames_read) == 6
    for frame, expected in zip(frames_read, squares(shape), strict=True):
        assert np.abs(frame[: shape[0], : shape[1]].astype(int) - expected).mean() < 6


@pytest.mark.parametrize("installed", [True, False])
def test_gif_where_it_is_asked_for_or_there_is_no_ffmpeg(tmp_path, monkeypatch, installed):
    if not installed:
        monkeypatch.setattr(video, "find_spec", lambda name: None)
    path = write_video(tmp_path / ("a.gif" if installed else "a.mp4"), squares(), fps=5)
    assert path == tmp_path / "a.gif"
    with Image.open(path) as image:
        assert (image.n_frames, image.info["duration"]) == (6, 200)
        for t, square in enumerate(squares()):
            image.seek(t)
            np.testing.assert_array_equal(np.asarray(image.convert("RGB")), square)


def test_frames_as_pictures(tmp_path):
    assert len(write_frames(tmp_path, squares() * 2)) == 12
    paths = write_frames(tmp_path, squares())
    assert sorted(tmp_path.iterdir()) == paths, "those of an earlier, longer episode are gone"
    for path, square in zip(paths, squares(), strict=True):
        with Image.open(path) as image:
            np.testing.assert_array_equal(np.asarray(image), square)


@pytest.mark.parametrize(
    "frames", [[], [np.zeros((4, 4), np.uint8)], [np.zeros((4, 4, 3))], [*squares()[:1], *squares((8, 8))[:1]]]
)
def test_frames_that_are_no_video(tmp_path, frames):
    for write in (write_video, write_frames):
        with pytest.raises(ConfigError, match="`frames` must be uint8"):
            write(tmp_path / "a", frames)
    assert not list(tmp_path.iterdir())


def test_an_episode_counts_steps_not_frames():
    assert Episode([np.zeros((1, 1, 3), np.uint8)] * 3, 0.0, "truncated", 30).steps == 2


def still(count):
    return [np.full((4, 4, 3), 20 * k, np.uint8) for k in range(count)]


@pytest.mark.parametrize(("fps", "seconds"), [(3, 4.0), (15, 0.8), (30, 0.4), (50, 0.24), (60, 0.2), (100, 0.12)])
def test_a_gif_lasts_as_long_as_it_should(fps, seconds, tmp_path):
    with Image.open(write_video(tmp_path / "a.gif", still(12), fps)) as image:
        lasts = []
        for frame in range(image.n_frames):
            image.seek(frame)
            lasts.append(image.info["duration"])
    assert min(lasts) >= 20
    assert sum(lasts) / 1000 == pytest.approx(seconds, abs=0.011)


@pytest.mark.parametrize(
    ("name", "written"), [("a.GIF", "a.gif"), ("a.b-0.2.webp", "a.b-0.2.webp"), ("a-0.1.gif", "a-0.1.gif")]
)
def test_the_name_of_a_video(name, written, tmp_path):
    assert write_video(tmp_path / name, still(2)) == tmp_path / written


def test_a_dot_in_the_name_of_a_video_stays(tmp_path):
    first, other = (write_video(tmp_path / name, still(2)) for name in ("alpha-0.1", "alpha-0.2"))
    assert first.stem == "alpha-0.1"
    assert other.stem == "alpha-0.2"


def test_frames_of_others_stay(tmp_path):
    (tmp_path / "frame-best.png").write_bytes(b"")
    write_frames(tmp_path, still(3))
    write_frames(tmp_path, still(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frame-00000.png", "frame-best.png"]
