"""Results that an update would have: computed by hand from the networks, and without a change."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn import functional

from replaylab.learners import SB3, Hook, TrainingConfig, train
from replaylab.learners.api.one_replica import with_replica
from replaylab.learners.api.protocols import Probed
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.replay import Batch, FrameStack, NStep, Prioritized, Uniform
from tests.learners.sb3.test_sb3 import CARTPOLE, OWN, SMALL

OF_NETWORKS = {
    "effective_batch_size", "gradient_variance", "gradient_variance_uniform", "autocorrelation_time", "td_error_mean",
    "td_error_median", "td_error_max", "td_error_std", "td_error_percentile",
}  # fmt: skip
PENDULUM = SMALL | {"learning_starts": 40}
STACKED = "Stacked-v0"
gym.register(STACKED, lambda: gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), 3, padding_type="reset"))
NOISE = {"type": "normal", "sigma": 0.1}


class Probing(Hook):
    """Probes 16 rows at the end of training, and keeps what it was made of."""

    def on_end(self, run, over):
        ids = np.arange(60, 76)[None]
        weight = np.linspace(0.2, 1.0, 16, dtype=np.float32)[None]
        self.batch = Batch(dict(run.replay.as_batch(ids)) | {"weight": weight})
        self.model = run.agents.model
        before = torch.get_rng_state()
        networks = [parameter.detach().clone() for parameter in self.model.policy.state_dict().values()]
        self.probe = run.agents.probe(self.batch)
        self.untouched = (torch.get_rng_state() == before).all() and all(
            (a == b).all() for a, b in zip(networks, self.model.policy.state_dict().values(), strict=True)
        )


def probed(algorithm, env_id, arguments, sampler=None, steps=120, policy="MlpPolicy", **settings):
    hook = Probing()
    settings = {"eval_every": None, "log_every": 50} | settings
    learner = SB3(algorithm, policy, arguments)
    metrics = train(TrainingConfig(env_id, learner, sampler or Uniform(), steps, **settings), [3], [hook])
    return hook, metrics


def tensors(hook):
    """Return the probed rows as the algorithm would be shown them."""
    return hook.model.replay_buffer._samples(Batch({name: column[0] for name, column in hook.batch.items()}), None)


def first_draw(hook):
    return numbers(hook.model.seed, Stream.MEASURES, 1, 0, 1)[0]


def check(hook, target, values, loss, optimizer):
    """Hold a probe against targets (B, 1), values of each critic (B, 1), and a loss of each row."""
    weight = torch.from_numpy(hook.batch.weight[0])[:, None]
    total = sum((weight * loss(value, target, reduction="none")).mean() for value in values)
    optimizer.zero_grad()
    total.backward()
    parts = [parameter.grad.reshape(-1).clone() for group in optimizer.param_groups for parameter in group["params"]]
    optimizer.zero_grad()
    apart = torch.cat([target - value for value in values], 1).detach().numpy()
    sizes = np.abs(apart).mean(1)
    np.testing.assert_allclose(np.abs(hook.probe.td_error[0]), sizes, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(np.sign(hook.probe.td_error[0]), np.sign(apart.mean(1)))
    assert hook.probe.gradient.shape == (1, sum(map(len, parts)))
    np.testing.assert_allclose(hook.probe.gradient[0], torch.cat(parts).numpy(), rtol=1e-3, atol=1e-5)
    assert hook.untouched


def test_deep_q_learning():
    """Its gradient is not clipped, as it would be in the update."""
    hook, _ = probed("DQN", "CartPole-v1", CARTPOLE[2] | {"max_grad_norm": 1e-3})
    batch = tensors(hook)
    model = hook.model
    with torch.no_grad():
        following = model.q_net_target(batch.next_observations).max(1, keepdim=True)[0]
        target = batch.rewards + (1 - batch.dones) * 0.99 * following
    values = model.q_net(batch.observations).gather(1, batch.actions.long())
    check(hook, target, [values], functional.smooth_l1_loss, model.policy.optimizer)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4)])
def test_td3_of_two_critics_and_n_step_returns(sampler):
    arguments = PENDULUM | {"gamma": 0.9, "action_noise": NOISE, "policy_kwargs": {"net_arch": [8]}}
    hook, _ = probed("TD3", "Pendulum-v1", arguments, sampler, transforms=[NStep(3, gamma=0.9)])
    batch = tensors(hook)
    model = hook.model
    assert (batch.discounts < 0.75).any()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(first_draw(hook))
        noise = torch.empty_like(batch.actions).normal_(0, 0.2).clamp(-0.5, 0.5)
        actions = (model.actor_target(batch.next_observations) + noise).clamp(-1, 1)
        following = torch.cat(model.critic_target(batch.next_observations, actions), 1).min(1, keepdim=True)[0]
        target = batch.rewards + (1 - batch.dones) * batch.discounts * following
    values = model.critic(batch.observations, batch.actions)
    assert len(values) == 2
    check(hook, target, values, functional.mse_loss, model.critic.optimizer)


def test_sac_with_the_entropy_of_now():
    hook, _ = probed("SAC", "Pendulum-v1", PENDULUM | {"ent_coef": "auto_0.5"})
    batch = tensors(hook)
    model = hook.model
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(first_draw(hook))
        model.actor.action_log_prob(batch.observations)  # draws first, for the entropy's coefficient
        actions, log_prob = model.actor.action_log_prob(batch.next_observations)
        following = torch.cat(model.critic_target(batch.next_observations, actions), 1).min(1, keepdim=True)[0]
        following -= model.log_ent_coef.exp() * log_prob[:, None]
        target = batch.rewards + (1 - batch.dones) * 0.99 * following
    values = model.critic(batch.observations, batch.actions)
    check(hook, target, values, lambda *of, **how: functional.mse_loss(*of, **how) / 2, model.critic.optimizer)


@pytest.mark.parametrize("algorithm", ["QRDQN", "DDPG", "TQC", "CrossQ"])
def test_every_other_algorithm(algorithm):
    """Probes say what is fed back: of the newest batch, by the same networks."""

    class Newest(Hook):
        errors = None

        def after_turn(self, run):
            model = run.agents
            if model.newest_td_error is not None and self.errors is None:
                batch = with_replica(model.newest_batch)
                self.errors = np.abs(run.agents.probe(batch).td_error[0]), model.newest_td_error

    env_id = "CartPole-v1" if algorithm == "QRDQN" else "Pendulum-v1"
    arguments = PENDULUM | ({"learning_rate": 0.0} if algorithm != "QRDQN" else {"learning_rate": 0.0, "train_freq": 1})
    newest = Newest()
    config = TrainingConfig(env_id, SB3(algorithm, arguments=arguments), Prioritized(), 60, eval_every=None)
    train(config, [3], [newest])
    fresh, fed = newest.errors
    assert fed.shape == (16,)
    assert (fed > 0).all()
    if algorithm in ("DDPG", "QRDQN"):
        np.testing.assert_allclose(fresh, fed, rtol=1e-5)
    else:  # the next actions are drawn
        assert np.corrcoef(fresh, fed)[0, 1] > 0.6


def test_measures_of_networks_are_taken():
    taken = {}
    for sampler in (Uniform(), Prioritized(alpha=1.0, beta=0.0)):
        settings = {"measure_every": 200, "transforms": [NStep(2, gamma=0.99)]}
        arguments = PENDULUM | {"train_freq": 4}
        _, taken[type(sampler)] = probed("TD3", "Pendulum-v1", arguments, sampler, 400, **settings)
    names = [{name.removeprefix("replay/") for name in metrics.columns["metric"]} for metrics in taken.values()]
    assert names[0] & names[1] >= OF_NETWORKS
    assert "td_error_gap" in names[1] - names[0]  # nothing is fed back to uniform draws
    uniform, percentile = (metrics.of("replay/td_error_percentile", seed=3)[1][-1] for metrics in taken.values())
    assert uniform < 53 < percentile - 3
    for metrics in taken.values():
        assert np.isfinite(metrics.columns["value"]).all()


def test_stacks_of_observations():
    arguments = CARTPOLE[2] | {"learning_starts": 20, "train_freq": 2}
    stack = FrameStack(3, stacked_input=True)
    hook, metrics = probed("DQN", STACKED, arguments, steps=100, transforms=[stack], measure_every=40)
    batch = tensors(hook)
    assert batch.observations.shape == (16, 3, 4)
    values = hook.model.q_net(batch.observations).gather(1, batch.actions.long())
    with torch.no_grad():
        following = hook.model.q_net_target(batch.next_observations).max(1, keepdim=True)[0]
    target = batch.rewards + (1 - batch.dones) * 0.99 * following
    check(hook, target, [values], functional.smooth_l1_loss, hook.model.policy.optimizer)
    assert metrics.of("replay/td_error_percentile", seed=3)[1].size


@pytest.mark.parametrize("name", ["Eager", "Annealed"])
def test_an_update_of_ones_own_is_not_guessed(name):
    class Agents(Hook):
        def on_begin(self, run):
            self.probed = isinstance(run.agents, Probed)

    seen = Agents()
    learner = SB3(f"{OWN}:{name}", arguments=CARTPOLE[2])
    config = TrainingConfig("CartPole-v1", learner, Prioritized(), 160, eval_every=None, measure_every=80)
    metrics = train(config, [0], [seen])
    assert not seen.probed
    names = {name.removeprefix("replay/") for name in metrics.columns["metric"]}
    assert "same_episode_share" in names
    assert not names & {"td_error_percentile", "effective_batch_size"}


def test_each_batch_has_separate_noise():
    class Twice(Hook):
        def on_end(self, run, over):
            batch = run.replay.as_batch(np.arange(40, 72)[None])
            self.errors = [run.agents.probe(batch).td_error for _ in range(2)]

    hooks = [Twice(), Twice()]
    for hook in hooks:
        config = TrainingConfig("Pendulum-v1", SB3("TD3", arguments=PENDULUM), Uniform(), 80, eval_every=None)
        train(config, [3], [hook])
    assert (hooks[0].errors[0] != hooks[0].errors[1]).all()
    np.testing.assert_array_equal(hooks[0].errors, hooks[1].errors)


def test_a_batch_is_measured_once():
    """Updates come after episodes of 50 steps, and moments every 6."""
    arguments = PENDULUM | {"train_freq": [1, "episode"], "gradient_steps": 3}
    options = {"steps": 330, "env_options": {"max_episode_steps": 50}}
    _, metrics = probed("SAC", "Pendulum-v1", arguments, **options, measure_every=100)
    steps, variance = metrics.of("replay/gradient_variance", seed=3)
    assert steps.tolist() == [100, 200, 300]
    assert (variance > 0).all()
    _, metrics = probed("SAC", "Pendulum-v1", arguments, **options, measure_every=25)
    assert "replay/gradient_variance" not in metrics.columns["metric"]  # one batch in each
