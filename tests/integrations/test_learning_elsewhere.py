"""TorchRL's and Tianshou's own trainers learn CartPole with rank-based replay; a random policy gets about 22."""

import gymnasium as gym
import numpy as np
import pytest

from replaylab.replay import RankBased

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SAMPLER = RankBased(beta=0.4, normalize="batch")
ROOM = 20_000


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - Tianshou explores by it


def layers():
    Linear, ReLU = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(Linear(4, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 2))


def test_torchrl():
    """20,000 frames; the greedy policy's mean over ten episodes."""
    pytest.importorskip("torchrl")
    from tensordict.nn import TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import ExplorationType, GymEnv, set_exploration_type
    from torchrl.modules import EGreedyModule, QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate
    from torchrl.trainers.algorithms import DQNTrainer

    from replaylab.integrations.torchrl import ReplayLabSampler

    env, test = (GymEnv("CartPole-v1", categorical_action_encoding=True) for _ in range(2))
    env.set_seed(1), test.set_seed(1001)
    actor = QValueActor(layers(), in_keys=["observation"], spec=env.action_spec)
    greedy = EGreedyModule(env.action_spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=5_000)
    loss = DQNLoss(actor, loss_function="l2", delay_value=True, double_dqn=True, action_space="categorical")
    loss.make_value_estimator(gamma=0.99)
    sampler = ReplayLabSampler(ROOM, SAMPLER, transform="sqrt", seed=1)
    trainer = DQNTrainer(
        collector=Collector(env, TensorDictSequential(actor, greedy), frames_per_batch=50, total_frames=ROOM),
        total_frames=ROOM,
        frame_skip=1,
        optim_steps_per_batch=10,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(ROOM), sampler=sampler, batch_size=64),
        target_net_updater=HardUpdate(loss, value_network_update_interval=200),
        greedy_module=greedy,
        progress_bar=False,
        enable_logging=False,
        seed=1,
        clip_norm=10.0,
    )
    trainer.train()
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        returns = [test.rollout(500, actor)["next", "reward"].sum().item() for _ in range(10)]
    assert np.mean(returns) >= 120
    assert sampler.priorities.stats().samples == 64 * 10 * ROOM // 50
    distribution = sampler.priorities.probabilities(sampler.priorities.stored_ids())
    assert distribution.max() > 10 * distribution.min()


def test_tianshou():
    """30,000 steps at most; the mean over twenty greedy episodes after the best epoch."""
    pytest.importorskip("tianshou")
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    from replaylab.integrations.tianshou import ReplayLabVectorBuffer

    train, test = (DummyVectorEnv([lambda: gym.make("CartPole-v1")] * count) for count in (10, 20))
    train.seed(1), test.seed(1001)
    env = gym.make("CartPole-v1")
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64])
    algorithm = DQN(
        policy=DiscreteQLearningPolicy(
            model=net, action_space=env.action_space, observation_space=env.observation_space, eps_training=0.1
        ),
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.99,
        n_step_return_horizon=3,
        target_update_freq=320,
    )
    buffer = ReplayLabVectorBuffer(ROOM, 10, SAMPLER, seed=1)
    collector = Collector(algorithm, train, buffer)
    collector.reset()
    collector.collect(n_step=640, random=True)
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=Collector(algorithm, test),
            max_epochs=6,
            epoch_num_steps=5_000,
            collection_step_num_env_steps=10,
            test_step_num_episodes=20,
            batch_size=64,
            update_step_num_gradient_steps_per_sample=0.2,
            stop_fn=lambda mean: mean >= 300,
            show_progress=False,
            verbose=False,
        )
    )
    assert result.best_reward >= 200
    distribution = buffer.priorities.probabilities(buffer.priorities.stored_ids())
    assert distribution.max() > 10 * distribution.min()
