"""`replaylab study new` and `study show --toml`: files to start from, and the file of a study that was run."""

import re
import tomllib
from functools import partialmethod

import pytest
from pydantic import BaseModel

from replaylab.commands import main as cli
from replaylab.study import InProcess, Spec, Study
from replaylab.study.catalog import TEMPLATE, shipped
from replaylab.study.spec.toml_model import StudyToml
from tests.study import tiny

TEXT = TEMPLATE.read_text(encoding="utf-8")
COMPLETE = tomllib.loads(re.sub(r"^#(?=\S)", "", TEXT, flags=re.MULTILINE))
"""The template with all its optional lines."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_study_has_the_name_and_the_comments(folder, capsys):
    assert cli.main(["study", "new", "mine"]) == 0
    assert capsys.readouterr().out.endswith("then: replaylab study run mine.toml\n")
    assert (folder / "mine.toml").read_text() == TEXT.replace("NAME", "mine")
    assert Study.from_toml("mine.toml").spec.name == "mine"


def test_a_new_study_may_be_named_as_its_file(folder):
    assert cli.main(["study", "new", "mine.toml"]) == 0
    assert [file.name for file in folder.iterdir()] == ["mine.toml"]


def test_a_file_that_is_there_is_not_overwritten(folder, capsys):
    (folder / "mine.toml").write_text("precious")
    assert cli.main(["study", "new", "mine"]) == 2
    assert "NAME must be the name of a new file, but mine.toml exists. Choose" in capsys.readouterr().err
    assert (folder / "mine.toml").read_text() == "precious"


@pytest.mark.parametrize("name", ["a/b", "", "../x", "a b", 'a"b', "x" * 61])
def test_a_name_that_studies_cannot_have_is_refused(name, folder, capsys):
    assert cli.main(["study", "new", name]) == 2
    assert re.match(r"replaylab: study new: `name` must (be made|have|not be)", capsys.readouterr().err)
    assert list(folder.iterdir()) == []


def test_a_new_study_runs_with_less_to_do(folder):
    """As it is written, with fewer seeds and steps."""
    cli.main(["study", "new", "mine"])
    file = folder / "mine.toml"
    less = {"seeds = 10 ": "seeds = 2 ", "steps = 20_000": "steps = 1_200", "every = 1_000": "every = 600"}
    for written, smaller in less.items():
        assert written in file.read_text()
        file.write_text(file.read_text().replace(written, smaller))
    study = Study.from_toml("mine.toml")
    assert study.run(executor=InProcess()).complete
    with tiny.undrawn():
        assert "prioritized replay" in study.report(figure_files=False).read_text()


def test_the_optional_lines_are_a_study_too():
    spec = Spec.from_table(COMPLETE)
    assert len(spec.strategies) > 3
    assert spec.contrasts[0].primary


def keys_of(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def test_every_key_of_the_model_is_in_the_template():
    assert set(COMPLETE) == keys_of(StudyToml)
    for table in ("evaluation", "logging", "measures", "watch"):
        assert set(COMPLETE[table]) == keys_of(StudyToml.model_fields[table].annotation)
    for tables in ("scores", "reference", "strategies", "learners"):
        (_, kind) = StudyToml.model_fields[tables].annotation.__args__
        assert keys_of(kind) <= {key for table in COMPLETE[tables].values() for key in table}
    assert set(COMPLETE["answers"]) == {"higher", "lower", "equivalent", "inconclusive"}


def test_every_key_has_a_comment_beside_it_or_above_its_table():
    explained_keys, before, is_table_explained = set(), "", False
    for line in TEXT.splitlines():
        if re.match(r"#?\[", line):
            is_table_explained = before.startswith("# ")
        elif key := re.match(r"#?([\w-]+) = ", line):
            if is_table_explained or re.search(r"  # \w", line):
                explained_keys.add(key[1])
            assert key[1] in explained_keys, line
        before = line


@pytest.mark.parametrize("name", ["quick", "minatar"])
def test_a_shipped_study_is_printed_as_it_is_written(name, capsys):
    assert cli.main(["study", "show", name, "--toml"]) == 0
    assert capsys.readouterr().out == shipped()[name].read_text(encoding="utf-8")


def test_results_know_the_file_that_was_run(folder, capsys, monkeypatch):
    monkeypatch.setattr(Study, "run", partialmethod(Study.run, executor=InProcess()))
    arguments = tiny.command(folder, learner="q_learning", env="FrozenLake-v1")
    study = Study.from_toml(arguments[2], folder / "out")
    study.run()
    written = (folder / "study.toml").read_text()
    assert cli.main(["study", "show", "out", "--toml"]) == 0
    assert capsys.readouterr().out == written
    assert cli.main(["study", "show", "out"]) == 0
    assert "file: out/study.toml\nresults: out\n" in capsys.readouterr().out

    (folder / "study.toml").write_text(written + "# more\n")
    Study.from_toml("study.toml", "out").run()
    assert (folder / "out" / "study.toml").read_text() == written + "# more\n"
    assert Study.from_folder("out").toml == written + "# more\n"

    Study(study.spec, folder / "out").run()  # which has no file
    assert cli.main(["study", "show", "out", "--toml"]) == 2
    assert "have none (study.toml), because they were not run from a file" in capsys.readouterr().err
