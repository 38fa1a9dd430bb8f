"""Part of a report about all environments, for a study file with scores."""

import re

import numpy as np
import pytest

from replaylab import statistics
from replaylab.statistics import Interval
from replaylab.study.analysis import comparisons
from replaylab.study.report import sentences
from tests.study.tiny import csv_rows, lose, page_of, pretended, sections

SCORES = {"CartPole-v1": {"low": 0.0, "high": 100.0}, "Acrobot-v1": {"low": 50.0, "high": 250.0}}


@pytest.fixture
def alone():
    """Reports have this section alone."""
    with sections("all_environments"):
        yield


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    tiny = pretended(
        tmp_path_factory.mktemp("overall"),
        30.0,
        seeds=6,
        chunk_size=6,
        environments=["CartPole-v1", "Acrobot-v1", "MountainCar-v0"],
        strategies__none={"type": "online", "environments": ["CartPole-v1"]},
        scores=SCORES,
    )
    with sections("levels", "all_environments", "differences"):
        tiny.report()
    return tiny


def test_scores_are_stratified_over_their_environments(reported):
    rows = csv_rows(reported.folder / "tables" / "overall.csv")
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
    rows = [r for r in csv_rows(reported.folder / "figures" / "profiles.csv") if r["strategy"] == "uniform"]
    shares = [float(r["share"]) for r in rows]
    assert float(rows[0]["score"]) == 0.0
    assert (shares[0], shares[-1]) == (1.0, 0.0)
    assert shares == sorted(shares, reverse=True)


def test_the_page_tells_the_scale(reported):
    page = (reported.folder / "report.html").read_text()
    assert "CartPole-v1 from 0 to 100 and Acrobot-v1 from 50 to 250" in page
    assert page.index("<h2>Final performance") < page.index("Over all environments") < page.index("<h2>Differences")


def test_one_score_is_no_comparison_of_environments(tmp_path, alone):
    assert "Over all environments" not in page_of(tmp_path, 30.0, scores={"CartPole-v1": SCORES["CartPole-v1"]})


APART = {
    "environments": list(SCORES),
    "seeds": 6,
    "chunk_size": 6,
    "scores": SCORES,
    "learners": {
        name: {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20, "environments": [environment]}
        for name, environment in zip(("pole", "robot"), SCORES, strict=True)
    },
}


def test_environments_with_a_learner_each_are_put_together(tmp_path, reported, alone):
    page = page_of(tmp_path, 30.0, **APART)
    assert "Each environment has its own learner" in page
    rows = csv_rows(tmp_path / "tables" / "overall.csv")
    assert {r.pop("learner") for r in rows} == {"each environment’s own"}
    of_one = csv_rows(reported.folder / "tables" / "overall.csv")
    assert {r.pop("learner") for r in of_one} == {"dqn"}
    assert rows == of_one, "the made-up returns depend on seed and strategy alone"


def test_that_nothing_is_put_together_is_reported(tmp_path, alone):
    more = {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20, "environments": ["CartPole-v1"]}
    page = page_of(tmp_path, 30.0, **APART | {"learners": APART["learners"] | {"other": more}})
    assert "Nothing is put together: no strategy has results of common seeds on all scored environments" in page
    assert not (tmp_path / "tables" / "overall.csv").exists()


def test_many_strategies_each_stand_beside_the_baseline(tmp_path):
    more = {f"strategies__p{i}": {"type": "prioritized", "alpha": 0.1 * i} for i in range(1, 8)}
    with sections("all_environments", "learning_curves"):
        page = page_of(tmp_path, 30.0, environments=["CartPole-v1", "Acrobot-v1"], scores=SCORES, **more)
    assert page.count('aria-label="Performance profiles: ') == 9
    assert 'id="learning_curves"' not in page  # every run's panels show them
    assert page.count('aria-label="Every run: CartPole-v1: ') == 9


def test_one_pair_has_no_interval(tmp_path, alone):
    """However many seeds the strategy itself has."""
    tiny = pretended(tmp_path, 30.0, seeds=6, chunk_size=1, environments=list(SCORES), scores=SCORES)
    lose(tiny, lambda chunk: chunk.strategy == "uniform" and 0 not in chunk.seeds)
    page = tiny.report(figure_files=False).read_text()
    row = next(r for r in csv_rows(tmp_path / "tables" / "overall.csv") if r["strategy"] == "prioritized")
    assert (row["seeds"], row["pairs"]) == ("6", "1")
    difference = sentences.effect(Interval(*[float(row["difference"])] * 3))
    assert re.search(rf"<td[^>]*>1</td>\s*<td[^>]*>{re.escape(difference)}</td>\s*<td[^>]*>1.0</td>", page)
