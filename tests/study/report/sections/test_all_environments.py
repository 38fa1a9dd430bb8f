"""What a report says over all environments, where a study file gives scores."""

import csv
import re

import numpy as np
import pytest

from replaylab import statistics
from replaylab.number_format import decimals
from replaylab.study.analysis import comparisons
from tests.study.tiny import pretend, study

SCORES = {"CartPole-v1": {"low": 0.0, "high": 100.0}, "Acrobot-v1": {"low": 50.0, "high": 250.0}}


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    found = study(
        tmp_path_factory.mktemp("overall"),
        seeds=6,
        population=6,
        environments=["CartPole-v1", "Acrobot-v1", "MountainCar-v0"],
        strategies__none={"type": "online", "environments": ["CartPole-v1"]},
        scores=SCORES,
    )
    pretend(found, 30.0)
    found.report()
    return found


def _rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_scores_are_stratified_over_the_environments_that_have_them(reported):
    rows = _rows(reported.folder / "tables" / "overall.csv")
    assert [(r["strategy"], r["seeds"]) for r in rows] == [("uniform", "6"), ("prioritized", "6")]
    curves = comparisons.curves_of(reported.results(), reported.spec, comparisons.RETURN)
    scored = {}
    for name in ("uniform", "prioritized"):
        of = {c.environment: c.of_runs("final") for c in curves if c.strategy == name}
        scored[name] = np.stack([of["CartPole-v1"] / 100, (of["Acrobot-v1"] - 50) / 200], axis=1)
        row = next(r for r in rows if r["strategy"] == name)
        assert float(row["final"]) == statistics.bootstrap_interval(scored[name]).estimate
    pair = scored["prioritized"], scored["uniform"]
    assert float(rows[1]["difference"]) == statistics.paired_difference(*pair).estimate
    assert float(rows[1]["improvement"]) == statistics.probability_of_improvement(*pair).estimate
    assert rows[0]["difference"] == ""


def test_a_profile_is_the_share_of_runs_above_each_score(reported):
    rows = [r for r in _rows(reported.folder / "figures" / "profiles.csv") if r["strategy"] == "uniform"]
    shares = [float(r["share"]) for r in rows]
    assert float(rows[0]["score"]) == 0.0
    assert (shares[0], shares[-1]) == (1.0, 0.0)
    assert shares == sorted(shares, reverse=True)


def test_the_page_tells_the_scale(reported):
    page = (reported.folder / "report.html").read_text()
    assert "CartPole-v1 from 0 to 100 and Acrobot-v1 from 50 to 250" in page
    assert page.index("Sizes of effects") < page.index("Over all environments") < page.index("Inside the learner")


def test_one_score_is_no_comparison_of_environments(tmp_path):
    found = study(tmp_path, scores={"CartPole-v1": SCORES["CartPole-v1"]})
    pretend(found, 30.0)
    assert "Over all environments" not in found.report().read_text()


APART = {
    "environments": list(SCORES),
    "seeds": 6,
    "population": 6,
    "scores": SCORES,
    "learners": {
        name: {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20, "environments": [environment]}
        for name, environment in zip(("pole", "robot"), SCORES, strict=True)
    },
}


def test_environments_with_a_learner_each_are_put_together(tmp_path, reported):
    found = study(tmp_path, **APART)
    pretend(found, 30.0)
    page = found.report(figure_files=False).read_text()
    assert "Each environment has a learner of its own" in page
    rows = _rows(tmp_path / "tables" / "overall.csv")
    assert {r.pop("learner") for r in rows} == {"each environment’s own"}
    of_one = _rows(reported.folder / "tables" / "overall.csv")
    assert {r.pop("learner") for r in of_one} == {"dqn"}
    assert rows == of_one, "the made-up returns hang on seed and strategy alone"


def test_that_nothing_is_put_together_is_told(tmp_path):
    more = {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20, "environments": ["CartPole-v1"]}
    found = study(tmp_path, **APART | {"learners": APART["learners"] | {"other": more}})
    pretend(found, 30.0)
    page = found.report(figure_files=False).read_text()
    assert "Nothing is put together: no strategy has results of common seeds on all scored environments" in page
    assert not (tmp_path / "tables" / "overall.csv").exists()


def test_with_many_strategies_each_profile_stands_beside_the_baseline_s(tmp_path):
    more = {f"strategies__p{i}": {"type": "prioritized", "alpha": 0.1 * i} for i in range(1, 8)}
    found = study(tmp_path, environments=["CartPole-v1", "Acrobot-v1"], scores=SCORES, **more)
    pretend(found, 30.0)
    page = found.report().read_text()
    assert page.count('aria-label="Performance profiles: ') == 9
    assert "Learning curves" not in page  # every run's panels show them
    assert page.count('aria-label="Every run: CartPole-v1: ') == 9


def test_one_pair_has_no_interval(tmp_path):
    """However many seeds the strategy itself has."""
    found = study(tmp_path, seeds=6, population=1, environments=list(SCORES), scores=SCORES)
    pretend(found, 30.0)
    for population in found.populations:
        if population.strategy == "uniform" and 0 not in population.seeds:
            found.file_of(population).unlink()
    page = found.report(figure_files=False).read_text()
    row = next(r for r in _rows(tmp_path / "tables" / "overall.csv") if r["strategy"] == "prioritized")
    assert (row["seeds"], row["pairs"]) == ("6", "1")
    difference = decimals(float(row["difference"]), 1.0)
    assert re.search(rf"<td[^>]*>1</td>\s*<td[^>]*>{re.escape(difference)}</td>\s*<td[^>]*>1.00</td>", page)
