"""StrategyVisits of strategies, compared with the baseline's."""

from itertools import product

import numpy as np
import pytest

from replaylab import statistics
from replaylab.study.analysis import visit_counts
from replaylab.study.analysis.visit_counts import StrategyVisits
from tests.study import tiny


def visits(strategy, counts, seeds=None, environment="env"):
    seeds = np.arange(len(counts)) if seeds is None else np.array(seeds)
    return StrategyVisits(environment, "q", strategy, seeds, np.asarray(counts, float))


def test_rows_become_counts_in_the_order_of_the_file(tmp_path):
    study = tiny.study(tmp_path, seeds=3, chunk_size=3)

    def rows_of(chunk):
        i = list(study.spec.strategies).index(chunk.strategy)
        for seed, state in product((2, 0, 1), (1, 0, 10)):  # earlier versions wrote five digits
            yield seed, 300, f"visits/{state:0{5 * i}d}", float(10 * i + seed + state)

    tiny.write_rows(study, rows_of)
    first, second = visit_counts.visits_of(study.results(), study.spec)
    assert (first.strategy, second.strategy) == tuple(study.spec.strategies)
    assert first.seeds.tolist() == [0, 1, 2]
    assert first.counts.shape == (3, 11)
    assert first.counts[2, [0, 1, 10]].tolist() == [2, 3, 12]
    assert second.counts[0, [0, 1, 2, 10]].tolist() == [10, 11, 0, 20]


def test_none_where_nothing_counted(tmp_path):
    study = tiny.study(tmp_path)
    tiny.pretend(study, 1.0)
    assert visit_counts.visits_of(study.results(), study.spec) == []


def test_pairs_are_of_seeds_that_both_have():
    base, other = visits("base", np.eye(4) + 1, [0, 1, 2, 5]), visits("other", np.eye(4), [1, 2, 3, 5])
    ((of_strategy, against),) = visit_counts.paired_visits([base, other], "base")
    assert of_strategy.seeds.tolist() == against.seeds.tolist() == [1, 2, 5]
    np.testing.assert_array_equal(of_strategy.counts, np.eye(4)[[0, 1, 3]])
    np.testing.assert_array_equal(against.counts, (np.eye(4) + 1)[[1, 2, 3]])
    alone = visits("far", np.ones((1, 4)), [9])
    assert visit_counts.paired_visits([base, alone], "base") == []
    assert visit_counts.paired_visits([base, visits("x", np.eye(4), environment="another")], "base") == []


def test_distances_are_tested_and_corrected_over_all_comparisons():
    rng = np.random.default_rng(0)
    base = visits("base", rng.integers(1, 9, (8, 5)))
    same, other = (
        visits("same", rng.integers(1, 9, (8, 5))),
        visits("other", rng.integers(1, 9, (8, 5)) * [9, 1, 1, 1, 1]),
    )
    first, second = visit_counts.visit_differences([base, same, other], "base")
    for distances, counts in ((first, same), (second, other)):
        assert (distances.distance, distances.p) == statistics.share_distance_test(counts.counts, base.counts)
    assert second.p == 2 / 2**8
    assert second.p_holm == 2 * second.p
    assert first.p_holm == first.p > 0.05


def test_states_that_differ_are_found_and_others_are_not():
    rng = np.random.default_rng(1)
    base, counts = rng.multinomial(1_000, [0.2] * 5, 12), rng.multinomial(1_000, [0.3, 0.1, 0.2, 0.2, 0.2], 12)
    padding = np.zeros((12, 2), int)
    p = visit_counts.state_p_values(
        visits("own", np.hstack([counts, padding])), visits("base", np.hstack([base, padding]))
    )
    assert (p[:2] < 0.01).all()
    assert (p[2:5] > 0.05).all()
    assert (p[5:] == 1).all(), "states that nobody visited"


def test_one_seed_says_nothing_of_single_states():
    assert visit_counts.state_p_values(visits("a", [[1, 2]]), visits("b", [[2, 1]])).tolist() == [1, 1]


@pytest.mark.parametrize("states", [3, 500])
def test_places_add_up_their_states(states):
    rng = np.random.default_rng(2)
    counts = visits("a", rng.integers(0, 9, (4, states)))
    cells = rng.integers(0, 3, states)
    np.testing.assert_array_equal(
        counts.at(cells, 3).counts, [[row[cells == cell].sum() for cell in range(3)] for row in counts.counts]
    )
