"""Running, stopping, going on: with real training and real kill -9."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from replaylab.envs import env_state
from replaylab.errors import ConfigError, SpecError
from replaylab.study import InProcess, LocalProcesses, Study
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.results.store import read_metadata
from tests.study.execution.executor_conformance import Kept
from tests.study.tiny import rows, run_here, study, table

SCRIPT = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from replaylab.study import Spec, Study
    study = Study(Spec.from_table(json.loads(sys.argv[1])), Path(sys.argv[2]))
    study.run(workers=2, checkpoint_every=float(sys.argv[3]))
    """
)


def start(folder: Path, checkpoint_every: float = 600.0, **changes: object) -> subprocess.Popen[bytes]:
    """Run the tiny study in its own process."""
    arguments = [json.dumps(table(**changes)), str(folder), str(checkpoint_every)]
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments])


def workers_of(parent: int) -> list[int]:
    """Worker processes of a run, by their parent's id (Linux)."""
    processes = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            processes.append(int(stat.parent.name))
    return processes


def wait_for(condition, seconds=60.0):
    """Wait until something holds, and return it."""
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
    return result


def interrupt(arguments, begun):
    """Run a command, press Ctrl-C in the environment's step, and return what held when it had begun."""
    run = subprocess.Popen(
        [sys.executable, "-m", "replaylab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background is born deaf to it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        result = wait_for(lambda: begun(run))
        time.sleep(2.0)  # into the environment's step
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130
    assert err.startswith("replaylab: interrupted; ")
    assert err.count("\n") == 1
    return result


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Study:
    """The tiny study, run in one go in this process."""
    return run_here(tmp_path_factory.mktemp("unbroken"))


def test_rows_and_records(unbroken):
    columns = rows(unbroken)
    assert list(columns) == ["environment", "learner", "strategy", "seed", "step", "metric", "value"]
    assert set(columns["seed"]) == {0, 1, 2, 3}
    assert {"eval/mean_reward", "train/loss", "replay/transitions_replayed"} <= set(columns["metric"])
    assert not any(m.startswith("time") for m in columns["metric"])
    assert json.loads((unbroken.folder / "study.json").read_text())["budget"]["steps"] == 300
    assert set(unbroken.record("machine")) == {"versions", "hardware"}
    first = unbroken.chunks[0]
    assert read_metadata(unbroken.file_of(first))["identity"] == first.identity
    assert unbroken.record(f"timing/{first.id}")["environment_steps"] == 600
    assert Study.from_folder(unbroken.folder) == unbroken


def test_the_same_command_again_runs_nothing(unbroken):
    before = {f: f.stat().st_mtime_ns for f in (unbroken.folder / "runs").iterdir()}
    summary = unbroken.run()
    assert summary.ran == ()
    assert len(summary.skipped) == 4
    assert {f: f.stat().st_mtime_ns for f in (unbroken.folder / "runs").iterdir()} == before


def test_workers_die_with_the_parent(tmp_path):
    run = start(tmp_path, budget__steps=100_000_000)
    wait_for(lambda: len(workers_of(run.pid)) == 2)
    victims = workers_of(run.pid)
    run.kill()
    run.wait()
    wait_for(lambda: not any(Path(f"/proc/{v}").exists() for v in victims))


FAILING = "tests.study.failing:FailsLater-v0"


@pytest.fixture(scope="module")
def one_worker():
    """A worker process that all tests which need one share."""
    executor = LocalProcesses(workers=1)
    yield Kept(executor)
    executor.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": ["CartPole-v1", "NoSuch-v0"]}, "must name a Gymnasium environment, but got 'NoSuch-v0'"),
        (
            {"strategies__hindsight": {"type": "uniform", "transforms": [{"type": "hindsight"}]}},
            "a goal environment must have the functions",
        ),
    ],
)
def test_what_cannot_run_is_reported_before_training(changes, message, one_worker, tmp_path):
    with pytest.raises(SpecError, match=message):
        study(tmp_path, **changes).run(executor=one_worker)
    assert not list(tmp_path.glob("runs/*"))


def test_custom_code_that_raises_is_refused_for_every_cell(one_worker, tmp_path):
    typo = {"type": "tests.study.own_parts:Typo"}
    tiny = study(
        tmp_path / "out",
        environments=["FrozenLake-v1", "tests.commands.failing:FailsAtOnce-v0"],
        learners={
            "q": {"type": "q_learning", "batch_size": 4},
            "big": {"type": "q_learning", "batch_size": 4, "capacity": 10**13},
        },
        strategies={"uniform": {"type": "uniform"}, "typo": {**typo, "learners": ["q"]}},
    )
    with pytest.raises(SpecError) as caught:
        tiny.run(executor=one_worker)
    first, second, third, *tracebacks = str(caught.value).splitlines()
    assert first.startswith("FrozenLake-v1 · q · typo · 2 seeds from 0 cannot be run: NameError: name 'power' is not")
    assert "own_parts.py, line " in first
    assert second.startswith("FrozenLake-v1 · big · uniform · 2 seeds from 0")
    assert "but this machine has " in second
    assert "FailsAtOnce-v0 · q · uniform · 2 seeds from 0, and 1 more like it, cannot be run: RuntimeError: it" in third
    assert tracebacks.count("Traceback (most recent call last):") == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("seeds", "raises"), [((3, 5), False), ((3, 7), True), ((3,), True)])
def test_an_error_of_one_seed_alone_is_no_refusal(seeds, raises, tmp_path, monkeypatch):
    def trained(configuration, *, replicas, seed):
        if seed in (3, 7):
            raise RuntimeError("bad luck")

    monkeypatch.setattr("replaylab.learners.training.preflight.check_trainable", trained)
    (chunk, *_) = study(tmp_path, seeds=list(seeds)).chunks
    with pytest.raises(RuntimeError) if raises else nullcontext():
        check_chunk(chunk)


@pytest.mark.parametrize("folders", [(), ("results",), ("results", "results/out")])
def test_a_refused_study_leaves_only_folders_of_before(folders, tmp_path):
    for folder in folders:
        (tmp_path / folder).mkdir()
    with pytest.raises(SpecError, match="DQN needs Discrete actions"):
        study(tmp_path / "results" / "out", environments=["Pendulum-v1"], seeds=1).run(executor=InProcess())
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == set(folders)


@pytest.mark.parametrize("seeds", [3, 5])
def test_needs_of_several_seeds_are_reported_for_a_last_single(seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(env_state, "possible", lambda env: False)
    budget = {"budget": {"episodes": 4}, "evaluation__every": 2}
    tiny = study(tmp_path, seeds=seeds, strategies={"uniform": {"type": "uniform"}}, **budget)
    assert [len(chunk.seeds) for chunk in tiny.chunks] == [2] * (seeds // 2) + [1]
    with pytest.raises(SpecError, match="2 seeds from 0 cannot be run: a budget of episodes for several seeds at once"):
        tiny.run(executor=InProcess())
    assert not list(tmp_path.glob("runs/*"))


def test_a_refused_study_leaves_the_folder_alone(tmp_path):
    few = {"seeds": 2, "strategies": {"uniform": {"type": "uniform"}}}
    tiny = run_here(tmp_path, **few)
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(SpecError, match="DQN needs Discrete actions"):
        study(tmp_path, **few, environments=["Pendulum-v1"]).run(executor=InProcess())
    assert (tmp_path / "study.json").read_bytes() == before
    assert rows(Study.from_folder(tmp_path)) == rows(tiny)


def test_a_study_of_which_everything_is_there_is_written_down(tmp_path):
    few = {"seeds": 2, "strategies": {"uniform": {"type": "uniform"}}}
    assert study(tmp_path, **few).run(executor=InProcess()).complete
    assert study(tmp_path, **few, title="Another").run(executor=InProcess()).ran == ()
    assert Study.from_folder(tmp_path).spec.title == "Another"


def test_a_failing_chunk_is_reported_and_the_rest_goes_on(tmp_path):
    tiny = study(tmp_path, environments=[FAILING, "CartPole-v1"], seeds=2)
    summary = tiny.run(executor=InProcess())
    assert not summary.complete
    assert [f.chunk.environment for f in summary.failures] == [FAILING] * 2
    assert all("Traceback (most recent call last)" in f.traceback for f in summary.failures)
    assert {p.environment for p in summary.ran} == {"CartPole-v1"}
    assert len(list((tmp_path / "failures").iterdir())) == 2


def test_a_changed_setting_never_mixes(unbroken, tmp_path):
    assert study(tmp_path, seeds=2).run(executor=InProcess()).complete
    changed = study(tmp_path, seeds=2, learners__dqn__gamma=0.5)
    assert changed.present == []
    with pytest.raises(SpecError, match="holds no results of these settings yet"):
        changed.results()


def test_two_runs_are_refused_and_a_dead_owner_holds_nothing(tmp_path):
    run = start(tmp_path, budget__steps=100_000_000)
    wait_for(lambda: workers_of(run.pid))
    with pytest.raises(ConfigError) as caught:
        study(tmp_path).run()
    assert str(caught.value) == (
        f"Another `replaylab study run` is at work in {tmp_path}. Wait until it ends, or give this one "
        f"another "
        f"folder (--out)."
    )
    run.kill()
    run.wait()
    run_here(tmp_path, seeds=1, strategies={"uniform": {"type": "uniform"}})


def test_another_study_is_not_written_into_the_folder(unbroken):
    with pytest.raises(SpecError, match=r"holds the study 'tiny', not 'other'\. Give another folder \(--out\)\.$"):
        study(unbroken.folder, name="other").run()
