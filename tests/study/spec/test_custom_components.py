"""Custom samplers and learners in a study file."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from replaylab.commands.train_command import TrainCommand
from replaylab.errors import SpecError
from replaylab.study import InProcess, Spec, Study
from replaylab.study.spec import custom_components
from replaylab.study.spec.custom_components import CODE
from tests.study.tiny import rows, run_here, study, table

OWN = "tests.study.own_parts"
TABLES = {
    "environments": ["FrozenLake-v1"],
    "seeds": 2,
    "budget": {"steps": 60},
    "evaluation": {"every": 30, "episodes": 1},
    "measures": {"every": 30},
    "learners": {"mine": {"type": f"{OWN}:HalfAlpha", "batch_size": 4}},
    "strategies": {"uniform": {"type": "uniform"}, "fresh": {"type": f"{OWN}:Fresh", "power": 2}},
}
SAMPLER = """
from dataclasses import dataclass
from replaylab.replay import CustomSampler

@dataclass(frozen=True)
class Mine(CustomSampler):
    power: float = {default}

    def distribution(self, view, batch_size):
        wanted = (1.0 + view.ages) ** -self.power
        return wanted / wanted.sum()
"""


def test_custom_components_are_trained_in_workers(tmp_path):
    custom = study(tmp_path, **TABLES)
    (_, fresh) = custom.chunks
    assert fresh.strategy_part.options["power"] == 2.0
    assert fresh.learner_part.options["alpha"] == 0.5
    assert custom.run(workers=1).complete
    columns = rows(custom)
    assert set(columns["strategy"]) == {"uniform", "fresh"}
    assert "eval/mean_reward" in columns["metric"]
    assert Study.from_folder(tmp_path) == custom


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "nowhere:Mine",
            "no module 'nowhere' was found in .* or among the installed packages. Run the command where nowhere.py is",
        ),
        (f"{OWN}:Fersh", f"{OWN} has no class 'Fersh'."),
        (f"{OWN}:THING", "has no class 'THING'"),
        (f"{OWN}:HalfAlpha", "HalfAlpha is not derived from replaylab.replay.CustomSampler."),
        (f"{OWN}:NoDataclass", r"NoDataclass is not a dataclass. Write @dataclass\(frozen=True\) above it."),
        (f"{OWN}:Budgeted", "its field `budget` has a name that study files use for something else. Rename the field."),
        ("__main__:Mine", "workers cannot import __main__. Write the class into its own file."),
        (":Mine", "but got .:Mine.\\."),
        ("relative.:Mine", "but got .relative.:Mine.\\."),
    ],
)
def test_a_type_that_is_not_a_sampler_is_refused(kind, message):
    with pytest.raises(SpecError, match=f"^study: `strategies.mine.type` must name a sampler.*{message}"):
        Spec.from_table(table(strategies__mine={"type": kind}))


def test_a_type_that_is_not_a_learner_is_refused():
    with pytest.raises(SpecError, match=r"`learners.mine.type` must name a learner.* has no method `agents`"):
        Spec.from_table(table(learners__mine={"type": f"{OWN}:Fresh"}))


def test_the_train_command_takes_custom_components():
    chunk = TrainCommand(
        env="FrozenLake-v1",
        strategy=f"{OWN}:Fresh",
        strategy_options=("power=3",),
        learner=f"{OWN}:HalfAlpha",
        learner_options=("batch_size=4",),
        seeds=1,
        steps=100,
        eval_every=50,
        eval_episodes=1,
    ).chunk()
    assert (chunk.learner, chunk.strategy, chunk.strategy_part.options["power"]) == ("HalfAlpha", "Fresh", 3.0)


def test_an_unknown_option_is_refused():
    with pytest.raises(SpecError, match=r"unknown key `strategies.mine.pover`; did you mean `power`\?"):
        Spec.from_table(table(strategies__mine={"type": f"{OWN}:Fresh", "pover": 1}))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A file my_own.py in the current folder, and a way to write other code into it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def write(default: float) -> None:
        sys.modules.pop("my_own", None)
        Path("my_own.py").write_text(SAMPLER.format(default=default) + "#" * round(default))

    write(1.0)
    yield write
    sys.modules.pop("my_own", None)


MINE = TABLES | {"learners": {"q": {"type": "q_learning", "batch_size": 4}}}
MINE |= {"strategies": {"uniform": {"type": "uniform"}, "mine": {"type": "my_own:Mine", "power": 0.5}}}


def test_changed_code_never_mixes(module, tmp_path):
    trained = run_here(tmp_path / "out", **MINE)
    module(2.0)  # the option is given, so that only the code is another
    assert trained.present == trained.chunks, "what is there stays readable"
    changed = study(tmp_path / "out", **MINE)
    assert [p.strategy for p in changed.present] == ["uniform"]
    with pytest.raises(SpecError, match=r"the module my_own \(.*my_own.py\) has changed since this run was defined"):
        Study(trained.spec, tmp_path / "other").run(workers=1)
    assert [p.strategy for p in changed.run(executor=InProcess()).ran] == ["mine"]


def test_results_are_read_without_the_module(module, tmp_path):
    trained = run_here(tmp_path / "out", **MINE)
    Path("my_own.py").unlink()
    sys.modules.pop("my_own")
    opened = Study.from_folder(tmp_path / "out")
    assert len(opened.present) == 2
    np.testing.assert_equal(rows(opened), rows(trained))
    assert CODE in opened.chunks[1].strategy_part.options
    assert opened.run(executor=InProcess()).ran == (), "nothing is missing"
    with pytest.raises(SpecError, match=r"no module 'my_own' was found in .*Run the command where my_own.py is"):
        Study(opened.spec, tmp_path / "other").run(executor=InProcess())


NUMBERED = """
from dataclasses import dataclass
from replaylab.replay import CustomSampler

@dataclass(frozen=True)
class Numbered(CustomSampler):
    power: float = {default}
    {more}

    def distribution(self, view, batch_size):
        return {code}
"""


@pytest.mark.parametrize("seen", ["by the study", "by others"])
def test_a_module_that_changes_is_imported_again(seen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_numbered", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, kind = tmp_path / "my_numbered.py", "my_numbered:Numbered"

    def read():
        return custom_components.load(kind, "sampler", "strategies.mine", "study"), custom_components.code_of(kind)

    file.write_text(NUMBERED.format(default=1.0, more="", code="1"))
    before, first = read() if seen == "by the study" else (importlib.import_module("my_numbered").Numbered, "")
    file.write_text(NUMBERED.format(default=2.0, more="extra: int = 4", code="2"))
    after, second = read()
    assert (before().power, after().power, after().extra) == (1.0, 2.0, 4)
    assert first != second
    assert read() == (after, second)
    os.utime(file, (1, 1))  # the same bytes: nothing is imported again
    assert read() == (after, second)
    for default in (3.0, 4.0):  # as long, and within a second, which what Python has compiled does not tell apart
        file.write_text(NUMBERED.format(default=default, more="", code="2"))
        assert read()[0]().power == default
    file.write_text("this is no Python")
    with pytest.raises(SpecError, match="my_numbered cannot be imported"):
        read()


@pytest.mark.parametrize("asked", [{"metrics": ["eval/mean_rewrd"]}, {"contrasts": [{"metric": "eval/mean_rewrd"}]}])
def test_a_misspelt_metric_beside_custom_parts_is_reported(asked):
    contrast = {"name": "c", "question": "?", "weights": {"uniform": 1.0, "fresh": -1.0}}
    if "contrasts" in asked:
        asked = {"contrasts": [contrast | asked["contrasts"][0]]}
    with pytest.raises(
        SpecError, match="must be what runs record, but got 'eval/mean_rewrd'; did you mean `eval/mean_rew"
    ):
        Spec.from_table(table(**TABLES | asked))
    Spec.from_table(table(**TABLES | {"metrics": ["mine/own_number"]}))
