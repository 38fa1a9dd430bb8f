"""Algorithms of Stable-Baselines3 in training: theirs bit for bit, paired across samplers, and what is refused."""

import sys
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as library
import torch

from replaylab.errors import ConfigError, MissingExtraError
from replaylab.integrations.sb3 import ReplayLabBuffer
from replaylab.learners import SB3, Hook, TrainingConfig, train
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.learners.training.preflight import check_trainable
from replaylab.replay import FrameStack, NStep, Prioritized, Queue, RankBased, Sequence, Uniform

OWN = f"{__package__}.own_algorithms"
SMALL = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16, "buffer_size": 1_000}
CARTPOLE = ("DQN", "CartPole-v1", SMALL | {"learning_starts": 60, "train_freq": 4})
OU = {"type": "ornstein_uhlenbeck", "sigma": 0.1}
FROM_ONE, SEEN_FROM_ONE = "FromOne-v0", "SeenFromOne-v0"
gym.register(
    FROM_ONE,
    lambda: gym.wrappers.TransformAction(gym.make("CartPole-v1"), lambda a: a - 1, gym.spaces.Discrete(2, start=1)),
)
gym.register(
    SEEN_FROM_ONE,
    lambda: gym.wrappers.TransformObservation(
        gym.make("CliffWalking-v1"), lambda s: s + 1, gym.spaces.Discrete(48, start=1)
    ),
)
PENDULUM = ("SAC", "Pendulum-v1", SMALL | {"learning_starts": 170})


class Seen(Hook):
    """Keeps what the first weights were, what was seen and done, and the last weights."""

    def on_begin(self, run):
        self.first, self.steps = self._weights(run), []

    def on_step(self, run, step, ids):
        self.steps.append((step.obs[0], step.action[0], step.reward[0]))

    def on_end(self, run, over):
        self.last, self.updates = self._weights(run), run.agents.updates
        self.next_draws = np.random.random(), torch.rand(1).item()  # noqa: NPY002 - the algorithm's own streams

    def _weights(self, run):
        return [parameter.detach().numpy().copy() for parameter in run.agents.model.policy.parameters()]


def run(algorithm, env_id, arguments, sampler, steps, seed=3, **settings):
    seen = Seen()
    settings = {"eval_every": steps // 2, "eval_episodes": 1, "log_every": 50, "measure_every": 80} | settings
    config = TrainingConfig(env_id, SB3(algorithm, arguments=arguments), sampler, steps, **settings)
    return train(config, [seed], [seen]), seen


@pytest.mark.parametrize(("algorithm", "env_id", "arguments", "steps"), [(*CARTPOLE, 400), (*PENDULUM, 210)])
def test_a_uniform_run_is_the_librarys_own(algorithm, env_id, arguments, steps):
    """Evaluations, measures and records change nothing of it."""
    metrics, seen = run(algorithm, env_id, arguments, Uniform(), steps)
    bare = getattr(library, algorithm)(
        "MlpPolicy",
        env_id,
        seed=3,
        device="cpu",
        replay_buffer_class=ReplayLabBuffer,
        replay_buffer_kwargs={"sampler": Uniform()},
        **deepcopy(arguments),  # the library writes into policy_kwargs
    )
    bare.learn(steps)
    (monitor,) = bare.env.envs
    ends, returns = metrics.of("rollout/ep_rew", seed=3)
    assert len(returns) >= 1
    assert returns.tolist() == monitor.get_episode_rewards()
    assert ends.tolist() == np.cumsum(monitor.get_episode_lengths()).tolist()
    assert metrics.of("rollout/ep_len", seed=3)[1].tolist() == monitor.get_episode_lengths()
    for last, other in zip(seen.last, bare.policy.parameters(), strict=True):
        assert (last == other.detach().numpy()).all()
    assert metrics.of("eval/mean_reward", seed=3)[0].tolist() == [steps // 2, steps]
    assert seen.updates == bare._n_updates > 0


def test_seeds_are_paired_across_samplers():
    """The same first weights, first state and warm-up actions; then as many random numbers, drawn in the same order."""
    algorithm, env_id, arguments = CARTPOLE
    per_sampler = [run(algorithm, env_id, arguments, sampler, 120)[1] for sampler in (Uniform(), Prioritized(beta=0.4))]
    other = run(algorithm, env_id, arguments, Uniform(), 120, seed=4)[1]
    assert all((a == b).all() for a, b in zip(per_sampler[0].first, per_sampler[1].first, strict=True))
    assert not all((a == b).all() for a, b in zip(per_sampler[0].first, other.first, strict=True))
    assert not all((a == b).all() for a, b in zip(per_sampler[0].last, per_sampler[1].last, strict=True))
    assert per_sampler[0].next_draws == per_sampler[1].next_draws
    warm = arguments["learning_starts"]
    for (obs, action, _), (obs_too, action_too, _) in zip(
        *(metrics.steps[:warm] for metrics in per_sampler), strict=True
    ):
        assert (obs == obs_too).all()
        assert action == action_too


def test_what_is_recorded():
    metrics, _ = run(*CARTPOLE, RankBased(beta=0.4), 240, transforms=[NStep(3, gamma=0.99)])
    assert set(metrics.columns["metric"]) >= {
        *("train/loss", "train/td_error_mean", "train/learning_rate", "rollout/exploration_rate"),
        *("replay/size", "replay/weight_mean", "replay/age_mean", "replay/transitions_replayed"),
        *("replay/sampling_evenness", "replay/replay_gini", "replay/energy_distance", "replay/same_episode_share"),
    }
    assert np.isfinite(metrics.columns["value"]).all()
    steps, size = metrics.of("replay/size", seed=3)
    assert steps.tolist() == [100, 150, 200]
    assert size.tolist() == [100, 148, 200]  # the newest that was drawn from, at multiples of `train_freq`


def test_every_algorithm_by_name():
    for name in ("QRDQN", "DDPG", "TD3", "TQC", "CrossQ"):
        env_id = "CartPole-v1" if name == "QRDQN" else "Pendulum-v1"
        noise = {"action_noise": {"type": "normal", "sigma": 0.1}} if name in ("DDPG", "TD3") else {}
        learner = SB3(name, arguments=SMALL | noise)
        check_trainable(TrainingConfig(env_id, learner, Prioritized(beta=0.4), 10_000, measure_every=50))


def test_goals_with_hindsight():
    arguments = CARTPOLE[2] | {"gamma": 0.9}
    config = TrainingConfig(
        "replaylab/BitFlip-v0",
        SB3("DQN", "MultiInputPolicy", arguments),
        Prioritized(beta=0.4),
        120,
        transforms=[EnvHindsight(ratio=4), NStep(2, gamma=0.9)],
        env_options={"n": 4},
        eval_every=120,
        measure_every=40,
    )
    metrics = train(config, [0])
    assert metrics.of("eval/mean_reward", seed=0)[0].tolist() == [120]
    assert "replay/energy_distance" in metrics.columns["metric"]


def test_an_algorithm_of_ones_own():
    learner = SB3(f"{OWN}:Eager", arguments=CARTPOLE[2])
    assert (learner.arguments["eagerness"], learner.arguments["gamma"], learner.gamma) == (2.0, 0.9, 0.9)
    assert learner.arguments["tau"] == 1.0  # of the class that it is derived from
    assert len(learner.code) == 16
    config = TrainingConfig("CartPole-v1", learner, Prioritized(), 120, eval_every=None, log_every=100)
    metrics = train(config, [0, 5])
    assert metrics.of("train/eagerness", seed=5)[1].tolist() == [2.0]
    assert "train/unlisted" not in metrics.columns["metric"]
    assert set(metrics.columns["seed"]) == {0, 5}
    with pytest.raises(ConfigError, match=r"modules that .*:Eager and its arguments name have changed"):
        train(TrainingConfig("CartPole-v1", SB3(f"{OWN}:Eager", code="0" * 16), Uniform(), 100), [0])


def test_arguments_that_stand_for_objects():
    rate = {"type": "linear", "start": 0.01, "end": 0.0}
    activation = {"net_arch": [8], "activation_fn": "torch.nn:Tanh"}
    arguments = CARTPOLE[2] | {"learning_rate": rate, "train_freq": [2, "step"], "policy_kwargs": activation}
    metrics, _ = run("DQN", "CartPole-v1", arguments, Uniform(), 104)
    assert 0.0 < metrics.of("train/learning_rate", seed=3)[1][-1] < 0.001
    assert metrics.of("train/updates", seed=3)[1].tolist() == [0, 20]


class TestRefused:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"algorithm": "SCA"}, r"`algorithm` must be DQN, .*CrossQ or a custom \"module:Class\", but got 'SCA'"),
            ({"algorithm": "stable_baselines3:PPO"}, "must be an off-policy algorithm"),
            ({"algorithm": f"{OWN}:NOTHING"}, "must be an off-policy algorithm"),
            ({"algorithm": f"{OWN}:Absent"}, "has no 'Absent'"),
            ({"algorithm": "no_such_module:Absent"}, "no_such_module cannot be imported"),
            ({"policy": "MlpPolice"}, "`policy` of DQN must be one of MlpPolicy, CnnPolicy, MultiInputPolicy, but got"),
            ({"arguments": {"lerning_rate": 0.1}}, "`arguments` of DQN must be among .*, but got 'lerning_rate'"),
            ({"arguments": {"seed": 3}}, "`arguments` of DQN must not hold `seed`, which is the run's; leave it out"),
            ({"arguments": {"replay_buffer_kwargs": {"sampler": 1}}}, "must hold compressed, .* only"),
            ({"arguments": {"tau": object()}}, r"`arguments.tau` must be plain data"),
            ({"arguments": {"learning_rate": {"type": "cubic"}}}, r"`arguments.learning_rate.type` must be"),
            ({"arguments": {"learning_rate": {"type": "linear", "rise": 1}}}, "must be a schedule of type linear"),
            ({"arguments": {"policy_kwargs": {"activation_fn": "torch.nn:Tahn"}}}, "torch.nn has no 'Tahn'"),
            ({"algorithm": "TD3", "arguments": {"action_noise": {"type": "pink", "sigma": 1.0}}}, "type` must be"),
            ({"algorithm": "TD3", "arguments": {"action_noise": {"type": "normal"}}}, "sigma` must be"),
            ({"algorithm": "TD3", "arguments": {"action_noise": OU | {"theta": "x"}}}, "action_noise.theta` must be"),
            ({"algorithm": "SAC", "arguments": {"gamma": "a"}}, r"`arguments.gamma` must be in \[0, 1\], but got 'a'"),
        ],
    )
    def test_settings(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            SB3(**{"algorithm": "DQN"} | settings)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"total_steps": None, "total_episodes": 3}, "the budget of DQN must be in steps"),
            ({"autoreset_mode": "NextStep"}, "`autoreset_mode` must be None with DQN"),
            ({"env_id": "Pendulum-v1"}, r"DQN cannot be made for Pendulum-v1 .*AssertionError: The algorithm only"),
            ({"env_id": FROM_ONE}, r"FromOne-v0 must count from 0 for DQN, .* but got Discrete\(2, start=1\); wrap"),
            ({"env_id": SEEN_FROM_ONE}, r"observations of Seen.* must count from 0 for DQN, .*start=1\); wrap"),
            (
                {"learner": SB3("DQN", arguments={"n_steps": 2}), "transforms": [NStep(3, gamma=0.99)]},
                r"`arguments.n_steps` of DQN must be 3, as NStep\(3\) .* says, but got 2; leave one of them out",
            ),
            ({"held_out": 4}, r"`held_out` needs Q\(s, a\), which SB3 does not have; leave it out"),
            ({"visits": True}, "`visits` are counted of Discrete observations"),
            ({"transforms": [FrameStack(2)]}, r"`transforms` must be NStep, FrameStack\(stacked_input=True\)"),
            ({"env_options": {"nonsense": 1}}, "CartPole-v1"),
        ],
    )
    def test_configurations(self, changes, message):
        settings = {"env_id": "CartPole-v1", "learner": SB3("DQN"), "sampler": Uniform(), "total_steps": 50} | changes
        with pytest.raises(ConfigError, match=message):
            check_trainable(TrainingConfig(**settings))

    def test_a_discount_that_is_not_the_algorithms(self):
        with pytest.raises(ConfigError, match=r"`gamma` of NStep must be the learner's, 0.99, but got 0.5"):
            TrainingConfig("CartPole-v1", SB3("DQN"), Uniform(), 50, transforms=[NStep(3, gamma=0.5)])
        with pytest.raises(ConfigError, match="leave Sequence out"):
            TrainingConfig("CartPole-v1", SB3("DQN"), Queue(), 50, transforms=[Sequence(3, overlap=0)])

    def test_without_the_library(self, monkeypatch):
        for name in [module for module in sys.modules if module.startswith("replaylab.integrations.sb3")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        with pytest.raises(MissingExtraError, match=r'^[^\n]* Run: pip install "replaylab\[sb3\]"$'):
            SB3("DQN")
