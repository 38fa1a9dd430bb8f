"""A custom algorithm that shows what it replays, and what its TD errors are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Probe, ProbedModel, ReplayedModel, TrainingConfig, train
from replaylab.replay import Field, ReplayBuffer, Uniform

FIELDS = {
    "obs": Field((4,), np.float32), "action": Field((), np.int64), "reward": Field((), np.float32),
    "next_obs": Field((4,), np.float32), "terminated": Field((), np.bool_), "truncated": Field((), np.bool_),
}  # fmt: skip


class Shown:
    newest_batch = None

    def __init__(self, seed):
        self.replay = ReplayBuffer(500, FIELDS, num_envs=1, sampler=Uniform(), count_replays=True, seed=seed)

    def act(self, obs, explore):
        return np.ones(obs.shape[:2], np.int64)

    def numbers(self):
        return {"train/updates": 0}


class Evaluated(Shown):
    newest_td_error = None

    def probe(self, batch):
        """δ is the first of an observation's numbers."""
        error = batch.obs[..., 0]
        return Probe(error, (batch.weight * error).mean(1, keepdims=True))


@dataclass(frozen=True)
class Own:
    kind: type
    fed: Any = None

    def train(self, run):
        env, model = run.make_env(), self.kind(run.seed)
        run.begin(model)
        obs, _ = env.reset(seed=run.seed)
        for _ in range(run.configuration.total_steps):
            after, reward, terminated, truncated, _ = env.step(np.int64(1))
            model.replay.add(
                obs=obs[None],
                action=np.ones(1, np.int64),
                reward=np.float32([reward]),
                next_obs=after[None],
                terminated=np.array([terminated]),
                truncated=np.array([truncated]),
            )
            obs = env.reset()[0] if terminated or truncated else after
            model.newest_batch = model.replay.sample(8)
            run.drawn(model.newest_batch)
            if self.fed is not None:
                model.newest_td_error = self.fed if np.ndim(self.fed) else np.full(8, self.fed)

    def early(self):
        return self, 1


def measured(learner, **settings):
    settings = {"eval_every": None, "measure_every": 40, "total_steps": 120} | settings
    return train(TrainingConfig("CartPole-v1", learner, Uniform(), **settings), [0, 4])


def test_measures_of_what_it_shows():
    assert isinstance(Shown(0), ReplayedModel)
    assert not isinstance(Shown(0), ProbedModel)
    names = set(measured(Own(Shown)).columns["metric"])
    assert "replay/same_episode_share" in names
    assert "replay/td_error_mean" not in names


def test_measures_of_its_td_errors():
    assert isinstance(Evaluated(0), ProbedModel)
    plain, fed = measured(Own(Evaluated)), measured(Own(Evaluated, fed=-0.25))
    steps, mean = fed.of("replay/td_error_mean", seed=4)
    assert steps.tolist() == [40, 80, 120]
    assert (mean > 0).all()
    assert (mean < 0.3).all()
    np.testing.assert_allclose(fed.of("replay/td_error_gap", seed=4)[1], mean - 0.25, rtol=1e-6)
    for name in ("td_error_mean", "effective_batch_size", "td_error_percentile"):
        np.testing.assert_array_equal(plain.of(f"replay/{name}", seed=4)[1], fed.of(f"replay/{name}", seed=4)[1])
    assert "replay/td_error_gap" not in plain.columns["metric"]


def test_one_that_shows_nothing():
    @dataclass(frozen=True)
    class Hidden(Own):
        def train(self, run):
            run.make_env()
            run.begin(Policy())

    class Policy:
        act, numbers = Shown.act, Shown.numbers

    with pytest.raises(ConfigError, match="`measure_every` must be None with Hidden, which does not show what it rep"):
        measured(Hidden(Shown))


def test_what_is_said_wrongly():
    with pytest.raises(ConfigError, match=r"`newest_td_error` of Evaluated must have .* 8 rows .* has shape \(7,\)"):
        measured(Own(Evaluated, fed=np.ones(7)))

    class Pair(Evaluated):
        def probe(self, batch):
            return batch.obs[..., 0], batch.obs[..., 0]

    with pytest.raises(ConfigError, match=r"`probe` of Pair must return a Probe with `td_error` \(1, 8\), .* but"):
        measured(Own(Pair))
    with pytest.raises(ConfigError, match=r"`measure_every` .*must be 2 or more steps"):
        measured(Own(Shown), measure_every=1)
