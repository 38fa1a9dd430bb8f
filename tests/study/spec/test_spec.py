"""A study from its file and from its record: what is read, what is filled in, and that both give the same."""

import json
import subprocess
from pathlib import Path

import pytest

from replaylab.errors import SpecError
from replaylab.replay import Linear, Prioritized
from replaylab.study import Spec, Study
from replaylab.study.catalog import find, shipped
from replaylab.study.plan import plan
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec.components import STRATEGIES, build, json_data
from tests.study.spec.test_resolve import GRID, VARIED
from tests.study.tiny import study, table

ROOT = Path(__file__).parents[3]
TRACKED = subprocess.run(
    ["git", "ls-files", "studies/*.toml", "*study.toml", "*rows.parquet"], cwd=ROOT, capture_output=True, text=True
).stdout.split()


@pytest.mark.parametrize("file", [file for file in TRACKED if file.endswith(".toml")])
def test_every_tracked_study_resolves(file):
    spec = Spec.from_toml(ROOT / file)
    assert spec.runs == sum(len(chunk.seeds) for chunk in plan(spec))
    assert all(build(part, STRATEGIES) for part in spec.strategies.values())
    assert Spec.from_record(json.dumps(json_data(spec))) == spec


@pytest.mark.parametrize("rows", [file for file in TRACKED if file.endswith(".parquet")])
def test_published_records_are_what_their_files_resolve_to(rows):
    """Except for contrasts, which may be declared for rows that were published before."""
    folder = (ROOT / rows).parent
    file = folder / "study.toml"
    spec = Spec.from_toml(file if file.is_file() else find(folder.name))
    published = Study.from_folder(folder).spec
    assert published.model_dump(exclude={"contrasts"}) == spec.model_dump(exclude={"contrasts"})


def test_every_default_is_filled_in():
    spec = Spec.from_table(table())
    assert spec.strategies["prioritized"].options == {
        "alpha": 0.6,
        "beta": {"type": "linear", "start": 0.4, "end": 1.0, "until": 1.0, "steps": None},
        "epsilon": 1e-6,
        "normalize": "buffer",
        "block_length": 1,
        "new_steps": "largest_stored",
        "stratified": True,
        "replace": True,
    }
    assert spec.seeds == (0, 1, 2, 3)
    assert spec.runs == 8
    assert build(spec.strategies["prioritized"], STRATEGIES) == Prioritized(beta=Linear(0.4, 1.0))


def test_a_spec_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Spec.from_table(table()).name = "other"


def test_study_json_round_trips_with_grids_and_titles(tmp_path):
    uniform = {"type": "uniform", "learners": [{"capacity": 500}], "factors": {"choice": "uniform", "beta": 0}}
    written = study(
        tmp_path,
        learners={"dqn": GRID | {"title": "D"}},
        strategies__uniform=uniform,
        strategies__prioritized=VARIED | {"learner": {"gamma": 0.5}, "transforms": [{"type": "n_step"}]},
    )
    assert Spec.from_record(json.dumps(json_data(written.spec))) == written.spec
    StudyFolder(written.spec, written.folder).write_records()
    assert Study.from_folder(tmp_path) == written


def test_a_record_is_not_a_study_file():
    """Neither reads the other: a record is resolved already, and nothing in it is expanded."""
    record = Spec.from_table(table(strategies__uniform__title="U")).model_dump()
    with pytest.raises(SpecError, match="unknown key `titles`"):
        Spec.from_table(record)
    with pytest.raises(ValueError, match="seds"):
        Spec.from_record(Spec.from_table(table()).model_dump_json().replace('"seeds"', '"seds"'))


def test_files_that_are_no_study(tmp_path):
    with pytest.raises(SpecError, match=r"gone\.toml: cannot be read: No such file or directory\.$"):
        Spec.from_toml(tmp_path / "gone.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(SpecError, match=r"broken\.toml: is not valid TOML: Invalid value \(at end of document\)\.$"):
        Spec.from_toml(broken)


def test_shipped_studies_are_found_by_name(tmp_path, monkeypatch):
    assert {name: Spec.from_toml(file).name for name, file in shipped().items()} == {name: name for name in shipped()}
    assert find("quick") == shipped()["quick"]
    assert Study.from_toml("quick").folder == Path("results/quick")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    for name, start in [
        ("quik", "There is no study file 'quik', and no shipped study of that name. Did you mean `quick`? Shipped: "),
        ("nothing", "There is no study file 'nothing', and no shipped study of that name. Shipped: "),
        ("mine", "There is no study file 'mine', and no shipped study of that name. Did you mean `mine.toml`?"),
    ]:
        with pytest.raises(SpecError) as caught:
            find(name)
        assert str(caught.value).startswith(start)
