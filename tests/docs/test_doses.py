"""The script that chooses the doses of the study positions-or-errors from its pilot."""

import runpy

import numpy as np
import pytest

from replaylab.replay import Table
from replaylab.study import Study
from replaylab.study.analysis.comparisons import Curve
from tests.docs.published_numbers import RESULTS

FOLDER = RESULTS / "positions-or-errors"
doses = runpy.run_path(str(FOLDER / "doses.py"))


def curve(values):
    every = 1_000
    steps = np.arange(every, every * (values.shape[1] + 1), every)
    return Curve("Env-v0", "huber", "td", np.arange(len(values)), steps, values)


def test_the_exponent_lies_between_those_that_were_tried():
    def left(exponent):
        return 60.0 * np.exp(-0.7 * exponent - 0.5 * exponent**2)

    rows = {exponent: left(exponent) for exponent in (0.0, 0.15, 0.3, 0.45, 0.6)}
    for exponent in (0.01, 0.2, 0.37, 0.59):
        assert doses["matching_exponent"](rows, left(exponent)) == pytest.approx(exponent, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ({0.0: 60.0, 0.3: 40.0, 0.6: 30.0}, 29.0),
        ({0.0: 60.0, 0.3: 40.0, 0.6: 30.0}, 61.0),
        ({0.0: 30.0, 0.3: 40.0, 0.6: 60.0}, 40.0),
    ],
)
def test_a_dose_that_was_not_tried_is_refused(rows, wanted):
    with pytest.raises(ValueError, match="pilot other exponents"):
        doses["matching_exponent"](rows, wanted)


def test_the_schedule_gives_the_share_of_ends():
    """By the definition of EpisodeEnds, s + (1 − s)·L/N, at the middle of each tenth of the run."""
    progress = (np.arange(20) + 0.5) / 20
    wanted, without = 0.1 - 0.05 * progress, 0.02 + 0.01 * progress
    points, shares = doses["share_of_ends"](curve(np.stack([wanted, wanted])), curve(np.stack([without, without])))
    assert len(points) == 10
    schedule = Table(tuple(points), tuple(shares))
    for moment in (0.2, 0.5, 0.83):
        s, ends = schedule(moment), 0.02 + 0.01 * moment
        assert s + (1 - s) * ends == pytest.approx(0.1 - 0.05 * moment, abs=1e-4)


def test_fewer_ends_than_even_draws_need_none():
    _, shares = doses["share_of_ends"](curve(np.full((2, 20), 0.01)), curve(np.full((2, 20), 0.02)))
    assert set(shares) == {0.0}


def test_the_study_compares_what_it_says():
    """Each arm in each environment and loss, in the same number of cells."""
    spec = Study.from_toml(FOLDER / "study.toml").spec
    cells = [(environment, learner) for environment, learner, _ in spec.cells]
    assert {cells.count(cell) for cell in cells} == {6}
    assert len(set(cells)) == 10


def test_strategies_are_written_between_the_marks():
    text = "a\n# Written by doses.py: begin. Old.\nold\n# Written by doses.py: end.\nb\n"
    once = doses["written"](text, "new\n", "New.")
    assert once == "a\n# Written by doses.py: begin. New.\n\nnew\n\n# Written by doses.py: end.\nb\n"
    assert doses["written"](once, "new\n", "New.") == once
