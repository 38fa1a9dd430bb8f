"""An environment that gives no numbers is named by its seed and step, whatever is replayed."""

import numpy as np
import pytest

from replaylab.errors import NonFiniteError
from replaylab.learners import DQN, EnvStep, QLearning
from replaylab.learners.api.finite import check_obs, check_step
from replaylab.replay import Prioritized, Uniform
from tests.learners.calls import train
from tests.study.execution import hostile

MODULE = hostile.__name__
FEW = DQN(hidden=(8,), batch_size=4, learning_starts=4)


def trained(env, seeds, **options):
    """Train for a moment, and return what it raised."""
    with pytest.raises(NonFiniteError) as caught:
        train(f"{MODULE}:{env}-v0", FEW, Uniform(), seeds, 40, **{"eval_every": None} | options)
    return str(caught.value)


def bad(seed):
    """Whether the environment's rewards with this seed hold a NaN."""
    try:
        train(f"{MODULE}:NoReward-v0", FEW, Uniform(), [seed], 40, eval_every=None)
    except NonFiniteError:
        return True
    return False


@pytest.mark.parametrize(("env", "name"), [("NoReward", "reward"), ("NoObs", "obs")])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_the_seed_and_the_step_are_named(env, name, mode):
    seeds = list(range(8))
    first = next(seed for seed in seeds if bad(seed))
    assert not all(map(bad, seeds))
    reported = trained(env, seeds, autoreset_mode=mode)
    assert reported.startswith(f"`{name}` of {MODULE}:{env}-v0 must be finite, but seed {first} got nan in step 3; fix")


def test_a_last_observation_is_looked_at_too():
    assert "`final_obs` of" in trained("NoLastObs", [4, 5])
    assert "seed 4 got inf in step 10" in trained("NoLastObs", [4, 5])


def test_an_evaluation_is_looked_at_too():
    with pytest.raises(NonFiniteError, match="in an evaluation"):
        train(f"{MODULE}:NoReward-v0", FEW, Uniform(), [next(s for s in range(9) if not bad(s))], 40, eval_every=10)


def test_what_is_replayed_makes_no_difference():
    seeds = [next(seed for seed in range(9) if bad(seed))]
    with pytest.raises(NonFiniteError):
        train(f"{MODULE}:NoReward-v0", FEW, Prioritized(), seeds, 40, eval_every=None)


def test_whole_numbers_and_numbers_train():
    train(f"{MODULE}:Calm-v0", FEW, Uniform(), [0, 1], 40, eval_every=20, eval_episodes=1)
    train("FrozenLake-v1", QLearning(), Uniform(), [0, 1], 40, eval_every=20, eval_episodes=1)


def test_nested_observations_are_named():
    obs = {
        "goal": np.zeros((2, 3)),
        "seen": {"image": np.zeros((2, 2), np.uint8), "speed": np.array([[0.0], [np.inf]])},
    }
    with pytest.raises(NonFiniteError, match=r"`obs\.seen\.speed` of E must be finite, but seed 8 got inf in its"):
        check_obs(obs, "E", [7, 8], "its reset")
    last = np.array([None, {"goal": np.zeros(3), "seen": {"speed": [np.nan]}}], object)
    ended = np.array([False, True])
    with pytest.raises(NonFiniteError, match=r"`final_obs\.seen\.speed` of E must be finite, but seed 8 got nan in"):
        check_step(EnvStep({}, ended, np.zeros(2), {}, ended, ~ended, last, ended), "E", [7, 8], 3)
