"""Rules for single keys of a study file, each message word for word."""

from datetime import time

import pytest

from replaylab.errors import SpecError
from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study import Spec
from replaylab.study.spec.custom_components import CODE, TAKEN
from replaylab.study.spec.study_tables import StudyTables
from replaylab.study.spec.toml_model import LearnerTable, StrategyTable, StudyToml
from tests.study.tiny import table

EVALUATION = ", ".join(setting.key for setting in IN_STUDIES.values() if setting.table == "evaluation")
KEYS = (
    "name, title, question, environments, learners, strategies, env_options, seeds, chunk_size, baseline, budget, "
    "evaluation, logging, measures, watch, scores, equivalence, metrics, contrasts, answers, reference, core_minutes."
)
MESSAGES = [
    # Unknown keys, and fields that only the record of a study has.
    ({"seds": 3}, f"unknown key `seds`; did you mean `seeds`? Allowed here: {KEYS}"),
    ({"origins": 0}, f"unknown key `origins`; did you mean `logging`? Allowed here: {KEYS}"),
    ({"titles": {}}, f"unknown key `titles`; did you mean `title`? Allowed here: {KEYS}"),
    ({"evaluation__evry": 3}, f"unknown key `evaluation.evry`; did you mean `every`? Allowed here: {EVALUATION}."),
    # A misspelt key is not also missing.
    (
        {"evaluation": {"evry": 100}},
        f"unknown key `evaluation.evry`; did you mean `every`? Allowed here: {EVALUATION}.",
    ),
    ({"strategies__x": {"alpha": 1}}, '`strategies.x.type` is missing. Add it: type = "uniform", or another name.'),
    ({"strategies__x": 3}, "`strategies.x` must be a table, but got 3."),
    ({"strategies__uniform__type": 3}, "`strategies.uniform.type` must be a text, but got 3."),
    # Names and texts.
    (
        {"name": "a b"},
        "`name` must be made of letters, digits and _ . + -, and start with a letter or digit, but got 'a b'.",
    ),
    ({"name": "n" * 61}, f"`name` must have at most 60 letters, but got '{'n' * 61}'."),
    (
        {"learners__a b": {"type": "dqn", "vary": {"gamma": [0.9]}}},
        "`learners.a b` must be made of letters, digits and _ . + -, and start with a letter or digit, but got 'a b'.",
    ),
    ({"strategies__uniform__title": 3}, "`strategies.uniform.title` must be a text, but got 3."),
    # Lists.
    ({"environments": []}, "`environments` must have at least one entry, but got []."),
    ({"environments": "CartPole-v1"}, "`environments` must be a list, but got 'CartPole-v1'."),
    (
        {"environments": ["CartPole-v1"] * 2},
        "`environments` must list each entry once (CartPole-v1 appears more than once), but got "
        "['CartPole-v1', 'CartPole-v1'].",
    ),
    ({"seeds": 0}, "`seeds` must be a count of at least 1, or a list of seeds, but got 0."),
    ({"seeds": [3, 3]}, "`seeds` must list each entry once (3 appears more than once), but got [3, 3]."),
    ({"seeds": []}, "`seeds` must have at least one entry, but got []."),
    ({"seeds": [-1]}, "`seeds.0` must be at least 0, but got -1."),
    ({"seeds": [True]}, "`seeds.0` must be a whole number, but got True."),
    ({"seeds": 100_001}, "`seeds` must be at most 100,000 seeds, but got 100001."),
    ({"strategies__uniform__transforms": 3}, "`strategies.uniform.transforms` must be a list, but got 3."),
    ({"strategies__uniform__learners": []}, "`strategies.uniform.learners` must have at least one entry, but got []."),
    ({"learners__dqn__environments": []}, "`learners.dqn.environments` must have at least one entry, but got []."),
    ({"strategies__uniform__environments": 3}, "`strategies.uniform.environments` must be a list, but got 3."),
    # Environments.
    (
        {"env_options": {"CartPole-v1": {"id": 3}}},
        "`env_options.CartPole-v1` must hold as `id` a Gymnasium id, a text, but got {'id': 3}.",
    ),
    (
        {"env_options": {"CartPole-v1": {"at": [{"x": time(8)}]}}},
        "`env_options.CartPole-v1` must hold as `at` a number, text, list or table, not datetime.time(8, 0) (write it "
        "as a text), but got {'at': [{'x': datetime.time(8, 0)}]}.",
    ),
    # Budgets.
    ({"budget": 5}, "`budget` must be a table, but got 5."),
    ({"budget": {}}, "`budget` must hold either `steps` or `episodes`, but got {}."),
    ({"budget__steps": 0}, "`budget.steps` must be at least 1, but got 0."),
    ({"budget__steps": True}, "`budget.steps` must be a whole number, but got True."),
    ({"strategies__uniform__budget": 5}, "`strategies.uniform.budget` must be a table, but got 5."),
    # Grids and overrides.
    ({"learners__dqn__vary": [0.5]}, "`learners.dqn.vary` must be a table, but got [0.5]."),
    ({"learners__dqn__vary": {"gamma": 0.5}}, "`learners.dqn.vary.gamma` must be a list, but got 0.5."),
    ({"learners__dqn__vary": {"gamma": []}}, "`learners.dqn.vary.gamma` must have at least one entry, but got []."),
    (
        {"strategies__prioritized__vary": {"normalize": ["a\nb"]}},
        "`strategies.prioritized.vary.normalize.0` must be one line of letters that can be shown, without '\\n', "
        "but got 'a\\nb'.",
    ),
    (
        {"strategies__uniform__factors": {"choice": ["td"]}},
        "`strategies.uniform.factors.choice` must be a number, a text, true or false, but got ['td'].",
    ),
    (
        {"strategies__uniform__learner": {"type": "sarsa"}},
        "`strategies.uniform.learner` must change settings of the learners, not their type (declare another learner, "
        "and name it in the strategy's `learners`), but got {'type': 'sarsa'}.",
    ),
    # Contrasts.
    *(
        (
            {"contrasts": [{"name": "c", side: {"strategy": value}}]},
            f"`contrasts.0.{side}.strategy` must be a number, a text, true or false, or a list of these, but got "
            f"{value}.",
        )
        for side in ("more", "less", "within")
        for value in ({"is": "uniform"}, ["uniform", [1]])
    ),
    (
        {"contrasts": [{"name": "c", "more": {"strategy": ["a\nb"]}}]},
        "`contrasts.0.more.strategy` must be one line of letters that can be shown, without '\\n', but got ['a\\nb'].",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[str(c)[:60] for c, _ in MESSAGES])
def test_a_wrong_value_names_file_key_rule_value_and_fix(changes, message):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    assert str(caught.value) == f"my.toml: {message}"


@pytest.mark.parametrize(
    ("key", "example"),
    [
        ("budget", "[budget] with steps = 50_000, or episodes = 300"),
        ("evaluation", "[evaluation] with every = 1_000 (steps, or episodes with a budget in episodes)"),
    ],
)
def test_a_missing_table_has_an_example(key, example):
    without = table()
    del without[key]
    with pytest.raises(SpecError) as caught:
        Spec.from_table(without, source="my.toml")
    assert str(caught.value) == f"my.toml: `{key}` is missing. Add it: {example}."


def test_several_mistakes_are_reported_at_once():
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(seds=1, budget__steps=0, learners__dqn__vary=3), source="s")
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("key", sorted(StudyToml.model_fields.keys() - {"environments", "learners", "strategies"}))
def test_a_record_has_the_files_rules_and_defaults(key):
    """They are written twice, because a record has its fields in another order."""
    assert repr(StudyTables.model_fields[key]) == repr(StudyToml.model_fields[key])


def test_custom_components_have_no_field_named_as_a_key():
    assert {
        "learner": {*LearnerTable.model_fields, CODE},
        "sampler": {*StrategyTable.model_fields, CODE},
    } == TAKEN
