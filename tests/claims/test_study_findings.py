"""Claims that are tested by a study: what its contrasts say about a source."""

import pytest

from replaylab.claims.claim import ReplicationOutcome
from replaylab.claims.study_findings import complete, contrast_findings, judged
from replaylab.errors import ConfigError
from tests.study import tiny


def test_a_failed_run_is_reported(tmp_path, monkeypatch):
    study = tiny.study(tmp_path)
    monkeypatch.setattr(type(study), "run", lambda _: type("Summary", (), {"complete": False}))
    with pytest.raises(ConfigError, match=f"runs of {study.spec.name} failed; their tracebacks are in"):
        complete(study)


@pytest.mark.parametrize(
    ("verdict", "agreeing", "expected"),
    [
        ("lower", ("lower",), ReplicationOutcome.REPRODUCED),
        ("equivalent", ("lower",), ReplicationOutcome.NOT_REPRODUCED),
        ("higher", ("lower",), ReplicationOutcome.NOT_REPRODUCED),
        ("inconclusive", ("lower",), ReplicationOutcome.CONTESTED),
        ("equivalent", ("higher", "equivalent"), ReplicationOutcome.REPRODUCED),
        ("lower", ("higher", "equivalent"), ReplicationOutcome.NOT_REPRODUCED),
    ],
)
def test_verdicts(verdict, agreeing, expected):
    assert judged(verdict, agreeing) is expected


@pytest.mark.parametrize(("gain", "label"), [(0.5, "90 %"), (60.0, "uncorrected 95 %")])
def test_a_finding_has_the_interval_that_stands_beside_the_verdict(tmp_path, gain, label):
    asked = {"name": "gain", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}, "equivalence": 5.0}
    study = tiny.study(tmp_path, seeds=10, chunk_size=10, contrasts=[asked])
    tiny.pretend(study, gain)
    (contrast,) = study.contrasts().results
    (finding,) = contrast_findings(study, {"gain": ("said", ("higher",))})
    assert (finding.ours, finding.low, finding.high) == contrast.reported.interval
    assert finding.interval == f"interquartile mean of 10 seeds, {label}"
