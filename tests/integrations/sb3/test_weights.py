"""Weights and feedback, against losses that are weighted explicitly and against the library's own runs."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

import sb3_contrib
import stable_baselines3
import torch
import torch.nn.functional as F  # noqa: N812
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.utils import set_random_seed

from replaylab.errors import ConfigError
from replaylab.integrations import sb3
from replaylab.integrations import sb3_contrib as ours_contrib
from replaylab.replay import CustomSampler, LaBER, Prioritized, RankBased, Uniform
from tests.integrations.sb3.library import LibraryDraws

NAMES = ("DQN", "DDPG", "TD3", "SAC", "QRDQN", "TQC", "CrossQ")


def library_class(name):
    return getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)


def our_class(name):
    return getattr(sb3, f"Prioritized{name}", None) or getattr(ours_contrib, f"Prioritized{name}")


def model_of(kind, name, **options):
    env = "CartPole-v1" if "DQN" in name else "Pendulum-v1"
    policy = {"net_arch": [16]} | ({"n_quantiles": 5} if name in ("QRDQN", "TQC") else {})
    small = {"policy_kwargs": policy, "batch_size": 16, "learning_starts": 40, "seed": 1, "device": "cpu"}
    return kind("MlpPolicy", env, **small | options)


class Explicit:
    """The loss functions of the library's modules, weighted by hand; they note the TD errors."""

    def __init__(self):
        self.weight, self.errors = None, []

    def _noting(self, function):
        def loss(current, target):
            self.errors.append((target - current).detach().abs().reshape(-1))
            return (self.weight[:, None] * function(current, target, reduction="none")).mean()

        return loss

    @property
    def functional(self):
        return SimpleNamespace(mse_loss=self._noting(F.mse_loss), smooth_l1_loss=self._noting(F.smooth_l1_loss))

    def quantile_huber_loss(self, current, target, cum_prob=None, sum_over_quantiles=True):
        n = current.shape[-1]
        middle = ((torch.arange(n) + 0.5) / n)[:, None]
        rows = []
        for row in range(len(current)):
            delta = target[row].unsqueeze(-2) - current[row].unsqueeze(-1)
            loss = (middle - (delta.detach() < 0).float()).abs() * F.huber_loss(
                current[row].unsqueeze(-1).expand_as(delta),
                target[row].unsqueeze(-2).expand_as(delta),
                reduction="none",
            )
            rows.append(self.weight[row] * (loss.sum(-2).mean() if sum_over_quantiles else loss.mean()))
        means = target.detach().mean(-1) - current.detach().mean(-1)
        self.errors.append(means.abs().reshape(len(current), -1).mean(1))
        return torch.stack(rows).mean()


class Reference(LibraryBuffer):
    """Hands the batches of one of our buffers to an algorithm of the library's, and the explicit errors back."""

    def __init__(self, buffer, explicit):
        self.buffer, self.explicit, self.fed = buffer, explicit, []
        self.ids = None

    def sample(self, batch_size, env=None):
        self.feed_back()
        batch = self.buffer.replay.sample(batch_size, progress=0.5)
        self.ids, self.explicit.weight = batch.id, torch.tensor(batch.weight)
        return self.buffer._samples(batch, env)

    def feed_back(self):
        if self.ids is not None:
            errors = torch.stack(self.explicit.errors).mean(0).double().numpy()
            self.fed.append(errors)
            self.buffer.replay.update_priorities(self.ids, errors)
        self.explicit.errors.clear()


def gradients(model):
    """Record the gradients of every step of the critics' optimizer."""
    steps = []
    optimizer = model.critic.optimizer if hasattr(model, "critic") else model.policy.optimizer

    def note(optimizer, args, kwargs):
        flat = [p.grad.reshape(-1) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        steps.append(torch.cat(flat).clone())

    optimizer.register_step_pre_hook(note)
    return steps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_gradients_and_errors_are_those_of_the_weighted_loss(name, n_steps, monkeypatch):
    options = {"n_steps": n_steps, "gamma": 0.9}
    options |= {"max_grad_norm": 1e9} if "DQN" in name else {}
    model = model_of(our_class(name), name, replay_buffer_kwargs={"sampler": Prioritized(1.0)}, **options)
    model.learn(46)
    model._current_progress_remaining = 0.5
    explicit = Explicit()
    reference = Reference(copy.deepcopy(model.replay_buffer), explicit)
    plain = model_of(library_class(name), name, **options | {"n_steps": 1})
    plain.policy.load_state_dict(model.policy.state_dict())
    for optimizer in ("ent_coef_optimizer", "log_ent_coef"):
        if hasattr(model, optimizer):
            setattr(plain, optimizer, copy.deepcopy(getattr(model, optimizer)))
    if hasattr(model, "ent_coef_optimizer"):
        plain.ent_coef_optimizer.param_groups[0]["params"] = [plain.log_ent_coef]
        plain.ent_coef_optimizer.state.clear()
        model.ent_coef_optimizer.state.clear()
    for each in (model, plain):
        for optimizer in [each.policy] if "DQN" in name else [each.actor, each.critic]:
            optimizer.optimizer.state.clear()
    plain.replay_buffer, plain._n_updates, plain._logger = reference, model._n_updates, model.logger
    module = __import__(library_class(name).train.__module__, fromlist=["F"])
    fed = []
    update = model.replay_buffer.replay.update_priorities
    model.replay_buffer.replay.update_priorities = lambda ids, errors: fed.append(errors) or update(ids, errors)
    our_gradients, wanted = gradients(model), gradients(plain)
    for each in (model, plain):
        if each is plain:
            monkeypatch.setattr(module, "F", explicit.functional, raising=False)
            monkeypatch.setattr(module, "quantile_huber_loss", explicit.quantile_huber_loss, raising=False)
        set_random_seed(5)
        each.train(gradient_steps=4, batch_size=16)
    reference.feed_back()
    assert len(our_gradients) == len(wanted) == len(fed) == 4
    for mine, other in zip(our_gradients, wanted, strict=True):
        assert (mine - other).abs().max() <= 1e-6 * other.norm()
    for mine, other in zip(fed, reference.fed, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert model.replay_buffer.replay.sample(16, progress=0.5).weight.std() > 0  # weights that differ were tried


def parameters(model):
    return [value for _, value in sorted(model.policy.state_dict().items())]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_run_with_uniform_draws_is_the_librarys_own(name, steps):
    size, options = (60, {"train_freq": 4}) if steps < 2000 else (200, {"train_freq": 1})
    options["buffer_size"] = size
    library_model = model_of(library_class(name), name, **options).learn(steps)
    draws = {"sampler": LibraryDraws(size)}
    mine = model_of(our_class(name), name, replay_buffer_kwargs=draws, **options).learn(steps)
    assert mine.replay_buffer.full
    assert all(torch.equal(*pair) for pair in zip(parameters(library_model), parameters(mine), strict=True))


def test_beta_follows_the_progress_of_learning():
    model, asked = model_of(sb3.PrioritizedDQN, "DQN"), []
    replay = model.replay_buffer.replay
    draw = replay.sample
    replay.sample = lambda size, progress: asked.append(progress) or draw(size, progress=progress)
    model.learn(200)
    assert asked[0] == pytest.approx(44 / 200)
    assert asked[-1] == 1.0
    assert (np.diff(asked) > 0).all()


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_compiled_networks_learn_as_others_do(backend):
    plain = parameters(model_of(sb3.PrioritizedDQN, "DQN").learn(60))
    model = model_of(sb3.PrioritizedDQN, "DQN")
    model.q_net.compile(backend=backend)
    model.q_net_target.compile(backend=backend)
    assert all(torch.allclose(*pair) for pair in zip(plain, parameters(model.learn(60)), strict=True))


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_loss_is_refused(monkeypatch):
    import stable_baselines3.dqn.dqn as module

    compiled = torch.compile(lambda value, target: (value - target).pow(2).mean(), backend="eager")
    model = model_of(sb3.PrioritizedDQN, "DQN")
    monkeypatch.setattr(module, "F", SimpleNamespace(smooth_l1_loss=compiled))
    with pytest.raises(Exception, match="loss is compiled"):
        model.learn(60)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda value, target: (target * value).mean(), "by `mul`.*takes losses of a difference"),
        (lambda value, target: (value - value.detach()).mean(), "computes no difference"),
        (lambda value, target: F.mse_loss(value.T, target.T), "must have the 16 rows of the batch as its first axis"),
    ],
)
def test_losses_that_show_no_error_are_refused(loss, message, monkeypatch):
    import stable_baselines3.dqn.dqn as module

    model = model_of(sb3.PrioritizedDQN, "DQN")
    monkeypatch.setattr(module, "F", SimpleNamespace(smooth_l1_loss=loss))
    with pytest.raises(ConfigError, match=message):
        model.learn(60)


@pytest.mark.parametrize(
    "loss",
    [
        lambda value, target: (value - target).pow(2).mean(),
        lambda value, target: torch.sub(target, value).pow(2).mean(),
        lambda value, target: F.mse_loss(input=value, target=target),
        lambda value, target: F.huber_loss(target, value, delta=1e9) * 2,
    ],
)
def test_other_ways_to_write_a_loss(loss, monkeypatch):
    import stable_baselines3.dqn.dqn as module

    learned = []
    for function in (F.mse_loss, loss):
        monkeypatch.setattr(module, "F", SimpleNamespace(smooth_l1_loss=function))
        learned.append(parameters(model_of(sb3.PrioritizedDQN, "DQN").learn(60)))
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(*learned, strict=True))


@dataclass(frozen=True)
class Weighted(CustomSampler):
    """Uniform draws with weights."""

    def distribution(self, view, batch_size):
        return np.full(len(view), 1.0 / len(view))

    def weights(self, view, probabilities, progress):
        return np.full(len(probabilities), 0.5)


def test_algorithms_without_priorities_refuse_weights():
    with pytest.raises(ConfigError, match=r"wants TD errors.*PrioritizedDQN\(WithPriorities, DQN\)"):
        model_of(
            stable_baselines3.DQN,
            "DQN",
            replay_buffer_class=sb3.ReplayLabBuffer,
            replay_buffer_kwargs={"sampler": RankBased()},
        )
    model = model_of(
        stable_baselines3.DQN,
        "DQN",
        replay_buffer_class=sb3.ReplayLabBuffer,
        replay_buffer_kwargs={"sampler": Weighted()},
    )
    with pytest.raises(ConfigError, match="gives weights, which the algorithm does not put into its loss"):
        model.learn(60)


@pytest.mark.parametrize("sampler", [RankBased(), LaBER(lambda pool: pool.reward + 1.0), Uniform(), Weighted()])
def test_other_samplers(sampler):
    model_of(sb3.PrioritizedDQN, "DQN", replay_buffer_kwargs={"sampler": sampler}).learn(80)


def test_another_buffer_is_refused():
    with pytest.raises(ConfigError, match="must be ReplayLabBuffer"):
        model_of(sb3.PrioritizedDQN, "DQN", replay_buffer_class=LibraryBuffer)
