"""The samplers under skrl's own agents and trainer: rows, weights in the loss, and feedback."""

import copy

import gymnasium as gym
import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import Combined, EpisodeEnds, LaBER, Linear, Prioritized, RankBased, ReLo, Uniform
from tests.senseless import SEED, Call, wrongs

adapter = pytest.importorskip("replaylab.integrations.skrl")
torch = pytest.importorskip("torch")

from skrl.agents.torch.dqn import DQN  # noqa: E402 - after the modules that may be missing
from skrl.agents.torch.sac import SAC  # noqa: E402
from skrl.agents.torch.td3 import TD3  # noqa: E402
from skrl.envs.wrappers.torch import wrap_env  # noqa: E402
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model  # noqa: E402
from skrl.trainers.torch import SequentialTrainer  # noqa: E402

QUIET = {"experiment": {"write_interval": 0, "checkpoint_interval": 0}}


def layers(inputs, outputs, *last):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, outputs), *last)


class Values(DeterministicMixin, Model):
    """Values of all actions of CartPole."""

    def __init__(self, env):
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        Model.__init__(self, **spaces, device="cpu")
        DeterministicMixin.__init__(self)
        self.net = layers(4, 2)

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {}


class Critic(Values):
    """The value of an action of Pendulum."""

    def __init__(self, env):
        super().__init__(env)
        self.net = layers(4, 1)

    def compute(self, inputs, role=""):
        return self.net(torch.cat([inputs["observations"], inputs["taken_actions"]], 1)), {}


class Actor(Values):
    def __init__(self, env):
        super().__init__(env)
        self.net = layers(3, 1, torch.nn.Tanh())


class Policy(GaussianMixin, Model):
    def __init__(self, env):
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        Model.__init__(self, **spaces, device="cpu")
        GaussianMixin.__init__(self)
        self.net = layers(3, 1)
        self.log_std = torch.nn.Parameter(torch.zeros(1))

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


def agent_of(kind, memory, **cfg):
    torch.manual_seed(0)
    name = "CartPole-v1" if kind is DQN else "Pendulum-v1"
    env = wrap_env(gym.make_vec(name, memory.num_envs, vectorization_mode="sync"), wrapper="gymnasium", verbose=False)
    env._device = torch.device("cpu")
    critics = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
    models = {
        DQN: lambda: {name: Values(env) for name in ("q_network", "target_q_network")},
        SAC: lambda: {"policy": Policy(env), **{name: Critic(env) for name in critics}},
        TD3: lambda: {
            **{name: Actor(env) for name in ("policy", "target_policy")},
            **{name: Critic(env) for name in critics},
        },
    }[kind]()
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    agent = kind(models=models, memory=memory, **spaces, device="cpu", cfg={"batch_size": 8, **cfg, **QUIET})
    return agent, env


def trained(kind, sampler, steps=40, **cfg):
    memory = adapter.ReplayLabMemory(30, sampler, num_envs=2, device="cpu", seed=0)
    agent, env = agent_of(kind, memory, learning_starts=10, **cfg)
    quiet = {"headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=env, agents=agent, cfg={"timesteps": steps, **quiet}).train()
    return memory, agent


def filled(sampler=Prioritized(beta=0.4), envs=3, times=0, size=7):  # noqa: B008
    memory = adapter.ReplayLabMemory(size, sampler, num_envs=envs, device="cpu", seed=0)
    memory.create_tensor("observations", size=2, dtype=torch.float32)
    memory.create_tensor("rewards", size=1, dtype=torch.float32)
    for time in range(times):
        add(memory, time, range(envs))
    return memory


def add(memory, time, envs):
    """Observations are (environment, time)."""
    rows = torch.tensor([[env, time] for env in envs], dtype=torch.float32)
    memory.add_samples(observations=rows, rewards=torch.zeros(len(rows), 1))


class TestRows:
    @pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), RankBased(beta=0.4), Combined("replace")])
    @pytest.mark.parametrize("envs", [1, 3])
    def test_every_row_has_its_step(self, sampler, envs):
        """Ids are in the order of `add_samples`: of each drawn row, environment and time follow from it."""
        memory = filled(sampler, envs)
        for time in range(20):
            add(memory, time, range(envs))
            assert len(memory.priorities) == len(memory)
            rows = memory.sample(["observations"], batch_size=6)[0][0].numpy()
            stored = memory.priorities.stored_ids()
            (slots,) = np.unravel_index(memory.get_sampling_indexes().numpy(), (memory.priorities.capacity,))
            ids = stored[(slots - stored[0]) % memory.priorities.capacity]
            np.testing.assert_array_equal(rows, np.stack([ids % envs, ids // envs], axis=1))

    def test_environments_that_add_in_parts(self):
        memory = filled()
        for time in range(9):
            add(memory, time, [0, 1])
            assert len(memory.priorities) == len(memory)
            add(memory, time, [2])
        assert memory.priorities.next_id == 27

    def test_a_single_row_is_stored_again(self):
        memory = filled(envs=1, size=1, times=3)
        assert memory.priorities.next_id == 3
        assert memory.sample(["observations"], batch_size=2)[0][0][:, 1].tolist() == [2.0, 2.0]

    def test_reset_begins_at_the_first_row(self):
        memory = filled(times=5)
        memory.reset()
        with pytest.raises(EmptyBufferError):
            memory.sample(["rewards"], batch_size=1)
        add(memory, 99, range(3))
        rows = memory.sample(["observations", "missing"], batch_size=9)[0]
        assert set(rows[0][:, 1].tolist()) == {99.0}
        assert rows[1] is None


def test_dqn_learns_the_weighted_loss_and_feeds_back_its_errors():
    memory = adapter.ReplayLabMemory(50, Prioritized(alpha=1.0, beta=0.7, epsilon=0.0), device="cpu", seed=0)
    agent, _ = agent_of(DQN, memory, learning_rate=0.1)
    agent.init()
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        memory.add_samples(
            observations=torch.randn(1, 4, generator=rng),
            next_observations=torch.randn(1, 4, generator=rng),
            actions=torch.randint(2, (1, 1), generator=rng).float(),
            rewards=torch.randn(1, 1, generator=rng),
            terminated=torch.rand(1, 1, generator=rng) < 0.3,
        )
    memory.priorities.update_priorities(np.arange(20), np.arange(1.0, 21.0))
    q, twin = copy.deepcopy(agent.q_network), copy.deepcopy(memory.priorities)
    batch = twin.sample(8)
    rows = {name: tensor[batch.slot, 0] for name, tensor in memory.tensors.items()}
    with torch.no_grad():
        value = agent.target_q_network.net(rows["next_observations"]).max(1, keepdim=True).values
        target = rows["rewards"] + 0.99 * ~rows["terminated"] * value
    optimizer = torch.optim.Adam(q.parameters(), lr=0.1)
    errors = target - q.net(rows["observations"]).gather(1, rows["actions"].long())
    assert batch.weight.std() > 0.1
    (torch.from_numpy(batch.weight)[:, None] * errors.square()).mean().backward()
    optimizer.step()
    agent.update(timestep=0, timesteps=1)
    for expected, weights in zip(q.parameters(), agent.q_network.parameters(), strict=True):
        torch.testing.assert_close(weights, expected)
    memory._feed_back()
    twin.update_priorities(batch.id, errors.detach().numpy()[:, 0])
    ids = np.arange(20)
    np.testing.assert_allclose(memory.priorities.probabilities(ids), twin.probabilities(ids), rtol=1e-5)


@pytest.mark.parametrize("kind", [DQN, SAC, TD3])
def test_agents_train_and_feed_back(kind):
    memory, agent = trained(kind, Prioritized(alpha=0.6, beta=0.4))
    chances = memory.priorities.probabilities(memory.priorities.stored_ids())
    assert len(memory) == len(memory.priorities) == 60
    assert len(set(np.round(chances, 9))) > 20
    assert memory.priorities.stats().samples >= 8 * 28
    network = agent.q_network if kind is DQN else agent.critic_1
    assert all(torch.isfinite(weights).all() for weights in network.parameters())
    assert type(memory.tensors["rewards"]) is torch.Tensor


def test_uniform_batches_are_plain_tensors():
    memory = filled(Uniform(), times=5)
    assert type(memory.sample(["rewards"], batch_size=4)[0][0]) is torch.Tensor


def test_rewards_that_do_not_exist_are_none():
    memory = adapter.ReplayLabMemory(7, Prioritized(beta=0.4), device="cpu", seed=0)
    memory.create_tensor("observations", size=1)
    memory.add_samples(observations=torch.zeros(1, 1))
    assert memory.sample(["rewards"], batch_size=4) == [[None]]


def test_schedules_follow_the_batches():
    memory = adapter.ReplayLabMemory(
        1, Prioritized(beta=Linear(0.0, 1.0)), num_envs=9, total_batches=4, device="cpu", seed=0
    )
    memory.create_tensor("rewards", size=1, dtype=torch.float32)
    memory.add_samples(rewards=torch.zeros(9, 1))
    memory.priorities.update_priorities(np.arange(9), np.arange(1.0, 10.0))
    for progress in (0.0, 0.25, 0.5, 0.75, 1.0):
        memory.sample(["rewards"], batch_size=4)
        assert (memory._draw.weight == 1.0).all() == (progress == 0.0)


class TestRefusals:
    def test_senseless_arguments(self):
        accepts = {"total_batches": "None", "seed": SEED}
        assert wrongs(Call(adapter.ReplayLabMemory, {"memory_size": 8}, accepts)) == []

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"memory_size": 0}, "`memory_size` must be at least 1"),
            ({"num_envs": 0}, "`num_envs` must be at least 1"),
            ({"sampler": "uniform"}, "`sampler` must be a Sampler"),
            ({"sampler": EpisodeEnds()}, "`sampler` must not depend on episodes"),
            ({"sampler": ReLo()}, "`sampler` must not depend on episodes or on other feedback"),
            ({"sampler": LaBER(len)}, "LaBER"),
            ({"total_batches": 0}, "`total_batches` must be at least 1"),
        ],
        ids=str,
    )
    def test_options(self, options, message):
        with pytest.raises(ConfigError, match=message):
            adapter.ReplayLabMemory(**{"memory_size": 9, "device": "cpu"} | options)

    @pytest.mark.parametrize("options", [{"mini_batches": 2}, {"sequence_length": 4}], ids=str)
    def test_draws_of_other_forms(self, options):
        with pytest.raises(ConfigError, match=f"`{next(iter(options))}` must be 1"):
            filled(times=5).sample(["rewards"], batch_size=4, **options)

    def test_more_rows_than_environments(self):
        with pytest.raises(ConfigError, match="`rewards` must have at most 1 rows, one an environment, but got 4"):
            filled(envs=1).add_samples(rewards=torch.zeros(4, 1))
