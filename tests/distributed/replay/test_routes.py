"""Flags of every form that a buffer takes say where an episode, and so its shard, ends."""

import numpy as np
import pytest

from replaylab.distributed.replay.routes import Routes
from replaylab.replay import Field, ReplayBuffer


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float32])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_an_episode_ends_where_a_flag_is_not_zero(dtype, shape):
    flag = Field(shape, dtype)
    template = ReplayBuffer(10, {"x": Field(), "terminated": flag, "truncated": flag}, num_envs=1)
    routes = Routes(template, np.arange(1), 2, 1)
    ended = np.array([0, 1, 0, 0]).astype(dtype).reshape(4, 1, *shape)
    cut_off = np.array([0, 0, 0, 1]).astype(dtype).reshape(4, 1, *shape)
    found = list(routes.route({"terminated": ended, "truncated": cut_off}, np.ones((4, 1), np.bool_)))
    assert [(one.shard, len(one.where)) for one in found] == [(0, 2), (1, 2)]
