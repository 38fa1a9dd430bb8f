import copy
import re

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from replaylab.errors import ConfigError
from replaylab.learners import DQN, SGD, RMSprop
from replaylab.learners.dqn.networks import Perceptron
from replaylab.replay import Batch, Uniform
from tests.learners.calls import train
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of
from tests.learners.dqn.on_device import on_device

PIXELS = spaces.Box(0, 255, (4, 40, 36), np.uint8)


def mine(space, num_actions):
    """A user's own network, with normalisation whose statistics are buffers."""
    return nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, num_actions))


class Brief(nn.Linear):
    """Returns numbers that NumPy does not have."""

    def forward(self, x):
        return super().forward(x).bfloat16()


class Skipping(nn.Module):
    """A layer that some updates leave out, so that it gets no gradient there, and one that is never used."""

    def __init__(self, space, num_actions):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(4, 12), nn.Linear(12, 12), nn.Linear(12, num_actions)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.first(x).relu()
        if not self.training or x[0, 0] > 0.0:
            hidden = hidden + self.middle(hidden).relu()
        return self.last(hidden)


def settings(**changes):
    return DQN(**({"hidden": (16,), "batch_size": 8, "learning_starts": 8, "target_period": 4} | changes))


def agents(seeds, space, actions, **changes):
    return settings(**changes).agents(space, actions, seeds)


VARIANTS = {
    "mine": {"module": mine},
    "polyak": {"module": mine, "tau": 0.2, "target_period": 1, "double": False},
    "rmsprop": {"module": mine, "optimizer": RMSprop()},
    "plain rmsprop": {"module": mine, "optimizer": RMSprop(centered=False)},
    "momentum": {"module": mine, "optimizer": SGD(momentum=0.9)},
    "sgd": {"module": mine, "optimizer": SGD()},
    "skipping": {"module": Skipping},
    "skipping rmsprop": {"module": Skipping, "optimizer": RMSprop()},
    "skipping momentum": {"module": Skipping, "optimizer": SGD(momentum=0.9)},
    "squared": {"module": mine, "loss": "squared", "max_grad_norm": None, "target_range": (-1.0, 1.0)},
}


def test_lazy_layers_draw_their_weights_from_the_seed():
    def lazy(space, num_actions):
        return nn.Sequential(nn.LazyLinear(12), nn.Tanh(), nn.LazyLinear(num_actions))

    learner, batch = settings(module=lazy), batch_of(1)
    first_agents, same, other = (learner.agents(BOX, ACTIONS, [seed]) for seed in (1, 1, 2))
    first = [agents.update(batch).q for agents in (first_agents, same, other)]
    np.testing.assert_array_equal(first[0], first[1])
    assert np.any(first[0] != first[2])


def test_adam_moves_convolutions_as_pytorchs_plain_one_does():
    agents = on_device(settings(max_grad_norm=None), PIXELS, ACTIONS, [1])
    learner = agents.learners[0]
    plain = copy.deepcopy(learner.online)
    reference = torch.optim.Adam(plain.parameters(), learner.settings.learning_rate, fused=False, foreach=False)
    for update in range(4):
        agents.update(batch_of(1, seed=update, space=PIXELS))
        for mirror, parameter in zip(plain.parameters(), learner.online.parameters(), strict=True):
            mirror.grad = parameter.grad.clone()
        reference.step()
    for mirror, parameter in zip(plain.parameters(), learner.online.parameters(), strict=True):
        torch.testing.assert_close(mirror, parameter, rtol=0, atol=1e-6)


class Shared(nn.Module):
    """One layer, used twice."""

    def __init__(self, space, num_actions):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, num_actions)
        self.middle = self.again = nn.Linear(8, 8)

    def forward(self, x):
        return self.last(self.again(self.middle(self.first(x).relu()).relu()).relu())


def test_a_shared_layer_is_averaged_once():
    agents = settings(module=Shared, tau=0.1, target_period=1).agents(BOX, ACTIONS, [0])
    (learner,) = agents.learners
    old = copy.deepcopy(learner.target)
    agents.update(batch_of(1))
    for before, now, online in zip(
        old.parameters(), learner.target.parameters(), learner.online.parameters(), strict=True
    ):
        torch.testing.assert_close(now, before.lerp(online, 0.1))


def test_actions_may_be_small_integers():
    """Bytes, as the environment's space has them."""
    small, wide = (
        settings(module=mine).agents(BOX, spaces.Discrete(3, dtype=kind), [0]) for kind in (np.int8, np.int64)
    )
    batch = batch_of(1)
    small_update = small.update(Batch(dict(batch) | {"action": batch.action.astype(np.int8)}))
    np.testing.assert_array_equal(small_update.td_error, wide.update(batch).td_error)


def test_a_state_is_a_copy():
    agents = settings(module=mine).agents(BOX, ACTIONS, [1])
    state = agents.state()
    before = {name: array.copy() for name, array in state.items()}
    agents.update(batch_of(1))
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])
    assert any(not np.array_equal(agents.state()[name], array) for name, array in before.items())


def test_initial_weights_come_from_the_seed_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = settings(module=mine).agents(BOX, ACTIONS, [3, 4]).state()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(1)
    second = settings(module=mine).agents(BOX, ACTIONS, [4]).state()
    np.testing.assert_array_equal(first["online.0.weight"][1], second["online.0.weight"][0])
    assert not np.array_equal(first["online.0.weight"][0], first["online.0.weight"][1])


def test_a_module_sees_a_box_in_its_shape_and_dtype():
    seen = []

    class Spy(nn.Module):
        def __init__(self, num_actions):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(num_actions))

        def forward(self, x):
            seen.append((tuple(x.shape), x.dtype))
            return self.bias.expand(len(x), -1)

    learner = settings(module=lambda space, num_actions: Spy(num_actions))
    for space in (PIXELS, spaces.Box(-1, 1, (2, 3), np.float64), spaces.Discrete(7)):
        obs = np.zeros((1, 5, *space.shape), space.dtype)
        assert learner.agents(space, ACTIONS, [0]).q_values(obs).shape == (1, 5, 3)
    kinds = [((4, 40, 36), torch.uint8), ((2, 3), torch.float32), ((7,), torch.float32)]
    assert seen == [((count, *shape), dtype) for shape, dtype in kinds for count in (2, 5)]  # checked, and asked


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (lambda _, n: nn.Linear(4, n).bfloat16(), r"such as float32, but `weight` is torch\.bfloat16$"),
        (lambda _, n: Brief(4, n), r"of a type that NumPy has, but returned torch\.bfloat16"),
        (lambda *_: None, r"^`module` of DQN must return a torch\.nn\.Module, but returned None$"),
        (lambda *_: nn.Linear(4, 1), r"of float32 to Q-values \(B, 3\), but returned shape \(2, 1\) of two$"),
        (lambda *_: nn.Linear(4, 4), r"to Q-values \(B, 3\), but returned shape \(2, 4\) of two$"),
        (lambda *_: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), r"returned shape \(2,\) of two$"),
        (lambda *_: nn.LSTM(4, 3), r"\(B, 3\), but returned \(tensor"),
        (lambda *_: nn.Linear(5, 3), r"must map observations \(B, 4\) of float32 .*, but it raised RuntimeError: mat1"),
        (lambda *_: nn.Linear(4, 3).double(), r"but it raised RuntimeError: "),
    ],
)
def test_a_module_without_q_values_is_reported_before_training(module, said):
    with pytest.raises(ConfigError, match=said):
        settings(module=module).agents(BOX, ACTIONS, [0])


def test_looking_at_a_module_leaves_no_trace():
    """Neither in its own statistics nor in PyTorch's generator, which dropout draws from."""
    modules = []

    def module(space, num_actions):
        modules.append(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, num_actions)))
        return modules[0]

    before = torch.random.get_rng_state()
    settings(module=module).agents(BOX, ACTIONS, [0])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not modules[0].training, "it acts in evaluation mode"
    assert modules[0][1].num_batches_tracked == 0


def test_dueling_values_are_value_plus_centered_advantages():
    network = Perceptron(4, (6, 5), 3, dueling=True)
    x = torch.randn(10, 4)
    hidden = torch.relu(network.hidden[1](torch.relu(network.hidden[0](x))))
    value, advantage = network.heads[0](hidden[:, :5]), network.heads[1](hidden[:, 5:])
    torch.testing.assert_close(network(x).mean(1, keepdim=True), value)
    torch.testing.assert_close(network(x) - value, advantage - advantage.mean(1, keepdim=True))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_reported(device):
    with pytest.raises(ConfigError, match=re.escape(f"but got '{device}'")):
        settings(device=device).agents(BOX, ACTIONS, [0])


def dropping(space, num_actions):
    """A network that draws, and that knows its batch, while it is trained."""
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, num_actions))


def test_evaluations_change_nothing_of_a_network_that_draws():
    """Acting and evaluating are in evaluation mode: they draw nothing and move no statistics."""

    def losses(every, seed):
        torch.manual_seed(seed)
        learner = settings(module=dropping, learning_starts=32)
        options = {"eval_every": every, "eval_episodes": 1, "log_every": 20}
        return train("CartPole-v1", learner, Uniform(), [0, 1], 100, **options).of("train/loss")[1]

    np.testing.assert_array_equal(losses(None, 0), losses(40, 1))


@pytest.mark.parametrize("before", [0, 5])
def test_a_network_that_draws_goes_on_bit_for_bit(before):
    straight, again = (settings(module=dropping).agents(BOX, ACTIONS, seeds) for seeds in ([1, 2], [1, 2]))
    for update in range(before):
        straight.update(batch_of(2, seed=update))
    again.restore(straight.state())
    batch = batch_of(2, seed=before)
    probe, generator = straight.probe(batch), torch.random.get_rng_state()
    expected = straight.update(batch)
    assert torch.equal(torch.random.get_rng_state(), generator)
    np.testing.assert_array_equal(probe.td_error, expected.td_error)
    torch.rand(3)
    np.testing.assert_array_equal(again.update(batch).td_error, expected.td_error)
    alike = settings(module=dropping).agents(BOX, ACTIONS, [1, 2])
    alike.restore(straight.state())
    for other in (7, 8):
        alike.updates = other
        drawn = alike.probe(batch).td_error
        assert not np.array_equal(drawn[0], straight.probe(batch).td_error[0]), "each update draws again"


class Extra(nn.Linear):
    """Keeps something beside tensors."""

    def get_extra_state(self):
        return {"seen": 3}


SHARED = nn.Linear(4, 3)
HALF = nn.Linear(4, 3)


def half(space, actions):
    return nn.Sequential(nn.Linear(4, 4), HALF)


@pytest.mark.parametrize("module", [lambda space, actions: SHARED, half])
def test_modules_that_seeds_would_share_are_refused(module):
    assert settings(module=module).agents(BOX, ACTIONS, [3])
    with pytest.raises(ConfigError, match=r"must make a new torch\.nn\.Module at each call"):
        settings(module=module).agents(BOX, ACTIONS, [3, 4])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (nn.Flatten, "must have parameters that can be trained, but it has none"),
        (lambda: nn.Linear(4, 2).requires_grad_(False), "must have parameters that can be trained"),
        (lambda: Extra(4, 2), "must keep only tensors, .* but `_extra_state` is"),
    ],
)
def test_modules_that_cannot_learn_or_be_kept_are_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        settings(module=lambda space, actions: make()).agents(BOX, ACTIONS, [3])


def test_a_device_with_a_number_is_looked_at_too():
    with pytest.raises(ConfigError, match=r"to Q-values \(B, 3\), but returned shape \(2, 5\)"):
        settings(module=lambda space, actions: nn.Linear(4, 5), device="cpu:0").agents(BOX, ACTIONS, [3])


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_values_of_nan_are_nan(device):
    """In the core as in PyTorch: a unit that cuts off what is negative does not hide it."""
    agents = settings(device=device).agents(BOX, ACTIONS, [3])
    obs = np.zeros((1, 9, 4), np.float32)
    obs[0, 1::2, 2] = np.nan
    for rows in (obs, obs[:, 1:2]):
        values = np.isnan(agents.q_values(rows))
        np.testing.assert_array_equal(values, np.broadcast_to(np.isnan(rows).any(-1, keepdims=True), values.shape))
