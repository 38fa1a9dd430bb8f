"""``vary``: many strategies and learners from one table, the same in everything as if each were written by hand."""

import pytest

from replaylab.errors import SpecError
from replaylab.study import Spec
from replaylab.study.plan import plan
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec.parameter_grids import in_name
from tests.study.tiny import study, table

VARIED = {
    "type": "prioritized",
    "vary": {"alpha": [0.5, 1.0], "beta": [0.0, {"type": "linear", "start": 0.4, "end": 1.0}]},
    "factors": {"choice": "td"},
}
NAMES = [f"prioritized.alpha-{a}.beta-{b}" for a in ("0.5", "1") for b in ("0", "linear-0.4-1")]
GRID = {"type": "dqn", "hidden": [8], "vary": {"capacity": [500, 50_000], "train_period": [1, 4]}}


def varied(**changes):
    return table(strategies__prioritized=VARIED, **changes)


def test_one_strategy_for_each_combination():
    spec = Spec.from_table(varied())
    assert list(spec.strategies) == ["uniform", *NAMES]
    assert spec.strategies[NAMES[1]].options["alpha"] == 0.5
    assert spec.strategies[NAMES[1]].options["beta"] == {
        "type": "linear",
        "start": 0.4,
        "end": 1.0,
        "until": 1.0,
        "steps": None,
    }
    assert spec.origins.strategies[NAMES[3]].factors == {"alpha": 1.0, "beta": "linear-0.4-1", "choice": "td"}
    assert spec.origins.strategies[NAMES[3]].table == "prioritized"
    assert spec.runs == 20


def test_what_a_table_does_otherwise_all_its_strategies_do():
    table_ = VARIED | {"budget": {"steps": 200}, "learner": {"double": False}}
    spec = Spec.from_table(table(strategies__prioritized=table_))
    assert [spec.budget_of(s).steps for s in spec.strategies] == [300, 200, 200, 200, 200]
    assert spec.learner_of(NAMES[2], "dqn").options["double"] is False


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
    by_vary = Spec.from_table(varied(learners={"dqn": GRID}))
    assert [p.id for p in plan(by_vary)] == [p.id for p in plan(by_hand)]
    assert plan(by_vary) == plan(by_hand)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["dqn"], ["500.train_period-1", "500.train_period-4", "50000.train_period-1", "50000.train_period-4"]),
        (["dqn.capacity-500.train_period-4"], ["500.train_period-4"]),
        ([{"capacity": 50_000}], ["50000.train_period-1", "50000.train_period-4"]),
        ([{"capacity": 500, "train_period": 1}, {"capacity": 50_000, "train_period": 4}], None),
    ],
)
def test_a_strategy_may_run_with_some_learners_only(wanted, names):
    spec = Spec.from_table(varied(learners={"dqn": GRID}, strategies__uniform={"type": "uniform", "learners": wanted}))
    named = names or ["500.train_period-1", "50000.train_period-4"]
    assert spec.learners_of("uniform") == tuple(f"dqn.capacity-{name}" for name in named)
    made = plan(spec)
    assert {p.learner for p in made if p.strategy == "uniform"} == set(spec.learners_of("uniform"))
    assert {p.learner for p in made if p.strategy == NAMES[0]} == set(spec.learners)
    assert spec.runs == sum(len(p.seeds) for p in made)


def test_study_json_round_trips_with_its_factors(tmp_path):
    learners = {"dqn": GRID}
    uniform = {"type": "uniform", "learners": [{"capacity": 500}], "factors": {"choice": "uniform", "beta": 0}}
    made = study(tmp_path, learners=learners, strategies__uniform=uniform, strategies__prioritized=VARIED)
    spec = made.spec
    assert Spec.model_validate_json(spec.model_dump_json()) == spec
    assert Spec.from_table(spec.model_dump(mode="json")) == spec
    StudyFolder(made.spec, made.folder).write_records()
    assert type(made).from_folder(tmp_path) == made


def test_values_in_names_are_short_and_safe():
    values = [1e-6, 0.30000000000000004, -1, "mean/max", False, (16, 16)]
    assert [in_name(v) for v in values] == ["1e-06", "0.3", "-1", "mean-max", "false", "16x16"]


MESSAGES = [
    (
        {"strategies__prioritized__vary": {"alfa": [1]}},
        "`strategies.prioritized.vary.alfa` must be an option of prioritized "
        "(alpha, beta, epsilon, normalize, block_length, new_steps, stratified, replace); "
        "did you mean `alpha`?",
    ),
    (
        {"strategies__uniform__vary": {"alpha": [1]}},
        "`strategies.uniform.vary.alpha` must be an option of uniform (replace, stratified).",
    ),
    (
        {"strategies__prioritized__vary": {"alpha": []}},
        "`strategies.prioritized.vary.alpha` must be a list with at least one value, but got [].",
    ),
    (
        {"strategies__prioritized__vary": {"alpha": 0.5}},
        "`strategies.prioritized.vary.alpha` must be a list with at least one value, but got 0.5.",
    ),
    (
        {"strategies__prioritized__vary": [0.5]},
        "`strategies.prioritized.vary` must be a table of lists, such as { gamma = [0.9, 0.99] }, but got [0.5].",
    ),
    (
        {"strategies__prioritized__vary": {"alpha": [1, 0.5, 1.0]}},
        "`strategies.prioritized.vary.alpha` must list each value once, but 1 appears more than once.",
    ),
    (
        {"strategies__prioritized": {"type": "prioritized", "alpha": 1.0, "vary": {"alpha": [0.5]}}},
        "`strategies.prioritized.vary.alpha` must not be set in the table as well, but is 1.0 there; remove one of "
        "them.",
    ),
    (
        {"strategies__prioritized": VARIED | {"factors": {"alpha": 1}}},
        "`strategies.prioritized.factors` must not repeat a key of `vary`, but repeats 'alpha'; remove it.",
    ),
    (
        {"strategies__prioritized__factors": {"choice": ["td"]}},
        "`strategies.prioritized.factors` must be a table of numbers, strings and booleans, such as "
        "{ choice = \"td\" }, but got {'choice': ['td']}.",
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
        {"strategies__prioritized": VARIED, "baseline": "prioritized"},
        f"`baseline` must name one of the strategies ({', '.join(NAMES)}), but got 'prioritized', "
        f"a table that `vary` makes these of.",
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
        {"strategies__prioritized__learners": []},
        "`strategies.prioritized.learners` must be a list with at least one learner, but got [].",
    ),
    ({"learners__dqn__vary": {"gamma": [0.9, "high"]}}, None),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[str(c)[:60] for c, _ in MESSAGES])
def test_a_mistake_is_reported_with_its_key_and_its_fix(changes, message):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    assert message is None or str(caught.value) == f"my.toml: {message}"
