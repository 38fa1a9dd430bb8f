"""Adapters whose user feeds nothing back warn once, as buffers do."""

import numpy as np
import pytest

from replaylab.replay import RankBased

MESSAGE = r"RankBased draws by priorities, but 1,000 batches .* update_tensordict_priority\(batch\)"


def draw(sample, *arguments):
    for _ in range(1000):
        sample(*arguments)


def test_a_torchrl_sampler_without_feedback_warns():
    pytest.importorskip("torchrl")
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    from replaylab.integrations.torchrl import ReplayLabSampler

    sampler = ReplayLabSampler(20, RankBased(beta=0.4), seed=0)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20), sampler=sampler, batch_size=4)
    buffer.extend(TensorDict({"x": torch.zeros(20)}, [20]))
    with pytest.warns(UserWarning, match=MESSAGE):
        draw(buffer.sample)


def test_a_tianshou_buffer_without_feedback_warns():
    pytest.importorskip("tianshou")
    from tianshou.data import Batch

    from replaylab.integrations.tianshou import ReplayLabVectorBuffer

    buffer = ReplayLabVectorBuffer(20, 1, RankBased(beta=0.4), seed=0)
    step = Batch(obs=[0.0], act=[1], rew=[1.0], terminated=[False], truncated=[False], obs_next=[1.0])
    for _ in range(20):
        buffer.add(step)
    with pytest.warns(UserWarning, match=MESSAGE):
        draw(buffer.sample_indices, 4)
    buffer.update_weight(np.arange(3), np.ones(3))
    buffer.sample_indices(4)
