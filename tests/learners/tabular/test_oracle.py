"""The oracle draws what brings a table closest to the exact values: every stored step is tried out."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text import FrozenLakeEnv

from replaylab.envs import TransitionTable
from replaylab.errors import ConfigError
from replaylab.learners import DQN, ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.learners.tabular.oracle import EnvOracle, TrueErrorOracle
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.loop import turn as take_turn
from replaylab.learners.training.preflight import check_trainable
from replaylab.learners.training.state import Run
from replaylab.replay import Batch, NStep
from tests.learners.calls import train

CLIFFWALK = "replaylab/BlindCliffwalk-v0"
SETTINGS = {"alpha": 0.25, "gamma": 0.9, "epsilon": 0.7, "batch_size": 1, "learning_starts": 1, "initial_std": 0.1}
CAPACITY = 40


class Bare(gym.Env):
    """Discrete, and without a table."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(action), 0.0, True, False, {}


class Halved(gym.ObservationWrapper):
    """Shows other states than its table has."""

    observation_space = spaces.Discrete(8)

    def observation(self, observation):
        return observation // 2


for name, make in {"Bare-v0": Bare, "Halved-v0": lambda: Halved(FrozenLakeEnv())}.items():
    if name not in gym.registry:
        gym.register(name, make)


def lowered(agents, replica, exact, row):
    """By how much the real update of a copy lowers the squared error of its table."""
    alone = copy.deepcopy(agents)
    columns = {name: np.full((len(alone.q), 1), value) for name, value in row.items()}
    alone.update(Batch(columns | {"weight": np.ones((len(alone.q), 1), np.float32)}))
    return ((agents.q[replica] - exact) ** 2).sum() - ((alone.q[replica] - exact) ** 2).sum()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("learner", [QLearning, ExpectedSarsa])
@pytest.mark.parametrize(("env_id", "env_options"), [(CLIFFWALK, {"n": 4}), ("FrozenLake-v1", {"is_slippery": False})])
def test_the_drawn_step_is_the_best_of_all_that_are_stored(env_id, env_options, learner, mode):
    """Also in a ring that has wrapped; for every replica by its own table, as it is at that draw."""
    exact = optimal_values(TransitionTable.of(env_id, **env_options), 0.9)
    settings = learner(**SETTINGS, capacity=CAPACITY)
    configuration = TrainingConfig(env_id, settings, EnvOracle(), 500, env_options=env_options, autoreset_mode=mode)
    run = Run(configuration, [3, 4, 8])
    run.begin()
    newest, best = run.recorder, set()
    for turn in range(120):
        take_turn(run)
        if turn % 10:
            continue
        drawn = run.replay.sample(1).id[:, 0]
        for r in range(3):
            ids = np.arange(max(0, newest.newest[r] - CAPACITY + 1), newest.newest[r] + 1)
            rows = [{name: column[r, i % CAPACITY] for name, column in run.replay.columns.items()} for i in ids]
            tried = np.array([lowered(run.agents, r, exact, row) for row in rows])
            assert tried[drawn[r] - ids[0]] == pytest.approx(tried.max(), abs=1e-14)
            best.add(round(tried.max(), 9))
    assert newest.newest.min() > CAPACITY
    assert len(best) > 20  # the tables moved between the draws


def test_a_run_goes_on_from_a_checkpoint_and_a_population_equals_its_single_runs(tmp_path, monkeypatch):
    settings = QLearning(**SETTINGS, capacity=CAPACITY)
    options = {"total_episodes": 40, "eval_every": 10, "eval_episodes": 1, "log_every": 5, "env_options": {"n": 4}}
    whole = train(CLIFFWALK, settings, EnvOracle(), [3, 4], **options)
    alone = train(CLIFFWALK, settings, EnvOracle(), [4], **options)
    for name in ("step", "value"):
        rows = whole.columns["seed"] == 4
        np.testing.assert_array_equal(whole.columns[name][rows], alone.columns[name])

    def stop(step):
        if step > 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("replaylab.learners.training.hooks.PROGRESS_PERIOD", 1)
        with pytest.raises(KeyboardInterrupt):
            train(CLIFFWALK, settings, EnvOracle(), [3, 4], **options, save=tmp_path, save_every=7, progress=stop)
    again = train(CLIFFWALK, settings, EnvOracle(), [3, 4], **options, save=tmp_path, save_every=7, resume=tmp_path)
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(again.columns[name], column)


@pytest.mark.parametrize(
    ("env_id", "learner", "transforms", "message"),
    [
        ("CartPole-v1", DQN(), (), "use QLearning or ExpectedSarsa"),
        ("FrozenLake-v1", DQN(), (), "use QLearning or ExpectedSarsa"),
        ("FrozenLake-v1", Sarsa(batch_size=1), (), "use QLearning or ExpectedSarsa"),
        ("Blackjack-v1", QLearning(batch_size=1), (), "Discrete observations"),
        ("Bare-v0", QLearning(batch_size=1), (), "has no transition table: it needs the attributes `P`"),
        (
            "Halved-v0",
            QLearning(batch_size=1),
            (),
            "the 8 states and 4 actions that are learned, but that of Halved-v0 has 16",
        ),
        ("FrozenLake-v1", QLearning(batch_size=1), [NStep(3, 0.99)], "leave the transforms out"),
        ("CliffWalking-v1", QLearning(batch_size=1, gamma=1.0), (), None),
    ],
)
def test_what_the_oracle_cannot_know_is_refused_before_training(env_id, learner, transforms, message):
    if message is None:
        check_trainable(TrainingConfig(env_id, learner, EnvOracle(), 10, transforms=transforms))
        return
    with pytest.raises(ConfigError, match=message):
        check_trainable(TrainingConfig(env_id, learner, EnvOracle(), 10, transforms=transforms))
    with pytest.raises(ConfigError, match=message):
        train(env_id, learner, EnvOracle(), [0], 10, transforms=transforms)


def test_it_says_what_it_knows():
    assert repr(TrueErrorOracle(np.zeros((48, 4)))) == "TrueErrorOracle(Q* of 48 × 4)"
