"""A study grows without repeating what is there."""

from collections import Counter

import numpy as np
import pytest

from replaylab.study import InProcess
from replaylab.study.plan import chunked
from tests.study.tiny import rows, run_here, study

LAKE = {
    "environments": ["FrozenLake-v1"],
    "chunk_size": 4,
    "seeds": 5,
    "budget": {"steps": 100},
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
}
MORE = {"seeds": 12}


def seeds_of(chunks, strategy="uniform"):
    return [p.seeds for p in chunks if p.strategy == strategy]


def test_an_extended_study_has_the_rows_of_one_run(tmp_path):
    small = run_here(tmp_path / "grown", **LAKE)
    grown = study(tmp_path / "grown", **LAKE | MORE)
    summary = grown.run(executor=InProcess())
    assert seeds_of(summary.skipped) == [(0, 1, 2, 3), (4,)]
    assert seeds_of(summary.ran) == [(5, 6, 7), (8, 9, 10, 11)]
    assert seeds_of(grown.chunks) == [(0, 1, 2, 3), (4,), (5, 6, 7), (8, 9, 10, 11)]
    at_once = study(tmp_path / "whole", **LAKE | MORE)
    assert seeds_of(at_once.chunks) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]
    assert at_once.run(executor=InProcess()).complete
    np.testing.assert_equal(rows(grown), rows(at_once))  # NaN included
    assert grown.run(executor=InProcess()).ran == ()
    assert small.present == small.chunks, "the smaller study is still there"


def test_a_strategy_and_an_environment_more(tmp_path):
    table = LAKE | {"seeds": 2}
    assert study(tmp_path, **table).run(executor=InProcess()).complete
    more = table | {"strategies__none": {"type": "online"}}
    assert {p.strategy for p in study(tmp_path, **more).run(executor=InProcess()).ran} == {"none"}
    more["environments"] = ["FrozenLake8x8-v1", "FrozenLake-v1"]
    summary = study(tmp_path, **more).run(executor=InProcess())
    assert {p.environment for p in summary.ran} == {"FrozenLake8x8-v1"}
    assert {p.environment for p in summary.skipped} == {"FrozenLake-v1"}
    columns = rows(study(tmp_path, **more))
    places = zip(*(columns[k] for k in ("environment", "strategy", "seed", "step", "metric")), strict=True)
    assert set(Counter(places).values()) == {1}


def test_another_chunk_keeps_what_is_there(tmp_path):
    assert study(tmp_path, **LAKE).run(executor=InProcess()).complete
    assert seeds_of(study(tmp_path, **LAKE | MORE | {"chunk_size": 10}).chunks) == [
        (0, 1, 2, 3),
        (4,),
        (5, 6, 7, 8, 9),
        (10, 11),
    ]


def test_the_rest_of_the_plan_stands_whatever_has_run():
    """For random histories: each seed once, what was planned stays planned, and only what lacked is new."""
    random = np.random.default_rng(0)
    for _ in range(300):
        seeds = tuple(random.permutation(20)[: random.integers(1, 20)].tolist())
        present = [
            tuple(random.permutation(20)[: random.integers(1, 5)].tolist()) for _ in range(random.integers(0, 6))
        ]
        size = int(random.integers(1, 8))
        planned = chunked(seeds, size, present)
        assert sorted(s for chunk in planned for s in chunk) == sorted(seeds)
        ran = [chunk for chunk in planned if random.random() < 0.5]
        assert chunked(seeds, size, [*ran, *present]) == planned


@pytest.mark.parametrize(("seeds", "size"), [((3, 1, 2), 2), (tuple(range(7)), 3), ((5,), 10)])
def test_where_nothing_is_there_the_seeds_are_cut_in_their_order(seeds, size):
    assert chunked(seeds, size) == [seeds[i : i + size] for i in range(0, len(seeds), size)]
