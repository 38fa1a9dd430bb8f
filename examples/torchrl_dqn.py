"""A TorchRL DQN on CartPole whose replay is ranked by replaylab. Needs ``replaylab[torchrl]``."""

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from replaylab.integrations.torchrl import ReplayLabSampler
from replaylab.replay import Linear, RankBased

env = GymEnv("CartPole-v1", categorical_action_encoding=True)
network = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
policy = TensorDictSequential(actor, EGreedyModule(env.action_spec, eps_init=0.2))
loss = DQNLoss(actor, delay_value=True, action_space="categorical")
loss.make_value_estimator(gamma=0.99)
target, adam = SoftUpdate(loss, eps=0.99), torch.optim.Adam(loss.parameters(), lr=1e-3)

sampler = ReplayLabSampler(
    10_000,
    RankBased(beta=Linear(0.4, 1.0), normalize="batch"),
    transform="sqrt",  # DQNLoss writes the squared error
    total_batches=40,  # β goes from 0.4 to 1 over as many
    seed=0,
)
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), sampler=sampler, batch_size=32)
for steps in Collector(env, policy, frames_per_batch=50, total_frames=500):
    buffer.extend(steps.reshape(-1))
    for _ in range(4):
        batch = buffer.sample()
        loss(batch)["loss"].backward()  # weighted by the batch's priority_weight
        adam.step(), adam.zero_grad()
        target.step()
        buffer.update_tensordict_priority(batch)
