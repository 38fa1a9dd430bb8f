"""The executor on Ray keeps the sampling distributions of executors, and gives the rows of one machine."""

import os
import signal
import textwrap

import numpy as np
import pytest

from replaylab.distributed.studies import RayExecutor
from replaylab.errors import ConfigError
from replaylab.study import InProcess
from replaylab.study.execution.executor import Finished, Lost, Progress, TrainTask
from tests.distributed.processes import TRAINS, busy_workers, descendants, training
from tests.study.execution.executor_conformance import HOSTILE, TABLES, ExecutorConformance, chunks, finish
from tests.study.execution.test_study_run import wait_for
from tests.study.tiny import rows, study

pytestmark = pytest.mark.no_sanitizer

MINE = textwrap.dedent(
    """
    from dataclasses import dataclass

    from helpers_of_mine import power_of
    from replaylab.replay import CustomSampler


    @dataclass(frozen=True)
    class Fresh(CustomSampler):
        power: float = 1.0

        def distribution(self, view, batch_size):
            wanted = (1.0 + view.replay_counts) ** -power_of(self)
            return wanted / wanted.sum()
    """
)


def test_a_study_with_a_sampler_of_your_own_has_the_rows_of_one_machine(ray_here, tmp_path, monkeypatch):
    """Workers look where this process does: Ray was started before the module and what it imports were there."""
    (tmp_path / "parts_of_mine.py").write_text(MINE)
    (tmp_path / "helpers_of_mine.py").write_text("def power_of(sampler):\n    return sampler.power\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = TABLES | {"seeds": 1, "strategies__mine": {"type": "parts_of_mine:Fresh", "power": 0.5}}
    made, plain = study(tmp_path / "made", **table), study(tmp_path / "plain", **table)
    summary = made.run(executor=RayExecutor(workers=1))
    assert [one.traceback for one in summary.failures] == []
    assert plain.run(executor=InProcess()).complete
    np.testing.assert_equal(rows(made), rows(plain))
    for chunk in plain.chunks:
        assert made.file_of(chunk).read_bytes() == plain.file_of(chunk).read_bytes()
        assert made.record(f"timing/{chunk.id}")["machine"] is not None


def test_no_node_is_large_enough(ray_here, tmp_path):
    with pytest.raises(ConfigError, match=r"^A node of the Ray cluster must have 64 cores .* more than 2 cores "):
        study(tmp_path, **TABLES).run(executor=RayExecutor(cores=64))


def test_gpus_that_a_ray_of_ones_own_has_not_are_not_waited_for(ray_here, tmp_path, monkeypatch):
    executor = RayExecutor(workers=2, gpus=1)
    executor._session.owned = True
    monkeypatch.setattr(executor._session, "close", lambda: None)
    with pytest.raises(ConfigError, match=r"must have 1 cores and 1 GPUs .* more than 2 cores and 0 GPUs; "):
        study(tmp_path, **TABLES).run(executor=executor)


def test_a_task_without_gpus_sees_none(ray_here):
    def seen():
        import os

        from replaylab.distributed.studies import worker

        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        worker._hide_unassigned_gpus()
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert ray_here.get(ray_here.remote(num_cpus=0)(seen).remote()) == ""


def test_another_version_of_replaylab_on_a_node_ends_the_study_in_one_line(ray_here, tmp_path, monkeypatch):
    monkeypatch.setattr("replaylab.__version__", "9.9.9")
    with pytest.raises(ConfigError, match=r"^Node \S+ of the Ray cluster has replaylab .*, but 9\.9\.9 asks"):
        study(tmp_path, **TABLES).run(executor=RayExecutor())


def test_the_address_of_another_cluster_is_refused(ray_here, tmp_path):
    with pytest.raises(ConfigError, match=r"^`address` must be that of the cluster which this process is connected to"):
        study(tmp_path, **TABLES).run(executor=RayExecutor("10.0.0.1:1"))


@pytest.mark.slow
class TestRayExecutor(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def _connected(self, ray_here):
        """Have all tests on one Ray."""

    def make(self):
        return RayExecutor()

    def kill_a_worker(self, executor):
        (worker,) = training()
        os.kill(worker, signal.SIGKILL)

    def test_a_killed_worker_loses_its_task_and_no_other(self, executor):
        """Either process: the one that trains, or the Ray worker above it."""
        (long, *_), lakes = chunks(budget={"steps": 10_000_000}), chunks()
        for victims in (training, busy_workers):
            killed = []

            def kill(_, event, victims=victims, killed=killed):
                if isinstance(event, Progress) and not killed:
                    killed.extend(victims().keys())
                    os.kill(killed[0], signal.SIGKILL)

            (lost,) = finish(executor, [TrainTask(long)], kill)
            assert len(killed) == 1
            assert isinstance(lost, Lost)
            assert lost.retriable
            assert not lost.reason.endswith(".")
            assert all(isinstance(one, Finished) for one in finish(executor, [*map(TrainTask, lakes)]))

    def test_what_ends_its_own_process_is_not_tried_again(self, executor):
        (crash, *_) = chunks(environments=[f"{HOSTILE}:Crashes-v0"], learners={"dqn": {"type": "dqn"}})
        (event,) = finish(executor, [TrainTask(crash)])
        assert isinstance(event, Lost)
        assert event.reason == "The worker process ended with exit code 7"
        assert not event.retriable

    def test_after_close_nothing_trains(self, executor):
        (long, *_) = chunks(budget={"steps": 10_000_000})
        executor.submit(TrainTask(long))
        wait_for(training)
        (worker,) = training()
        executor.close()
        wait_for(lambda: worker not in descendants())
        assert not [line for line in descendants().values() if TRAINS in line and f" {worker} " in line]
