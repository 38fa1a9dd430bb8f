"""Claim 5: the findings are the contrasts of its study, and verdicts follow from theirs."""

import pytest

from replaylab.claims import combined_capacity
from replaylab.claims.claim import ReplicationOutcome
from replaylab.claims.combined_capacity import SAID, judged
from replaylab.errors import ConfigError
from replaylab.study import Study, catalog
from replaylab.study.spec.run_settings import EvaluationTable
from replaylab.study.spec.study_file import Budget, Spec


def small(tmp_path, **changes):
    spec = Spec.from_toml(catalog.find("combined-capacity"))
    few = {"seeds": (0, 1), "budget": Budget(steps=60), "evaluation": EvaluationTable(every=30, episodes=1)}
    return Study(spec.model_copy(update=few | changes), tmp_path)


def test_every_contrast_of_the_study_is_a_finding_and_what_is_there_is_only_read(tmp_path):
    study = small(tmp_path)
    findings = list(combined_capacity.measure(study))
    assert [one.what for one in findings] == [f"{name}: difference in score" for name in SAID]
    for one, found in zip(findings, study.contrasts().results, strict=True):
        assert (one.ours, one.low, one.high) == tuple(found.size)
        assert found.cells in (4, 8)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()}
    assert list(combined_capacity.measure(study)) == findings
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()} == before


def test_a_failed_run_is_told(tmp_path, monkeypatch):
    study = small(tmp_path)
    monkeypatch.setattr(type(study), "run", lambda _: type("Summary", (), {"complete": False}))
    with pytest.raises(ConfigError, match="runs of combined-capacity failed; their tracebacks are in"):
        next(combined_capacity.measure(study))


@pytest.mark.parametrize(
    ("verdict", "agreeing", "expected"),
    [
        ("lower", ("lower",), ReplicationOutcome.REPRODUCED),
        ("equivalent", ("lower",), ReplicationOutcome.NOT_REPRODUCED),
        ("higher", ("lower",), ReplicationOutcome.NOT_REPRODUCED),
        ("undecided", ("lower",), ReplicationOutcome.CONTESTED),
        ("equivalent", ("higher", "equivalent"), ReplicationOutcome.REPRODUCED),
        ("lower", ("higher", "equivalent"), ReplicationOutcome.NOT_REPRODUCED),
    ],
)
def test_verdicts(verdict, agreeing, expected):
    assert judged(verdict, agreeing) is expected
