"""Visits of a study's runs."""

import re

import numpy as np
import pytest

from replaylab.commands import main as cli
from replaylab.learners import QLearning
from replaylab.plotting.heat_map import DARK_INK, LIGHT_INK
from replaylab.replay import Online
from replaylab.study import InProcess, Spec, Study
from replaylab.study.report.sections.visits import MOST_LISTED
from tests.learners.calls import train
from tests.study import tiny

STUDY = """
name = "cliff"
environments = ["CliffWalking-v1"]
seeds = 8
baseline = "none"
budget = { episodes = 3 }
evaluation = { every = 3, episodes = 1 }
logging = { every = 3, visits = true }
env_options."CliffWalking-v1" = { max_episode_steps = 200 }
learners.q = { type = "q_learning", gamma = 1.0 }
strategies.none = { type = "online" }
strategies.reckless = { type = "online", learner = { epsilon = 1.0 } }
"""


def test_visits_add_up_and_equal_those_of_single_runs():
    def run(seeds):
        options = {"total_episodes": 3, "visits": True, "env_options": {"max_episode_steps": 200}}
        return train("CliffWalking-v1", QLearning(gamma=1.0), Online(), seeds, eval_every=None, **options)

    together = run([0, 1, 2])
    assert together.visits().shape == (3, 48)
    for seed, visits in enumerate(together.visits()):
        episodes, lengths = together.of("rollout/ep_len", seed)
        assert visits.sum() == len(episodes) + lengths.sum()
        assert visits[36] == together.of("visits/36", seed)[1]
        assert not any(visits[37:47]), "who steps off the cliff is put back to the start"
        assert visits[47] == (lengths < 200).sum(), "an episode that was not cut off ended at the goal"
        np.testing.assert_array_equal(visits[None], run([seed]).visits())


def made_up(folder, environment, states, seeds=6):
    """Return a study whose third strategy stays in the first states."""
    visited = tiny.study(
        folder,
        environments=[environment],
        seeds=seeds,
        chunk_size=seeds,
        budget={"episodes": 30},
        evaluation={"every": 10, "episodes": 1},
        logging={"every": 10, "visits": True},
        measures={"every": 0},
        learners={"q": {"type": "q_learning", "batch_size": 4}},
        strategies={"uniform": {"type": "uniform"}, "same": {"type": "uniform"}, "near": {"type": "uniform"}},
    )

    def rows_of(chunk):
        for seed in chunk.seeds:
            rng = np.random.default_rng([seed, list(visited.spec.strategies).index(chunk.strategy)])
            distribution = np.ones(states)
            distribution[: states // 4] += 5 * (chunk.strategy == "near")
            yield from ((seed, step, "eval/mean_reward", rng.normal()) for step in (10, 20, 30))
            counts = rng.multinomial(20 * states, distribution / distribution.sum())
            yield from ((seed, 30, f"visits/{state}", count) for state, count in enumerate(counts))

    tiny.write_rows(visited, rows_of)
    return visited


@pytest.fixture(scope="module")
def cliff(tmp_path_factory):
    visited = made_up(tmp_path_factory.mktemp("cliff"), "CliffWalking-v1", 48)
    with tiny.sections("visits", drawn=True):
        return visited.folder, visited.report().read_text()


def test_a_grid_world_is_drawn_as_maps_with_numbers(cliff):
    folder, page = cliff
    panels = re.findall(r'<svg[^>]*aria-label="Share of the time in each cell: [^"]*"', page)
    assert len(panels) == 3
    assert len(re.findall(r'aria-label="Difference from uniform in the share of the time: [^"]*"', page)) == 2
    shares = tiny.csv_rows(folder / "figures" / "visits.csv")
    assert len(shares) == 3 * 48
    assert sum(float(row["share"]) for row in shares) == pytest.approx(3)
    assert [(row["row"], row["column"]) for row in shares[11:13]] == [("0", "11"), ("1", "0")]
    differences = tiny.csv_rows(folder / "figures" / "visit_differences.csv")
    near = [row for row in differences if row["strategy"] == "near"]
    of = {row["strategy"]: row for row in shares if row["place"] == "0"}
    difference = float(of["near"]["share"]) - float(of["uniform"]["share"])
    assert float(near[0]["difference"]) == pytest.approx(difference)


def test_the_test_stands_beneath_with_its_correction(cliff):
    folder, page = cliff
    same, near = tiny.csv_rows(folder / "tables" / "visits.csv")
    assert (same["strategy"], near["strategy"]) == ("same", "near")
    assert float(near["p"]) == 2 / 2**6
    assert float(near["p_holm"]) == 2 * float(near["p"])
    assert (
        f"{100 * float(near['distance']):.1f} % of the visits of near are to other states than those of uniform" in page
    )
    assert "permutation within 6 seeds: p = 0.062, Holm-corrected over 2 comparisons" in page
    assert "max-T-corrected over all places" in page


def test_colours_of_cells_are_the_same_in_the_dark(cliff):
    _, page = cliff
    body = re.search(r'<figure id="visit_differences">(.*?)</figure>', page, re.DOTALL)[1]
    inside = [fill for fill in re.findall(r'fill="(#[0-9a-f]{6})"', body) if fill in (DARK_INK, LIGHT_INK)]
    assert inside, "numbers in painted cells do not change with the page"


def test_taxi_is_drawn_by_where_the_taxi_is(tmp_path):
    visited = made_up(tmp_path, "Taxi-v4", 500, seeds=3)
    with tiny.sections("visits"):
        page = visited.report().read_text()
    assert 'id="visits"' in page
    shares = tiny.csv_rows(tmp_path / "figures" / "visits.csv")
    assert len(shares) == 3 * 25


def test_states_of_an_environment_without_a_map_are_listed(tmp_path):
    visited = made_up(tmp_path, "Blackjack-v1", 60)
    with tiny.sections("visits", drawn=True):
        page = visited.report().read_text()
    assert 'id="visits"' not in page
    body = re.search(r'<figure id="visit_differences">(.*?)</figure>', page, re.DOTALL)[1]
    assert body.count("<svg viewBox") == 2
    rows = [row for row in tiny.csv_rows(tmp_path / "figures" / "visit_differences.csv") if row["strategy"] == "near"]
    largest = max(rows, key=lambda row: abs(float(row["difference"])))
    assert f">state {largest['place']}<" in body
    assert len(re.findall(r">state \d+<", body)) == 2 * MOST_LISTED


def test_a_study_without_visits_has_no_such_section(tmp_path):
    with tiny.sections("visits"):
        assert "Visited states" not in tiny.page_of(tmp_path, 1.0)


@pytest.mark.usefixtures("no_sections")
def test_a_study_tells_whether_a_strategy_goes_elsewhere(tmp_path, capsys):
    file, folder = tmp_path / "cliff.toml", tmp_path / "out"
    file.write_text(STUDY)
    assert Study(Spec.from_toml(file), folder).run(executor=InProcess()).complete
    assert cli.main(["study", "report", str(folder), "--no-figure-files"]) == 0
    assert "of reckless are to other states than those of none" in capsys.readouterr().out
