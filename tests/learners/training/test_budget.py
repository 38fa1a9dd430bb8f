"""Periods that fit the budget, and warnings of what it never reaches."""

import warnings

import pytest

from replaylab.errors import SpecError
from replaylab.learners import DQN, QLearning, TrainingConfig, train
from replaylab.learners.training.configuration import BudgetWarning
from replaylab.replay import Uniform
from replaylab.study import Spec
from replaylab.study.execution.worker.calibration import _trained
from replaylab.study.plan import plan
from tests.study import tiny

LEARNER = QLearning(batch_size=4, learning_starts=8, capacity=100)


def config(learner=LEARNER, **settings):
    budget = {} if settings.keys() & {"total_steps", "total_episodes"} else {"total_steps": 100}
    return TrainingConfig("FrozenLake-v1", learner, Uniform(), **budget | {"eval_episodes": 1} | settings)


@pytest.mark.parametrize("unit", ["total_steps", "total_episodes"])
@pytest.mark.parametrize(
    ("total", "eval_every", "log_every"), [(1, 1, 1), (300, 30, 30), (20_000, 2_000, 1_000), (10**6, 5_000, 1_000)]
)
def test_defaults_fit_the_budget(unit, total, eval_every, log_every):
    fitted = config(**{unit: total})
    assert (fitted.eval_every, fitted.log_every) == (eval_every, log_every)
    assert config(**{unit: total}, eval_every=None, log_every=7).log_every == 7
    assert config(**{unit: total}, eval_every=None).eval_every is None


@pytest.mark.parametrize(
    ("budget", "log_every", "measure_every"),
    [
        ({"episodes": 300}, 30, 2_500),
        ({"episodes": 100_000}, 500, 2_500),
        ({"steps": 3}, 1, 2),
        ({"steps": 2_000}, 200, 500),
        ({"steps": 20_000}, 500, 2_500),
    ],
)
def test_defaults_of_a_study_fit_its_budget(budget, log_every, measure_every):
    table = tiny.table(budget=budget, evaluation={"every": 1})
    del table["logging"], table["measures"]
    spec = Spec.from_table(table)
    assert (spec.logging.every, spec.measures.every) == (log_every, measure_every)
    assert {chunk.configuration().log_every for chunk in plan(spec)} == {log_every}
    assert Spec.model_validate_json(spec.model_dump_json()) == spec


def test_defaults_of_a_study_fit_the_smallest_budget():
    table = tiny.table(budget={"steps": 20_000}, strategies__uniform__budget={"steps": 200})
    del table["logging"]
    assert Spec.from_table(table).logging.every == 20


@pytest.mark.parametrize("unit", ["total_steps", "total_episodes"])
def test_a_short_run_has_rows_of_updates(unit):
    learner = QLearning(batch_size=4, learning_starts=1, capacity=100)
    metrics = train(config(learner, **{unit: 40}, eval_every=None), [0])
    assert len(metrics.of("train/td_error_mean")[0]) == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"total_episodes": 5, "log_every": 500},
            r"^`log_every` = 500 is not reached in the budget of 5 episodes, so the metrics that depend on it are "
            r"never recorded; set it to at most 5, or leave it out$",
        ),
        ({"log_every": 101}, r"^`log_every` = 101 is not reached in the budget of 100 steps"),
        ({"measure_every": 101}, r"^`measure_every` = 101 is not reached in the budget of 100 steps"),
        (
            {"learner": QLearning(batch_size=4, learning_starts=98, train_period=3), "log_every": 100},
            r"^`log_every` = 100 is not reached .* set it to at most 99",
        ),
        (
            {"learner": QLearning(batch_size=4, learning_starts=101)},
            r"^`learning_starts` = 101 is not reached in the budget of 100 steps, so no batch is learned from",
        ),
        (
            {"learner": QLearning(learning_starts=101)},
            r"^`learning_starts` = 101 is not reached in the budget of 100 steps, so no metric of updates is recorded",
        ),
        ({"held_out": 3, "eval_every": None}, r"^`held_out` is recorded at evaluations, but `eval_every` is None"),
        ({"value_error": True, "eval_every": None}, r"^`value_error` is recorded at evaluations"),
    ],
)
def test_what_the_budget_never_reaches_is_warned_of(settings, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = train(config(**settings), [0])
    (warning,) = [each for each in caught if each.category is BudgetWarning]
    with pytest.warns(BudgetWarning, match=message):
        warnings.warn_explicit(warning.message, BudgetWarning, warning.filename, warning.lineno)
    assert warning.filename == __file__
    assert not len(metrics.of("replay/drawn_age_mean")[0])


def test_nothing_is_warned_of_at_the_edge():
    learner = QLearning(batch_size=4, learning_starts=100)
    train(config(learner, log_every=100, measure_every=100, eval_every=100), [0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"budget": {"episodes": 30}, "logging": {"every": 500}, "metrics": ["train/loss"]},
            r"^study: `metrics` must be what runs record, but got 'train/loss', which `logging\.every` = 500 never "
            r"records in 30 episodes; set `logging\.every`, or ask for another\.$",
        ),
        (
            {"measures": {"every": 301}, "metrics": ["replay/sampling_evenness"]},
            r"'replay/sampling_evenness', which `measures\.every` = 301 never records in 300 environment steps; set",
        ),
    ],
)
def test_a_study_refuses_to_ask_for_what_is_never_recorded(changes, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_table(tiny.table(evaluation={"every": 10}, **changes))


def test_an_estimate_does_not_warn_of_its_own_small_budget():
    learner = {"type": "dqn", "hidden": [8], "learning_starts": 5_000}
    table = tiny.table(budget={"steps": 20_000}, logging={"every": 20_000}, learners={"dqn": learner}, seeds=1)
    population = plan(Spec.from_table(table))[0]
    assert _trained(population, 400)["step"] > 0


def test_a_dqn_that_never_learns():
    learner = DQN(hidden=(8,))
    with pytest.warns(BudgetWarning, match=r"^`learning_starts` = 1,000 is not reached in the budget of 60 steps"):
        train(TrainingConfig("CartPole-v1", learner, Uniform(), 60, eval_every=None), [0])


def test_an_algorithm_of_stable_baselines_that_never_learns():
    pytest.importorskip("stable_baselines3")
    from replaylab.learners.sb3.learner import SB3

    learner = SB3("DQN", arguments={"learning_starts": 90, "policy_kwargs": {"net_arch": [8]}})
    with pytest.warns(BudgetWarning, match=r"^`learning_starts` = 90 is not reached in the budget of 60 steps"):
        train(TrainingConfig("CartPole-v1", learner, Uniform(), 60, eval_every=None), [0])
