"""MinAtar's games are those of the published package, frame by frame, under the same random numbers.

The package is licensed under the GPL, so it is a dependency of the tests alone.
"""

import numpy as np
import pytest
from gymnasium.utils import seeding

from replaylab.envs.minatar import MinAtarVectorEnv
from replaylab.envs.registration import MINATAR
from tests.envs.pixels import golden
from tests.envs.pixels.published import Published

pytest.importorskip("minatar.environment", reason="the published package is not installed: pip install minatar")
GAMES = list(MINATAR.values())
OPTIONS: list[dict] = [
    {},
    {"sticky_action_prob": 0.0},
    {"difficulty_ramping": False},
    {"sticky_action_prob": 0.5, "difficulty_ramping": False},
]


def random_play(vector, copies, rng):
    """Every action as likely, but in runs, so that the player goes places."""
    action = np.zeros(copies, np.int64)
    while True:
        action = np.where(rng.random(copies) < rng.random(), rng.integers(6, size=copies), action)
        yield action


def compare(game, steps, copies, options, policy=random_play, seed=0):
    """Play `copies` of both for `steps` frames in all; return the number of episodes and their rewards' sum."""
    seeds = [seed + 7 * i for i in range(copies)]
    vector = MinAtarVectorEnv(copies, game=game, minimal_actions=False, autoreset_mode="SameStep", **options)
    published_games = [Published(game, seeding.np_random(seed)[0], **options) for seed in seeds]
    obs, _ = vector.reset(seed=seeds)
    for i, game_of_copy in enumerate(published_games):
        np.testing.assert_array_equal(obs[i], game_of_copy.reset())
    episodes, total = 0, 0.0
    actions = policy(vector, copies, np.random.default_rng(seed))
    for _ in range(steps // copies):
        action = next(actions)
        obs, reward, terminated, truncated, infos = vector.step(action)
        assert not truncated.any()
        for i, game_of_copy in enumerate(published_games):
            seen, earned, ended = game_of_copy.step(int(action[i]))
            assert (reward[i], terminated[i]) == (earned, ended)
            np.testing.assert_array_equal(infos["final_obs"][i] if ended else obs[i], seen)
            if ended:
                np.testing.assert_array_equal(obs[i], game_of_copy.reset())
        episodes += terminated.sum()
        total += reward.sum()
    return episodes, total


@pytest.mark.parametrize("game", GAMES)
def test_some_frames_are_those_of_the_package(game):
    for options in OPTIONS:
        episodes, total = compare(game, 1_000, 4, options)
        assert episodes > 0 or game == "freeway"
        assert total > 0 or game == "freeway"


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_100_000_frames_are_those_of_the_package(game):
    episodes, total = compare(game, 100_000, 8, {}, seed=1)
    assert episodes >= 30
    assert total > 0


@pytest.mark.parametrize("game", GAMES)
def test_good_play_is_that_of_the_package(game):
    """Games get harder only for those who last; see golden.py."""
    actions = np.load(golden.FOLDER / f"{game}.npz")["actions"]
    published_games = [Published(game, seeding.np_random(seed)[0]) for seed in golden.SEEDS]
    frames = golden.play(game, actions)
    np.testing.assert_array_equal(next(frames)[0], [published_game.reset() for published_game in published_games])
    ramps = []
    for action, (obs, reward, terminated) in zip(actions, frames, strict=True):
        for i, published_game in enumerate(published_games):
            seen, earned, ended = published_game.step(int(action[i]))
            assert (reward[i], terminated[i]) == (earned, ended)
            ramps.append(published_game.env.env.difficulty_ramp())
            np.testing.assert_array_equal(obs[i], published_game.reset() if ended else seen)
    hardest = {"asterix": 9, "seaquest": 19, "space_invaders": 4}  # after these nothing comes any faster, or nearly so
    assert max(filter(None, ramps), default=0) >= hardest.get(game, 0)


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_20_000_frames_of_good_play_are_those_of_the_package(game):
    def look_ahead(env, copies, rng):
        while True:
            yield golden.plan(env, rng)

    _, total = compare(game, 20_000, 8, {}, look_ahead, seed=2)
    assert total > (30 if game == "freeway" else 300)
