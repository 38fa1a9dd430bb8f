"""Every public call of the integrations, with one senseless argument at a time."""

import pytest

from tests.senseless import SEED, TRUTH, Call, wrongs

GIVEN = {"source": [{"x": 1.0}] * 9, "buffer": 8, "batch_size": 2}
STREAM = {"source": "[] {}", "progress": "None 0", "seed": SEED, "names": "None []"}
STREAM |= dict.fromkeys(("warmup", "sampler"), "None")


def drained(node):
    node.reset()
    return list(node)


def test_data_sets():
    torch = pytest.importorskip("replaylab.integrations.torch")
    assert wrongs(Call(torch.ReplayDataset, GIVEN, STREAM | {"shard": TRUTH}, use=list)) == []


def test_nodes():
    torchdata = pytest.importorskip("replaylab.integrations.torchdata")
    assert wrongs(Call(torchdata.ReplayNode, GIVEN, STREAM | {"folder": "None text"}, use=drained)) == []


def test_buffers_for_cleanrl():
    cleanrl = pytest.importorskip("replaylab.integrations.cleanrl")
    from gymnasium import spaces

    box = spaces.Box(-1, 1, (4,))
    valid = {"buffer_size": 8, "observation_space": box, "action_space": box, "device": "cpu", "n_envs": 2, "seed": 0}
    accepts = dict.fromkeys(("optimize_memory_usage", "handle_timeout_termination"), TRUTH)
    accepts |= dict.fromkeys(("sampler", "autoreset", "storage"), "None") | {"transforms": "[]", "seed": SEED}
    assert wrongs(Call(cleanrl.ReplayBuffer, valid, accepts, passed_on=("device",))) == []


def test_episodes_of_data_sets():
    from replaylab.integrations import d4rl, lerobot

    arrays = {"observations": [0.0, 1.0], "terminals": [0, 1], "timeouts": [0, 0]}
    accepts = {"terminals": "None", "extra": "None {} [] 0"}
    assert wrongs(Call(d4rl.episodes, {"arrays": arrays}, accepts)) == []
    table = {"observation": [0.0, 1.0], "episode_index": [0, 0]}
    accepts = {"frames": "[]", "pictures": "None", "extra": "None {} [] 0"}
    assert wrongs(Call(lerobot.episodes, {"frames": table}, accepts, use=list)) == []


def test_buffers_of_stable_baselines3():
    sb3 = pytest.importorskip("replaylab.integrations.sb3")
    from gymnasium import spaces

    box = spaces.Box(-1, 1, (4,))
    goals = spaces.Dict(dict.fromkeys(("achieved_goal", "desired_goal"), box))
    valid = {
        "buffer_size": 8,
        "observation_space": box,
        "action_space": box,
        "device": "cpu",
        "n_envs": 2,
        "optimize_memory_usage": False,
        "handle_timeout_termination": True,
        "sampler": None,
        "n_steps": 2,
        "gamma": 0.9,
        "n_sampled_goal": None,
        "goal_selection_strategy": None,
        "compute_terminated": "stored",
        "frame_stack": 2,
        "padding": "zero",
        "compressed": False,
        "storage": None,
        "snapshots": None,
        "count_replays": False,
        "seed": 0,
    }
    unchecked = ("observation_space", "action_space", "device")
    flags = dict.fromkeys(("optimize_memory_usage", "handle_timeout_termination", "compressed", "count_replays"), TRUTH)
    none = dict.fromkeys(("sampler", "n_steps", "frame_stack", "storage"), "None")
    accepts = flags | none | {"gamma": "0", "snapshots": "None text", "seed": SEED}
    of_goals = ("n_sampled_goal", "goal_selection_strategy", "compute_terminated")
    assert wrongs(Call(sb3.ReplayLabBuffer, valid, accepts, passed_on=(*unchecked, *of_goals))) == []
    accepts |= {"n_sampled_goal": "None 0 3.5 huge", "goal_selection_strategy": "None"}
    with_goals = valid | {"observation_space": goals, "n_sampled_goal": 1.0, "frame_stack": None}
    checked = tuple(name for name in valid if name not in of_goals)
    assert wrongs(Call(sb3.ReplayLabBuffer, with_goals, accepts, passed_on=checked)) == []


def test_samplers_of_torchrl():
    torchrl = pytest.importorskip("replaylab.integrations.torchrl")
    accepts = {"transform": "None", "total_batches": "None", "seed": SEED}
    assert wrongs(Call(torchrl.ReplayLabSampler, {"capacity": 8}, accepts)) == []


def test_buffers_of_tianshou():
    tianshou = pytest.importorskip("replaylab.integrations.tianshou")
    valid = {"total_size": 8, "buffer_num": 2}
    accepts = {"total_batches": "None", "seed": SEED}
    assert wrongs(Call(tianshou.ReplayLabVectorBuffer, valid, accepts)) == []
