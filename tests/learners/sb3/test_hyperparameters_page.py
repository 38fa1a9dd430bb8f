"""The page that translates hyperparameters, held against Stable-Baselines3's DQN and ours."""

import inspect
import re
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from replaylab.learners import DQN as OURS
from replaylab.learners import TrainingConfig, train
from replaylab.learners.api.hooks import Hook
from replaylab.replay import Batch, Uniform

torch = pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.logger import Logger  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

PAGE = (Path(__file__).parents[3] / "docs" / "laboratory" / "sb3-hyperparameters.md").read_text()
NAMES = {}
exec(re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1], NAMES)
translated, THEIRS = NAMES["translated"], NAMES["THEIRS"]
SMALL = {"learning_starts": 10, "batch_size": 8, "buffer_size": 500, "net_arch": [16, 8]}


def theirs_of(**changes):
    """Stable-Baselines3's DQN with the same arguments as `translated`."""
    arguments = THEIRS | SMALL | changes
    return sb3.DQN(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": arguments.pop("net_arch")},
        device="cpu",
        seed=0,
        **arguments,
    )


def ours_of(**changes):
    return translated(**SMALL | changes)


def agents_of(model, learner):
    """Our agents with its weights."""
    env = gym.make("CartPole-v1")
    agents = learner.agents(env.observation_space, env.action_space, [0])
    agents.core.online[0] = weights(model.q_net)
    agents.core.target[0] = weights(model.q_net_target)
    return agents


def weights(network):
    return np.concatenate([part.detach().numpy().ravel() for part in network.parameters()])


def batches(count, rows=8):
    """The same rows as ours and as theirs take them; large rewards clip loss and norm, and turn the best action."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        obs, next_obs = rng.normal(size=(2, rows, 4)).astype(np.float32)
        action = rng.integers(2, size=rows)
        reward = 5 * obs[:, 0] * (2 * action - 1).astype(np.float32)
        ended = rng.random(rows) < 0.3
        columns = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "terminated": ended}
        columns |= {"truncated": np.zeros(rows, bool), "weight": np.ones(rows, np.float32), "id": np.arange(rows)}
        flat = (torch.as_tensor(np.asarray(column)[:, None]) for column in (action, ended.astype(np.float32), reward))
        actions, dones, rewards = flat
        samples = ReplayBufferSamples(torch.as_tensor(obs), actions, torch.as_tensor(next_obs), dones, rewards)
        yield Batch({name: column[None] for name, column in columns.items()}), samples


def both(learner=None, steps=10, **changes):
    """Return both networks after some steps with an update each, from the same weights: ours, theirs."""
    changes = {"train_freq": 1, "target_update_interval": 100, "learning_rate": 1e-2} | changes
    model = theirs_of(**changes)
    model.set_logger(Logger(None, []))
    agents = agents_of(model, ours_of(**changes) if learner is None else learner)
    for our_batch, their_batch in batches(steps):
        model._on_step()
        model.replay_buffer.sample = lambda *_, samples=their_batch, **__: samples
        model.train(1, 8)
        agents.update(our_batch)
    return agents, model


@pytest.mark.parametrize("changes", [{}, {"max_grad_norm": 0.1}, {"target_update_interval": 1, "tau": 0.2}], ids=str)
def test_an_update_is_the_same(changes):
    agents, model = both(**changes)
    np.testing.assert_allclose(agents.core.online[0], weights(model.q_net), rtol=0, atol=3e-4)
    if "tau" in changes:
        model._on_step()  # its moves come before the update of the step, ours after it
    np.testing.assert_allclose(agents.core.target[0], weights(model.q_net_target), rtol=0, atol=3e-4)


@pytest.mark.parametrize(
    "other", [{"double": True}, {"loss": "squared"}, {"max_grad_norm": 0.1}, {"gamma": 0.9}], ids=str
)
def test_any_other_setting_is_seen(other):
    changes = {"train_freq": 1, "target_update_interval": 1, "tau": 0.2, "learning_rate": 5e-2}
    agents, model = both(replace(ours_of(**changes), **other), steps=40, **changes)
    assert np.abs(agents.core.online[0] - weights(model.q_net)).max() > 3e-3


class Watch(Hook):
    """The steps of updates, the updates after which the target moved, ε of each step."""

    def __init__(self):
        self.updates, self.moves, self.epsilon, self._target = [], [], [], None

    def on_step(self, run, step, ids):
        self.epsilon.append(run.agents.epsilon)

    def on_update(self, run, update, batch):
        self.updates.append(run.clock.steps)
        target = run.agents.core.target.copy()
        if self._target is not None and (target != self._target).any():
            self.moves.append(run.agents.updates)
        self._target = target


def watched(steps, **changes):
    """The same of theirs, in the same words."""
    seen, model = Watch(), theirs_of(**changes)
    train_too, step_too = model.train, model._on_step

    def train_and_note(gradient_steps, batch_size):
        train_too(gradient_steps, batch_size)
        seen.updates += [model.num_timesteps] * gradient_steps

    def step_and_note():
        before = weights(model.q_net_target)
        step_too()
        seen.epsilon.append(model.exploration_rate)
        if (weights(model.q_net_target) != before).any():
            seen.moves.append(model._n_updates)

    model.train, model._on_step = train_and_note, step_and_note
    model.learn(steps)
    return seen


@pytest.mark.parametrize(
    "changes",
    [{"target_update_interval": 24}, {"train_freq": 2, "gradient_steps": -1, "target_update_interval": 10}],
    ids=str,
)
def test_updates_targets_and_exploration_come_when_theirs_do(changes):
    changes |= {"exploration_fraction": 0.5, "learning_rate": 1e-3}
    expected, watch, learner = watched(120, **changes), Watch(), ours_of(**changes)
    train(TrainingConfig("CartPole-v1", learner, Uniform(), 120, eval_every=None), [0], hooks=[watch])
    assert watch.updates == expected.updates
    np.testing.assert_allclose(watch.epsilon, expected.epsilon, rtol=1e-12)
    assert set(np.diff(watch.moves)) == {learner.target_period} == set(np.diff(expected.moves))
    assert expected.moves[0] < learner.target_period


def test_defaults_and_names_on_the_page():
    parameters = inspect.signature(sb3.DQN.__init__).parameters
    for name, value in THEIRS.items():
        assert name == "net_arch" or value == parameters[name].default, name
    untouched = {"policy", "env", "replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage", "seed"}
    untouched |= {
        "stats_window_size",
        "tensorboard_log",
        "policy_kwargs",
        "verbose",
        "device",
        "_init_setup_model",
        "self",
    }
    rules = set(re.findall(r"`(\w+)", PAGE.split("## Rules\n")[1].split("\n## ")[0]))
    assert parameters.keys() - untouched <= rules | THEIRS.keys(), "a setting there that the page leaves out"
    here = set(re.findall(r"^\| [^|]* \| `(\w+)`", PAGE, re.M))
    assert "train_period" in here
    assert here <= {field.name for field in fields(OURS)} | {"n_step"}


def test_networks_have_the_same_parameters_and_optimizer():
    model = sb3.DQN("MlpPolicy", "CartPole-v1", device="cpu", buffer_size=10)
    agents = agents_of(model, translated(buffer_size=10))
    assert model.policy.optimizer.defaults["eps"] == translated().optimizer.epsilon
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    wanted = model.q_net(torch.as_tensor(obs)).detach().numpy()
    np.testing.assert_allclose(agents.q_values(obs[None])[0], wanted, rtol=1e-5, atol=1e-6)
