"""Errors of training are reported before it begins, by a short training."""

from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab.envs import env_state
from replaylab.errors import ConfigError, OverSizeError, ReplayError
from replaylab.learners import DQN, SB3, QLearning
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.preflight import check_trainable
from replaylab.replay import CustomSampler, FrameStack, Prioritized, Uniform

SLOW = DQN(hidden=(8,), batch_size=8, learning_starts=40_000, capacity=1_000_000, train_period=7, gradient_steps=500)


class Picky(gym.Env):
    """Refuses in its constructor, and counts its steps."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)
    steps = 0

    def __init__(self, size=3):
        if size != 3:
            raise KeyError(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        Picky.steps += 1
        return int(action), 0.0, True, False, {}


if "Fussy-v0" not in gym.registry:
    gym.register("Fussy-v0", Picky)


@dataclass(frozen=True)
class WithoutClosedForm(CustomSampler):
    def distribution(self, view, batch_size):
        return np.zeros(len(view))


def test_a_trial_ends_with_its_first_update_and_holds_little(monkeypatch):
    monkeypatch.setattr(Picky, "steps", 0)
    check_trainable(TrainingConfig("Fussy-v0", SLOW, Uniform(), 1_000_000))
    assert Picky.steps == 16


@pytest.mark.parametrize(
    ("env_id", "learner", "options", "message"),
    [
        ("Nowhere-v0", SLOW, {}, "`env_id` must name a Gymnasium environment, but got 'Nowhere-v0'"),
        ("no_module:Nowhere-v0", SLOW, {}, "`env_id` must name a Gymnasium environment"),
        ("Pendulum-v1", SLOW, {}, "DQN needs Discrete actions"),
        ("CartPole-v1", QLearning(), {}, "tables need Discrete observations"),
        ("CartPole-v1", SLOW, {"env_options": {"size": 3}}, "`env_options` do not fit CartPole-v1"),
        ("Fussy-v0", SLOW, {"env_options": {"size": 4}}, "Fussy-v0 cannot be made with env_options={'size': 4}"),
        ("FrozenLake-v1", SLOW, {"env_options": {"map_name": "5x5"}}, "`map_name` of FrozenLake-v1 must be one of"),
        ("CartPole-v1", SLOW, {"sampler": Prioritized(block_length=3)}, "a multiple of the sampler's"),
        ("CartPole-v1", SLOW, {"sampler": WithoutClosedForm()}, "`distribution` of WithoutClosedForm must return"),
        ("MountainCar-v0", SLOW, {"transforms": [FrameStack(4, stacked_input=True)]}, "stacked_input"),
        ("Pendulum-v1", SB3("TD3"), {"trace_every": 5}, "`trace_every` needs Q(s, a)"),
        ("CartPole-v1", SLOW, {"visits": True}, "`visits` are counted of Discrete observations, but those"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_reported(env_id, learner, options, message):
    settings = {"sampler": Uniform(), "total_steps": 1_000_000} | options
    with pytest.raises(ReplayError) as reported:
        check_trainable(TrainingConfig(env_id, learner, **settings))
    assert message in str(reported.value)


def test_seeds_in_episodes_need_an_environment_that_goes_on(monkeypatch):
    monkeypatch.setattr(env_state, "possible", lambda env: False)
    job = TrainingConfig("Fussy-v0", SLOW, Uniform(), total_episodes=5)
    check_trainable(job)
    with pytest.raises(ConfigError, match="a budget of episodes for several seeds at once needs an environment that"):
        check_trainable(job, replicas=2)


def test_a_learner_without_such_settings_only_acts():
    """One of somebody's own, that is no dataclass."""

    class Own:
        def __init__(self):
            self.plain = SLOW

        def __getattr__(self, name):
            return getattr(self.plain, name)

    check_trainable(TrainingConfig("CartPole-v1", Own(), Uniform(), 100))


@pytest.mark.parametrize(
    ("env_id", "options", "hint"),
    [
        ("Nowhere-v0", {}, 'Name a custom environment "module:Nowhere-v0", after the module that registers it.'),
        ("no_module:Nowhere-v0", {}, "Run this where no_module.py is, or install it."),
        ("gymnasium:Nowhere-v0", {}, "The module gymnasium must register it by gymnasium.register."),
        ("FrozenLake-v1", {"slippery": False}, "did you mean `is_slippery`? Its options: render_mode, desc, map_name"),
        ("replaylab/BitFlip-v0", {"bits": 3}, "Its options: n"),
        ("Fussy-v0", {"sise": 3}, "did you mean `size`? Its options: size."),
    ],
)
def test_a_wrong_environment_gets_a_hint(env_id, options, hint):
    with pytest.raises(ConfigError) as reported:
        check_trainable(TrainingConfig(env_id, SLOW, Uniform(), 100, env_options=options))
    assert hint in str(reported.value)


def test_a_capacity_beyond_the_memory_is_refused():
    with pytest.raises(OverSizeError):
        check_trainable(TrainingConfig("CartPole-v1", replace(SLOW, capacity=10**12), Uniform(), 1_000))


@dataclass(frozen=True)
class OnlyExplores(DQN):
    """A learner whose greedy action, of which the first evaluation comes late, raises."""

    def agents(self, *parts):
        population = super().agents(*parts)
        explored = population.act

        def act(obs, explore):
            if not explore:
                raise NameError("typo")
            return explored(obs, explore=explore)

        population.act = act
        return population


def test_a_greedy_action_is_tried():
    learner = OnlyExplores(hidden=(8,), batch_size=8, learning_starts=100)
    with pytest.raises(NameError):
        check_trainable(TrainingConfig("CartPole-v1", learner, Uniform(), 1_000))
