"""The shipped grid of the comparative study, against the notebook and the published study of its flaws."""

from pathlib import Path

import pytest

from replaylab.study import catalog
from replaylab.study.spec.spec import Spec

PUBLISHED = Path(__file__).parents[3] / "docs" / "results" / "as-published-settings" / "study.toml"


@pytest.fixture(scope="module")
def grid():
    return Spec.from_toml(catalog.find("comparative-study"))


def test_the_grid_is_the_notebook_s(grid):
    assert grid.environments[:3] == ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
    assert grid.env_options == {"CartPole-v1": {"max_episode_steps": 200}}
    assert (grid.budget.episodes, len(grid.seeds)) == (300, 50)
    assert {"window", "uniform", "unweighted", "combined", "hindsight"} < set(grid.strategies)
    assert grid.overrides["hindsight"].environments == grid.environments[3:]


def test_the_grid_has_the_learners_of_the_published_study(grid):
    """The study of each flaw and the grid cannot drift apart."""
    published = Spec.from_toml(PUBLISHED)
    for name, original in (("published", "all_flaws"), ("corrected", "corrected")):
        assert grid.learners[name] == published.learners[original]
    for name in grid.strategies.keys() - {"hindsight"}:
        assert grid.strategies[name] == published.strategies[name]
        if name in grid.overrides:
            assert grid.overrides[name].learner == published.overrides[name].learner
