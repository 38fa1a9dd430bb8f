"""Every public call of the environments, with one senseless argument at a time."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab import envs
from replaylab.envs import (
    AcrobotGoalEnv,
    AcrobotGoalVectorEnv,
    AcrobotVectorEnv,
    AtariVectorEnv,
    Binning,
    BitFlipEnv,
    BitFlipVectorEnv,
    BlindCliffwalkEnv,
    BlindCliffwalkVectorEnv,
    CartPoleVectorEnv,
    Discretize,
    DiscretizeVector,
    GridWorldEnv,
    GridWorldVectorEnv,
    MinAtarEnv,
    MinAtarVectorEnv,
    MountainCarGoalEnv,
    MountainCarGoalVectorEnv,
    MountainCarVectorEnv,
    NoisyRewards,
    TableVectorEnv,
    TransitionTable,
    VectorNoisyRewards,
    VisitCounts,
    goal_functions,
    make_atari,
    make_vector_env,
)
from tests.senseless import NUMBERS, TRUTH, Call, wrongs

LIMIT = {"max_episode_steps": "None"}
SHORT = {"max_episode_steps": 9, "autoreset_mode": "Disabled"}
MINATAR = {"sticky_action_prob": "0", "difficulty_ramping": TRUTH, "minimal_actions": TRUTH, "render_mode": "None"}
BINS = Binning((-1.0,) * 4, (1.0,) * 4, (2,) * 4)


def cartpole():
    return CartPoleVectorEnv(2)


def table():
    return TransitionTable.of("FrozenLake-v1")


def parts():
    return {name: getattr(table(), name) for name in ("probability", "next_state", "reward", "terminated", "start")}


CALLS = [
    Call(AcrobotGoalEnv, {}, {"render_mode": "None"}, passed_on=("render_mode",)),
    Call(AcrobotGoalVectorEnv, {"num_envs": 2, **SHORT}, LIMIT),
    Call(AcrobotVectorEnv, {}, LIMIT),
    Call(BitFlipEnv, {"n": 3, "max_episode_steps": 9}, LIMIT),
    Call(BitFlipVectorEnv, {"n": 3}, LIMIT),
    Call(BlindCliffwalkEnv, {"max_episode_steps": 9}, LIMIT),
    Call(BlindCliffwalkVectorEnv, {"n": 3}, LIMIT),
    Call(Binning, {"low": (0.0,), "high": (1.0,), "bins": (3,)}),
    Call(Binning.from_data, {"obs": np.arange(6.0).reshape(3, 2), "bins": 2}),
    Call(Binning.from_space, {"space": spaces.Box(0, 1, (2,)), "bins": 2}),
    Call("__call__", {"obs": np.zeros((2, 4))}, {}, lambda: BINS),
    Call(CartPoleVectorEnv, {}, LIMIT | {"sutton_barto_reward": TRUTH}),
    Call("reset", {}, {"seed": "None 0 huge", "options": "None {}"}, cartpole),
    Call(Discretize, lambda: {"env": gym.make("CartPole-v1"), "binning": BINS}),
    Call(DiscretizeVector, lambda: {"env": cartpole(), "binning": BINS}),
    Call(GridWorldEnv, {"grid": ["S.G"], "max_episode_steps": 9}, LIMIT),
    Call(GridWorldVectorEnv, {"grid": ["S.G"]}, LIMIT),
    Call(MinAtarEnv, {"game": "breakout"}, MINATAR, passed_on=("kwargs",)),
    Call(MinAtarVectorEnv, {"game": "breakout", "num_envs": 2, **SHORT}, MINATAR | LIMIT),
    Call(MountainCarGoalEnv, {}, {"goal_velocity": "0"}, passed_on=("render_mode",)),
    Call(MountainCarGoalVectorEnv, {"num_envs": 2, **SHORT}, LIMIT | {"goal_velocity": "0"}),
    Call(MountainCarVectorEnv, {}, LIMIT | {"goal_velocity": NUMBERS}),
    Call(NoisyRewards, lambda: {"env": gym.make("CartPole-v1"), "scale": 1.0}, {"scale": "0 3.5 huge"}),
    Call(VectorNoisyRewards, lambda: {"env": cartpole(), "scale": 1.0}, {"scale": "0 3.5 huge"}),
    Call(TableVectorEnv, lambda: {"table": table()}, LIMIT),
    Call(TransitionTable, parts),
    Call(TransitionTable.of, {"env": "FrozenLake-v1"}),
    Call(
        VisitCounts,
        lambda: {"env": make_vector_env("CliffWalking-v1", 2)},
        {"bins": "None", "low": "None", "high": "None"},
    ),
    Call(
        VisitCounts,
        lambda: {"env": cartpole(), "bins": 2, "low": -1.0, "high": 1.0},
        {"low": "-1 0", "high": "0 3.5 True"},
    ),
    Call(goal_functions, lambda: {"env": MountainCarGoalEnv()}),
    Call(make_vector_env, {"env_id": "CartPole-v1", "num_envs": 2}, {"autoreset_mode": "None", "backend": "None"}),
]
ATARI = [
    Call(
        make,
        {"env_id": "ALE/Pong-v5", **arguments},
        {"noop_max": "0", "fire_on_reset": TRUTH, "clip_rewards": TRUTH, **further, **LIMIT},
    )
    for make, arguments, further in (
        (make_atari, {}, {"episodic_life": TRUTH}),
        (
            AtariVectorEnv,
            {"num_envs": 1},
            {"full_action_space": TRUTH, "repeat_action_probability": "0 None", "episodic_life": "0"},
        ),
    )
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_senseless_arguments(call):
    assert wrongs(call) == []


@pytest.mark.parametrize("call", ATARI, ids=lambda call: call.name)
def test_senseless_arguments_of_atari_games(call):
    pytest.importorskip("ale_py")
    assert wrongs(call) == []


UNCALLED = {"BatchedEnv", "register_envs"}
"""A base class, and what has no arguments."""


def test_nothing_is_left_out():
    called = {call.name.split(".")[0] for call in [*CALLS, *ATARI]} - {"__call__", "reset"}
    assert called | UNCALLED == set(envs.__all__)
