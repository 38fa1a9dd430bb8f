"""A run that was saved in the middle goes on bit for bit, whatever it is made of."""

import errno
import itertools
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from replaylab.errors import ConfigError, SnapshotError, StorageError
from replaylab.files import manifest as sealed
from replaylab.learners import DQN, QLearning, RMSprop, Sarsa
from replaylab.learners.training import checkpoint, metrics_recorder
from replaylab.replay import FrameStack, Linear, NStep, Prioritized, Uniform
from tests.learners.calls import train
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
        replace(DEEP, pixel_network="data_efficient", train_period=6),
        Prioritized(),
        {
            "total_steps": 90,
            "eval_every": 40,
            "transforms": [NStep(3, 0.99), FrameStack(4, stacked_input=True)],
            "env_options": {"screen_size": 25, "episodic_life": True, "max_num_frames_per_episode": 100},
        },
    ),
    "sarsa": ("FrozenLake-v1", Sarsa(epsilon=0.3), Uniform(), {"total_episodes": 9}),
}
OPTIONS = {"eval_every": 4, "eval_episodes": 1, "log_every": 3}


def equal(left, right):
    for name, column in left.columns.items():
        np.testing.assert_array_equal(column, right.columns[name])


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
    ends = []

    def run(**more):
        def on_end(seeds, agents):
            ends.append((seeds, agents.state()))

        return train(env_id, learner, sampler, [3, 5, 1], on_end=on_end, **OPTIONS | options | more)

    whole = run()
    expected, ends[:] = list(ends), []
    every = 40 if "total_steps" in options else 3
    with monkeypatch.context() as patch:
        killed(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            run(save=tmp_path, save_every=every)
    equal(run(resume=tmp_path), whole)
    for (seeds, state), (other_seeds, other) in zip(expected[-len(ends) :], ends[-len(expected) :], strict=False):
        assert seeds == other_seeds
        for array in state:
            np.testing.assert_array_equal(state[array], other[array])


def test_the_speed_is_of_what_was_trained_since_the_run_goes_on(tmp_path, monkeypatch):
    """A second passes between two looks at the clock: so the speed is the steps between two reports of both seeds."""
    told = []
    monkeypatch.setattr(metrics_recorder, "time", SimpleNamespace(perf_counter=map(float, itertools.count()).__next__))
    options = {"eval_every": None, "log_every": 15, "save": tmp_path, "save_every": 40}
    options["on_metrics"] = lambda now, values: told.append((now, values["time/fps"].tolist()))
    args = ("CartPole-v1", DEEP, Uniform(), [3, 5], 90)
    with monkeypatch.context() as patch:
        killed(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            train(*args, **options)
    del told[:]
    train(*args, **options, resume=tmp_path)
    assert told == [(90, [20.0, 20.0])]  # ten steps of each seed since the checkpoint at 80


def test_a_kill_while_saving_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    args = ("CartPole-v1", DEEP, Prioritized(), [3, 5], 90)
    whole = train(*args, **OPTIONS)
    write = sealed.write
    calls = []

    def dies(file, value):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return write(file, value)

    with monkeypatch.context() as patch:
        patch.setattr(sealed, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            train(*args, save=tmp_path, save_every=20, **OPTIONS)
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == 20
    equal(train(*args, resume=tmp_path, **OPTIONS), whole)


def test_saving_changes_nothing_and_keeps_two_buffers_and_one_state(tmp_path):
    args = ("CartPole-v1", DEEP, Prioritized(), [3, 5], 90)
    equal(train(*args, save=tmp_path, save_every=20, **OPTIONS), train(*args, **OPTIONS))
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
        checkpoint.load_agents(tmp_path, agent, seed)
        assert agent.q.any() or not ended[seed].q.any()
        assert any(np.array_equal(agent.q[0], q) for q in ended[seed].q)
    with pytest.raises(SnapshotError, match="the run of seed 4 did not end"):
        checkpoint.load_agents(tmp_path, agent, 4)


@pytest.mark.parametrize("damage", ["nothing", "another run", "manifest", "state", "missing"])
def test_what_is_no_whole_run_of_this_kind_is_told(damage, tmp_path):
    args = ["CartPole-v1", DEEP, Uniform(), [3], 40]
    message = {
        "nothing": "holds no run: there is no run.json in it",
        "another run": "is another one; it can continue only as it began, with env_id=CartPole-v1",
        "manifest": "is damaged: it is not what was written",
        "state": "is not what was written; use another copy",
        "missing": "the checkpoint is not complete",
    }[damage]
    if damage != "nothing":
        train(*args, save=tmp_path, save_every=20, **OPTIONS)
        state = next(tmp_path.glob("state-*.npz"))
    if damage == "another run":
        args[2] = Prioritized()
    if damage == "manifest":
        text = (tmp_path / "run.json").read_text()
        (tmp_path / "run.json").write_text(text.replace('"steps": 20', '"steps": 21'))
    if damage == "state":
        state.write_bytes(state.read_bytes()[:-1] + b"?")
    if damage == "missing":
        state.unlink()
    with pytest.raises(SnapshotError, match=re.escape(message)):
        train(*args, resume=tmp_path, **OPTIONS)


def test_a_run_that_was_saved_before_hooks_goes_on(tmp_path):
    """Written at step 70 by the training loop that had no hooks; with visits and measures, which are hooks now."""
    shutil.unpack_archive(Path(__file__).with_name("run-of-version-2.zip"), tmp_path)
    learner = QLearning(batch_size=4, capacity=16, learning_starts=8)
    options = {"total_steps": 120, "eval_every": None, "log_every": 40, "measure_every": 20, "visits": True}
    again = train("FrozenLake-v1", learner, Prioritized(), [3, 5], resume=tmp_path, **options)
    unbroken = train("FrozenLake-v1", learner, Prioritized(), [3, 5], **options)
    for name, column in again.columns.items():  # the last bits differ from processor to processor
        close = np.testing.assert_allclose if column.dtype.kind == "f" else np.testing.assert_array_equal
        close(column, unbroken.columns[name])


def test_an_environment_that_cannot_be_put_back_is_found_out(tmp_path):
    args = ("Drifting-v0", DEEP, Uniform(), [3], 45)
    train(*args, save=tmp_path, save_every=20, **OPTIONS)
    with pytest.raises(SnapshotError, match="the environment did not return to its saved state"):
        train(*args, resume=tmp_path, **OPTIONS)


def interrupted_after_renaming(patch, name):
    """Have Ctrl-C come in the middle of the call that puts a file of this name into its place."""
    replace_file = Path.replace

    def interrupted(self, target):
        replace_file(self, target)
        if Path(target).name == name:
            raise KeyboardInterrupt

    patch.setattr(Path, "replace", interrupted)


def files(folder):
    return sorted(one.name for one in folder.rglob("*"))


class TestFailedSaves:
    """A save that fails leaves the folder as it was."""

    @pytest.mark.parametrize("at", ["numpy.savez", "json.dump", "replaylab.learners.training.checkpoint._checked"])
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
    def test_nothing_is_left(self, tmp_path, monkeypatch, at, error):
        args = ("FrozenLake-v1", TABLE, Uniform(), [3])
        train(*args, total_episodes=9, save=tmp_path / "a", save_every=3)
        shutil.rmtree(tmp_path / "a" / "buffer-0", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        there = files(tmp_path)

        def fail(*args, **options):
            raise error

        expected = StorageError if isinstance(error, OSError) else KeyboardInterrupt
        for _ in range(3):
            for folder in (tmp_path / "b", tmp_path / "new" / "folder"):
                monkeypatch.setattr(at, fail)
                with pytest.raises(expected):
                    train(*args, total_episodes=9, save=folder, save_every=3)
                monkeypatch.undo()
        assert files(tmp_path) == there

    def test_an_interrupt_right_after_the_rename_keeps_the_new_checkpoint(self, tmp_path, monkeypatch):
        args, options = ("FrozenLake-v1", TABLE, Uniform(), [3]), {"total_episodes": 9}
        whole = train(*args, **options)
        with monkeypatch.context() as patch:
            interrupted_after_renaming(patch, "run.json")
            with pytest.raises(KeyboardInterrupt):
                train(*args, **options, save=tmp_path, save_every=3)
        equal(train(*args, **options, resume=tmp_path), whole)

    def test_a_folder_of_agents_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=r"cannot be written: .*A file is where a folder is needed"):
            checkpoint.save_agents(tmp_path / "file" / "run", None, [])

    def test_the_folders_that_are_made_are_brought_to_disk(self, tmp_path, monkeypatch):
        settled, fsync = [], os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (settled.append(os.fstat(fd).st_ino), fsync(fd))[1])
        train("FrozenLake-v1", TABLE, Uniform(), [3], total_episodes=4, save=tmp_path / "a" / "b", save_every=3)
        assert {tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino} <= set(settled)


class TestEditedManifests:
    @pytest.fixture
    def saved(self, tmp_path):
        train("FrozenLake-v1", TABLE, Uniform(), [3], total_episodes=4, save=tmp_path / "s", save_every=3)
        return tmp_path / "s"

    @pytest.mark.parametrize(
        "change",
        [
            {"state": {"file": "../outside.npz", "bytes": 1, "crc32": 1}},
            {"state": {"file": "/etc/passwd", "bytes": 1, "crc32": 1}},
            {"state": {"file": "state.npz", "bytes": "x", "crc32": 1}},
            {"state": None},
            {"state": "state.npz"},
            {"buffer": "../buffer-0"},
            {"buffer": 3},
            {"seeds": None},
            {"seeds": ["x"]},
            {"began_with": "x"},
            {"job": 3},
        ],
        ids=str,
    )
    def test_members_of_another_kind(self, saved, change):
        manifest = json.loads((saved / "run.json").read_text()) | change
        (saved / "run.json").write_text(json.dumps(manifest | {"crc32": sealed.seal(manifest)}))
        for options in ({"resume": saved}, {"save": saved, "save_every": 2}):
            with pytest.raises(SnapshotError, match="is not a run that this library wrote"):
                train("FrozenLake-v1", TABLE, Uniform(), [3], total_episodes=4, **options)

    @pytest.mark.parametrize("text", ["[" * 100_000, "null", "[]", "\xff", ""])
    def test_no_json(self, saved, text):
        (saved / "run.json").write_bytes(text.encode("latin1"))
        with pytest.raises(SnapshotError):
            train("FrozenLake-v1", TABLE, Uniform(), [3], total_episodes=4, resume=saved)

    def test_what_is_no_array(self, saved):
        (saved / "agents-3.npz").write_bytes(b"nonsense")
        agent = TABLE.agents(gym.make("FrozenLake-v1").observation_space, gym.make("FrozenLake-v1").action_space, [0])
        with pytest.raises(SnapshotError, match="is not a file of agents that this library wrote"):
            checkpoint.load_agents(saved, agent, 3)

    @pytest.mark.parametrize("path", [3, "", "a\0b"], ids=repr)
    def test_no_path(self, path):
        with pytest.raises(ConfigError, match="must be the path of a folder"):
            train("FrozenLake-v1", TABLE, Uniform(), [3], total_episodes=4, resume=path)


class TestOptionsThatCameLater:
    """A run goes on that was saved before an option existed, where the option is what was always done."""

    ABSENT = (r", optimizer=\w+\([^()]*\)", r", pixel_network='nature'", r", stratified=\w+")
    RUN = ("CartPole-v1", DEEP, Prioritized(), [3], 60)

    def saved(self, monkeypatch, folder, *absent):
        """Train to step 40 and save, without these options in what is kept of the settings."""
        settings = checkpoint.settings_of

        def before(configuration):
            text = settings(configuration)
            for option in absent:
                text, found = re.subn(option, "", text)
                assert found == 1
            return text

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "settings_of", before)
            train(*self.RUN, save=folder, save_every=40, **OPTIONS)

    @pytest.mark.parametrize("absent", [ABSENT[:1], ABSENT[1:], ABSENT], ids=["one", "two", "all"])
    def test_at_their_defaults(self, tmp_path, monkeypatch, absent):
        self.saved(monkeypatch, tmp_path, *absent)
        equal(train(*self.RUN, resume=tmp_path, **OPTIONS), train(*self.RUN, **OPTIONS))

    def test_changed(self, tmp_path, monkeypatch):
        self.saved(monkeypatch, tmp_path, *self.ABSENT)
        with pytest.raises(SnapshotError, match="another one; it can continue only as it began"):
            train("CartPole-v1", replace(DEEP, optimizer=RMSprop()), *self.RUN[2:], resume=tmp_path, **OPTIONS)
