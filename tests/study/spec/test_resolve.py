"""Grids, overrides and defaults: a study is what its file would be with everything written by hand."""

import pytest

from replaylab.errors import SpecError
from replaylab.study import Spec
from replaylab.study.plan import plan
from replaylab.study.spec.resolve import in_name
from tests.study.tiny import table

VARIED = {
    "type": "prioritized",
    "vary": {"alpha": [0.5, 1.0], "beta": [0.0, {"type": "linear", "start": 0.4, "end": 1.0}]},
    "factors": {"choice": "td"},
}
NAMES = [f"prioritized.alpha-{a}.beta-{b}" for a in ("0.5", "1") for b in ("0", "linear-0.4-1")]
GRID = {"type": "dqn", "hidden": [8], "vary": {"capacity": [500, 50_000], "train_period": [1, 4]}}


def varied(**changes):
    return table(strategies__prioritized=VARIED, **changes)


def test_a_grid_is_one_strategy_for_each_combination():
    overrides = {"budget": {"steps": 200}, "learner": {"double": False}, "title": "TD"}
    spec = Spec.from_table(table(strategies__prioritized=VARIED | overrides))
    assert list(spec.strategies) == ["uniform", *NAMES]
    assert spec.strategies[NAMES[1]].options["alpha"] == 0.5
    assert spec.strategies[NAMES[1]].options["beta"]["end"] == 1.0
    assert spec.origins.strategies[NAMES[3]].factors == {"alpha": 1.0, "beta": "linear-0.4-1", "choice": "td"}
    assert spec.origins.strategies[NAMES[3]].table == "prioritized"
    assert spec.title_of(NAMES[2]) == "TD (alpha 1, beta 0)"
    assert [spec.budget_of(s).steps for s in spec.strategies] == [300, 200, 200, 200, 200]
    assert spec.learner_of(NAMES[2], "dqn").options["double"] is False
    assert spec.runs == 20


def test_chunks_are_those_of_tables_written_by_hand():
    beta = {"type": "linear", "start": 0.4, "end": 1.0}
    hand = {
        name: {"type": "prioritized", "alpha": alpha, "beta": b}
        for name, (alpha, b) in zip(NAMES, [(0.5, 0.0), (0.5, beta), (1.0, 0.0), (1.0, beta)], strict=True)
    }
    learners = {
        f"dqn.capacity-{capacity}.train_period-{period}": {
            "type": "dqn",
            "hidden": [8],
            "capacity": capacity,
            "train_period": period,
        }
        for capacity in (500, 50_000)
        for period in (1, 4)
    }
    by_hand = Spec.from_table(table(strategies={"uniform": {"type": "uniform"}, **hand}, learners=learners))
    assert plan(Spec.from_table(varied(learners={"dqn": GRID}))) == plan(by_hand)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["dqn"], ["500.train_period-1", "500.train_period-4", "50000.train_period-1", "50000.train_period-4"]),
        (["dqn.capacity-500.train_period-4"], ["500.train_period-4"]),
        ([{"capacity": 50_000}], ["50000.train_period-1", "50000.train_period-4"]),
        (
            [{"capacity": 50_000, "train_period": 4}, {"capacity": 500, "train_period": 1}],
            ["500.train_period-1", "50000.train_period-4"],
        ),
    ],
)
def test_a_strategy_may_run_with_some_learners_only(wanted, names):
    spec = Spec.from_table(varied(learners={"dqn": GRID}, strategies__uniform={"type": "uniform", "learners": wanted}))
    assert spec.learners_of("uniform") == tuple(f"dqn.capacity-{name}" for name in names)
    chunks = plan(spec)
    assert {p.learner for p in chunks if p.strategy == "uniform"} == set(spec.learners_of("uniform"))
    assert {p.learner for p in chunks if p.strategy == NAMES[0]} == set(spec.learners)
    assert spec.runs == sum(len(p.seeds) for p in chunks)


@pytest.mark.parametrize(
    ("budgets", "periods"),
    [
        ({"budget": {"steps": 1_000_000}}, (500, 2_500)),
        ({"budget": {"steps": 1_000}}, (100, 250)),
        ({"budget": {"steps": 1_000_000}, "strategies__uniform__budget": {"steps": 400}}, (40, 100)),
        ({"budget": {"episodes": 200}}, (20, 2_500)),
    ],
)
def test_default_periods_fit_the_smallest_budget(budgets, periods):
    spec = Spec.from_table(table(logging={"visits": False}, measures={}, **budgets))
    assert (spec.logging.every, spec.measures.every) == periods


def test_values_in_names_are_short_and_safe():
    values = [1e-6, 0.30000000000000004, -1, "mean/max", False, (16, 16)]
    assert [in_name(v) for v in values] == ["1e-06", "0.3", "-1", "mean-max", "false", "16x16"]


PRIORITIZED = "alpha, beta, epsilon, normalize, block_length, new_steps, stratified, replace"
MESSAGES = [
    (
        {"strategies__prioritized__alfa": 3},
        f"unknown key `strategies.prioritized.alfa`; did you mean `alpha`? Allowed here: {PRIORITIZED}.",
    ),
    ({"strategies__x": {"type": "online", "zzz": 3}}, "unknown key `strategies.x.zzz`. No options are allowed here."),
    (
        {"strategies__prioritized__vary": {"alfa": [1]}},
        f"`strategies.prioritized.vary.alfa` must be an option of prioritized ({PRIORITIZED}); did you mean `alpha`?",
    ),
    (
        {"strategies__uniform__vary": {"alpha": [1]}},
        "`strategies.uniform.vary.alpha` must be an option of uniform (replace, stratified).",
    ),
    (
        {"strategies__prioritized__vary": {"alpha": [1, 0.5, 1.0]}},
        "`strategies.prioritized.vary.alpha` must list each value once, but 1 appears more than once.",
    ),
    (
        {"strategies__prioritized": {"type": "prioritized", "alpha": 1.0, "vary": {"alpha": [0.5]}}},
        "`strategies.prioritized.vary.alpha` must not be set in the table as well, but is 1.0 there; remove one.",
    ),
    (
        {"strategies__prioritized": VARIED | {"factors": {"alpha": 1}}},
        "`strategies.prioritized.factors` must not repeat a key of `vary`, but repeats 'alpha'; remove it.",
    ),
    (
        {
            "strategies": {
                "uniform": {"type": "uniform"},
                "p.alpha-1": {"type": "prioritized"},
                "p": {"type": "prioritized", "vary": {"alpha": [1.0]}},
            }
        },
        "`strategies` must have different names, but 'p.alpha-1' appears twice, from `vary` of 'p'; rename a table.",
    ),
    (
        {"strategies__prioritized__title": "uniform"},
        "`strategies.prioritized.title` must be unique among strategies, but 'uniform' is also that of 'uniform'; "
        "change one of the two.",
    ),
    (
        {"strategies__prioritized": {"type": "prioritized", "title": "t" * 75, "vary": {"alpha": [1.0]}}},
        f"`strategies.prioritized.alpha-1.title` must have at most 80 letters, but got '{'t' * 75} ....",
    ),
    (
        {"strategies__prioritized__learners": ["dqm"]},
        "`strategies.prioritized.learners` must name learners (dqn) or values that `vary` gave them, but got 'dqm'.",
    ),
    (
        {"strategies__prioritized__learners": [{"capacity": 3}], "learners__dqn": GRID | {"vary": {"capacity": [5]}}},
        "`strategies.prioritized.learners` must name learners (dqn.capacity-5) or values that `vary` gave them, "
        "but got {'capacity': 3}.",
    ),
    (
        {"strategies__prioritized__transforms": [{"type": "nstep"}]},
        "`strategies.prioritized.transforms.type` must be one of frame_stack, hindsight, n_step, sequence, "
        "but got 'nstep'; did you mean `n_step`?",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[str(c)[:60] for c, _ in MESSAGES])
def test_a_mistake_is_reported_with_its_key_and_its_fix(changes, message):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    assert str(caught.value) == f"my.toml: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 10**400}, "must be within a float's range"),
        ({"vary": {"gamma": [10**400, 0.99]}}, "must have at most 60 letters"),
        ({"vary": {"gamma": [0.9, "high"]}}, "`learners.q.gamma-high.gamma` must be a number, but got 'high'"),
        ({"environments": ["CartPole-v1"], "title": "t" * 81}, "`learners.q.title` must have at most 80 letters"),
    ],
)
def test_values_that_no_learner_takes_are_refused(options, message):
    learners = {"q": {"type": "q_learning", "batch_size": 4, **options}}
    with pytest.raises(SpecError, match=message):
        Spec.from_table(table(learners=learners))
