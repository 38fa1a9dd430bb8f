"""Updates at the steps of one process, progress that actors hear of, and streams that never come again."""

from dataclasses import dataclass, replace
from functools import cache

import gymnasium as gym
import numpy as np
import pytest
from examples.linear_gaussian import LinearGaussian, LinearGaussianAgents
from gymnasium.vector import AutoresetMode

from replaylab.distributed.training.options import Actors
from replaylab.errors import ConfigError, NonFiniteError, ShapeError
from replaylab.learners import DQN, Checkpoints, Hook, TrainingConfig, train
from replaylab.replay import Uniform
from tests.distributed.training.in_process import StopError, stops, trained

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
    ("starts", "period", "grad"), [(1, 1, 1), (40, 4, 1), (38, 4, 1), (41, 4, 1), (40, 8, 8), (100, 100, 1), (9, 10, 3)]
)
@pytest.mark.parametrize("actors", [Actors(2), Actors(3, envs=2, unroll=7), Actors(1, envs=16)])
def test_as_many_updates_as_in_one_process_and_at_the_same_steps(starts, period, grad, actors):
    made = paced(starts, period, grad)
    metrics, run, _ = trained(made, actors)
    for name, theirs in rows_of_one_process(starts, period, grad).items():
        assert theirs
        assert rows(metrics, name) == theirs
    assert run.agents.updates == of_one_process(made)


def test_an_evaluation_is_of_the_policy_that_one_process_has_then():
    learner, seen = replace(SMALL, learning_starts=1, train_period=1), []

    class Seen(Hook):
        def on_metrics(self, now, values):
            if "eval/mean_reward" in values:
                seen.append((now, self.run.agents.updates))

        def on_begin(self, run):
            self.run = run

    trained(config(learner, total_steps=201, eval_every=101, eval_episodes=1), Actors(1, envs=16), hooks=[Seen()])
    assert seen == [(101, 101), (201, 201)]


def of_one_process(made):
    """Number of updates of one process at the end; the newest are not recorded."""
    learner = made.learner
    return learner.gradient_steps * sum(
        step % learner.train_period == 0 for step in range(learner.learning_starts, made.total_steps + 1)
    )


@dataclass(frozen=True, kw_only=True)
class Annealed(LinearGaussian):
    """Its agents can be followed, and remember what progress they acted at."""

    epsilon: float = 1e-8

    def agents(self, observation_space, action_space, seeds):
        return AnnealedAgents(self, observation_space, action_space, seeds)


class AnnealedAgents(LinearGaussianAgents):
    progress = 0.0

    def act(self, obs, explore):
        vars(self).setdefault("heard", []).append(self.progress)
        return super().act(obs, explore)

    def set_progress(self, progress):
        self.progress = progress

    def weights(self):
        return {"actor": self.actor.copy()}

    def take_weights(self, weights):
        self.actor[:] = weights["actor"]


def test_actors_hear_of_progress_and_a_setting_called_epsilon_stays():
    _, run, launcher = trained(config(Annealed(), "Pendulum-v1", total_steps=400))
    for client in launcher.started:
        heard = client.actor._agents.heard
        assert heard[0] == 0.0
        assert 0.8 < heard[-1] <= 1.0
        assert heard == sorted(heard)
    assert run.agents.learner.epsilon == 1e-8


def test_actions_of_another_shape_are_reported():
    class One(AnnealedAgents):
        def act(self, obs, explore):
            return super().act(obs[:, :1] if explore else obs, explore)

    @dataclass(frozen=True, kw_only=True)
    class Lone(Annealed):
        def agents(self, observation_space, action_space, seeds):
            return One(self, observation_space, action_space, seeds)

    with pytest.raises(
        ShapeError, match=r"`act` of One must return actions, numbers of shape \(1, 3, \.\.\.\), but returned"
    ):
        trained(config(Lone(), "Pendulum-v1"), Actors(1, envs=3))


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
def test_what_a_reset_shows_is_looked_at_in_every_mode(mode):
    with pytest.raises(NonFiniteError, match="test/Cracked-v0"):
        trained(config(env_id="test/Cracked-v0", autoreset_mode=mode))


def test_streams_do_not_come_again_after_a_resume(tmp_path):
    seen = []
    for resume in (None, tmp_path, tmp_path):
        saving, hooks = Checkpoints(tmp_path, 100), [stops(150)]
        stages = []

        def dying(client, stages=stages):
            stages.append(client)
            return False

        with pytest.raises(StopError):
            trained(config(), checkpoints=saving, resume=resume, hooks=hooks, dying=dying)
        seen.append({client.actor._seeds[0] for client in stages})
    assert len(set.union(*seen)) == 6


def test_updates_that_never_come_are_refused():
    with pytest.raises(ConfigError, match="`samples_per_insert` must let an update come some day"):
        trained(config(), samples_per_insert=1e-320)
