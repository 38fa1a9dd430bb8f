"""`kill -9` on a cluster of three nodes: of workers, a node, the coordinator. The rows are those of an unbroken run."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from replaylab.distributed.studies import RayExecutor
from tests.distributed.processes import TRAINS, busy_workers, descendants, training
from tests.study.execution.test_study_run import wait_for
from tests.study.tiny import rows, study

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer]

KILLS = 20
SOME = {
    "environments": ["FrozenLake-v1"],
    "seeds": 20,
    "chunk_size": 1,
    "budget": {"steps": 6_000},
    "evaluation": {"every": 1_000, "episodes": 2},
    "logging": {"every": 1_000},
    "measures": {"every": 1_000},
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
}
TINY = SOME | {
    "seeds": 5_000,
    "budget": {"steps": 10},
    "evaluation": {"every": 10, "episodes": 1},
    "logging": {"every": 10},
    "measures": {"every": 10},
}
LARGEST_GROWTH = 2**30
"""Bytes that the coordinator may grow by over ten thousand chunks."""

COORDINATOR = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from replaylab.distributed.studies import RayExecutor
    from tests.distributed.studies.test_kills import SOME
    from tests.study.tiny import study

    summary = study(Path(sys.argv[1]), **SOME).run(executor=RayExecutor(sys.argv[2]), show=True)
    for failure in summary.failures:
        print("FAILED", failure.chunk.label, failure.traceback)
    sys.exit(not summary.complete)
    """
)


@pytest.fixture
def three_nodes(monkeypatch):
    """A cluster of three nodes of one core on the loopback address, which notices a dead node within two seconds."""
    pytest.importorskip("ray")
    from ray._private import utils
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(utils, "write_ray_address", lambda *_: None)  # nobody else is to find it
    here = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
    soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    cluster = Cluster(initialize_head=True, head_node_args=here | {"include_dashboard": False, "_system_config": soon})
    for _ in range(2):
        cluster.add_node(**here)
    yield cluster
    cluster.shutdown()


def begin(folder, cluster):
    command = [sys.executable, "-c", COORDINATOR, str(folder), cluster.address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_some(run, kills, clock, before):
    """Kill processes at work one after the other, and return how many were killed before the run ended.

    None of a chunk that was killed twice: after four times it would be given up, as it should be.
    """
    done = 0
    while done < kills and run.poll() is None:
        time.sleep(clock.uniform(0.2, 1.5))
        found = training() | busy_workers()
        victims = [pid for pid, label in found.items() if before[label] < 2]
        if victims:
            victim = clock.choice(victims)
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(victim, signal.SIGKILL)
                before[found[victim]] += 1
                done += 1
    return done


def kill_a_node(cluster):
    """Kill a node's raylet, and reap it: a zombie would keep its workers alive."""
    node = sorted(cluster.worker_nodes, key=lambda one: one.node_id)[0]
    (info,) = node.all_processes["raylet"]
    info.process.kill()
    info.process.wait()


def test_kills_of_workers_of_a_node_and_of_the_coordinator(three_nodes, tmp_path):
    clock = random.Random(4)
    made, plain = study(tmp_path / "made", **SOME), study(tmp_path / "plain", **SOME)
    first = begin(made.folder, three_nodes)
    wait_for(lambda: training() or first.poll() is not None, 120.0)
    before = Counter()
    killed = kill_some(first, KILLS // 2, clock, before)
    first.kill()
    first.communicate()
    there = len(made.present)
    second = begin(made.folder, three_nodes)
    wait_for(lambda: training() or second.poll() is not None, 120.0)
    kill_a_node(three_nodes)
    killed += kill_some(second, KILLS - killed, clock, before)
    reported, _ = second.communicate()
    assert second.returncode == 0, reported
    assert "raylet" not in reported.lower()  # Ray's dump of a dead node
    assert killed == KILLS
    assert there < len(made.chunks)
    assert plain.run(workers=2).complete
    np.testing.assert_equal(rows(made), rows(plain))
    found = rows(made)
    assert set(Counter(zip(*(found[k] for k in ("strategy", "seed", "step", "metric")), strict=True)).values()) == {1}


def test_a_ray_of_ones_own_ends_with_a_coordinator_that_is_killed(tmp_path):
    """Its servers and all that trains at once; Ray's agents notice it some time later."""
    command = [sys.executable, "-c", COORDINATOR.replace("sys.argv[2]", ""), str(tmp_path)]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for(lambda: training(run.pid) or run.poll() is not None, 120.0)
    theirs = descendants(run.pid)
    soon = [pid for pid, line in theirs.items() if any(one in line for one in (TRAINS, "gcs_server", "raylet/raylet"))]
    assert len(soon) >= 3
    run.kill()
    run.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in soon), 30.0)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in theirs), 240.0)


def test_ten_thousand_chunks_leave_the_coordinator_small(ray_here, tmp_path):
    made = study(tmp_path, **TINY)
    assert len(made.chunks) == 10_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert made.run(executor=RayExecutor()).complete
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < LARGEST_GROWTH
