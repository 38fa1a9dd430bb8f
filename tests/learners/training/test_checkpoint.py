"""A run that was saved in the middle continues bit for bit, whatever it is made of."""

import itertools
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from replaylab.errors import SnapshotError, StorageError
from replaylab.files.folder import Folder
from replaylab.learners import DQN, DQNAsPublished, QLearning, Sarsa
from replaylab.learners.api.agent_laber import AgentLaBER
from replaylab.learners.tabular.oracle import EnvOracle
from replaylab.learners.training import checkpoint, metrics_recorder, saved_agents
from replaylab.replay import FrameStack, Linear, NStep, Prioritized, Uniform
from tests.learners.calls import assert_same_rows, train
from tests.learners.tabular import corridor

DEEP = DQN(hidden=(8,), batch_size=4, learning_starts=10, capacity=40, target_period=7, epsilon=Linear(1.0, 0.1))
NOISY = "replaylab/NoisyRewards-v0"
TABLE = QLearning(batch_size=4, learning_starts=10, capacity=40, epsilon=0.3)


class Drifting(corridor.Corridor):
    """An environment whose future depends on more than its own random stream: how often it was ever reset."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        Drifting.resets += 1
        self.episode += Drifting.resets
        return self._obs(), {}


if "Drifting-v0" not in gym.registry:
    gym.register("Drifting-v0", Drifting, max_episode_steps=7)

RUNS = {
    "deep": ("CartPole-v1", DEEP, Prioritized(), {"total_steps": 90}),
    "n-step": ("CartPole-v1", DEEP, Uniform(), {"total_steps": 90, "transforms": [NStep(3, 0.99)]}),
    "gymnasium": (corridor.ENV_ID, DEEP, Uniform(), {"total_steps": 90}),
    "next step": (corridor.ENV_ID, DEEP, Uniform(), {"total_steps": 90, "autoreset_mode": "NextStep"}),
    "disabled": (corridor.ENV_ID, DEEP, Uniform(), {"total_steps": 90, "autoreset_mode": "Disabled"}),
    "noisy": (NOISY, DEEP, Uniform(), {"total_steps": 90, "env_options": {"env": corridor.ENV_ID}}),
    "noisy, in episodes": (NOISY, DEEP, Uniform(), {"total_episodes": 9, "env_options": {"env": corridor.ENV_ID}}),
    "noisy by ours": (NOISY, DEEP, Uniform(), {"total_steps": 90, "autoreset_mode": "NextStep"}),
    "table": ("FrozenLake-v1", TABLE, Prioritized(beta=0.5), {"total_episodes": 9}),
    "Atari": (
        "ALE/Breakout-v5",
        replace(DEEP, pixel_network="data_efficient", dueling=True, train_period=6),
        Prioritized(),
        {
            "total_steps": 90,
            "eval_every": None,
            "transforms": [NStep(3, 0.99), FrameStack(4, stacked_input=True)],
            "env_options": {"screen_size": 25, "episodic_life": True, "max_num_frames_per_episode": 100},
        },
    ),
    "oracle": (
        "replaylab/BlindCliffwalk-v0",
        QLearning(alpha=0.25, gamma=0.9, epsilon=0.7, batch_size=1, learning_starts=1, initial_std=0.1, capacity=40),
        EnvOracle(),
        {"total_episodes": 20, "env_options": {"n": 4}},
    ),
    "filters": ("replaylab/MinAtar-Breakout-v1", replace(DEEP, filters=4), Prioritized(), {"total_steps": 90}),
    "laber": ("CartPole-v1", DEEP, AgentLaBER(), {"total_episodes": 9}),
    "flaws": (
        corridor.ENV_ID,
        DQNAsPublished(**vars(DEEP), stale_priorities=True, target_each_episode=True, end_reward=-10.0),
        Prioritized(),
        {"total_steps": 90},
    ),
    "sarsa": ("FrozenLake-v1", Sarsa(epsilon=0.3), Uniform(), {"total_episodes": 9, "trace_every": 2}),
}
OPTIONS = {"eval_every": 4, "eval_episodes": 1, "log_every": 3}


def killed(monkeypatch, after):
    """Let training die after so many checkpoints."""
    save, count = checkpoint.save, []

    def once(*args):
        save(*args)
        count.append(1)
        if len(count) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", once)


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_goes_on_bit_for_bit(name, tmp_path, monkeypatch):
    if name == "Atari":
        pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
        pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    env_id, learner, sampler, options = RUNS[name]
    seeds = [3] if name == "Atari" else [3, 5, 1]  # loading the game takes longest
    ends = []

    def run(**more):
        def on_end(seeds, agents):
            ends.append((seeds, agents.state()))

        return train(env_id, learner, sampler, seeds, on_end=on_end, **OPTIONS | options | more)

    unbroken = run()
    expected, ends[:] = list(ends), []
    every = 40 if "total_steps" in options else 3
    with monkeypatch.context() as patch:
        killed(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            run(save=tmp_path, save_every=every)
    assert_same_rows(run(resume=tmp_path), unbroken)
    for (seeds, state), (other_seeds, other) in zip(expected[-len(ends) :], ends[-len(expected) :], strict=False):
        assert seeds == other_seeds
        for array in state:
            np.testing.assert_array_equal(state[array], other[array])


@pytest.mark.parametrize("name", ["oracle", "laber"])
def test_a_population_whose_sampler_asks_equals_its_single_runs(name):
    env_id, learner, sampler, options = RUNS[name]
    together, alone = (train(env_id, learner, sampler, seeds, **OPTIONS | options) for seeds in ([3, 4], [4]))
    assert_same_rows(together, alone, together.columns["seed"] == 4)


def test_the_speed_is_of_what_was_trained_since_the_run_goes_on(tmp_path, monkeypatch):
    """A second passes between two looks at the clock: so the speed is the steps between two reports of both seeds."""
    reported = []
    monkeypatch.setattr(metrics_recorder, "time", SimpleNamespace(perf_counter=map(float, itertools.count()).__next__))
    options = {"eval_every": None, "log_every": 15, "save": tmp_path, "save_every": 40}
    options["on_metrics"] = lambda now, values: (
        "time/fps" in values and reported.append((now, values["time/fps"].tolist()))
    )
    args = ("CartPole-v1", DEEP, Uniform(), [3, 5], 90)
    with monkeypatch.context() as patch:
        killed(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            train(*args, **options)
    del reported[:]
    train(*args, **options, resume=tmp_path)
    assert reported == [(90, [20.0, 20.0])]  # ten steps of each seed since the checkpoint at 80


def test_a_kill_while_saving_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    args = ("CartPole-v1", DEEP, Prioritized(), [3, 5], 90)
    unbroken = train(*args, **OPTIONS)
    replace_file, calls = Folder.replace, []

    def dies(folder, name, content):
        calls.append(name)
        if calls.count("run.json") == 2:
            raise KeyboardInterrupt
        return replace_file(folder, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            train(*args, save=tmp_path, save_every=20, **OPTIONS)
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == 20
    assert_same_rows(train(*args, resume=tmp_path, **OPTIONS), unbroken)


def test_saving_changes_nothing_and_keeps_two_buffers(tmp_path):
    args = ("CartPole-v1", DEEP, Prioritized(), [3, 5], 90)
    assert_same_rows(train(*args, save=tmp_path, save_every=20, **OPTIONS), train(*args, **OPTIONS))
    names = {re.sub("state-.*", "state", file.name) for file in tmp_path.iterdir()}
    assert names == {"run.json", "state", "buffer-0", "buffer-1", "agents-3.npz", "agents-5.npz"}


def test_what_an_agent_has_learned_is_there_at_the_end(tmp_path):
    ended = {}
    args = ("FrozenLake-v1", TABLE, Uniform(), [3, 5])
    train(
        *args, total_episodes=5, save=tmp_path, on_end=lambda seeds, agents: ended.update(dict.fromkeys(seeds, agents))
    )
    env = gym.make("FrozenLake-v1")
    for seed in (3, 5):
        agent = TABLE.agents(env.observation_space, env.action_space, [0])
        saved_agents.load_agents(tmp_path, agent, seed)
        assert agent.q.any() or not ended[seed].q.any()
        assert any(np.array_equal(agent.q[0], q) for q in ended[seed].q)
    with pytest.raises(SnapshotError, match="the run of seed 4 did not end"):
        saved_agents.load_agents(tmp_path, agent, 4)


def test_a_run_with_other_settings_is_another_one(tmp_path):
    args = ("CartPole-v1", DEEP, Uniform(), [3], 40)
    train(*args, save=tmp_path, save_every=20, **OPTIONS)
    message = 'is another one: it was trained with sampler={"replace":true,"stratified":false,"type":'
    with pytest.raises(SnapshotError, match=re.escape(message)):
        train("CartPole-v1", DEEP, Prioritized(), [3], 40, resume=tmp_path, **OPTIONS)


def test_an_environment_that_cannot_be_put_back_is_found_out(tmp_path):
    args = ("Drifting-v0", DEEP, Uniform(), [3], 45)
    train(*args, save=tmp_path, save_every=20, **OPTIONS)
    with pytest.raises(SnapshotError, match="the environment did not return to its saved state"):
        train(*args, resume=tmp_path, **OPTIONS)


def test_a_folder_of_agents_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    spaces = [getattr(gym.make("FrozenLake-v1"), f"{name}_space") for name in ("observation", "action")]
    agents = TABLE.agents(*spaces, [0])
    with pytest.raises(StorageError, match=r"cannot be written: .*A file is where a folder is needed"):
        saved_agents.save_agents(tmp_path / "file" / "run", agents, [3])
