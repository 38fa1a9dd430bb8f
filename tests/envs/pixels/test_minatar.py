"""MinAtar's games as environments; that their rules are the published ones is shown in test_published.py."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from replaylab.envs import make_vector_env
from replaylab.envs.minatar import COLOURS, MinAtarEnv, MinAtarVectorEnv
from replaylab.envs.registration import MINATAR
from replaylab.errors import ConfigError, ShapeError
from tests.envs import conformance
from tests.envs.pixels import golden

IDS = {game: f"replaylab/{name}" for name, game in MINATAR.items()}
GAMES = list(IDS)
MINIMAL = {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}
CHANNELS = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
MODES = list(AutoresetMode)


@pytest.mark.parametrize("game", GAMES)
def test_good_play_is_as_recorded(game):
    recorded = np.load(golden.FOLDER / f"{game}.npz")
    np.testing.assert_array_equal(golden.checksums(golden.play(game, recorded["actions"])), recorded["checksums"])


@pytest.mark.parametrize("game", GAMES)
def test_the_single_form_passes_gymnasiums_checker(game):
    check_env(gym.make(IDS[game], disable_env_checker=True, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("game", GAMES)
def test_spaces_are_those_of_the_game(game):
    few, all_six = gym.make(IDS[game]), gym.make(IDS[game], minimal_actions=False)
    assert few.action_space.n == MINIMAL[game]
    assert all_six.action_space.n == 6
    assert few.observation_space == all_six.observation_space
    assert few.observation_space.shape == (CHANNELS[game], 10, 10)
    assert few.observation_space.dtype == bool
    assert few.spec.max_episode_steps is None
    assert set(few.unwrapped.channels) <= COLOURS.keys()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("game", GAMES)
def test_the_vector_form_equals_single_ones(game, mode):
    options = {"max_episode_steps": 90} if game == "freeway" else {}

    def make(count, mode):
        return MinAtarVectorEnv(count, game=game, autoreset_mode=mode, **options)

    ends, _ = conformance.equals_single_forms(make, lambda: MinAtarEnv(game=game, **options), mode, 200)
    assert ends >= 3


def trace(env, steps, rng):
    seen = []
    for _ in range(steps):
        obs, reward, terminated, _, _ = env.step(rng.integers(env.single_action_space.n, size=env.num_envs))
        seen.append((obs, reward, terminated))
    return seen


def equal(left, right, rows=slice(None), other=slice(None)):
    return all(
        np.array_equal(a[rows], b[other])
        for value, two in zip(left, right, strict=True)
        for a, b in zip(value, two, strict=True)
    )


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_restored_game_goes_on_exactly(game, mode):
    conformance.goes_on_exactly(lambda: MinAtarVectorEnv(3, game=game, autoreset_mode=mode))


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_an_environment_is_copied_with_its_state(twin):
    env = MinAtarVectorEnv(3, game="seaquest")
    env.reset(seed=0)
    trace(env, 50, np.random.default_rng(0))
    other = twin(env)
    expected = trace(env, 100, np.random.default_rng(1))
    assert equal(trace(other, 100, np.random.default_rng(1)), expected)


@pytest.mark.parametrize("game", GAMES)
def test_a_copy_depends_on_its_own_seed_alone(game):
    conformance.depends_on_its_own_seed_only(lambda count: MinAtarVectorEnv(count, game=game), 300)


def columns(obs):
    """Where the player's things are in the lowest row."""
    return obs[:, 0, 9].argmax(-1)


@pytest.mark.parametrize("form", ["vector", "single"])
def test_the_last_action_sticks_past_an_episode_but_not_a_seed(form):
    """A quirk of the package: what sticks is the action of the frame before, be it of another episode."""
    options = {"game": "breakout", "sticky_action_prob": 0.5, "autoreset_mode": "Disabled"}
    env = single = MinAtarVectorEnv(1, **options)
    if form == "single":
        single = gym.make("replaylab/MinAtar-Breakout-v1", sticky_action_prob=0.5)
        env = single.unwrapped._games

    def first_move(seed):
        single.reset(seed=seed)
        single.step([1] if form == "vector" else 1)
        return int(columns(env._observe())[0]) - 4

    seeded = [first_move(seed) for seed in range(40)]
    assert set(seeded) == {-1, 0}  # left, or what was done before the seed: nothing
    assert [first_move(seed) for seed in range(40)] == seeded
    first_move(seeded.index(-1))
    assert {first_move(None) for _ in range(40)} == {-1}  # left, or what was done before: left


def test_actions_stick_as_often_as_asked():
    """Of n > 5,000 choices the share p/(1 + p) is not done, as two in a row cannot fail; six standard errors."""
    env = MinAtarVectorEnv(100, game="space_invaders", sticky_action_prob=0.25, autoreset_mode="NextStep")
    obs, _ = env.reset(seed=0)
    failed = []
    for t in range(100):
        before, playing = columns(obs), ~env.state()["ended"]
        obs, *_ = env.step(np.full(100, 1 + t % 2))  # left and right in turn
        free = playing & (before > 0) & (before < 9)
        failed.extend((columns(obs) - before != (1 if t % 2 else -1))[free & (t > 0)])
    assert len(failed) > 5_000
    assert abs(np.mean(failed) - 0.2) < 6 * np.sqrt(0.2 * 0.8 / len(failed))


def test_freeway_ends_by_itself():
    env = MinAtarVectorEnv(2, game="freeway", autoreset_mode="Disabled")
    env.reset(seed=0)
    for _ in range(2_500):
        assert not env.step(np.zeros(2, int))[2].any()
    assert env.step(np.zeros(2, int))[2].all()


def test_pictures_show_every_thing_in_its_colour():
    env = gym.make("replaylab/MinAtar-Breakout-v1", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    for channel in ("paddle", "ball", "brick"):
        y, x = (int(i[-1]) for i in obs[env.unwrapped.channels.index(channel)].nonzero())
        assert bytes(picture[16 * y + 8, 16 * x + 8]).hex() == COLOURS[channel][1:]
    many = MinAtarVectorEnv(3, game="seaquest", render_mode="rgb_array")
    many.reset(seed=0)
    assert [picture.shape for picture in many.render()] == [(160, 160, 3)] * 3
    assert MinAtarVectorEnv(3, game="seaquest").render() is None
    synced = make_vector_env("replaylab/MinAtar-Seaquest-v1", 2, render_mode="rgb_array")
    synced.reset(seed=0)
    np.testing.assert_array_equal(synced.render()[0], many.render()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "pong"}, "`game` must be asterix, breakout, freeway, seaquest or space_invaders, but got 'pong'"),
        ({"sticky_action_prob": 1.5}, r"`sticky_action_prob` must be in \[0, 1\], but got 1.5"),
        ({"sticky_action_prob": float("nan")}, "`sticky_action_prob` must be in"),
        ({"render_mode": "human"}, "`render_mode` must be \"rgb_array\"(, or None)?, but got 'human'"),
        ({"max_episode_steps": 0}, "`max_episode_steps` must be at least 1, but got 0"),
    ],
)
def test_bad_options_are_reported(options, message):
    with pytest.raises(ConfigError, match=message):
        MinAtarVectorEnv(2, **{"game": "breakout", **options})


@pytest.mark.parametrize("game", GAMES)
def test_a_damaged_or_foreign_state_changes_nothing(game):
    env = MinAtarVectorEnv(2, game=game)
    env.reset(seed=0)
    trace(env, 50, np.random.default_rng(0))
    good = env.state()
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        bad = {name: array.copy() for name, array in good.items()}
        words = bad["variables"][1, 4:]
        words[:] = rng.integers(2**63, size=words.shape, dtype=np.uint64)
        try:
            env.restore(bad)
        except ConfigError as error:
            refused += "copy 1 of the state to restore is damaged" in str(error)
    assert refused == 300
    other = MinAtarVectorEnv(2, game="breakout" if game != "breakout" else "seaquest").state()
    with pytest.raises(ShapeError, match="belongs to another environment"):
        env.restore(other)
    again = MinAtarVectorEnv(2, game=game)
    again.restore(good)
    assert equal(trace(env, 30, np.random.default_rng(1)), trace(again, 30, np.random.default_rng(1)))
