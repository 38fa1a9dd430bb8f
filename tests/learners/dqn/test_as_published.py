"""Each flaw against what it says of itself, and none of them against DQN."""

from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
from torch import nn

from replaylab.errors import ConfigError
from replaylab.learners import DQN, SGD, DQNAsPublished, Hook
from replaylab.learners.training import loop as training
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.hooks import HookList
from replaylab.learners.training.state import Run
from replaylab.replay import Linear, Prioritized, Uniform
from tests.learners.calls import assert_same_rows, train
from tests.learners.tabular import corridor

PROPORTIONAL = Prioritized(alpha=0.7, epsilon=0.01, beta=0.0)
SETTINGS = {
    "hidden": (16,),
    "batch_size": 8,
    "learning_starts": 50,
    "capacity": 1_000,
    "target_period": 20,
    "epsilon": Linear(1.0, 0.05, until=0.5),
}
SEEDS = [3, 4, 9]


def run(learner, sampler=None, steps=200, **options):
    return train(corridor.ENV_ID, learner, sampler or Uniform(), SEEDS, steps, **({"eval_every": None} | options))


def stored(buffer):
    return {name: column[:, : buffer.size[0]] for name, column in buffer.columns.items()}


@pytest.mark.parametrize(
    ("env_id", "sampler"),
    [
        ("CartPole-v1", Uniform()),
        (corridor.ENV_ID, Prioritized()),
        pytest.param("CartPole-v1", Prioritized(), marks=pytest.mark.slow),
        pytest.param(corridor.ENV_ID, Uniform(), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_without_flaws_it_is_dqn_bit_for_bit(sampler, env_id):
    options = {"total_steps": 250, "eval_every": 100, "eval_episodes": 2, "log_every": 10, "measure_every": 50}
    plain = train(env_id, DQN(**SETTINGS), sampler, SEEDS, **options)
    switched_off = train(env_id, DQNAsPublished(**SETTINGS), sampler, SEEDS, **options)
    assert_same_rows(switched_off, plain)


def test_its_other_settings_are_dqns():
    flawless = {k: v for k, v in asdict(DQNAsPublished()).items() if k in asdict(DQN())}
    assert flawless == asdict(DQN())
    with pytest.raises(ConfigError, match="`end_reward` of DQNAsPublished must be a finite number, but got nan"):
        DQNAsPublished(end_reward=float("nan"))


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_end_reward_is_stored_at_every_end_and_nowhere_else(buffers, mode):
    """Actions until learning starts do not depend on rewards, so the two runs take the same steps."""
    learners = [DQN(**SETTINGS), DQNAsPublished(**SETTINGS, end_reward=-10.0)]
    runs = [run(replace(learner, learning_starts=190), steps=190, autoreset_mode=mode) for learner in learners]
    true, changed = map(stored, buffers)
    ended = true["terminated"] | true["truncated"]
    assert (ended.sum(1) > 5).all()
    assert (true["terminated"] & (true["reward"] == 4.0)).any()  # a goal, which is punished all the same
    np.testing.assert_array_equal(changed["reward"], np.where(ended, -10.0, true["reward"]))
    for name in ("terminated", "truncated", "obs", "next_obs"):
        np.testing.assert_array_equal(changed[name], true[name])
    np.testing.assert_array_equal(
        *(metrics.of("rollout/ep_rew")[1] for metrics in runs)
    )  # told as the environment paid


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_truncation_terminates_stores_every_end_as_a_termination(buffers, mode):
    learners = [DQN(**SETTINGS), DQNAsPublished(**SETTINGS, truncation_terminates=True)]
    runs = [run(replace(learner, learning_starts=190), steps=190, autoreset_mode=mode) for learner in learners]
    true, changed = map(stored, buffers)
    assert (true["truncated"] & ~true["terminated"]).any()
    np.testing.assert_array_equal(changed["terminated"], true["terminated"] | true["truncated"])
    assert not changed["truncated"].any()
    for name in ("reward", "obs", "next_obs"):
        np.testing.assert_array_equal(changed[name], true[name])
    np.testing.assert_array_equal(*(metrics.of("rollout/ep_len")[1] for metrics in runs))


def test_truncation_terminates_stops_the_bootstrap(buffers):
    """γ as large as it gets and rewards that are never 0: the targets show whether the next state counts."""
    run(DQNAsPublished(**SETTINGS, truncation_terminates=True), steps=100)
    steps = stored(buffers[0])
    cut = steps["terminated"] & (steps["next_obs"][:, :, 1] != 4)  # the corridor itself terminates at place 4 alone
    assert cut.any(axis=1).all()
    first = cut.argmax(axis=1)
    batch = buffers[0].as_batch(first[:, None])
    agents = DQN(**SETTINGS, gamma=1.0).agents(
        corridor.Corridor.observation_space, corridor.Corridor.action_space, SEEDS
    )
    q = agents.q_values(batch.obs)[np.arange(3), 0, batch.action[:, 0] - corridor.Corridor.action_space.start]
    np.testing.assert_allclose(agents.probe(batch).td_error[:, 0], batch.reward[:, 0] - q, rtol=1e-6)


def test_stale_priorities_of_a_diverging_network_stay():
    settings = SETTINGS | {"learning_rate": 1e30, "loss": "squared", "max_grad_norm": None, "optimizer": SGD()}
    with pytest.warns(RuntimeWarning, match="diverged"):
        metrics = run(DQNAsPublished(**settings, stale_priorities=True), Prioritized(), log_every=10)
    assert len(metrics.of("train/loss")[1])


def test_stale_priorities_are_those_of_the_td_error_at_insertion(monkeypatch):
    """Every stored step's probability is ∝ (|r + γ·Q⁻(s', a*) − Q(s, a)| + ε)^α by the networks when it came."""
    learner = DQNAsPublished(**SETTINGS, stale_priorities=True, gamma=0.9)
    expected, runs = [], []

    class Remembering(Run):
        def __init__(self, *args):
            super().__init__(*args)
            runs.append(self)
            add, self.replay.add = self.replay.add, lambda **step: spy(add, **step)

    def delta(agents, obs, action, reward, next_obs, terminated, r):
        def q(parameters, x):
            w1, b1, w2, b2 = np.split(parameters.astype(np.float64), np.cumsum([32, 16, 32]))
            return np.maximum(w1.reshape(16, 2) @ x + b1, 0.0) @ w2.reshape(2, 16).T + b2

        best = q(agents.core.online[r], next_obs).argmax()
        target = reward + 0.9 * (not terminated) * q(agents.core.target[r], next_obs)[best]
        return target - q(agents.core.online[r], obs)[action - corridor.Corridor.action_space.start]

    def spy(add, **step):
        agents, final = runs[0].agents, step["final_obs"]
        for r in range(3):
            ended = step["terminated"][r] or step["truncated"][r]
            next_obs = final[r] if ended else step["next_obs"][r]
            transition = step["obs"][r], step["action"][r], step["reward"][r], next_obs, step["terminated"][r], r
            expected.append(delta(agents, *transition))
        return add(**step)

    monkeypatch.setattr("replaylab.learners.training.loop.Run", Remembering)
    run(learner, Prioritized(alpha=0.7, epsilon=0.01, beta=1.0), steps=150)
    assert runs[0].agents.updates == 101
    mass = (np.abs(np.reshape(expected, (150, 3)).T) + 0.01) ** 0.7
    distribution = runs[0].replay.probabilities(np.broadcast_to(np.arange(150), (3, 150)))
    np.testing.assert_allclose(distribution, mass / mass.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("module", [None, lambda space, actions: nn.Linear(space.shape[0], actions)])
def test_the_target_is_copied_only_where_an_episode_ends(module):
    settings = SETTINGS | {"target_period": 1, "train_period": 1_000, "learning_starts": 8}
    learner = DQNAsPublished(**settings, target_each_episode=True, module=module)
    run_ = Run(TrainingConfig(corridor.ENV_ID, learner, Uniform(), total_steps=150), SEEDS)
    run_.begin()
    copied = 0
    for _ in range(150):
        if min(run_.replay.size) >= 8:
            run_.agents.update(run_.replay.sample(8))
        before = run_.agents.state()
        training.turn(run_)
        now, steps = run_.agents.state(), stored(run_.replay)
        ended = (steps["terminated"] | steps["truncated"])[:, -1]
        copied += ended.sum()
        for name in (name for name in now if name.startswith("target")):
            online = before[name.replace("target", "online")]
            for r in range(3):
                np.testing.assert_array_equal(now[name][r], online[r] if ended[r] else before[name][r])
    assert run_.agents.updates > 100
    assert 20 < copied < 150


def briefly(learner, seeds):
    return train(corridor.ENV_ID, learner, Prioritized(), seeds, total_steps=109, log_every=10, eval_every=None)


@cache
def of_dqn():
    return briefly(DQN(**SETTINGS), SEEDS)


@pytest.mark.parametrize(
    "flaws",
    [
        {"end_reward": -10.0},
        {"truncation_terminates": True},
        {"stale_priorities": True},
        {"insertion_priorities": True},
        {"explores_first_action": True},
        {"target_each_episode": True},
        {"end_reward": -10.0, "truncation_terminates": True, "stale_priorities": True, "target_each_episode": True},
    ],
    ids=str,
)
def test_a_population_equals_single_runs_and_differs_from_dqn(flaws):
    learner = DQNAsPublished(**SETTINGS, **flaws)
    together = briefly(learner, SEEDS)
    name = "train/td_error_mean"
    assert not np.array_equal(together.of(name)[1], of_dqn().of(name)[1])
    for seed in SEEDS:
        alone = briefly(learner, [seed])
        np.testing.assert_allclose(together.of(name, seed)[1], alone.of(name)[1], rtol=1e-4, atol=1e-5)


def test_exploration_takes_the_first_action_only():
    space = corridor.Corridor.action_space
    learner = DQNAsPublished(**SETTINGS | {"epsilon": 1.0}, explores_first_action=True)
    agents = learner.agents(corridor.Corridor.observation_space, space, SEEDS)
    obs = np.stack([[corridor.Corridor.observation_space.sample()]] * 3)
    assert {int(action) for _ in range(50) for action in agents.act(obs, explore=True).ravel()} == {space.start}


def test_insertion_and_stale_priorities_agree_until_written_back():
    def priorities(starts, **switch):
        settings = SETTINGS | {"learning_starts": starts}
        started = Run(TrainingConfig(corridor.ENV_ID, DQNAsPublished(**settings, **switch), PROPORTIONAL, 60), SEEDS)
        started.begin()
        for _ in range(60):
            training.turn(started)
        return started.replay.probabilities(np.broadcast_to(np.arange(60), (3, 60)))

    before = [priorities(60, insertion_priorities=True), priorities(60, stale_priorities=True)]
    np.testing.assert_array_equal(*before)
    assert np.unique(before[0]).size > 20
    assert not np.array_equal(priorities(8, insertion_priorities=True), priorities(8, stale_priorities=True))


def test_insertion_priorities_use_rewards_of_later_hooks():
    class Richer(Hook):
        def before_store(self, run, step):
            return replace(step, reward=step.reward + 100.0)

    learner = DQNAsPublished(**SETTINGS | {"learning_starts": 61}, insertion_priorities=True)
    config = TrainingConfig(corridor.ENV_ID, learner, PROPORTIONAL, 60)
    started = Run(config, SEEDS, HookList(config, SEEDS, [Richer()]))
    started.begin()
    for _ in range(60):
        training.turn(started)
    ids = np.broadcast_to(np.arange(60), (3, 60))
    mass = (
        np.abs(started.agents.probe(started.replay.as_batch(ids)).td_error) + 0.01
    ) ** 0.7  # nothing was learned yet
    np.testing.assert_allclose(started.replay.probabilities(ids), mass / mass.sum(1, keepdims=True), rtol=1e-4)
