"""A setting is declared once: what is derived from its line."""

import json
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from replaylab.envs import BitFlipEnv, goal_functions
from replaylab.errors import ConfigError, SnapshotError, SpecError
from replaylab.learners import DQN, QLearning, TrainingConfig
from replaylab.learners.training.configuration import IN_STUDIES, REQUIRED, SETTINGS, Fitting, check_same_run
from replaylab.replay import FrameStack, Hindsight, NStep, Sequence, Uniform
from replaylab.study.plan import plan
from replaylab.study.spec.spec import Spec
from replaylab.study.spec.toml_model import EvaluationTable, LoggingTable, MeasuresTable

TABLES = {"evaluation": EvaluationTable, "logging": LoggingTable, "measures": MeasuresTable}
STUDY = {
    "name": "tiny",
    "environments": ["FrozenLake-v1"],
    "learners": {"table": {"type": "q_learning"}},
    "strategies": {"uniform": {"type": "uniform"}},
    "seeds": 2,
    "budget": {"steps": 100},
    "evaluation": {"every": 50},
}


def config(**changes):
    settings = {"env_id": "CartPole-v1", "learner": DQN(), "sampler": Uniform(), "total_steps": 100}
    return TrainingConfig(**settings | changes)


def test_it_is_frozen_and_every_setting_has_a_rule_and_a_meaning():
    with pytest.raises(FrozenInstanceError):
        config().log_every = 3
    attributes = TrainingConfig.__doc__.split("Attributes:")[1].split("Raises:")[0]
    for setting in fields(TrainingConfig):
        assert setting.name in SETTINGS
        assert f"\n        {setting.name}: " in attributes, setting.name


def test_study_files_have_every_setting_at_its_place():
    for name, setting in IN_STUDIES.items():
        field = TABLES[setting.table].model_fields[setting.key]
        assert field.is_required() == (setting.default is REQUIRED), name
        default = setting.default.most if isinstance(setting.default, Fitting) else setting.default
        assert default is REQUIRED or field.default == default
    assert sum(len(table.model_fields) for table in TABLES.values()) == len(IN_STUDIES)


@pytest.mark.parametrize("name", IN_STUDIES)
def test_a_setting_goes_from_the_file_to_the_loop(name):
    """Another value is what the configuration gets, and gives other ids."""
    place = IN_STUDIES[name]
    value = True if place.kind is bool else 7
    changed = STUDY | {place.table: STUDY.get(place.table, {}) | {place.key: value}}
    (before,), (after,) = (plan(Spec.from_table(table)) for table in (STUDY, changed))
    assert getattr(after.configuration(), name) == value != getattr(before.configuration(), name)
    assert before.id != after.id
    wrong = STUDY | {place.table: STUDY.get(place.table, {}) | {place.key: "x"}}
    with pytest.raises(SpecError, match=rf"`{place.table}\.{place.key}` must be"):
        Spec.from_table(wrong)


def test_every_setting_of_study_files_identifies_a_run():
    (population,) = plan(Spec.from_table(STUDY))
    assert population.identity.keys() >= {name for name, setting in IN_STUDIES.items() if not setting.later}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_steps": None}, "give either `total_steps` or `total_episodes`, but got None and None"),
        ({"total_episodes": 3}, "give either `total_steps` or `total_episodes`, but got 100 and 3"),
        ({"transforms": [NStep(3, 0.5)]}, "`gamma` of NStep must be the learner's, 0.99, but got 0.5"),
        ({"transforms": [FrameStack(2)]}, r"act on single ones; .* and give FrameStack\(2, stacked_input=True\)"),
        ({"learner": QLearning(), "transforms": [FrameStack()]}, r"give FrameStack\(4, stacked_input=True\)"),
        ({"transforms": [Sequence(80)]}, "leave Sequence out"),
        ({"autoreset_mode": "Nextstep"}, "`autoreset_mode` of TrainingConfig must be"),
        ({"eval_episodes": 0}, "`eval_episodes` of TrainingConfig must be at least 1, but got 0"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_made(changes, message):
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_what_only_watches_need_not_equal_a_checkpoints():
    same = {"eval_every": None, "held_out": 3, "log_every": 7, "visits": True, "trace_every": 5}
    assert config().learning_settings() == config(**same).learning_settings()
    for change in ({"total_steps": 101}, {"learner": QLearning()}, {"measure_every": 10}, {"env_options": {"n": 1}}):
        assert config().learning_settings() != config(**change).learning_settings()
    assert config().learning_settings()["make_replay"] is None
    assert config(make_replay=print).learning_settings()["make_replay"] == "builtins.print"


def test_a_moved_function_leaves_a_run_the_same(tmp_path: Path):
    current = config(transforms=[Hindsight(*goal_functions(BitFlipEnv()))]).learning_settings()
    saved = json.loads(json.dumps(current).replace("envs.goals.compute", "envs.goals.bit_flip.compute"))
    assert saved != current
    check_same_run(tmp_path, saved, current)
    with pytest.raises(SnapshotError):
        check_same_run(tmp_path, saved, config(transforms=[NStep(3, 0.99)]).learning_settings())
