"""The oracle draws what brings a table closest to the exact values: every stored step is tried out."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text import FrozenLakeEnv

from replaylab.envs import TransitionTable
from replaylab.errors import ConfigError
from replaylab.learners import DQN, ExpectedSarsa, Hook, QLearning, Sarsa
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


def lowered(agents, alone, replica, exact, row):
    """By how much the real update of a copy lowers the squared error of its table."""
    alone.q[:] = agents.q
    columns = {name: np.full((len(alone.q), 1), value) for name, value in row.items()}
    alone.update(Batch(columns | {"weight": np.ones((len(alone.q), 1), np.float32)}))
    return ((agents.q[replica] - exact) ** 2).sum() - ((alone.q[replica] - exact) ** 2).sum()


@pytest.mark.parametrize(
    ("learner", "mode"),
    [
        (QLearning, "SameStep"),
        (ExpectedSarsa, "NextStep"),
        pytest.param(QLearning, "NextStep", marks=pytest.mark.slow),
        pytest.param(ExpectedSarsa, "SameStep", marks=pytest.mark.slow),
    ],
)
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
        alone = copy.deepcopy(run.agents)
        for r in range(3):
            ids = np.arange(max(0, newest.newest[r] - CAPACITY + 1), newest.newest[r] + 1)
            rows = [{name: column[r, i % CAPACITY] for name, column in run.replay.columns.items()} for i in ids]
            tried = np.array([lowered(run.agents, alone, r, exact, row) for row in rows])
            assert tried[drawn[r] - ids[0]] == pytest.approx(tried.max(), abs=1e-14)
            best.add(round(tried.max(), 9))
    assert newest.newest.min() > CAPACITY
    assert len(best) > 20  # the tables moved between the draws


@pytest.mark.parametrize(
    ("env_id", "learner", "transforms", "message"),
    [
        ("CartPole-v1", DQN(), (), "use QLearning or ExpectedSarsa"),
        ("FrozenLake-v1", DQN(), (), "use QLearning or ExpectedSarsa"),
        ("FrozenLake-v1", Sarsa(batch_size=1), (), "use QLearning or ExpectedSarsa"),
        ("Blackjack-v1", QLearning(batch_size=1), (), "Discrete observations"),
        ("Bare-v0", QLearning(batch_size=1), (), "has no transition table: it needs the attributes `P`"),
        ("Halved-v0", QLearning(batch_size=1), (), "the 8 states and 4 actions that are learned, but that of"),
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


class Wide(gym.Env):
    """More states and actions than their narrow type can count pairs of."""

    observation_space, action_space = spaces.Discrete(300, dtype=np.int16), spaces.Discrete(200, dtype=np.int16)
    initial_state_distrib = np.eye(300)[299]
    P = {s: {a: [(1.0, max(s - 1 - a % 2, 0), float(a % 7), s < 200)] for a in range(200)} for s in range(300)}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 299
        return np.int16(299), {}

    def step(self, action):
        _, self.state, reward, terminated = self.P[self.state][int(action)][0]
        return np.int16(self.state), reward, terminated, False, {}


gym.register("Wide-v0", Wide, disable_env_checker=True)  # which asks for int64


def test_states_of_a_narrow_type():
    drawn = Gains()
    learner = QLearning(batch_size=4, learning_starts=30, epsilon=1.0, initial_std=3.0)
    train("Wide-v0", learner, EnvOracle(), [0], total_steps=60, eval_every=None, hooks=[drawn])
    assert len(drawn.had) == 31
    np.testing.assert_allclose(drawn.had, drawn.best)


class Gains(Hook):
    """Return the gain of the drawn rows, and the largest gain of four rows, counted in wide integers."""

    def __init__(self):
        self.had, self.best = [], []

    def on_draw(self, run, batch):
        stored = {name: column[0, : run.replay.size[0]] for name, column in run.replay.columns.items()}
        stored |= {name: stored[name].astype(np.int64) for name in ("obs", "action", "next_obs")}
        q, exact, obs, action = run.agents.q[0], run.sampler.exact, stored["obs"], stored["action"]
        following = q.max(1)[stored["next_obs"]] * np.where(stored["terminated"], 0.0, run.agents.learner.gamma)
        after = q[obs, action] + run.agents.learner.alpha * (stored["reward"] + following - q[obs, action])
        gains = (q[obs, action] - exact[obs, action]) ** 2 - (after - exact[obs, action]) ** 2
        self.had.append(gains[batch.id[0]].sum())
        self.best.append(np.sort(gains)[-4:].sum())


def test_gradients_of_a_narrow_type():
    agents = QLearning().agents(Wide.observation_space, Wide.action_space, [0])
    columns = {"obs": np.int16([[299]]), "action": np.int16([[199]]), "next_obs": np.int16([[0]])}
    columns |= {"reward": np.ones((1, 1)), "terminated": np.uint8([[0]]), "weight": np.ones((1, 1), np.float32)}
    gradient = agents.probe(Batch(columns)).gradient
    assert np.flatnonzero(gradient[0]).tolist() == [299 * 200 + 199]
