"""CliffWalking's exact returns."""

from replaylab.claims import ReplicationOutcome, cliff_walking


def test_figures_of_the_source_are_exact():
    findings = list(cliff_walking.measure())
    assert [round(finding.ours, 1) for finding in findings] == [-13.0, -50.8, -20.7]
    assert {finding.verdict for finding in findings} == {ReplicationOutcome.REPRODUCED}


def test_other_exploration_gives_other_figures():
    verdicts = [finding.verdict for finding in cliff_walking.measure(epsilon=0.2)]
    assert verdicts == [
        ReplicationOutcome.REPRODUCED,
        ReplicationOutcome.NOT_REPRODUCED,
        ReplicationOutcome.NOT_REPRODUCED,
    ]
