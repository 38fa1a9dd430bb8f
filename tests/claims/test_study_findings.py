"""Claims that are tested by a study: what its contrasts say about a source."""

import pytest

from replaylab.claims.claim import ReplicationOutcome
from replaylab.claims.study_findings import complete, judged
from replaylab.errors import ConfigError
from tests.study import tiny


def test_a_failed_run_is_told(tmp_path, monkeypatch):
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
        ("undecided", ("lower",), ReplicationOutcome.CONTESTED),
        ("equivalent", ("higher", "equivalent"), ReplicationOutcome.REPRODUCED),
        ("lower", ("higher", "equivalent"), ReplicationOutcome.NOT_REPRODUCED),
    ],
)
def test_verdicts(verdict, agreeing, expected):
    assert judged(verdict, agreeing) is expected
