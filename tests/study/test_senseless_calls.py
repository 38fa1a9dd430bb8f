"""Every public call of studies, with one senseless argument at a time."""

import pytest

from replaylab.errors import ReplayError
from replaylab.study import Spec, Study
from tests.senseless import SENSELESS, TRUTH, Call, wrongs
from tests.study.tiny import study, table

REFUSED = [
    ("run", "workers", "None True"),
    ("run", "show", f"None {TRUTH}"),
    ("run", "reporter", "None"),
    ("run", "checkpoint_every", "None 0 3.5 huge"),
    ("estimate", "workers", "None"),
    ("estimate", "seconds", "0 3.5 huge"),
    ("query", "sql", "text nul"),
    ("frame", "metric", "None text nul"),
    ("curves", "metric", "text nul"),
    ("levels", "metric", "text nul"),
    ("differences", "metric", "text nul"),
    ("report", "out", "None text"),
    ("report", "figure_files", TRUTH),
]
"""Methods of a study by argument, with the senseless values that are valid."""


@pytest.mark.parametrize(("method", "name", "accepts"), REFUSED)
def test_senseless_arguments(method, name, accepts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = study(tmp_path)
    for label in SENSELESS.keys() - set(accepts.split()):
        with pytest.raises(ReplayError, match=f"^`{name}` must be"):
            getattr(tiny, method)(**{name: SENSELESS[label]})
    assert list(tmp_path.iterdir()) == []


def test_senseless_makings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        wrongs(
            Call(
                Study, {"spec": Spec.model_validate(table()), "folder": "here"}, {"folder": "text", "toml": "text nul"}
            )
        )
        == []
    )
    assert wrongs(Call(Study.from_toml, {"study": "quick"}, {"folder": "None text"})) == []


@pytest.mark.parametrize("folder", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_folder_without_a_study(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReplayError):
        Study.from_folder(folder)
