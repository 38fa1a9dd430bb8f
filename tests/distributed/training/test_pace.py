"""Updates at the steps of one process, what actors see and store, and random streams that do not repeat."""

from dataclasses import dataclass, replace
from functools import cache

import gymnasium as gym
import numpy as np
import pytest
from examples.linear_gaussian import LinearGaussian, LinearGaussianAgents
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.distributed.training.evaluator import Evaluator
from replaylab.distributed.training.options import Actors, Shards
from replaylab.errors import NonFiniteError, ShapeError
from replaylab.learners import DQN, Hook, TrainingConfig, train
from replaylab.learners.api.finite import finite_step
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.replay import Prioritized, Uniform
from tests.distributed.training.in_process import Launcher, StopError, stops, trained

SMALL = DQN(hidden=(4,), batch_size=4, capacity=300)


def config(learner=SMALL, env_id="CartPole-v1", **options):
    return TrainingConfig(env_id, learner, Uniform(), **{"total_steps": 200, "eval_every": None, **options})


def paced(starts, period, grad):
    return config(replace(SMALL, learning_starts=starts, train_period=period, gradient_steps=grad), log_every=20)


@cache
def rows_of_one_process(starts, period, grad):
    metrics = train(paced(starts, period, grad), [0])
    return {name: rows(metrics, name) for name in ("train/updates", "replay/transitions_replayed")}


def rows(metrics, name):
    return dict(zip(*(column.tolist() for column in metrics.of(name)), strict=True))


@pytest.mark.parametrize(
    ("starts", "period", "grad"), [(1, 1, 1), (40, 4, 1), (41, 4, 1), (40, 8, 8), (100, 100, 1), (9, 10, 3)]
)
@pytest.mark.parametrize("actors", [Actors(2, envs=1), Actors(3, envs=2, unroll=7), Actors(1, envs=16)])
def test_updates_come_at_the_steps_of_one_process(starts, period, grad, actors):
    paced_config = paced(starts, period, grad)
    metrics, run, _ = trained(paced_config, actors)
    for name, expected in rows_of_one_process(starts, period, grad).items():
        assert expected
        assert rows(metrics, name) == expected
    assert run.agents.updates == updates_of_one_process(paced_config)


def test_an_evaluation_is_of_the_policy_of_its_step(monkeypatch):
    learner, seen = replace(SMALL, learning_starts=1, train_period=1), []
    evaluate = Evaluator.evaluate

    def watched(evaluator, due, weights):
        seen.append((due, weights["online"].copy()))
        return evaluate(evaluator, due, weights)

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    policies = {}

    class Policies(Hook):
        def after_learning(self, run):
            policies[run.agents.updates] = run.agents.weights()["online"]

    evaluated = config(learner, total_steps=201, eval_every=101, eval_episodes=1)
    metrics, *_ = trained(evaluated, Actors(1, envs=16), hooks=[Policies()])
    assert [due for due, _ in seen] == metrics.of("eval/mean_reward")[0].tolist() == [101, 201]
    assert all(np.array_equal(weights, policies[due]) for due, weights in seen)


def updates_of_one_process(configuration):
    """Number of updates of one process at the end; the newest are not recorded."""
    learner = configuration.learner
    return learner.gradient_steps * sum(
        step % learner.train_period == 0 for step in range(learner.learning_starts, configuration.total_steps + 1)
    )


@dataclass(frozen=True, kw_only=True)
class Annealed(LinearGaussian):
    """Its agents can be followed, and remember what progress they acted at."""

    epsilon: float = 1e-8
    lone: bool = False  # whether they act only for one environment

    def agents(self, observation_space, action_space, seeds):
        return AnnealedAgents(self, observation_space, action_space, seeds)


class AnnealedAgents(LinearGaussianAgents):
    progress = 0.0

    def act(self, obs, explore):
        vars(self).setdefault("heard", []).append(self.progress)
        return super().act(obs[:, :1] if self.learner.lone else obs, explore)

    def set_progress(self, progress):
        self.progress = progress

    def weights(self):
        return {"actor": self.actor.copy()}

    def take_weights(self, weights):
        self.actor[:] = weights["actor"]


def test_actors_see_progress_and_epsilon_of_others_stays():
    _, run, launcher = trained(config(Annealed(), "Pendulum-v1", total_steps=400))
    heard = [actor._agents.heard for actor in launcher.actors]
    assert all(each[0] == 0.0 and each == sorted(each) for each in heard)
    assert 0.8 < max(each[-1] for each in heard) <= 1.0
    assert run.agents.learner.epsilon == 1e-8
    shape = r"`act` of AnnealedAgents must return actions, numbers of shape \(1, 3, \.\.\.\), but returned"
    with pytest.raises(ShapeError, match=shape):
        trained(config(Annealed(lone=True), "Pendulum-v1"), Actors(1, envs=3))


class Halves(VectorEnv):
    """Copies that go half a step further each time, three times; resets return integers."""

    single_observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, num_envs, autoreset_mode=AutoresetMode.SAME_STEP):
        self.num_envs, self.mode, self.t = num_envs, AutoresetMode(autoreset_mode), 0
        self.metadata = {"autoreset_mode": self.mode}
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((self.num_envs, 1), int), {}

    def step(self, actions):
        self.t += 1
        obs, ended, infos = np.full((self.num_envs, 1), self.t / 2), np.full(self.num_envs, self.t == 3), {}
        if self.t == 3:
            infos = {"final_obs": np.full(self.num_envs, None), "_final_obs": ended}
            for i, last in enumerate(obs):
                infos["final_obs"][i] = last
            obs, _ = self.reset()
        return obs, np.ones(self.num_envs), ended, np.zeros(self.num_envs, bool), infos


gym.register("test/Halves-v0", vector_entry_point=Halves)


class Rated(PerceptronAgents):
    """Agents whose initial TD errors are the rewards plus the observations."""

    def initial_td_errors(self, columns):
        return columns["reward"] + columns["obs"][..., 0]


class RatedDQN(DQN):
    def agents(self, observation_space, action_space, seeds):
        agents = super().agents(observation_space, action_space, seeds)
        agents.__class__ = Rated
        return agents


@pytest.mark.parametrize("unroll", [1, 4])
def test_final_obs_and_initial_td_errors_are_stored(unroll, local):
    halves = config(RatedDQN(hidden=(4,), learning_starts=30), "test/Halves-v0", total_steps=24, log_every=6)
    halves = replace(halves, sampler=Prioritized(alpha=1.0, beta=0.0))
    metrics, *_ = trained(halves, Actors(1, envs=2, unroll=unroll), Shards(1))
    buffer = local.clients[0].shard.buffer
    columns = buffer.get(np.arange(24))
    assert columns["obs"][::2, 0].tolist() == [0.0, 0.5, 1.0] * 4
    assert columns["next_obs"][::2, 0].tolist() == [0.5, 1.0, 1.5] * 4
    assert metrics.of("rollout/ep_rew")[1].tolist() == [3.0] * 8
    assert buffer.probabilities(np.arange(0, 24, 2)) == pytest.approx(np.array([1.0, 1.5, 2.0] * 4) / 36, rel=1e-4)


class Cracked(gym.Env):
    """Its third reset shows NaN."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)
    resets = steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.steps = self.resets + 1, 0
        return np.full(2, np.nan if self.resets == 3 else 0.5, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, 0.5, np.float32), 1.0, self.steps == 7, False, {}


gym.register("test/Cracked-v0", Cracked)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_observations_of_resets_are_checked_in_every_mode(mode):
    with pytest.raises(NonFiniteError, match="test/Cracked-v0"):
        trained(config(env_id="test/Cracked-v0", autoreset_mode=mode))


def test_random_streams_do_not_repeat_after_a_resume(tmp_path):
    seen = []
    for resume in (None, tmp_path, tmp_path):
        launcher = Launcher()
        with pytest.raises(StopError):
            trained(config(), folder=tmp_path, resume=resume, hooks=[stops(150)], launcher=launcher)
        seen.append({actor._seeds[0] for actor in launcher.actors})
    assert len(set.union(*seen)) == 6


@pytest.mark.parametrize(("seconds", "wanted"), [(0.03, 3), (0.5, 1), (0.001, 8)])
def test_slow_environments_have_shorter_unrolls(seconds, wanted, monkeypatch):
    now = [0.0]

    def slow_step(*arguments):
        now[0] += seconds
        return finite_step(*arguments)

    monkeypatch.setattr("replaylab.distributed.training.actor.SECONDS", 0.1)
    monkeypatch.setattr("replaylab.distributed.training.actor.monotonic", lambda: now[0])
    monkeypatch.setattr("replaylab.distributed.training.actor.finite_step", slow_step)
    _, _, launcher = trained(config(total_steps=64), Actors(1, envs=1, unroll=8))
    assert launcher.actors[0]._wanted == wanted
