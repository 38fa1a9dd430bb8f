"""Measures beside training: they touch nothing, and are what the slow way finds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from replaylab import measures
from replaylab.errors import ConfigError, IdError
from replaylab.learners import DQN, ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import (
    Combined,
    EpisodeEnds,
    Field,
    NStep,
    Online,
    Prioritized,
    ReplayBuffer,
    ShuffledEpochs,
    Uniform,
)
from replaylab.research import Blocks
from tests.learners.calls import train
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of
from tests.learners.dqn.on_device import on_device

SMALL = DQN(hidden=(8,), batch_size=8, learning_starts=16, capacity=150, gamma=0.9)
EVERY = 40
NAMES = {
    "effective_batch_size", "gradient_variance", "gradient_variance_uniform", "same_episode_share", "smallest_gap",
    "duplicate_share", "autocorrelation_time", "row_correlation_excess", "energy_distance", "legacy_correlated_pairs",
    "sampling_evenness", "weight_effective_size", "drawn_age_mean", "never_replayed_share", "replay_gini",
    "end_share", "terminated_share", "steps_to_end_mean", "td_error_mean",
    "td_error_median", "td_error_max", "td_error_std", "td_error_percentile", "td_error_gap",
}  # fmt: skip


def run(sampler, learner=SMALL, env_id="CartPole-v1", seeds=(0, 1), steps=200, **more):
    more = {"eval_every": 100, "eval_episodes": 1, "log_every": 50} | more
    torch.manual_seed(0)
    budget = {} if "total_episodes" in more else {"total_steps": steps}
    return train(env_id, learner, sampler, list(seeds), **budget, **more)


def rows(metrics, *, measured):
    """All rows but the measures', or the measures' alone, as tuples."""
    names = {f"replay/{name}" for name in NAMES}
    table = zip(*(column.tolist() for column in metrics.columns.values()), strict=True)
    return [repr(row) for row in table if (row[2] in names) == measured]


def with_dropout(space, actions):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, actions))


@pytest.mark.parametrize(
    ("sampler", "more"),
    [
        (Prioritized(), {}),
        (ShuffledEpochs(), {}),
        (Combined(), {"transforms": [NStep(3, 0.9)]}),
        (Online(), {}),
        (Uniform(), {"env_id": "replaylab/BitFlip-v0", "transforms": [EnvHindsight()]}),
        (Uniform(), {"env_id": "CliffWalking-v1", "learner": Sarsa(batch_size=8, capacity=150), "eval_every": None}),
        (Prioritized(), {"steps": 120, "eval_every": None, "learner": replace(SMALL, module=with_dropout)}),
    ],
    ids=["prioritized", "epochs", "n-step", "online", "hindsight", "sarsa", "module"],
)  # fmt: skip
def test_measures_change_nothing(sampler, more):
    with_them, without = run(sampler, measure_every=EVERY, **more), run(sampler, **more)
    assert rows(with_them, measured=False) == rows(without, measured=False)
    assert len(rows(with_them, measured=True)) >= 3 * 2 * 10
    assert not rows(without, measured=True)


def test_every_measure_is_taken_at_every_look_and_repeats_itself():
    metrics = run(Prioritized(), measure_every=EVERY)
    for name in NAMES:
        steps, values = metrics.of(f"replay/{name}", seed=1)
        assert steps.tolist() == [40, 80, 120, 160, 200]
        assert np.isfinite(values).all(), name
    assert rows(metrics, measured=True) == rows(run(Prioritized(), measure_every=EVERY), measured=True)


def test_replicas_are_measured_as_if_alone():
    both, alone = run(Combined(), measure_every=EVERY), run(Combined(), seeds=[1], measure_every=EVERY)
    for name in NAMES:
        of_population, of_single = both.of(f"replay/{name}", seed=1), alone.of(f"replay/{name}")
        np.testing.assert_allclose(of_population[1], of_single[1], rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_resumed_run_measures_what_an_unbroken_one_does(tmp_path):
    unbroken = run(Prioritized(), measure_every=EVERY, save=tmp_path, save_every=150)
    assert rows(run(Prioritized(), measure_every=EVERY, resume=tmp_path), measured=True) == rows(
        unbroken, measured=True
    )


def test_terminated_rows_are_counted_without_truncated_ones():
    """CartPole ends by termination only here, MountainCar by truncation only."""
    shares = {
        env_id: [
            run(EpisodeEnds(0.5, truncated=True), env_id=env_id, measure_every=300, steps=600).of(f"replay/{name}")[1]
            for name in ("end_share", "terminated_share")
        ]
        for env_id in ("CartPole-v1", "MountainCar-v0")
    }
    np.testing.assert_allclose(*shares["CartPole-v1"])
    ends, terminated = shares["MountainCar-v0"]
    assert ends.max() > 0.3
    assert (terminated == 0).all()


def test_replicas_that_finish_early_change_no_others_measures():
    learner = QLearning(batch_size=8, capacity=150)
    more = {
        "learner": learner,
        "env_id": "CliffWalking-v1",
        "total_episodes": 3,
        "measure_every": EVERY,
        "log_every": 3,
        "eval_every": None,
    }
    both, alone = run(Uniform(), **more), run(Uniform(), seeds=[1], **more)
    for name in ("same_episode_share", "td_error_mean", "never_replayed_share"):
        np.testing.assert_allclose(both.of(f"replay/{name}", seed=1)[1], alone.of(f"replay/{name}")[1])


@pytest.fixture(scope="module")
def long():
    """A run of each of some dials, of weights that hardly move."""
    learner = replace(SMALL, capacity=5_000, batch_size=32, learning_starts=1_000, train_period=4, learning_rate=1e-9)
    more = {"learner": learner, "env_id": "MountainCar-v0", "steps": 2_400, "seeds": range(4), "eval_every": None}
    samplers = {"uniform": Uniform(), "blocks": Blocks(32), "prioritized": Prioritized()}
    samplers |= {"ends": EpisodeEnds(0.5, truncated=True)}
    return {name: run(sampler, measure_every=200, **more) for name, sampler in samplers.items()}


def mean(metrics, name):
    return metrics.of(f"replay/{name}")[1].mean()


def test_uniform_draws_measure_as_uniform(long):
    """Bounds of 5 standard errors of the 28 looks at hand."""
    for name, truth in {"td_error_percentile": 50, "energy_distance": 0, "row_correlation_excess": 0}.items():
        values = long["uniform"].of(f"replay/{name}")[1]
        assert abs(values.mean() - truth) < 5 * values.std() / np.sqrt(len(values)), name
    assert mean(long["uniform"], "sampling_evenness") == pytest.approx(1)
    assert mean(long["uniform"], "weight_effective_size") == 32
    ratio = mean(long["uniform"], "gradient_variance_uniform") / mean(long["uniform"], "gradient_variance")
    assert ratio == pytest.approx(1, abs=0.3)


def test_the_dials_show(long):
    assert mean(long["blocks"], "same_episode_share") > 0.8 > 0.2 > mean(long["uniform"], "same_episode_share")
    assert mean(long["blocks"], "smallest_gap") == 1
    for name, ends, steps in (("uniform", 1 / 200, 99.5), ("ends", 0.5 + 0.5 / 200, 99.5 * 0.5 / 0.985)):
        assert mean(long[name], "end_share") == pytest.approx(ends, rel=0.1, abs=0.002)
        assert mean(long[name], "steps_to_end_mean") == pytest.approx(steps, rel=0.05)
    alike = mean(long["blocks"], "gradient_variance") / mean(long["blocks"], "gradient_variance_uniform")
    assert alike > 2.5
    assert mean(long["blocks"], "row_correlation_excess") > 0.03
    assert mean(long["prioritized"], "td_error_percentile") > mean(long["uniform"], "td_error_percentile") + 0.3
    assert mean(long["prioritized"], "sampling_evenness") < 1 - 1e-6
    for metrics in long.values():
        assert set(metrics.of("replay/legacy_correlated_pairs")[1]) == {32 * 31 / 2}


MAKERS = {
    "perceptron": lambda: DQN(hidden=(5,), loss="squared", max_grad_norm=0.01).agents(BOX, ACTIONS, [0, 1]),
    "module": lambda: on_device(DQN(hidden=(5,), max_grad_norm=0.01), BOX, ACTIONS, [0, 1]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_probe_is_autograds_gradient_row_by_row(make):
    """The mean gradient is the mean of the rows' own, each by itself; and the measure is brute force's."""
    agents = make()
    before = agents.state()
    batches = [batch_of(2, seed=seed) for seed in range(4)]
    probes = [agents.probe(batch) for batch in batches]
    for batch, probe in zip(batches, probes, strict=True):
        single = [agents.probe(type(batch)({k: v[:, b : b + 1] for k, v in batch.items()})) for b in range(8)]
        np.testing.assert_allclose(probe.gradient, np.mean([s.gradient for s in single], 0), atol=1e-6)
        np.testing.assert_allclose(probe.td_error, np.concatenate([s.td_error for s in single], 1), atol=1e-6)
    gradients = np.stack([probe.gradient for probe in probes], 1).astype(float)
    variance = ((gradients - gradients.mean(1, keepdims=True)) ** 2).sum((1, 2)) / 3
    np.testing.assert_allclose(measures.total_variance(p.gradient for p in probes), variance)
    for name, array in agents.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    np.testing.assert_allclose(agents.update(batches[0]).td_error, probes[0].td_error, atol=1e-6)


def test_a_perceptrons_probe_is_the_modules():
    settings = DQN(hidden=(6, 5), dueling=True)
    core, module = settings.agents(BOX, ACTIONS, [3]), on_device(settings, BOX, ACTIONS, [3])
    by_core, by_module = core.probe(batch_of(1)), module.probe(batch_of(1))
    np.testing.assert_allclose(np.sort(by_core.gradient), np.sort(by_module.gradient), atol=1e-5)
    np.testing.assert_allclose(by_core.td_error, by_module.td_error, atol=1e-5)


@pytest.mark.parametrize("kind", [QLearning, ExpectedSarsa, Sarsa])
def test_a_tables_gradient_has_each_cells_weighted_errors(kind):
    from gymnasium import spaces

    agents = kind(batch_size=8, initial_std=1.0).agents(spaces.Discrete(6, start=2), spaces.Discrete(3), [0, 1])
    rng = np.random.default_rng(0)
    batch = batch_of(2, obs=rng.integers(2, 8, (2, 8)), next_obs=rng.integers(2, 8, (2, 8)))
    before = agents.state()
    probe = agents.probe(batch)
    slow = np.zeros((2, 6, 3))
    for r in range(2):
        for b in range(8):
            slow[r, batch.obs[r, b] - 2, batch.action[r, b]] -= batch.weight[r, b] * probe.td_error[r, b] / 8
    np.testing.assert_allclose(probe.gradient.reshape(slow.shape), slow)
    for name, array in agents.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_steps_as_a_batch_leave_no_trace():
    fields = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,))}
    fields |= {name: Field((), bool) for name in ("terminated", "truncated")}

    def draws(look):
        buffer = ReplayBuffer(50, fields, transforms=[NStep(3, 0.5)], seed=0, count_replays=True)
        for t in range(60):
            step = {"obs": [t, 0], "next_obs": [t + 1, 0], "terminated": t % 10 == 0, "truncated": False}
            buffer.add(reward=float(t), **step)
        seen = buffer.as_batch([20, 27]) if look else None
        return seen, buffer.sample(16), buffer.stats()

    seen, batch, stats = draws(look=True)
    _, same, same_stats = draws(look=False)
    np.testing.assert_array_equal(batch.id, same.id)
    assert stats.samples == same_stats.samples
    assert stats.mean_replays == same_stats.mean_replays
    assert seen.reward.tolist() == [20.0, 27 + 28 / 2 + 29 / 4]
    assert seen.discount.tolist() == [0.0, 0.125]
    assert seen.weight.tolist() == [1.0, 1.0]
    with pytest.raises(IdError):
        ReplayBuffer(5, fields, seed=0).as_batch([0])


def test_a_period_must_be_positive_and_0_is_never():
    with pytest.raises(ConfigError, match="`measure_every` of TrainingConfig must be at least 0, but got -1"):
        run(Uniform(), measure_every=-1)
    assert not rows(run(Uniform(), measure_every=0), measured=True)
