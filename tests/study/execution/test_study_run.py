"""Running, stopping, going on: with real training and real kill -9."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import ConfigError, SpecError
from replaylab.learners.training import env_state
from replaylab.study import InProcess, Study
from replaylab.study.results.store import read_metadata
from tests.study.tiny import rows, study, table

SCRIPT = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from replaylab.study import Spec, Study
    Study(Spec.from_table(json.loads(sys.argv[1])), Path(sys.argv[2])).run(workers=2)
    """
)


def start(folder: Path, **changes: object) -> subprocess.Popen[bytes]:
    """Run the tiny study in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", SCRIPT, json.dumps(table(**changes)), str(folder)])


def workers_of(parent: int) -> list[int]:
    """Worker processes of a run, by their parent's id (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Study:
    """The tiny study, run in one go with one worker."""
    made = study(tmp_path_factory.mktemp("unbroken"))
    assert made.run(workers=1).complete
    return made


def test_rows_and_records(unbroken):
    found = rows(unbroken)
    assert list(found) == ["environment", "learner", "strategy", "seed", "step", "metric", "value"]
    assert set(found["seed"]) == {0, 1, 2, 3}
    assert {"eval/mean_reward", "train/loss", "replay/transitions_replayed"} <= set(found["metric"])
    assert not any(m.startswith("time") for m in found["metric"])
    assert json.loads((unbroken.folder / "study.json").read_text())["budget"]["steps"] == 300
    assert set(unbroken.record("machine")) == {"versions", "hardware"}
    first = unbroken.populations[0]
    assert read_metadata(unbroken.file_of(first))["identity"] == first.identity
    assert unbroken.record(f"timing/{first.id}")["environment_steps"] == 600
    assert Study.from_folder(unbroken.folder) == unbroken


def test_the_same_command_again_runs_nothing(unbroken):
    before = {f: f.stat().st_mtime_ns for f in (unbroken.folder / "runs").iterdir()}
    summary = unbroken.run()
    assert summary.ran == ()
    assert len(summary.kept) == 4
    assert {f: f.stat().st_mtime_ns for f in (unbroken.folder / "runs").iterdir()} == before


def test_workers_do_not_change_the_numbers(unbroken, tmp_path):
    other = study(tmp_path)
    assert other.run(workers=3).complete
    assert rows(other) == rows(unbroken)


def test_workers_die_with_the_parent(tmp_path):
    run = start(tmp_path, budget__steps=100_000_000)
    wait_for(lambda: len(workers_of(run.pid)) == 2)
    victims = workers_of(run.pid)
    run.kill()
    run.wait()
    wait_for(lambda: not any(Path(f"/proc/{v}").exists() for v in victims))


FAILING = "tests.study.failing:Fails-v0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": ["CartPole-v1", "NoSuch-v0"]}, "must name a Gymnasium environment, but got 'NoSuch-v0'"),
        ({"environments": ["CartPole-v1", "Pendulum-v1"]}, "DQN needs Discrete actions"),
        ({"learners__table": {"type": "q_learning", "batch_size": 4}}, "tables need Discrete observations"),
        (
            {"strategies__hindsight": {"type": "uniform", "transforms": [{"type": "hindsight"}]}},
            "a goal environment must have the functions",
        ),
        ({"env_options": {"CartPole-v1": {"nonsense": 1}}}, "`env_options` do not fit CartPole-v1"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is_trained(changes, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        study(tmp_path, **changes).run()
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("seeds", [3, 5])
def test_what_several_seeds_need_is_told_though_the_last_population_has_one(seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(env_state, "possible", lambda env: False)
    budget = {"budget": {"episodes": 4}, "evaluation__every": 2}
    made = study(tmp_path, seeds=seeds, strategies={"uniform": {"type": "uniform"}}, **budget)
    assert [len(one.seeds) for one in made.populations] == [2] * (seeds // 2) + [1]
    with pytest.raises(SpecError, match="2 seeds from 0 cannot be run: a budget of episodes for several seeds at once"):
        made.run(executor=InProcess())
    assert not list(tmp_path.glob("runs/*"))


def test_a_refused_study_leaves_the_folder_to_the_one_that_was_run(tmp_path):
    few = {"seeds": 2, "strategies": {"uniform": {"type": "uniform"}}}
    made = study(tmp_path, **few)
    assert made.run(executor=InProcess()).complete
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(SpecError, match="DQN needs Discrete actions"):
        study(tmp_path, **few, environments=["Pendulum-v1"]).run(executor=InProcess())
    assert (tmp_path / "study.json").read_bytes() == before
    assert rows(Study.from_folder(tmp_path)) == rows(made)


def test_a_study_of_which_everything_is_there_is_written_down(tmp_path):
    few = {"seeds": 2, "strategies": {"uniform": {"type": "uniform"}}}
    assert study(tmp_path, **few).run(executor=InProcess()).complete
    assert study(tmp_path, **few, title="Another").run(executor=InProcess()).ran == ()
    assert Study.from_folder(tmp_path).spec.title == "Another"


def test_a_failing_population_is_told_and_the_rest_goes_on(tmp_path):
    made = study(tmp_path, environments=[FAILING, "CartPole-v1"], seeds=2)
    summary = made.run(workers=2)
    assert not summary.complete
    assert [f.population.environment for f in summary.failures] == [FAILING] * 2
    assert all("Traceback (most recent call last)" in f.traceback for f in summary.failures)
    assert {p.environment for p in summary.ran} == {"CartPole-v1"}
    assert len(list((tmp_path / "failures").iterdir())) == 2


def test_a_bad_seed_is_named_and_the_others_of_its_population_are_there(tmp_path):
    """The bad seeds are those that fail where every seed is a population of its own."""
    few = {"environments": ["tests.study.failing:Picky-v0"], "seeds": 6, "strategies": {"uniform": {"type": "uniform"}}}
    alone = study(tmp_path / "alone", **few, population=1)
    bad = {f.population.seeds[0] for f in alone.run(workers=1).failures}
    assert 0 < len(bad) < 6
    made = study(tmp_path / "out", **few, population=6)
    (failure,) = made.run(workers=1).failures
    assert set(failure.population.seeds) == bad
    assert failure.traceback.startswith(
        f"Fails with seed {', '.join(map(str, sorted(bad)))}. Seed {min(bad)}:\nTraceback"
    )
    assert failure.traceback.endswith("RuntimeError: bad luck\n")
    np.testing.assert_equal(rows(made), rows(alone))
    again = made.run(workers=1)
    assert again.ran == ()
    assert [f.population.seeds for f in again.failures] == [failure.population.seeds]
    assert [f.stem for f in (tmp_path / "out" / "failures").iterdir()] == [failure.population.id]


def test_a_killed_worker_is_a_failure_of_one_population(tmp_path):
    class Killer:
        killed = False

        def begin(self, todo, done, workers):
            pass

        def progress(self, population, step):
            if not self.killed:
                self.killed = True
                os.kill(next(one for one in workers_of(os.getpid()) if one not in others), signal.SIGKILL)

        def finished(self, population, seconds):
            pass

        def diverged(self, population, seeds):
            pass

        def split(self, population):
            pass

        def failed(self, failure):
            pass

        def end(self):
            pass

    made = study(tmp_path, budget__steps=1_500, seeds=2)
    others = workers_of(os.getpid())  # that earlier tests of this process may have left, such as a resource tracker
    summary = made.run(workers=1, reporter=Killer())
    (failure,) = summary.failures
    assert failure.traceback == "The worker process was killed by SIGKILL before it finished this population."
    assert len(summary.ran) == 1


def test_more_seeds_and_strategies_run_only_what_is_missing(unbroken, tmp_path):
    small = study(tmp_path, seeds=2)
    assert small.run().complete
    summary = study(tmp_path).run()
    assert len(summary.ran) == 2
    assert len(summary.kept) == 2
    assert rows(study(tmp_path)) == rows(unbroken)


def test_a_changed_setting_never_mixes(unbroken, tmp_path):
    assert study(tmp_path, seeds=2).run().complete
    changed = study(tmp_path, seeds=2, learners__dqn__gamma=0.5)
    assert changed.present == []
    with pytest.raises(SpecError, match="holds no results of these settings yet"):
        changed.results()


def test_two_runs_at_once_are_refused_and_a_dead_owner_holds_nothing(tmp_path):
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
    assert study(tmp_path, seeds=1, strategies={"uniform": {"type": "uniform"}}).run().complete


def test_another_study_is_not_written_into_the_folder(unbroken):
    with pytest.raises(SpecError, match=r"holds the study 'tiny', not 'other'\. Give another folder \(--out\)\.$"):
        study(unbroken.folder, name="other").run()


def test_workers_must_be_at_least_one(tmp_path):
    with pytest.raises(ConfigError, match=r"^`workers` must be at least 1, but got 0$"):
        study(tmp_path).run(workers=0)
