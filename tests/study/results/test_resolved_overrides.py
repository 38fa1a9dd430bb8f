"""A strategy's learners and transforms are in `study.json` as they ran, whatever is installed."""

import sys
from dataclasses import dataclass

import pytest

from replaylab.replay import NStep
from replaylab.study import InProcess, Study
from replaylab.study.results import records
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec import components
from tests.study.tiny import study

DQN = {"type": "sb3", "algorithm": "DQN", "arguments": {"learning_starts": 40, "policy_kwargs": {"net_arch": [8]}}}
TANH = {"learning_starts": 40, "policy_kwargs": {"net_arch": [8], "activation_fn": "own_layers:Tanh"}}
OTHER = {"type": "uniform", "transforms": [{"type": "n_step", "steps": 3}], "learner": {"arguments": {"gamma": 0.9}}}
BOTH = {"uniform": {"type": "uniform"}, "other": OTHER}


@dataclass(frozen=True)
class LaterNStep(NStep):
    """That of a later version, with one more option."""

    more: int = 0


def sb3_study(folder, learner=DQN, strategies=BOTH, **changes):
    return study(folder, learners={"theirs": learner}, strategies=strategies, seeds=2, **changes)


def ids(of_study):
    return [chunk.id for chunk in of_study.chunks]


def test_another_version_of_their_library_changes_no_results(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3")
    from replaylab.learners.sb3 import algorithms

    recorded = sb3_study(tmp_path)
    StudyFolder(recorded.spec, recorded.folder).write_records()
    known = algorithms._parameters
    monkeypatch.setattr(algorithms, "_parameters", lambda kind: known(kind) | {"new_argument": 1})
    again = Study.from_folder(tmp_path)
    assert again.spec == recorded.spec
    assert ids(again) == ids(recorded)
    assert set(ids(sb3_study(tmp_path))).isdisjoint(ids(recorded)), "the study's file, read again, has the new argument"


def test_another_default_of_a_transform_changes_no_results(tmp_path, monkeypatch):
    tiny = study(tmp_path, strategies={"uniform": {"type": "uniform", "transforms": [{"type": "n_step", "steps": 3}]}})
    StudyFolder(tiny.spec, tiny.folder).write_records()
    expected = ids(tiny)
    monkeypatch.setitem(components.TRANSFORMS, "n_step", f"{__name__}:LaterNStep")
    assert ids(Study.from_folder(tmp_path)) == expected


def test_a_learner_of_ones_own_that_is_gone(tmp_path, monkeypatch):
    """The override is 1 in the file, 1.0 in what was run."""
    module = tmp_path / "gone_learner.py"
    module.write_text(
        "from dataclasses import dataclass\n"
        "from replaylab.learners import QLearning\n"
        "@dataclass(frozen=True)\n"
        "class Mine(QLearning):\n"
        "    scale: float = 0.5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    strategies = {"uniform": {"type": "uniform"}, "other": {"type": "uniform", "learner": {"scale": 1}}}
    learners = {"mine": {"type": "gone_learner:Mine", "batch_size": 8}}
    tiny = study(tmp_path / "results", environments=["Taxi-v4"], learners=learners, strategies=strategies)
    StudyFolder(tiny.spec, tiny.folder).write_records()
    expected = ids(tiny)
    module.unlink()
    monkeypatch.delitem(sys.modules, "gone_learner")
    assert ids(Study.from_folder(tmp_path / "results")) == expected


def test_an_override_may_name_other_modules_than_its_learner(tmp_path, monkeypatch):
    """Versions differ by the modules that are named in the end."""
    pytest.importorskip("stable_baselines3")
    (tmp_path / "own_layers.py").write_text("from torch.nn import ReLU, Tanh\n")
    (tmp_path / "own_others.py").write_text("from torch.nn import ELU\n")
    monkeypatch.syspath_prepend(tmp_path)
    other = {"policy_kwargs": {"net_arch": [8], "activation_fn": "own_others:ELU"}}
    strategies = {"uniform": {"type": "uniform"}, "other": {"type": "uniform", "learner": {"arguments": other}}}
    short = {"budget__steps": 60, "evaluation": {"every": 60, "episodes": 1}, "measures__every": 60}
    recorded = sb3_study(tmp_path / "results", DQN | {"arguments": TANH}, strategies, **short)
    first, second = (chunk.learner_part.options["code"] for chunk in recorded.chunks[:2])
    assert first != second
    (chunk, *_) = [chunk for chunk in recorded.chunks if chunk.strategy == "other"]
    assert chunk.configuration().learner.code == second
    assert recorded.run(executor=InProcess()).complete


def test_records_of_earlier_versions_are_read_as_before(tmp_path):
    """They do not hold what an override makes of a learner, and are resolved by what is installed."""
    strategies = {"uniform": {"type": "uniform"}, "other": {"type": "uniform", "learner": {"gamma": 0.5}}}
    tiny = study(tmp_path, strategies=strategies)
    StudyFolder(tiny.spec, tiny.folder).write_records()
    record = records.opened((tmp_path / "study.json").read_bytes())
    assert record.pop("overridden")["other"]["dqn"]["learner"]["gamma"] == 0.5
    records.write(tmp_path / "study.json", record)
    assert ids(Study.from_folder(tmp_path)) == ids(tiny)
