"""A report names the comparisons that ran, and those that could not."""

from replaylab.study.report import sentences
from replaylab.study.report.what_ran import what_ran
from tests.study.tiny import pretended, study

APART = {
    "environments": ["CliffWalking-v1", "Taxi-v3"],
    "seeds": 6,
    "chunk_size": 6,
    "learners": {
        "q": {"type": "q_learning", "batch_size": 4, "environments": ["CliffWalking-v1"]},
        "s": {"type": "sarsa", "batch_size": 4, "environments": ["Taxi-v3"]},
    },
    "strategies": {
        "uniform": {"type": "uniform", "environments": ["CliffWalking-v1"]},
        "none": {"type": "none"},
        "prioritized": {"type": "prioritized", "environments": ["Taxi-v3"]},
    },
}


def test_only_comparisons_that_are_made_are_named(tmp_path, no_sections):
    tiny = pretended(tmp_path, 10.0, **APART)
    text = sentences.compared(what_ran(tiny))
    assert text.startswith("Compared: none vs uniform, on CliffWalking-v1, with the learner q, 6 seeds each and 300")
    page = tiny.report(figure_files=False).read_text()
    assert (
        "none on Taxi-v3 and prioritized on Taxi-v3: the baseline, uniform, does not run there, so nothing is compared."
    ) in page
    contrast = {"name": "a", "more": {"strategy": "prioritized"}, "less": {"strategy": "none"}}
    asked = study(tmp_path, **APART, contrasts=[contrast | {"measure": "final"}])
    assert what_ran(asked).without_baseline() == []


def test_comparisons_that_differ_by_environment_are_named(tmp_path):
    both = APART["strategies"] | {"uniform": {"type": "uniform"}}
    tiny = pretended(tmp_path, 10.0, **APART | {"strategies": both})
    assert sentences.compared(what_ran(tiny)).startswith(
        "Compared: none vs uniform, on CliffWalking-v1, with the learner q; none and prioritized vs uniform, on "
        "Taxi-v3, with the learner s, 6 seeds each and 300 environment steps a run (30 runs)."
    )
    assert what_ran(tiny).without_baseline() == []
