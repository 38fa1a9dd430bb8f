"""The executors of one machine keep the sampling distributions of executors."""

import os
import signal
import threading
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import pytest

from replaylab.commands import main as cli
from replaylab.errors import ConfigError
from replaylab.study import InProcess, LocalProcesses
from replaylab.study.execution.executor import Finished, Lost, TrainTask
from replaylab.study.execution.local import worker_process
from tests.study.execution.executor_conformance import HOSTILE, ExecutorConformance, chunks, finish
from tests.study.execution.test_study_run import interrupt, wait_for
from tests.study.tiny import command, study

STRATEGY = {"strategies": {"uniform": {"type": "uniform"}}}
DQN = {"learners": {"dqn": {"type": "dqn"}}}


class TestLocalProcesses(ExecutorConformance):
    def make(self):
        return LocalProcesses(workers=2)

    def kill_a_worker(self, executor):
        (worker,) = [
            worker_of_ticket
            for worker_of_ticket, ticket in executor._busy.items()
            if ticket == min(executor._busy.values())
        ]
        os.kill(worker._process.pid, signal.SIGKILL)

    def test_an_idle_worker_that_died_gets_no_task(self, executor):
        lakes = chunks()
        finish(executor, [TrainTask(lakes[0])])
        for worker in (dead := executor._idle[:]):
            os.kill(worker._process.pid, signal.SIGKILL)
        wait_for(lambda: dead and not any(worker.alive for worker in dead))
        (event,) = finish(executor, [TrainTask(lakes[1])])
        assert isinstance(event, Finished)

    def test_workers_are_kept_between_tasks_and_gone_after_close(self, executor):
        finish(executor, [TrainTask(p) for p in chunks()])
        pids = [worker._process.pid for worker in executor._idle]
        assert len(pids) == 2
        executor.close()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    @pytest.mark.parametrize("env", ["Crashes", "LeavesAChild", "LeavesAStranger"])
    def test_a_worker_that_ends_itself_is_lost_for_good(self, executor, env, monkeypatch):
        monkeypatch.setattr(worker_process, "_SECONDS_TO_END", 1.0)
        (crash, *_) = chunks(environments=[f"{HOSTILE}:{env}-v0"], **DQN)
        (event,) = finish(executor, [TrainTask(crash)])
        assert isinstance(event, Lost)
        assert event.reason == "The worker process ended with exit code 7"
        assert not event.retriable

    def test_what_its_worker_left_undone_is_a_failure(self, executor, tmp_path):
        options = {"strategies": {"uniform": {"type": "uniform"}}, "seeds": 2, "chunk_size": 1}
        tiny = study(tmp_path, environments=[f"{HOSTILE}:CrashesLater-v0"], **options)
        reported = "The worker process ended with exit code 7 before it finished this chunk."
        assert [f.traceback for f in tiny.run(executor=executor).failures] == [reported] * 2

    def test_killed_worker_names_likely_cause_and_next_step(self, executor, tmp_path):
        tiny = study(tmp_path, environments=[f"{HOSTILE}:KilledLater-v0"], seeds=1, **STRATEGY)
        (failure,) = tiny.run(executor=executor).failures
        assert failure.traceback == (
            "The worker process was killed by SIGKILL before it finished this chunk. The machine has most likely run "
            "out of memory. Run fewer workers (--workers), or lower `capacity` or `chunk_size`, and run the same "
            "command again."
        )

    def test_its_numbers_of_workers(self):
        assert repr(LocalProcesses(workers=3)) == "LocalProcesses(workers=3)"
        assert LocalProcesses().slots >= 1
        with pytest.raises(ConfigError, match=r"^`workers` must be at least 1, but got 0$"):
            LocalProcesses(workers=0)


class Watched(gym.Env):
    """Notes which thread steps it."""

    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)
    threads: ClassVar[set[int]] = set()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.threads.add(threading.get_ident())
        return 1, 1.0, True, False, {}


class TestInProcess(ExecutorConformance):
    def make(self):
        return InProcess()

    def make_another(self):
        return LocalProcesses(workers=1)

    def kill_a_worker(self, executor):
        pytest.skip("the worker is this process")

    def test_a_killed_worker_loses_its_task_and_no_other(self, executor):
        pytest.skip("the worker is this process")

    def test_your_code_runs_in_the_calling_thread(self, executor, monkeypatch):
        monkeypatch.setitem(gym.registry, "Watched-v0", gym.envs.registration.EnvSpec("Watched-v0", Watched))
        (watched, *_) = chunks(environments=["Watched-v0"])
        (event,) = finish(executor, [TrainTask(watched)])
        assert isinstance(event, Finished)
        assert Watched.threads == {threading.get_ident()}

    def test_leaving_the_debugger_ends_the_run(self, executor, monkeypatch):
        import bdb

        def leave(self, action):
            raise bdb.BdbQuit

        monkeypatch.setitem(gym.registry, "Watched-v0", gym.envs.registration.EnvSpec("Watched-v0", Watched))
        monkeypatch.setattr(Watched, "step", leave)
        (watched, *_) = chunks(environments=["Watched-v0"])
        with pytest.raises(bdb.BdbQuit):
            finish(executor, [TrainTask(watched)])

    def test_a_study_raises_no_separate_error(self, executor, tmp_path):
        tiny = study(tmp_path, environments=["tests.study.failing:FailsLater-v0"], seeds=1)
        failures = tiny.run(executor=executor).failures
        assert [f.traceback.splitlines()[-1] for f in failures] == ["RuntimeError: it broke"] * 2
        broken = study(tmp_path, environments=["tests.study.failing:Fails-v0"], seeds=1)
        assert broken.estimate(executor=executor, seconds=0.1).failing


@pytest.mark.parametrize("wrong", ["local", 3, LocalProcesses, object()])
def test_what_is_no_executor_is_a_sentence(wrong, tmp_path):
    for call in (study(tmp_path).run, study(tmp_path).estimate):
        with pytest.raises(ConfigError, match=r"^`executor` must be an executor, such as LocalProcesses\(\) or InProc"):
            call(executor=wrong)


def test_workers_and_an_executor_are_too_much(tmp_path):
    wanted = r"^`workers` must be left out where an `executor` is given, which has its own number, but got 2$"
    for call in (study(tmp_path).run, study(tmp_path).estimate):
        with pytest.raises(ConfigError, match=wanted):
            call(workers=2, executor=InProcess())


def test_the_command_line_names_them(tmp_path, capsys):
    assert cli.main(command(tmp_path, "--executor", "in-process", "--no-report")) == 0
    assert "2 runs in " in capsys.readouterr().out
    assert cli.main(command(tmp_path, "--executor", "in-process", "--dry-run")) == 0
    assert cli.main(command(tmp_path, "--executor", "local", "--workers", "1", "--no-report")) == 0


def test_wrong_names_and_numbers_are_sentences(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(command(tmp_path, "--executor", "moon"))
    assert left.value.code == 2
    assert "in-process" in capsys.readouterr().err
    assert cli.main(command(tmp_path, "--executor", "in-process", "--workers", "2")) == 2
    assert capsys.readouterr().err == (
        "replaylab: study run: --workers needs --executor local or ray, but got --executor in-process; leave it out\n"
    )


@pytest.mark.no_sanitizer
def test_ctrl_c_ends_a_run_in_this_process(tmp_path):
    slow = command(tmp_path, "--executor", "in-process", env=f"{HOSTILE}:Slow-v0")
    interrupt(slow, lambda run: (tmp_path / "out" / ".lock").is_file())
