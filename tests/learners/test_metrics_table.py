"""Rows of one metric and of one seed, and names that nothing has."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Metrics


def table(*rows):
    types = {"seed": np.int64, "step": np.int64, "metric": np.str_, "value": np.float64}
    return Metrics({name: np.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(types.items())})


ROWS = ((0, 10, "eval/mean_reward", 1.0), (3, 10, "eval/mean_reward", 2.0), (3, 20, "own/entropy", 0.5))


def test_rows_of_one_metric_of_all_seeds_or_of_one():
    metrics = table(*ROWS)
    assert [each.tolist() for each in metrics.of("eval/mean_reward")] == [[10, 10], [1.0, 2.0]]
    assert [each.tolist() for each in metrics.of("own/entropy", seed=3)] == [[20], [0.5]]
    assert [each.tolist() for each in metrics.of("own/entropy", seed=0)] == [[], []]


@pytest.mark.parametrize("rows", [(), ROWS])
def test_what_the_library_may_write_is_empty_where_it_did_not(rows):
    assert [len(each) for each in table(*rows).of("rollout/ep_rew")] == [0, 0]


def test_names_and_seeds_that_nothing_has_are_reported():
    said = (
        r"^`metric` must be a recorded metric, but got 'eval/mean_rewrd'; did you mean `eval/mean_reward`\? "
        r"Recorded: eval/mean_reward, own/entropy$"
    )
    with pytest.raises(ConfigError, match=said):
        table(*ROWS).of("eval/mean_rewrd")
    with pytest.raises(ConfigError, match=r"`seed` must be one of the run: 0, 3; got 1"):
        table(*ROWS).of("eval/mean_reward", seed=1)
    with pytest.raises(ConfigError, match=r"but got 'own/entropy'\. Recorded: no rows$"):
        table().of("own/entropy")


VISITS = tuple((seed, 9, f"visits/{state}", 10.0 * seed + state) for seed in (3, 0) for state in (11, 0, 2, 1))


def test_visits_are_an_array_of_seeds_and_states():
    visits = table(*ROWS, *VISITS).visits()
    assert visits.dtype == np.int64
    assert visits.tolist() == [[0, 1, 2, *[0] * 8, 11], [30, 31, 32, *[0] * 8, 41]]


def test_visits_that_were_not_counted():
    with pytest.raises(ConfigError, match=r"^`visits` needs a run that counts them; train with .*visits=True"):
        table(*ROWS).visits()


def test_visits_of_one_state_have_one_name():
    metrics = table(*VISITS)
    assert metrics.of("visits/11", seed=0)[1].tolist() == [11.0]
    said = r"got 'visits/00011'; did you mean `visits/11`\? Recorded: visits/\{state\}$"
    with pytest.raises(ConfigError, match=said):
        metrics.of("visits/00011")
    with pytest.raises(ConfigError, match=r"got 'visits/5'; did you mean `visits/"):
        metrics.of("visits/5")


@pytest.mark.parametrize("arguments", [{"metric": None}, {"seed": [1, 2]}, {"seed": True}])
def test_invalid_names_and_seeds_are_refused(arguments):
    table = Metrics({name: np.zeros(1) for name in ("seed", "step", "metric", "value")})
    with pytest.raises(ConfigError, match=f"`{next(iter(arguments))}` must be"):
        table.of(**{"metric": "train/loss"} | arguments)
