"""Claim 5: the findings are the contrasts of its study."""

from replaylab.claims import combined_capacity
from replaylab.claims.combined_capacity import SAID
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
