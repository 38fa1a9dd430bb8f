import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.replay import Combined, Linear, Online, Prioritized, ReplayBuffer, SlidingWindow, Uniform
from tests.learners.calls import train
from tests.learners.tabular import corridor

QUICK = DQN(
    hidden=(16,),
    batch_size=8,
    learning_starts=50,
    capacity=1_000,
    target_period=20,
    epsilon=Linear(1.0, 0.05, until=0.5),
)
SAMPLERS = [Online(), SlidingWindow(), Uniform(), Combined(), Combined("replace"), Prioritized()]
MODES = list(AutoresetMode)
ENVS = ["CartPole-v1", corridor.ENV_ID]


def run(sampler=None, seeds=(3, 4), steps=200, env_id="CartPole-v1", learner=QUICK, **options):
    return train(env_id, learner, sampler or Uniform(), seeds, steps, **({"eval_every": None} | options))


def same(left, right, **tolerance):
    assert left.columns.keys() == right.columns.keys() == {"seed", "step", "metric", "value"}
    for name in ("seed", "step", "metric"):
        np.testing.assert_array_equal(left.columns[name], right.columns[name])
    np.testing.assert_allclose(left.columns["value"], right.columns["value"], **({"rtol": 0} | tolerance))


def stored(buffer, r):
    return {name: column[r][: buffer.size[r]] for name, column in buffer.columns.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ENVS)
def test_what_is_stored_is_what_happened(buffers, mode, env_id):
    """The stored steps are those of the single environment of the same seed, taking the same actions."""
    seeds = [3, 4, 9]
    metrics = run(seeds=seeds, steps=300, env_id=env_id, autoreset_mode=mode)
    for r, seed in enumerate(seeds):
        steps = stored(buffers[0], r)
        env = gym.make(env_id)
        obs, _ = env.reset(seed=numbers(seed, Stream.ENV_RESET, 1)[0])
        returns = [0.0]
        for t in range(len(steps["action"])):
            np.testing.assert_array_equal(steps["obs"][t], obs)
            obs, reward, terminated, truncated, _ = env.step(steps["action"][t])
            np.testing.assert_array_equal(steps["next_obs"][t], obs)
            assert (steps["reward"][t], steps["terminated"][t], steps["truncated"][t]) == (
                reward,
                terminated,
                truncated,
            )
            returns[-1] += reward
            if terminated or truncated:
                obs, _ = env.reset()
                returns.append(0.0)
        ends = len(returns) - 1
        assert ends > 5
        idle = 300 - len(steps["action"])  # a turn of the loop that only starts an episode
        last = steps["terminated"][-1] or steps["truncated"][-1]
        assert idle in ({ends - last, ends} if mode is AutoresetMode.NEXT_STEP else {0})
        np.testing.assert_allclose(metrics.of("rollout/ep_rew", seed)[1], returns[:-1])
        lengths = np.diff(np.flatnonzero(np.r_[True, steps["terminated"] | steps["truncated"]]))
        np.testing.assert_array_equal(metrics.of("rollout/ep_len", seed)[1], lengths)


@pytest.mark.parametrize("env_id", ENVS)
def test_modes_without_idle_steps_agree_where_both_ends_occur(buffers, env_id):
    runs = [run(env_id=env_id, autoreset_mode=mode) for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)]
    same(*runs)
    for r in range(2):
        left, right = (stored(buffer, r) for buffer in buffers)
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
        if env_id == corridor.ENV_ID:
            assert left["terminated"].any()
            assert (left["truncated"] & ~left["terminated"]).any()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_run_repeats_itself(sampler):
    options = {"eval_every": 100, "eval_episodes": 2, "log_every": 50}
    same(run(sampler, **options), run(sampler, **options))


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized()], ids=str)
def test_a_population_equals_its_single_runs(sampler):
    """100 updates, from acting to feedback; rounding may differ, so values agree to 1e-5."""
    seeds = [8, 1, 5]
    options = {"steps": 149, "log_every": 10, "eval_every": 60, "eval_episodes": 2}
    together = run(sampler, seeds=seeds, **options)
    for seed in seeds:
        alone = run(sampler, seeds=[seed], **options)
        rows = together.columns["seed"] == seed
        for name in ("step", "metric"):
            np.testing.assert_array_equal(together.columns[name][rows], alone.columns[name])
        np.testing.assert_allclose(together.columns["value"][rows], alone.columns["value"], rtol=1e-5, atol=1e-5)


def test_seeds_pair_across_samplers(buffers, monkeypatch):
    """Until learning starts, runs of one seed are equal; later they explore by the same draws."""
    weights, draws = [], []
    init, block = PerceptronAgents.__init__, EpsilonGreedy.__call__

    def spy_init(self, *args):
        init(self, *args)
        weights.append(self.core.online.copy())

    def spy_call(self, q, epsilon):
        action = block(self, q, epsilon)
        draws.append(self._draws[self._next - 1].copy())
        return action

    monkeypatch.setattr(PerceptronAgents, "__init__", spy_init)
    monkeypatch.setattr(EpsilonGreedy, "__call__", spy_call)
    for sampler in SAMPLERS:
        run(sampler, steps=120)
    for w in weights[1:]:
        np.testing.assert_array_equal(w, weights[0])
    traces = np.array(draws).reshape(len(SAMPLERS), 120, 2, 2)
    np.testing.assert_array_equal(traces, np.broadcast_to(traces[0], traces.shape))
    first = buffers[0]
    for buffer in buffers[1:]:
        for name, column in buffer.columns.items():
            np.testing.assert_array_equal(column[:, :49], first.columns[name][:, :49])


def test_feedback_goes_back_only_where_it_is_wanted(monkeypatch):
    calls = []
    update = ReplayBuffer.update_priorities
    monkeypatch.setattr(
        ReplayBuffer,
        "update_priorities",
        lambda self, ids, td: calls.append((self.sampler, ids.shape, td.shape)) or update(self, ids, td),
    )
    for sampler in SAMPLERS:
        run(sampler, steps=60)
    assert calls == [(Prioritized(), (2, 8), (2, 8))] * 11


def test_epsilon_and_beta_follow_training_progress(monkeypatch):
    seen, sampled = [], []
    call, sample = EpsilonGreedy.__call__, ReplayBuffer.sample
    monkeypatch.setattr(EpsilonGreedy, "__call__", lambda s, q, e: seen.append(e) or call(s, q, e))
    monkeypatch.setattr(
        ReplayBuffer,
        "sample",
        lambda s, n, progress: sampled.append(progress) or sample(s, n, progress=progress),
    )
    learner = replace(QUICK, epsilon=Linear(1.0, 0.2, until=0.5), train_period=10)
    metrics = run(Prioritized(), learner=learner, steps=100, log_every=30)
    np.testing.assert_allclose(seen[:51], 1.0 - 0.8 * np.arange(1, 52).clip(max=50) / 50)
    np.testing.assert_allclose(seen[50:], 0.2)
    np.testing.assert_allclose(sampled, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    steps, values = metrics.of("rollout/exploration_rate", 3)
    np.testing.assert_array_equal(steps, [50, 60, 90])
    np.testing.assert_allclose(values, 0.2)


def test_the_metrics_of_a_run():
    metrics = run(Combined(), steps=200, log_every=100, eval_every=150, eval_episodes=2)
    for name, steps in {
        "train/loss": [100, 200],
        "train/q_mean": [100, 200],
        "train/td_error_mean": [100, 200],
        "train/td_error_median": [100, 200],
        "train/td_error_max": [100, 200],
        "train/td_error_std": [100, 200],
        "rollout/exploration_rate": [100, 200],
        "replay/age_mean": [100, 200],
        "replay/weight_mean": [100, 200],
        "eval/mean_reward": [150, 200],
        "eval/mean_ep_length": [150, 200],
    }.items():
        for seed in (3, 4):
            got, values = metrics.of(name, seed)
            np.testing.assert_array_equal(got, steps, err_msg=name)
            assert np.isfinite(values).all()
    np.testing.assert_array_equal(metrics.of("train/updates", 3)[1], [51, 151])
    np.testing.assert_array_equal(metrics.of("replay/transitions_replayed", 3)[1], [51 * 9, 151 * 9])
    np.testing.assert_array_equal(metrics.of("eval/mean_reward")[1], metrics.of("eval/mean_ep_length")[1])
    assert len(metrics) == len(metrics.columns["value"])
    assert metrics.of("replay/age_mean", 3)[1][1] > 20


def test_online_replay_looks_at_the_newest_step_only():
    metrics = run(Online(), steps=100, log_every=10)
    assert not metrics.of("replay/age_mean")[1].any()


def test_the_callers_functions_are_reported():
    steps, numbers_seen = [], []
    run(
        steps=250,
        log_every=200,
        eval_every=250,
        eval_episodes=1,
        progress=steps.append,
        on_metrics=lambda step, values: numbers_seen.append((step, values)),
    )
    assert steps == [100, 200, 250]
    means = {"rollout/ep_rew_mean", "rollout/ep_len_mean"}
    assert numbers_seen[0][1].keys() == means, "an episode ends before the first update"
    numbers_seen = [(step, values) for step, values in numbers_seen if values.keys() != means]
    assert [step for step, _ in numbers_seen] == [200, 250]
    assert numbers_seen[0][1]["train/loss"].shape == (2,)
    assert numbers_seen[1][1].keys() == {"eval/mean_reward", "eval/mean_ep_length"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"env_id": "Blackjack-v1"}, "observations must be in a Box, Discrete, MultiDiscrete or MultiBinary space"),
        ({"seeds": []}, "`seeds` must be one or more different whole numbers from 0 on, but got []"),
        ({"seeds": [1, 1]}, "`seeds` must be one or more different whole numbers from 0 on, but got [1, 1]"),
        ({"seeds": [-1]}, "`seeds` must be one or more different whole numbers from 0 on, but got [-1]"),
    ],
)
def test_a_bad_call_is_reported_before_anything_runs(call, message, monkeypatch):
    monkeypatch.setattr(PerceptronAgents, "update", lambda *_: pytest.fail("training began"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(**call)
