"""Studies of Stable-Baselines3's algorithms: each seed its own run, the same rows and the same report."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, SpecError
from replaylab.learners import TrainingConfig, train
from replaylab.replay import Uniform
from replaylab.study import Spec, Study
from replaylab.study.execution.local.in_process import InProcess
from replaylab.study.execution.reporter import Reporter
from replaylab.study.execution.worker import perform as worker
from replaylab.study.report import methods
from tests.study.tiny import study, table

pytest.importorskip("stable_baselines3")

SMALL = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16, "buffer_size": 1_000}
DQN = {"type": "sb3", "algorithm": "DQN", "arguments": SMALL | {"learning_starts": 40}}
SAC = {"type": "sb3", "algorithm": "SAC", "arguments": SMALL | {"learning_starts": 80}}
SHORT = {
    "seeds": 2,
    "budget": {"steps": 100},
    "evaluation": {"every": 50, "episodes": 1},
    "measures": {"every": 50},
}
LIMIT = {"max_episode_steps": 50}
"""So that an episode ends within the budget."""


def study_of(folder, learner, environment="CartPole-v1", **changes):
    return study(folder, **SHORT | {"learners": {"theirs": learner}, "environments": [environment]} | changes)


@pytest.mark.parametrize(("learner", "environment"), [(DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_a_study_of_their_algorithms(learner, environment, tmp_path):
    sb3_study = study_of(tmp_path, learner, environment, chunk_size=10, env_options={environment: LIMIT})
    assert [chunk.seeds for chunk in sb3_study.chunks] == [(0,), (0,), (1,), (1,)]
    assert sb3_study.run(executor=InProcess()).complete
    rows = sb3_study.results().fetchnumpy()
    assert set(rows["strategy"]) == {"uniform", "prioritized"}
    assert {"eval/mean_reward", "rollout/ep_rew", "train/learning_rate", "replay/replay_gini"} <= set(rows["metric"])
    uniform = (rows["strategy"] == "uniform") & (rows["metric"] == "rollout/ep_rew") & (rows["seed"] == 1)
    learner_of_chunk = sb3_study.chunks[2].configuration().learner
    config = TrainingConfig(environment, learner_of_chunk, Uniform(), 100, eval_every=None, env_options=LIMIT)
    assert rows["value"][uniform].tolist() == train(config, [1]).of("rollout/ep_rew", seed=1)[1].tolist()
    assert Study.from_folder(tmp_path) == sb3_study
    assert sb3_study.run(executor=InProcess()).complete  # nothing is left to do
    assert sb3_study.curves()[0].values.shape == (2, 2)
    assert np.isfinite(sb3_study.curves()[0].values).all()
    assert "each seed is its own run" in methods.of(sb3_study).run[0]


def test_what_identifies_a_run(tmp_path):
    """All keyword arguments, those that were not given as well, and nothing else."""
    (plain, *_) = study_of(tmp_path, DQN).chunks
    arguments = DQN["arguments"]
    assert plain.learner_part.options["arguments"]["target_update_interval"] == 10_000
    assert plain.learner_part.options["code"] == ""
    spelled = DQN | {"policy": "MlpPolicy", "arguments": arguments | {"target_update_interval": 10_000, "tau": 1.0}}
    assert study_of(tmp_path, spelled).chunks[0].id == plain.id
    changed = DQN | {"arguments": arguments | {"tau": 0.5}}
    assert study_of(tmp_path, changed).chunks[0].id != plain.id
    assert study_of(tmp_path, DQN | {"arguments": {"learning_rate": 1e-4, **arguments}}).chunks[0].id == plain.id


def test_a_strategy_may_change_some_arguments(tmp_path):
    n_step = {"type": "uniform", "transforms": [{"type": "n_step", "steps": 3}]}
    strategies = {
        "uniform": {"type": "uniform"},
        "other": n_step | {"learner": {"arguments": {"gamma": 0.9, "train_freq": 2}}},
    }
    sb3_study = study_of(tmp_path, DQN, strategies=strategies)
    arguments = sb3_study.chunks[1].learner_part.options["arguments"]
    assert (arguments["gamma"], arguments["train_freq"], arguments["batch_size"]) == (0.9, 2, 16)
    assert sb3_study.chunks[1].transforms[0].options["gamma"] == 0.9


def test_how_long_it_takes(tmp_path):
    sb3_study = study_of(tmp_path, DQN, seeds=1, strategies={"uniform": {"type": "uniform"}})
    estimate = sb3_study.estimate(executor=InProcess(), seconds=0.01)
    assert not estimate.failing
    assert estimate.seconds[0] > 0


def test_a_custom_algorithm_with_a_custom_loop(tmp_path):
    learner = {"type": "tests.learners.training.whole:RandomWalk"}
    sb3_study = study_of(
        tmp_path, learner, chunk_size=2, measures={"every": 0}, strategies={"uniform": {"type": "uniform"}}
    )
    assert [chunk.seeds for chunk in sb3_study.chunks] == [(0, 1)]
    assert sb3_study.run(executor=InProcess(), checkpoint_every=0.0).complete
    assert set(sb3_study.results().fetchnumpy()["seed"]) == {0, 1}


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ({"algorithm": "PPO"}, "study: `learners.theirs`: `algorithm` must be DQN, DDPG, TD3"),
        ({"algorithm": "DQN", "policy": "Mlp"}, "study: `learners.theirs`: `policy` of DQN must be one of MlpPolicy"),
        (
            {"algorithm": "DQN", "arguments": {"gama": 0.9}},
            "study: `learners.theirs`: `arguments` of DQN .* got 'gama'",
        ),
        ({"algorithm": "DQN", "gamma": 0.9}, "study: unknown key `learners.theirs.gamma`"),
        ({}, "study: `learners.theirs` needs `algorithm`"),
    ],
)
def test_what_no_file_may_say(learner, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_table(table(learners={"theirs": {"type": "sb3"} | learner}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": ["Pendulum-v1"]}, "cannot be run: DQN cannot be made for Pendulum-v1"),
        ({"budget": {"episodes": 200}}, "cannot be run: the budget of DQN must be in steps"),
        ({"evaluation": {"every": 100, "held_out": 3}}, r"cannot be run: `held_out` needs Q\(s, a\)"),
        ({"strategies": {"uniform": {"type": "laber"}}}, "asks the library's own learners"),
        ({"strategies": {"uniform": {"type": "relo"}}}, "wants the loss under the target network"),
    ],
)
def test_what_no_run_can_do(changes, message, tmp_path):
    sb3_study = study(tmp_path, **SHORT | {"learners": {"theirs": DQN}} | changes)
    with pytest.raises((SpecError, ConfigError), match=message):
        sb3_study.run(executor=InProcess())


@pytest.mark.slow
def test_a_placebo_for_their_algorithms(tmp_path, monkeypatch):
    """Seeds that learn from each other's draws are one chunk; progress and the estimate know it.

    Tapes of these algorithms are also tested in tests/learners/sb3/test_tapes.py.
    """
    monkeypatch.setattr(worker, "_REPORT_SECONDS", 0.0)  # however fast the machine is
    strategies = {"td": {"type": "prioritized", "beta": 0.0}, "placebo": {"type": "tape", "of": "td"}}
    changes = {"strategies": strategies, "baseline": "td", "seeds": 4, "chunk_size": 2}
    changes |= {"budget": {"steps": 120}, "evaluation": {"every": 120, "episodes": 1}}  # more than once reported
    changes["measures"] = {"every": 60}
    sb3_study = study_of(tmp_path, DQN, **changes)
    assert [chunk.seeds for chunk in sb3_study.chunks] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert sb3_study.estimate(executor=InProcess(), seconds=0.01).seconds[0] > 0
    reported = Steps()
    assert sb3_study.run(executor=InProcess(), reporter=reported).complete
    assert all(steps == sorted(steps) and steps[-1] == 120 for steps in reported.steps.values())
    rows = sb3_study.results().fetchnumpy()
    ages = rows["metric"] == "replay/drawn_age_mean"
    by_run = {
        (strategy, seed): rows["value"][ages & (rows["strategy"] == strategy) & (rows["seed"] == seed)]
        for strategy in strategies
        for seed in range(4)
    }
    for seed, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        np.testing.assert_array_equal(by_run["placebo", seed], by_run["td", other])
        assert np.isfinite(by_run["td", seed][-2:]).all()
        assert not np.array_equal(by_run["td", seed][-2:], by_run["td", other][-2:])


class Steps(Reporter):
    """Keeps the progress of every chunk."""

    def __init__(self):
        self.steps = {}

    def progress(self, chunk, step):
        self.steps.setdefault(chunk.id, []).append(step)
