"""A Tianshou DQN on CartPole whose replay is ranked by replaylab. Needs ``replaylab[tianshou]``."""

import gymnasium as gym
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from replaylab.integrations.tianshou import ReplayLabVectorBuffer
from replaylab.replay import Linear, RankBased

env = gym.make("CartPole-v1")
train, test = (DummyVectorEnv([lambda: gym.make("CartPole-v1")] * 2) for _ in range(2))
policy = DiscreteQLearningPolicy(
    model=Net(state_shape=(4,), action_shape=2, hidden_sizes=[64]),
    action_space=env.action_space,
    observation_space=env.observation_space,
    eps_training=0.1,
)
algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, target_update_freq=100)

buffer = ReplayLabVectorBuffer(
    10_000,
    2,
    RankBased(beta=Linear(0.4, 1.0), normalize="batch"),
    total_batches=100,  # β goes from 0.4 to 1 over as many
    seed=0,
)
collector = Collector(algorithm, train, buffer)
collector.reset()
result = algorithm.run_training(
    OffPolicyTrainerParams(
        training_collector=collector,
        test_collector=Collector(algorithm, test),
        max_epochs=1,
        epoch_num_steps=500,
        collection_step_num_env_steps=10,
        update_step_num_gradient_steps_per_sample=0.2,
        batch_size=32,
        show_progress=False,
        verbose=False,
    )
)
