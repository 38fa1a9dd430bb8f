"""A study file: what is filled in, and every message word for word."""

from pathlib import Path

import pytest

from replaylab.errors import SpecError
from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.replay import Linear, Prioritized
from replaylab.study import Spec, Study
from replaylab.study.catalog import find, shipped
from replaylab.study.spec.components import STRATEGIES, build
from replaylab.study.spec.errors import MADE
from tests.study.tiny import table

EVALUATION = [one.key for one in IN_STUDIES.values() if one.table == "evaluation"]


def test_every_default_is_filled_in_and_survives_the_round_trip():
    spec = Spec.from_table(table())
    assert spec.strategies["prioritized"].options == {
        "alpha": 0.6,
        "beta": {"type": "linear", "start": 0.4, "end": 1.0, "until": 1.0, "steps": None},
        "epsilon": 1e-6,
        "normalize": "buffer",
        "block_length": 1,
        "new_steps": "largest_stored",
        "stratified": True,
        "replace": True,
    }
    assert spec.seeds == (0, 1, 2, 3)
    assert spec.runs == 8
    assert Spec.model_validate_json(spec.model_dump_json()) == spec
    assert build(spec.strategies["prioritized"], STRATEGIES) == Prioritized(beta=Linear(0.4, 1.0))


def test_a_spec_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Spec.from_table(table()).name = "other"


MESSAGES = [
    ({"strategies__uniform__transforms": 3}, "`strategies.uniform.transforms` must be a list, but got 3."),
    ({"strategies__uniform__budget": 5}, "`strategies.uniform.budget` must be a table, but got 5."),
    ({"learners__dqn__environments": []}, "`learners.dqn.environments` must have at least one entry, but got []."),
    ({"name": "n" * 61}, f"`name` must have at most 60 letters, but got '{'n' * 61}'."),
    (
        {"env_options": {"CartPole-v1": {"id": 3}}},
        "`env_options` must hold as `id` of 'CartPole-v1' a Gymnasium id, a text, but got {'CartPole-v1': {'id': 3}}.",
    ),
    ({"budget": {}}, "`budget` must hold either `steps` or `episodes`, but got {}."),
    (
        {"strategies__prioritized__budget": {"episodes": 3}},
        "`strategies.prioritized.budget` must be in steps, as `budget` is.",
    ),
    (
        {"strategies__prioritized__environments": ["Taxi-v4"]},
        "`environments` must list every environment referenced elsewhere in the file, but lacks 'Taxi-v4'.",
    ),
    (
        {"learners__dqn__environments": ["Taxi-v4"]},
        "`environments` must list every environment referenced elsewhere in the file, but lacks 'Taxi-v4'.",
    ),
    (
        {"learners__dqn__environments": "CartPole-v1"},
        "`learners.dqn.environments` must be a list, but got 'CartPole-v1'.",
    ),
    (
        {"strategies__prioritized__learner": {"gama": 0.5}},
        None,
    ),
    ({"strategies__prioritized__transforms": [{"type": "nstep"}]}, None),
    (
        {"seds": 3},
        "unknown key `seds`; did you mean `seeds`? Allowed here: name, title, question, environments, "
        "learners, strategies, env_options, seeds, chunk_size, "
        "baseline, budget, evaluation, logging, measures, watch, scores, equivalence, metrics, "
        "contrasts, "
        "answers, reference, core_minutes.",
    ),
    (
        {"evaluation__evry": 3},
        f"unknown key `evaluation.evry`; did you mean `every`? Allowed here: {', '.join(EVALUATION)}.",
    ),
    (
        {"strategies__prioritized__alfa": 3},
        "unknown key `strategies.prioritized.alfa`; did you mean `alpha`? Allowed here: alpha, beta, "
        "epsilon, "
        "normalize, block_length, new_steps, stratified, replace.",
    ),
    (
        {"strategies__x": {"type": "online", "zzz": 3}},
        "unknown key `strategies.x.zzz`. No options are allowed here.",
    ),
    (
        {"strategies__prioritized__beta": {"type": "linear", "stat": 1.0}},
        "unknown key `strategies.prioritized.beta.stat`; did you mean `start`? Allowed here: start, end, until, steps.",
    ),
    (
        {"strategies__prioritized__beta": {"type": "linear", "start": 1.0}},
        "`strategies.prioritized.beta` needs `end`.",
    ),
    (
        {"strategies__prioritized__beta": "fast"},
        "`strategies.prioritized.beta` must be a number or a schedule, such as "
        "{type = \"linear\", start = 0.4, end = 1.0}, but got 'fast'.",
    ),
    (
        {"strategies__prioritized__alpha": 3.0},
        "`strategies.prioritized`: `alpha` of Prioritized must be in [0, 1], but got 3.0",
    ),
    (
        {"strategies__uniform__type": "prioritised"},
        f"`strategies.uniform.type` must be one of {', '.join(STRATEGIES)}, "
        "but got 'prioritised'; did you mean `prioritized`?",
    ),
    (
        {"strategies__x": {"alpha": 1}},
        "`strategies.x` must be a table with a `type`, such as {type = \"uniform\"}, but got {'alpha': 1}.",
    ),
    (
        {"learners__dqn__gamma": "high"},
        "`learners.dqn.gamma` must be a number, but got 'high'.",
    ),
    ({"learners__dqn__batch_size": 1.5}, None),
    ({"learners__dqn__batch_size": True}, "`learners.dqn.batch_size` must be a whole number, but got True."),
    ({"learners__dqn__hidden": [True]}, "`learners.dqn.hidden.0` must be a whole number, but got True."),
    ({"learners__dqn__gamma": True}, "`learners.dqn.gamma` must be a number, but got True."),
    ({"learners__dqn__double": 1}, "`learners.dqn.double` must be true or false, but got 1."),
    ({"seeds": [True]}, None),
    ({"budget": {"steps": True}}, "`budget.steps` must be a whole number, but got True."),
    ({"seeds": 0}, "`seeds` must be a count of at least 1, or a list of seeds, but got 0."),
    ({"seeds": [3, 3]}, "`seeds` must list each entry once, but 3 appears more than once, but got [3, 3]."),
    ({"seeds": []}, "`seeds` must have at least one entry, but got []."),
    ({"environments": []}, "`environments` must have at least one entry, but got []."),
    ({"environments": "CartPole-v1"}, "`environments` must be a list, but got 'CartPole-v1'."),
    ({"budget__steps": 0}, "`budget.steps` must be at least 1, but got 0."),
    ({"budget": 5}, "`budget` must be a table, but got 5."),
    (
        {"baseline": "none"},
        "`baseline` must name one of the strategies (uniform, prioritized), but got 'none'.",
    ),
    (
        {"strategies__prioritized__budget": {"steps": 50}},
        "`evaluation.every` must be at most `strategies.prioritized.budget.steps` = 50, but got 100.",
    ),
    (
        {
            "learners__dqn__vary": {"gamma": [0.9, 0.99]},
            "strategies__prioritized__learner": {"gamma": 0.5},
        },
        "`strategies.prioritized.learner` must not set `gamma`, which `vary` of learners.dqn gives its values; choose "
        "one of them by the strategy's `learners`.",
    ),
    ({"budget__steps": 50}, "`evaluation.every` must be at most `budget.steps` = 50, but got 100."),
    (
        {"name": "a b"},
        "`name` must be made of letters, digits and _ . + -, and start with a letter or digit, but got 'a b'.",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[str(c) for c, _ in MESSAGES])
def test_a_wrong_value_names_file_key_rule_value_and_fix(changes, message):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    if message is not None:
        assert str(caught.value) == f"my.toml: {message}"


def test_a_missing_table():
    without = table()
    del without["budget"]
    with pytest.raises(SpecError) as caught:
        Spec.from_table(without, source="my.toml")
    assert str(caught.value) == (
        "my.toml: `budget` is missing. Add it: [budget] with steps = 50_000, or episodes = 300."
    )


def test_a_misspelt_key_is_not_also_missing():
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(evaluation={"evry": 100}), source="my.toml")
    assert str(caught.value) == (
        "my.toml: unknown key `evaluation.evry`; did you mean `every`? Allowed here: every, episodes, held_out, "
        "value_error."
    )


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"strategies__a b": {"type": "uniform", "factors": {"kind": 1}}}, "strategies.a b"),
        ({"learners__a b": {"type": "dqn", "vary": {"gamma": [0.9]}}}, "learners.a b.gamma-0.9"),
        ({"strategies__uniform__title": 3}, "strategies.uniform.title"),
        ({"learners__dqn__title": 3}, "learners.dqn.title"),
        ({"learners__dqn__environments": 3}, "learners.dqn.environments"),
        ({"strategies__uniform__budget": 3}, "strategies.uniform.budget"),
        ({"strategies__prioritized__vary": {"normalize": ["a\nb"]}}, "strategies.prioritized.vary.normalize"),
    ],
)
def test_a_message_names_the_key_of_the_file(changes, path):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    assert str(caught.value).startswith(f"my.toml: `{path}` must ")
    assert not any(f"`{key}" in str(caught.value) for key in (*MADE, "varied"))
    assert str(caught.value).count("\n") == 0


def test_a_schedule_without_a_type_gets_an_example():
    with pytest.raises(
        SpecError, match=r"`strategies.prioritized.beta` must have a `type`, such as \{type = \"linear\""
    ):
        Spec.from_table(table(strategies__prioritized__beta={"start": 0.4}))


def test_several_mistakes_are_reported_at_once():
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(seds=1, budget__steps=0), source="s")
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_are_no_study(tmp_path):
    with pytest.raises(SpecError, match=r"gone\.toml: cannot be read: No such file or directory\.$"):
        Spec.from_toml(tmp_path / "gone.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(SpecError, match=r"broken\.toml: is not valid TOML: Invalid value \(at end of document\)\.$"):
        Spec.from_toml(broken)


def test_shipped_studies_are_found_by_name_and_are_valid():
    assert "quick" in shipped()
    for name, file in shipped().items():
        assert Spec.from_toml(file).name == name
    assert find("quick") == shipped()["quick"]
    assert Study.from_toml("quick").folder == Path("results/quick")


def test_a_name_that_does_not_exist():
    with pytest.raises(SpecError) as caught:
        find("quik")
    assert str(caught.value).startswith(
        "There is no study file 'quik', and no shipped study of that name. Did you mean `quick`? Shipped: "
    )
    with pytest.raises(SpecError, match=r"no shipped study of that name\. Shipped: "):
        find("nothing")


def test_a_file_without_its_ending_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(SpecError, match=r"There is no study file 'mine', .* Did you mean `mine.toml`\?"):
        find("mine")


def test_quick_has_the_four_strategies_and_ten_paired_seeds():
    spec = Spec.from_toml(find("quick"))
    assert [p.type for p in spec.strategies.values()] == ["online", "uniform", "prioritized", "combined"]
    assert len(spec.seeds) >= 10
    assert spec.baseline == "uniform"


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("value", ["0", "{ uniform = { budget = { steps = 400 } } }"])
def test_what_only_a_records_file_has_is_no_key(made, value, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(f"{made} = {value}\n{find('quick').read_text()}")
    with pytest.raises(SpecError, match=f"`{made}`"):
        Spec.from_toml(file)


def test_overrides_that_are_no_table_are_refused():
    with pytest.raises(SpecError, match="overrides"):
        Spec.from_table(table() | {"overrides": 0})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 10**400}, "must be within a float's range"),
        ({"vary": {"gamma": [10**400, 0.99]}}, "must have at most 60 letters"),
    ],
)
def test_whole_numbers_beyond_floats_are_refused(options, said):
    learners = {"q": {"type": "q_learning", "batch_size": 4, **options}}
    with pytest.raises(SpecError, match=said):
        Spec.from_table(table(learners=learners))
